"""Several learners of one attempt: whose end decides, and what becomes of the others."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import LaunchDocument

Make = Callable[..., Learner]

WAIT = NAP + 'echo ready; until [ -e "$WORK/go" ]; do nap 0.01; done; '


def started(one: Learner) -> Learner:
    one.start()
    one.until_printed(b"ready\n")
    return one


def decision(attempt: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((attempt / "decision.json").read_text())
    return document


def test_the_first_to_end_decides_and_the_others_are_stopped_without_blame(
    learner: Make, attempt: Path, python: str
) -> None:
    first, second = (started(learner(WAIT, learners=2, settle_seconds=0.3, python=python)) for _ in range(2))
    began = time.monotonic()

    (first.work / "go").touch()
    ended, stopped = first.wait(), second.wait()

    assert time.monotonic() - began >= 0.3
    assert (ended["exit_code"], ended["decided"], ended["stopped"]) == (0, True, "")
    assert (stopped["signal"], stopped["decided"], stopped["stopped"]) == (signal.SIGTERM, False, "settle")
    assert stopped["reason"] == {"text": "stopped, since learner 1 has ended", "code": "", "hint": ""}
    assert {**decision(attempt), "time_us": 0} == {
        "learner": 1,
        "exit_code": 0,
        "signal": None,
        "time_us": 0,
        "failed": False,
    }


def test_others_may_end_by_themselves_while_they_settle(learner: Make) -> None:
    first, second = (started(learner(WAIT, learners=2, settle_seconds=60)) for _ in range(2))

    (first.work / "go").touch()
    first.wait()
    (second.work / "go").touch()

    state = second.wait()
    assert (state["exit_code"], state["stopped"], state["decided"]) == (0, "", False)


def test_the_first_failure_stops_the_others_at_once(learner: Make, attempt: Path) -> None:
    first = started(learner(WAIT, learners=2, settle_seconds=60, ends_when="all"))
    second = started(learner(WAIT + "exit 5", learners=2, settle_seconds=60, ends_when="all"))

    (second.work / "go").touch()
    failed, stopped = second.wait(), first.wait()

    assert (failed["exit_code"], failed["decided"]) == (5, True)
    assert (stopped["stopped"], stopped["decided"]) == ("settle", False)
    assert stopped["reason"]["text"] == "stopped, since learner 2 has failed"
    assert (decision(attempt)["learner"], decision(attempt)["failed"]) == (2, True)


@pytest.mark.parametrize(("ends_when", "needed"), [("all", 3), (2, 2), (9, 3)])
def test_so_many_have_to_end_as_the_job_says(
    learner: Make, attempt: Path, ends_when: object, needed: int
) -> None:
    three = [started(learner(WAIT, learners=3, settle_seconds=0.1, ends_when=ends_when)) for _ in range(3)]

    for one in three[: needed - 1]:
        (one.work / "go").touch()
        assert one.wait()["decided"] is False
    assert not (attempt / "decision.json").exists()
    (three[needed - 1].work / "go").touch()

    assert three[needed - 1].wait()["decided"] is True
    assert decision(attempt)["learner"] == needed
    assert [one.wait()["stopped"] for one in three[needed:]] == ["settle"] * (3 - needed)


def test_a_learner_that_is_halted_decides_nothing(learner: Make, attempt: Path) -> None:
    first, second = (started(learner(WAIT, learners=2)) for _ in range(2))

    first.stop()
    first.wait()

    assert not (attempt / "decision.json").exists()
    (second.work / "go").touch()
    assert second.wait()["decided"] is True


def test_a_learner_over_its_limit_decides_as_a_failure(learner: Make, attempt: Path) -> None:
    first = started(learner(WAIT, learners=2, settle_seconds=60))
    second = learner("sleep 60", learners=2, max_runtime_seconds=0.1)

    assert second.run()["decided"] is True

    assert first.wait()["stopped"] == "settle"
    assert decision(attempt)["failed"] is True


def test_a_learner_that_starts_after_a_failure_starts_nothing(learner: Make, attempt: Path) -> None:
    failed = learner("exit 3", learners=2)
    late = learner('touch "$WORK/ran"', learners=2)
    failed.run()

    state = late.run()

    assert (state["stopped"], state["started_us"]) == ("settle", None)
    assert not (late.work / "ran").exists()


def test_a_learner_whose_guard_is_killed_stops_the_others(learner: Make, attempt: Path) -> None:
    first, second = (started(learner(WAIT, learners=2, grace_seconds=1.0)) for _ in range(2))
    assert first.process is not None

    first.process.kill()

    assert second.wait()["stopped"] == "settle"
    until(lambda: first.state()["phase"] == "exited")
    assert (first.state()["decided"], decision(attempt)["failed"]) == (True, True)


def _decide(folder: str, number: int) -> bool:
    launch = LaunchDocument({"learner": number, "learners": 8, "attempt_dir": folder})
    return state.decide(launch, number, None, failed=False)


def test_of_many_at_once_exactly_one_decides(attempt: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        won = pool.starmap(_decide, [(str(attempt), number) for number in range(1, 9)])

    assert sum(won) == 1
    assert decision(attempt)["exit_code"] == won.index(True) + 1
    assert [path.name for path in attempt.iterdir()] == ["decision.json"]


def test_deciding_twice_gives_the_same_answer(attempt: Path) -> None:
    assert _decide(str(attempt), 3)
    assert _decide(str(attempt), 3)
    assert not _decide(str(attempt), 4)


def test_a_learner_without_others_decides_though_its_decision_was_lost_with_the_power(attempt: Path) -> None:
    attempt.mkdir(exist_ok=True)
    (attempt / "decision.json").write_bytes(b"")
    launch = LaunchDocument({"learner": 1, "learners": 1, "attempt_dir": str(attempt)})

    assert state.decide(launch, 0, None, failed=False)
