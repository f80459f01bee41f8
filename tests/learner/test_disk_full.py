"""A full disk: the command waits, the state says why, and with room again everything is there byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill
from tests.support.disks import FILES, fill, fill_files, small_disk
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.host.learners import LearnerObserver
from workbench.learner.host.learners import learner as facts_of
from workbench.learner.journal.state import StateFile, ask_to_stop, keep_spares, read, read_stop, unwritten

Make = Callable[..., Learner]

METRICS = {
    "type": "regex_extractor",
    "groups": {"g": {"regex": "n=%{INT:n}", "scalars": {"n": {"type": "INT", "value": "$n"}}}},
}

PRINT = 'import os\nfor n in range({count}): os.write(1, b"n=%d {rest}\\n" % n)\n'


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root: a full disk is not tested")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here: a full disk is not tested")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def attempt(small: Path) -> Path:
    folder = small / "attempt-1"
    folder.mkdir()
    return folder


def grown(small: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(small)], check=True)


def learner_facts(one: Learner) -> dict[str, Any]:
    """Return what a host reports of it."""
    return facts_of(str(one.folder))


def stalled(one: Learner) -> dict[str, Any]:
    return until(lambda: one.state() if one.state().get("stall") else {})


@pytest.fixture
def printing(learner: Callable[..., Learner], tmp_path: Path) -> Callable[..., Learner]:
    """Make a learner that prints so many lines."""

    def make(count: int, **document: Any) -> Learner:
        script = tmp_path / "print.py"
        script.write_text(PRINT.format(count=count, rest="x" * 90))
        return learner(f'"$PYTHON" {script}; echo end', **document)

    return make


def test_output_waits_for_room_and_is_complete(printing: Make, small: Path, python: str) -> None:
    one = printing(40_000, metrics=METRICS, python=python)
    one.start()

    state = stalled(one)
    assert state["phase"] == "running" and "disk is full" in state["stall"]
    for line in (one.folder / "records.jsonl").read_bytes().splitlines(keepends=True):
        json.loads(line)
        assert line.endswith(b"\n")
    grown(small, "40m")
    state = one.wait()

    assert (state["exit_code"], state["stall"]) == (0, "")
    assert one.output() == b"".join(b"n=%d %s\n" % (n, b"x" * 90) for n in range(40_000)) + b"end\n"
    values = [value for record in one.records("metrics") for value in record["values"]["n"]]
    assert values == list(range(40_000))
    assert one.left() == []


def test_agents_that_are_killed_on_a_full_disk_lose_nothing(
    printing: Make, small: Path, tmp_path: Path
) -> None:
    one = printing(40_000, metrics=METRICS)
    one.start()
    stalled(one)

    for _ in range(3):
        pid = one.scribe()
        kill(pid)
        until(lambda pid=pid: one.scribe() != pid)  # type: ignore[misc] # bound at once
        stalled(one)
    grown(small, "40m")
    one.wait()

    assert one.output() == b"".join(b"n=%d %s\n" % (n, b"x" * 90) for n in range(40_000)) + b"end\n"
    values = [value for record in one.records("metrics") for value in record["values"]["n"]]
    assert values == list(range(40_000))


def test_an_end_that_a_full_disk_does_not_take_is_tried_now_and_then(
    learner: Make, small: Path, tmp_path: Path
) -> None:
    one = learner(f"head -c 2000000 /dev/zero > {small}/filling; exit 3")
    one.work = tmp_path  # where there is room to note how it waits
    one.start_noting_waits()
    until(lambda: (small / "filling").exists() and not one.left())
    before = len(one.waits())

    def rests() -> int:
        return sum(is_over and seconds > 0.1 for seconds, is_over in one.waits()[before:])

    until(lambda: rests() >= 3, lambda: f"it to rest between two tries: {one.waits()}")

    assert len(one.waits()) - before < 10 * rests()
    assert one.state()["phase"] != "exited"
    (small / "filling").unlink()
    assert one.wait()["exit_code"] == 3


def test_a_halt_keeps_what_was_printed_until_there_is_room(
    printing: Make, small: Path, tmp_path: Path
) -> None:
    one = printing(40_000)
    one.start()
    stalled(one)

    one.stop("halt", grace_seconds=1)
    until(lambda: one.state()["signal"])
    assert one.state()["phase"] == "stopping"
    grown(small, "40m")
    state = one.wait()

    output = one.output()
    assert state["stopped"] == "halt"
    whole = b"".join(b"n=%d %s\n" % (n, b"x" * 90) for n in range(40_000))
    assert whole.startswith(output) and len(output) > 1_000_000


def test_a_kill_does_not_wait_for_room_and_says_what_was_lost(
    printing: Make, small: Path, tmp_path: Path
) -> None:
    one = printing(40_000)
    one.start()
    stalled(one)

    one.stop("kill")
    state = one.wait()

    assert (state["stopped"], state["reason"]["code"]) == ("kill", "S204")
    assert "bytes of output could not be kept" in state["reason"]["text"]
    assert b"".join(b"n=%d %s\n" % (n, b"x" * 90) for n in range(40_000)).startswith(one.output())


def test_a_disk_that_is_full_from_the_start_starts_nothing_unrecorded(
    printing: Make, small: Path, tmp_path: Path
) -> None:
    one = printing(100)
    one.rewrite(command=f"touch {tmp_path}/ran; " + one.launch["command"])
    fill(small)
    one.start()

    why = until(lambda: learner_facts(one)["stall"])
    assert why == "the disk is full: the command starts once there is room" == unwritten(str(one.folder))
    assert (learner_facts(one)["alive"], learner_facts(one)["state"]) == (True, None)
    assert not (tmp_path / "ran").exists()
    (small / "filling").unlink()
    state = one.wait()

    assert state["exit_code"] == 0
    assert (tmp_path / "ran").exists()
    assert one.output().endswith(b"end\n")
    assert unwritten(str(one.folder)) == "" == learner_facts(one)["stall"]
    assert sorted(one.folder.glob("state.json*")) == [one.folder / "state.json"]


def test_whoever_observes_hears_why_a_learner_has_no_state_and_when_it_has_one(
    printing: Make, small: Path
) -> None:
    one = printing(100)
    fill(small)
    observer = LearnerObserver()
    found: list[dict[str, Any]] = [learner_facts(one)]

    def next_facts() -> dict[str, Any]:
        folder = str(one.folder)
        answer = observer.observe({folder: found[-1]["fingerprint"]}, 20.0)["learners"]
        found.append(answer[folder])
        return found[-1]

    one.start()
    until(lambda: next_facts()["stall"])
    (small / "filling").unlink()
    until(lambda: next_facts()["state"])

    one.wait()
    observer.close()
    assert found[-1]["stall"] == ""


def test_a_script_that_needs_a_file_waits_for_room(learner: Make, small: Path) -> None:
    one = learner("echo begins\n" + "# as long as no argument may be\n" * 8_000)
    fill(small, leave=160 << 10)

    one.start()
    assert stalled(one)["stall"] == "the disk is full: the command starts once there is room"
    (small / "filling").unlink()

    assert (one.wait()["exit_code"], one.state()["stall"], one.output()) == (0, "", b"begins\n")


def test_a_script_that_waits_for_room_can_be_halted(learner: Make, small: Path) -> None:
    one = learner("echo begins\n" + "# as long as no argument may be\n" * 8_000)
    fill(small, leave=160 << 10)
    one.start()
    stalled(one)

    one.stop("halt", grace_seconds=1)
    state = one.wait()

    assert (state["stopped"], state["exit_code"], one.output()) == ("halt", None, b"")


def test_state_is_written_on_a_full_disk_though_others_take_every_block_that_is_freed(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_and_fill(*paths: str) -> None:
        rename(*paths)
        fill(small)

    file = StateFile(str(small), {"format": 1})
    assert file.write(durable=True)
    fill(small)
    monkeypatch.setattr(os, "rename", rename_and_fill)

    for number in range(5):
        assert file.update(exit_code=number)
        assert read(str(small))["exit_code"] == number

    file.clear()
    assert sorted(path.name for path in small.iterdir()) == ["filling", "state.json"]


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Path]:
    """The folder of an attempt on a disk with room for few files."""
    with small_disk(tmp_path / "few", options=FILES) as folder:
        (folder / "attempt-1").mkdir()
        yield folder / "attempt-1"


@pytest.fixture
def on_few(few: Path) -> Iterator[Callable[..., Learner]]:
    """Make learners there; their own folders for work lie elsewhere."""
    made: list[Learner] = []

    def make(command: str, **document: Any) -> Learner:
        made.append(Learner(few, command, learner=len(made) + 1, **document))
        return made[-1]

    yield make
    left = {one.marker: one.clear() for one in made}
    assert not any(left.values()), left


def keeps_spares(one: Learner) -> bool:
    return (one.folder / "decision.json.spare").exists()


def test_requests_to_stop_are_written_without_inodes(few: Path) -> None:
    keep_spares(str(few))
    fill_files(few.parent)

    for kind in ("halt", "kill", "halt", "kill"):
        ask_to_stop(str(few), {"kind": kind, "grace_seconds": 3.0, "by": "me"})
        assert read_stop(str(few)) == {"kind": kind, "grace_seconds": 3.0, "by": "me"}


def test_a_state_is_written_though_others_take_each_inode_that_becomes_free(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StateFile(str(few), {"phase": "starting"})
    assert file.update(phase="running")
    fill_files(few.parent)
    rename = os.rename

    def rename_and_lose(source: str, target: str) -> None:
        rename(source, target)
        fill_files(few.parent)

    monkeypatch.setattr(os, "rename", rename_and_lose)

    for number in range(4):
        assert file.update(doing=f"step {number}")
        assert read(str(few))["doing"] == f"step {number}"


def test_a_request_that_nothing_can_take_names_its_file(few: Path) -> None:
    fill_files(few.parent)

    with pytest.raises(OSError, match="No space left on device") as caught:
        ask_to_stop(str(few), {"kind": "halt"})

    assert caught.value.filename == str(few / "stop.json")
    assert read_stop(str(few)) == {}


@pytest.mark.parametrize(("kind", "code"), [("halt", 7), ("kill", None)])
def test_a_learner_is_stopped_without_inodes(on_few: Make, few: Path, kind: str, code: int | None) -> None:
    one = on_few(NAP + 'trap "exit 7" TERM; echo ready; while :; do nap 0.02; done')
    one.start()
    one.until_printed(b"ready")
    until(lambda: keeps_spares(one))
    fill_files(few.parent)

    one.stop(kind)
    state = one.wait()

    assert (state["stopped"], state["exit_code"]) == (kind, code)
    assert sorted(one.folder.glob("*.json.*")) == []


def test_a_request_to_a_learner_that_has_just_ended_leaves_no_spare_file(few: Path) -> None:
    (few / "state.json").write_text('{"phase": "exited"}')
    keep_spares(str(few))
    fill_files(few.parent)

    ask_to_stop(str(few), {"kind": "halt"})

    assert read_stop(str(few)) == {"kind": "halt"}
    assert not (few / "stop.json.spare").exists()


def test_a_halt_without_inodes_can_become_a_kill(on_few: Make, few: Path) -> None:
    one = on_few(NAP + "trap : TERM; echo ready; while :; do nap 0.02; done", grace_seconds=600.0)
    one.start()
    one.until_printed(b"ready")
    until(lambda: keeps_spares(one))
    fill_files(few.parent)

    one.stop("halt")
    one.until_phase("stopping")
    one.stop("kill")

    assert one.wait()["stopped"] == "kill"


def test_learners_end_by_themselves_and_decide_without_inodes(
    on_few: Make, few: Path, tmp_path: Path
) -> None:
    wait = f"{NAP}echo ready; until [ -e {tmp_path}/go ]; do nap 0.02; done"
    first, second = (on_few(wait, learners=2, ends_when="all") for _ in range(2))
    for one in (first, second):
        one.start()
        one.until_printed(b"ready")
        until(lambda one=one: keeps_spares(one))  # type: ignore[misc] # bound at once
    fill_files(few.parent)
    (tmp_path / "go").touch()

    states = [one.wait() for one in (first, second)]

    assert [state["exit_code"] for state in states] == [0, 0]
    assert sorted(state["decided"] for state in states) == [False, True]
