"""Two homes that share one machine's GPUs have one order: nobody is starved, the larger priority goes first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.stubs import Gpus, pretend
from tests.support.controllers import log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.job import State
from workbench.learner.platform import leases
from workbench.learner.queue.entries import read_entries
from workbench.paths import leases_folder

GPUS = ("GPU-1", "GPU-2", "GPU-3", "GPU-4")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch, GPUS)


def hold(file: Path) -> str:
    return f"{NAP}echo ready; while [ ! -e {file} ]; do nap 0.05; done"


def lined_up() -> set[str]:
    return {entry.job for entry in read_entries(str(leases_folder()))}


def started_us(ground: Ground, job_id: str) -> int:
    return ground.row(job_id).started_us or 0


def test_a_sweep_of_small_jobs_does_not_starve_a_large_one_of_another_home(
    grounds: tuple[Ground, Ground], tmp_path: Path
) -> None:
    mine, theirs = grounds
    ends = [tmp_path / "end-1", tmp_path / "end-2"]
    first = [mine.submit(hold(end), gpus=2) for end in ends]
    for job_id in first:
        mine.prints(job_id, "ready")
    large = theirs.submit("true", gpus=4)
    until(lambda: large in lined_up(), lambda: str(theirs.row(large)))
    rest = [mine.submit("true", gpus=2) for _ in range(4)]
    until(lambda: set(rest) <= lined_up(), lambda: str(mine.row(rest[0])))

    ends[0].touch()
    mine.ends(first[0])

    def stands() -> bool:
        row = mine.row(rest[0])
        return row.state is State.QUEUED and row.reason.text.startswith(
            "waits: needs 2 GPUs, 2 free; 2nd of 5, behind "
        )

    until(stands, lambda: str(mine.row(rest[0])))
    ends[1].touch()

    theirs.ends(large)
    for job_id in rest:
        mine.ends(job_id)
    story = f"{large}\n{log_of(theirs.home)}\n{rest}\n{log_of(mine.home)}"
    assert started_us(theirs, large) < min(started_us(mine, job_id) for job_id in rest), story
    assert lined_up() == set()


def test_who_waits_for_another_home_reads_by_when_enough_is_free(
    grounds: tuple[Ground, Ground], tmp_path: Path
) -> None:
    mine, theirs = grounds
    end = tmp_path / "end"
    first = mine.submit(hold(end), gpus=4, max_runtime_seconds=3600)
    mine.prints(first, "ready")
    large = theirs.submit("true", gpus=4)
    until(lambda: large in lined_up(), lambda: str(theirs.row(large)))
    small = mine.submit("true", gpus=2)

    def reads(ground: Ground, job_id: str, pattern: str) -> None:
        until(lambda: re.search(pattern, ground.row(job_id).reason.text), lambda: str(ground.row(job_id)))

    reads(
        theirs,
        large,
        r"GPU 3 .*; enough is free by about \d\d:\d\d$|, 0 free; enough is free by about .*; 1st of 2",
    )
    reads(mine, small, r"needs 2 GPUs, 0 free; the next is free by about [-\d :]+; 2nd of 2")
    end.touch()
    theirs.ends(large)
    mine.ends(small)


def test_the_larger_priority_of_another_home_goes_first(
    grounds: tuple[Ground, Ground], tmp_path: Path
) -> None:
    mine, theirs = grounds
    end = tmp_path / "end"
    first = mine.submit(hold(end), gpus=4)
    mine.prints(first, "ready")
    rest = [mine.submit("true", gpus=4) for _ in range(3)]
    until(lambda: set(rest) <= lined_up(), lambda: str(mine.row(rest[0])))
    urgent = theirs.submit("true", gpus=4, priority=60)
    until(lambda: urgent in lined_up(), lambda: str(theirs.row(urgent)))
    end.touch()

    for job_id in rest:
        mine.ends(job_id)

    assert started_us(theirs, urgent) < min(started_us(mine, job_id) for job_id in rest)


def test_in_one_home_the_larger_priority_goes_first(grounds: tuple[Ground, Ground], tmp_path: Path) -> None:
    mine, _ = grounds
    end = tmp_path / "end"
    first = mine.submit(hold(end), gpus=4)
    mine.prints(first, "ready")
    low, high = mine.submit("true", gpus=4, priority=0), mine.submit("true", gpus=4, priority=100)
    until(lambda: {low, high} <= lined_up(), lambda: str(mine.row(high)))
    end.touch()

    mine.ends(low)

    assert started_us(mine, high) < started_us(mine, low)


def test_a_job_that_is_halted_while_it_waits_holds_nobody_up(
    grounds: tuple[Ground, Ground], tmp_path: Path
) -> None:
    mine, theirs = grounds
    end = tmp_path / "end"
    first = mine.submit(hold(end), gpus=2)
    mine.prints(first, "ready")
    large = theirs.submit("true", gpus=4)
    until(lambda: large in lined_up(), lambda: str(theirs.row(large)))
    small = mine.submit("true", gpus=2)

    theirs.ask(large, "halt")

    theirs.ends(large)
    mine.ends(small)
    end.touch()
    mine.ends(first)


def test_a_fabric_that_knows_no_queue_works_on_the_same_host(grounds: tuple[Ground, Ground]) -> None:
    """Its leases are respected, and ours are what it knows: the same files, lock and text."""
    mine, _ = grounds
    older = leases.take(GPUS, str(leases_folder()), '{"owner": "anna@box", "job": "training-old", "pid": 7}')
    assert older is not None
    job_id = mine.submit(hold(mine.home.path / "end"), gpus=3)
    until(lambda: "training-old" in mine.row(job_id).reason.text, lambda: str(mine.row(job_id)))
    until(lambda: lined_up() == {job_id})

    again = older.part(["GPU-4"])
    older.release()
    mine.prints(job_id, "ready")

    assert leases.take(["GPU-1"], str(leases_folder()), "{}") is None
    text = json.loads((leases_folder() / "GPU-1").read_text())
    of_later_versions = {"preemption", "preemption_seconds", "priority"}
    assert set(text) == {"owner", "job", "attempt", "home", "pid"} | of_later_versions
    again.release()
    (mine.home.path / "end").touch()
    mine.ends(job_id)
