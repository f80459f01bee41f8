"""What a learner's agent did to its files, cut after each operation and in each write: who reads it finds it whole.

A process that was killed leaves all that it did; a machine that lost its power leaves what was synchronised, for which
less is promised: what is read is something that was written.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.learner.collecting import points_of
from tests.learner.crash_points.cases import METRICS, SECRET
from tests.learner.crash_points.replay import (
    Operation,
    left_by_kill,
    left_by_power_loss,
    recorded,
    written,
)
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.journal.output import ENTRY, HEADER
from workbench.learner.journal.tail import FileTail
from workbench.learner.platform import system
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.pump import Pump
from workbench.learner.scribe.transcriber import Transcriber

EVERY: Final = 11
"""A write is cut after each so many of its bytes."""

PRINTED: Final = tuple(
    b"loss=%d.5 step=%d\nthe secret is %s, said %d\n" % (step, step, SECRET.encode(), step)
    for step in range(1, 4)
)
WHOLE: Final = b"".join(PRINTED).replace(SECRET.encode(), b"*" * len(SECRET))


def document(**more: Any) -> dict[str, Any]:
    return {"home": "home", "job": "training-a", "attempt": 1, "learner": 1, "learners": 1, **more}


def cuts(operations: list[Operation], every: int) -> list[list[Operation]]:
    """Return the operations up to each of them, and with a part of it where it is a write that may be cut."""
    found = []
    for number, operation in enumerate(operations):
        found.append(operations[:number])
        if not is_mask(operation):
            found += [
                [*operations[:number], replace(operation, data=operation.data[:count])]
                for count in range(1, len(operation.data), every)
            ]
    return [*found, operations]


def is_mask(operation: Operation) -> bool:
    """Say whether bytes are overwritten, which is whole on each page of a file: a signal is seen between pages."""
    return operation.name == "write" and set(operation.data) == {ord("*")}


# States and decisions


def state_operations(folder: Path) -> list[Operation]:
    """Write the states of a learner from its start to its end."""
    folder.mkdir()
    file = state.StateFile.begin(str(folder), LaunchDocument(document()))
    with recorded(folder) as operations:
        file.write(durable=False)
        file.update(phase="running", command_pid=17)
        file.update(phase="stopping", exit_code=3)
        file.document.update(phase="exited")
        file.write(durable=True)
        file.clear()
    return operations


def phase_of(files: dict[str, bytes]) -> str:
    """Return the phase of the state among files; "none" where there is no file, and "" for one that cannot be read."""
    if "state.json" not in files:
        return "none"
    try:
        return str(json.loads(files["state.json"])["phase"])
    except ValueError:
        return ""


PHASES: Final = ("none", "starting", "running", "stopping", "exited")


def test_a_state_is_whole_wherever_its_writer_is_killed_and_does_not_go_back(tmp_path: Path) -> None:
    operations = state_operations(tmp_path / "learner")

    phases = [phase_of(left_by_kill(cut)) for cut in cuts(operations, 1)]

    assert list(dict.fromkeys(phases)) == list(PHASES)
    assert [PHASES.index(phase) for phase in phases] == sorted(map(PHASES.index, phases))
    assert list(left_by_kill(operations)) == ["state.json"]


def check_end(operations: list[Operation]) -> None:
    """An end that has its name is whole, and every phase may be found, too, or a state that was lost."""
    named = max(number for number, each in enumerate(operations) if each.other == "state.json")
    phases = set()
    for cut in cuts(operations, EVERY):
        for files in left_by_power_loss(cut):
            phases.add(phase_of(files))
            if len(cut) > named and "state.json.new" not in files:
                assert phase_of(files) == "exited", files
    assert phases == {"", *PHASES}


def test_an_end_is_recorded_whole_or_not_at_all_though_the_power_is_lost(tmp_path: Path) -> None:
    """A state that is no end may be lost, and the name of the last one: who finds an empty one starts nothing."""
    check_end(state_operations(tmp_path / "learner"))


def test_an_end_that_is_not_synchronised_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = state._write_file
    monkeypatch.setattr(state, "_write_file", lambda path, data, _, flags: write(path, data, False, flags))

    with pytest.raises(AssertionError):
        check_end(state_operations(tmp_path / "learner"))


def test_a_decision_is_whole_or_not_made_though_the_power_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    (folder / "learner-1").mkdir(parents=True)
    launch = LaunchDocument(document(attempt_dir=str(folder), learners=2))
    with recorded(folder) as operations:
        assert state.decide(launch, 3, None, failed=True)

    for cut in cuts(operations, EVERY):
        for files in [left_by_kill(cut), *left_by_power_loss(cut)]:
            if "decision.json" in files:
                assert json.loads(files["decision.json"])["exit_code"] == 3
    assert list(left_by_kill(operations)) == ["decision.json"]


# The journal


class Journal:
    """A journal as a scribe keeps it, in this process."""

    def __init__(self, folder: Path, printed: bytes) -> None:
        launch = LaunchDocument(document(metrics=METRICS))
        self.transcriber = Transcriber(str(folder), launch, mask=Mask([SECRET]))
        self.pipe, self.writing = os.pipe()
        os.set_blocking(self.pipe, False)
        os.write(self.writing, printed)
        self.pump = Pump(self.pipe, str(folder / "output.log"), self.transcriber.publisher.end)

    def step(self) -> None:
        self.pump.move()
        while self.transcriber.step():
            pass

    def finish(self) -> None:
        os.close(self.writing)
        self.pump.empty()
        self.transcriber.finish()
        self.transcriber.close()
        self.pump.close()


@pytest.fixture
def journal_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """Print in several parts, each published and collected before the next."""
    monkeypatch.setattr("workbench.learner.scribe.publisher.PUBLISH_SECONDS", 0.0)
    monkeypatch.setattr("workbench.learner.collectors.batches.FLUSH_US", 0)
    folder = tmp_path / "journal"
    folder.mkdir()
    with recorded(folder) as operations:
        journal = Journal(folder, b"")
        for printed in PRINTED:
            os.write(journal.writing, printed)
            journal.step()
        journal.finish()
    return operations


def moved_by(operations: list[Operation]) -> int:
    """Return how many bytes the pipe has no more: those that were overwritten came from it once."""
    return max((each.offset + len(each.data) for each in operations if each.file == "output.log"), default=0)


def check_journal(folder: Path, whole: bytes) -> None:
    content = (folder / "output.log").read_bytes()
    assert content == whole
    index = (folder / "output.idx").read_bytes()
    entries = list(ENTRY.iter_unpack(index[HEADER.size :]))
    assert entries == sorted(entries)
    assert [newlines for _, _, newlines in entries] == [content.count(b"\n", 0, end) for end, _, _ in entries]
    assert (entries[-1][0] if entries else 0) == len(content)
    header, *records = [json.loads(line) for line in (folder / "records.jsonl").read_bytes().splitlines()]
    assert header["job"] == "training-a"
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))


def steps_in(folder: Path) -> list[int]:
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    points: Any = points_of(
        [record for line in lines if (record := json.loads(line)).get("kind") == "metrics"]
    )
    return [step for step, _ in points.get(("train", "", "loss"), [])]


def every_cut_is_recovered(operations: list[Operation], folder: Path, every: int) -> None:
    for number, cut in enumerate(cuts(operations, every)):
        part = written(left_by_kill(cut), folder / str(number))

        Journal(part, b"".join(PRINTED)[moved_by(cut) :]).finish()

        check_journal(part, WHOLE)
        assert steps_in(part) == [1, 2, 3], cut[-1]


def test_a_journal_is_made_whole_wherever_its_scribe_was_killed(
    tmp_path: Path, journal_operations: list[Operation]
) -> None:
    assert sum(map(is_mask, journal_operations)) == len(PRINTED)

    every_cut_is_recovered(journal_operations, tmp_path, 37)


@pytest.mark.soak("the gate cuts each write at every 37th byte")
@pytest.mark.timeout(1800)
def test_a_journal_is_made_whole_wherever_a_write_of_its_scribe_is_cut(
    tmp_path: Path, journal_operations: list[Operation]
) -> None:
    every_cut_is_recovered(journal_operations, tmp_path, 1)


def test_a_journal_of_which_files_lost_their_ends_is_read_and_goes_on(
    tmp_path: Path, journal_operations: list[Operation]
) -> None:
    """Nothing of it is synchronised: each file may lose its last writes. What is left fits together.

    Output and the mask of a secret in it are written within a moment: they are lost together here.
    """
    by_file = {
        name: [each for each in journal_operations if each.file == name]
        for name in ("output.log", "output.idx", "records.jsonl")
    }
    output, index, records = by_file.values()
    for kept in (number for number, each in enumerate([*output, *output[:1]]) if not is_mask(each)):
        for indexed in range(len(index) + 1):
            for count in range(0, len(records) + 1, 2):
                operations = [*output[:kept], *index[:indexed], *records[:count]]
                part = written(left_by_kill(operations), tmp_path / f"{kept}-{indexed}-{count}")
                left = WHOLE[: moved_by(operations)]

                Journal(part, b"last\n").finish()

                check_journal(part, left + b"last\n")
                steps = steps_in(part)
                assert steps == sorted(set(steps)), operations


# The tail of an output


@dataclass(frozen=True)
class Instant:
    """What a scribe leaves that is killed: the file, the memory of its tail, and what is still in the pipe."""

    file: bytes
    memory: bytes
    waiting: bytes

    def tail(self) -> FileTail:
        tail = FileTail(len(self.memory) - len(FileTail(0)._memory))
        tail._memory[:] = self.memory
        return tail


LINES: Final = (b"one\n", b"two\n", b"a longer third line\n", b"four\n")


def instants(path: Path, monkeypatch: pytest.MonkeyPatch, *, refused: Sequence[str] = ()) -> list[Instant]:
    """Move lines by a pump and note each instant between two of its operations; some stop to work after two lines."""
    tail = FileTail(64)
    pipe, writing = os.pipe()
    os.set_blocking(pipe, False)
    pump = Pump(pipe, str(path), 0, tail)
    printed, found = b"", []
    moving = threading.get_ident()

    def note() -> None:
        unread = system.unread_bytes(pipe)
        found.append(Instant(path.read_bytes(), tail._memory[:], printed[len(printed) - unread :]))

    def noted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **more: Any) -> Any:
            result = operation(*args, **more)
            # Another thread that writes something is in no order with this one.
            if threading.get_ident() == moving:
                note()
            return result

        return done

    def cannot(*_: Any) -> int:
        raise OSError(errno.EINVAL, "it stopped to work")

    with monkeypatch.context() as patched:
        for owner, name in ((FileTail, "_set"), (FileTail, "_put"), (system, "splice"), (os, "write")):
            patched.setattr(owner, name, noted(getattr(owner, name)))
        for number, line in enumerate(LINES):
            if number == 2:
                for name in refused:
                    patched.setattr(system, name, cannot)
            printed += line
            os.write(writing, line)
            pump.move()
    os.close(writing)
    pump.close()
    return found


def restored(path: Path, instant: Instant, file: bytes) -> tuple[bytes, int]:
    """Let the next scribe go on with a file; return what it has then, and how much was counted as lost."""
    path.write_bytes(file)
    tail = instant.tail()
    pipe, writing = os.pipe()
    os.set_blocking(pipe, False)
    os.write(writing, instant.waiting)
    pump = Pump(pipe, str(path), 0, tail)
    pump.empty()
    os.close(writing)
    pump.close()
    return path.read_bytes(), pump.lost_bytes


@pytest.mark.parametrize("refused", [(), ("splice",)], ids=["spliced", "copied"])
def test_output_is_restored_wherever_a_scribe_was_killed_and_its_file_lost_or_kept_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Sequence[str]
) -> None:
    path = tmp_path / "output.log"
    whole = b"".join(LINES)
    found = instants(path, monkeypatch, refused=refused)
    assert len(found) > 20

    for instant in found:
        printed = instant.waiting and whole[: whole.index(instant.waiting) + len(instant.waiting)]
        known = printed or whole[: len(instant.file)]
        behind = whole[len(instant.file) : len(known)] if instant.tail().is_known else b""
        for size in range(len(instant.file) + 1):
            assert restored(path, instant, instant.file[:size]) == (known, 0), (instant, size)
        for count in range(1, len(behind) + 1):  # the server had a write that failed here
            assert restored(path, instant, instant.file + behind[:count]) == (known, 0), (instant, count)


def check_unseen(path: Path, monkeypatch: pytest.MonkeyPatch, refused: Sequence[str]) -> None:
    for instant in instants(path, monkeypatch, refused=refused):
        assert restored(path, instant, instant.file) == (instant.file + instant.waiting, 0), instant


@pytest.mark.parametrize("refused", [("tee",), ("tee", "splice")], ids=["spliced", "copied"])
def test_output_that_passes_unseen_is_kept_wherever_a_scribe_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Sequence[str]
) -> None:
    """What is read before it is written is in hand for a moment, where nothing else works."""
    check_unseen(tmp_path / "output.log", monkeypatch, refused)


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("is_exact", property(lambda tail: tail.is_known)),
        ("take", lambda tail, taken: None),
        ("expect", lambda tail, offset, data: None),
    ],
    ids=["an end is taken for exact", "what was taken is not noted", "what is moved is noted behind"],
)
def test_a_defect_of_a_tail_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, defect: object
) -> None:
    monkeypatch.setattr(FileTail, name, defect)

    with pytest.raises(AssertionError):
        check_unseen(tmp_path / "output.log", monkeypatch, ("tee",))
