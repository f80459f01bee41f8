"""What a host says of its learners: each change once, and of many only those are read that have changed."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import until
from workbench.learner.host import learners
from workbench.learner.host.learners import LearnerObserver

MANY = 40


class Learners:
    """Folders of learners that run: their locks are held here."""

    def __init__(self, root: Path, count: int) -> None:
        self.folders = [str(root / f"learner-{number}") for number in range(count)]
        self.locks: dict[str, int] = {}
        for folder in self.folders:
            Path(folder).mkdir()
            self.locks[folder] = os.open(f"{folder}/agent.lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self.locks[folder], fcntl.LOCK_EX)
            self.write(folder, '{"phase": "running"}')
        self.observer = LearnerObserver()
        self.known = dict.fromkeys(self.folders, "")

    def write(self, folder: str, text: str) -> None:
        """Replace a state, as agents do."""
        new = Path(folder, "new")
        new.write_text(text)
        new.replace(f"{folder}/state.json")

    def end(self, folder: str) -> None:
        """Let a lock go, as the death of its agent does."""
        os.close(self.locks.pop(folder))

    def observe(self, seconds: float = 10.0) -> Mapping[str, Mapping[str, Any]]:
        """Ask what has changed since the last answer."""
        found: Mapping[str, Mapping[str, Any]] = self.observer.observe(self.known, seconds)["learners"]
        self.known |= {folder: str(one["fingerprint"]) for folder, one in found.items()}
        return found

    def close(self) -> None:
        """Give all back."""
        self.observer.close()
        for lock in self.locks.values():
            os.close(lock)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Learners]:
    made = Learners(tmp_path, MANY)
    assert made.observe().keys() == set(made.folders)
    yield made
    made.close()


@pytest.fixture
def reads(running: Learners, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read from now on, in which no lock is looked up without a change."""
    found: list[str] = []
    read_status = learners._read_status

    def read(folder: str, listed: set[str] | None = None) -> dict[str, Any]:
        found.append(folder)
        return read_status(folder, listed)

    monkeypatch.setattr(learners, "_read_status", read)
    monkeypatch.setattr(learners, "READ_ALL_SECONDS", 600.0)
    running.observer._read_all_at = float("inf")
    return found


def test_of_many_only_those_that_have_changed_are_read(running: Learners, reads: list[str]) -> None:
    # A lock that the kernel's list leaves out, while others come and go, would have its learner read.
    running.observer._locks_at = float("inf")

    for folder in running.folders[:3]:
        running.write(folder, '{"phase": "storing"}')
        assert list(running.observe()) == [folder]

    assert set(reads) == set(running.folders[:3])
    assert running.observe(0.0) == {}


def test_a_caller_that_lost_an_answer_gets_it_again(running: Learners, reads: list[str]) -> None:
    folder = running.folders[0]
    running.write(folder, '{"phase": "storing"}')
    before = dict(running.known)
    answers = []
    for _ in range(2):
        running.known = dict(before)
        answers.append(running.observe()[folder])

    assert answers[0] == answers[1]


def test_an_answer_is_gone_on_from_with_the_difference_alone(running: Learners, reads: list[str]) -> None:
    first, second, third = running.folders[:3]
    answer = running.observer.observe(running.known, 0.0)
    for folder in (first, second):
        running.write(folder, '{"phase": "storing"}')

    answer = running.observer.observe({third: ""}, 0.0, after=answer["answer"], gone=[second])

    assert answer["learners"].keys() == {first, third}
    assert running.observer.observe({}, 0.0, after=answer["answer"])["learners"] == {}
    assert set(reads) == {first, third}


def test_a_difference_to_an_answer_that_is_not_the_last_one_is_refused_and_uses_nothing_up(
    running: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = running.folders[0]
    answers = [running.observer.observe(running.known, 0.0)["answer"] for _ in range(2)]
    running.write(folder, '{"phase": "storing"}')
    running.observer.interrupt()

    refused = running.observer.observe({}, 600.0, after=answers[0])

    assert refused == {"mismatch": True}
    assert list(running.observe(600.0)) == [folder]
    with monkeypatch.context() as patch, pytest.raises(OSError, match="not now"):
        patch.setattr(learners.LearnerObserver, "_changed", lambda *_: _fail())
        running.observer.observe(running.known, 0.0)
    assert running.observer.observe({}, 600.0, after=answers[1]) == {"mismatch": True}


def _fail() -> None:
    raise OSError("not now")


def test_a_change_is_not_lost_where_another_learner_cannot_be_read(
    running: Learners, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, unreadable = running.folders[-1], running.folders[0]
    running.write(changed, '{"phase": "storing"}')
    running.known[unreadable] = ""
    learner = learners.learner

    def fail(folder: str, listed: set[str] | None = None) -> dict[str, Any]:
        if folder == unreadable:
            raise OSError("its mount has ended")
        return learner(folder, listed)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="its mount has ended"):
        patch.setattr(learners, "learner", fail)
        running.observe()

    assert running.observe().keys() == {changed, unreadable}


def test_an_agent_that_dies_is_noticed_while_others_change_all_the_time(
    running: Learners, reads: list[str]
) -> None:
    dead, busy = running.folders[:2]
    running.end(dead)
    counts = itertools.count()

    def seen() -> Mapping[str, Any]:
        running.write(busy, f'{{"phase": "running", "count": {next(counts)}}}')
        return running.observe().get(dead, {})

    assert until(seen, "the one that has died to be reported")["alive"] is False


def test_an_end_is_reported_with_its_lock_before_and_after_the_agent_lets_go(
    running: Learners, reads: list[str]
) -> None:
    folder = running.folders[0]
    running.write(folder, '{"phase": "exited", "exit_code": 0}')
    first = running.observe()[folder]
    running.end(folder)
    second = running.observe()[folder]

    assert [first["alive"], second["alive"]] == [True, False]


def test_all_are_read_once_in_a_while_though_nothing_is_reported(
    running: Learners, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = running.folders[0]
    running.write(folder, '{"phase": "storing"}')
    running.observer._wait(0.0)  # a report that does not come
    running.observer._read_all_at = 0.0

    assert list(running.observe()) == [folder]
