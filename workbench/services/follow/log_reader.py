"""Reads what learners of a job printed: whole, from a time or a number of lines on, filtered, or as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.errors import UnknownName
from workbench.services.follow.keeper import Keeper, is_attempt_over, rounds
from workbench.store.db.rows import is_over
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.logs.follow import LearnerOutput, Wait
    from workbench.logs.grep import Pattern
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

WAIT_SECONDS: Final = 0.1
"""How long a change of the store may go unnoticed; output is noticed at once."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which output of a job is read, and how."""

    learners: tuple[int, ...]
    attempt: int
    tail: int | None = None
    """Only the last so many lines of each learner."""
    since_us: int | None = None
    """Only what was printed from that time on."""
    pattern: Pattern | None = None
    """Only lines that match."""
    invert: bool = False
    """Only lines that do not match."""
    timestamps: bool = False
    """Whether each line has its time before it."""
    prefix: bool = True
    """Whether lines of one of several learners have its number before them."""
    setup: bool = False
    """Whether it is the setup command's output, instead of the command's."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line."""

    attempt: int
    learner: int
    time: str
    """ISO 8601 in UTC."""
    text: str


def learners_of(row: JobRow, learner: int | None) -> tuple[int, ...]:
    """Return the numbers of one learner, or of all of them.

    Raises:
        UnknownName: there is no such learner.
    """
    if learner is None:
        return tuple(range(1, row.learners + 1))
    if not 1 <= learner <= row.learners:
        raise UnknownName(f"there is no learner {learner}", hint=f"learners are 1 to {row.learners}")
    return (learner,)


@contextmanager
def waiting_for_output(store: Store) -> Iterator[Wait]:
    """Give what waits for more output, with a controller kept running meanwhile."""
    from workbench.learner.platform.watch import Watcher

    watcher = Watcher()

    def wait(paths: Sequence[str]) -> None:
        for path in paths:
            watcher.add(path)
        watcher.wait(WAIT_SECONDS)

    try:
        with Keeper(store.home, say=store.note):
            yield wait
    finally:
        watcher.close()


def follow_attempts(
    store: Store, row: JobRow, query: LogQuery, *, to_the_end: bool
) -> Iterator[tuple[LogQuery, Wait]]:
    """Yield what reads each attempt to its end, one after the other, with what waits for its output.

    The caller reads all of an attempt before it asks for the next one. The first is that of the query; those
    after it come, until the job is over, where ``to_the_end``.
    """
    from workbench.store.queries.jobs import job

    with waiting_for_output(store) as wait:
        while True:
            yield query, wait
            # The attempt's end is recorded a moment after that of its learners.
            while (now := job(store, row.id)) and now.attempt == query.attempt and not is_over(now):
                wait(())
            if not to_the_end or now is None or now.attempt == query.attempt:
                return
            query = replace(query, attempt=query.attempt + 1, tail=None, since_us=None)


def read_log(store: Store, row: JobRow, query: LogQuery, wait: Wait | None = None) -> Iterator[bytes]:
    """Yield one attempt's output: of one learner byte for byte, of several in lines, in the order of their times.

    Without ``wait`` what is there now, else all of it until the attempt has ended.
    """
    from workbench.logs.follow import LineFormat, follow, labels

    marks = labels(query.learners) if query.prefix else [""] * len(query.learners)
    sources = [
        _source(store, row, query, learner, mark) for learner, mark in zip(query.learners, marks, strict=True)
    ]
    line_format = LineFormat(timestamps=query.timestamps, pattern=query.pattern, invert=query.invert)
    return follow(sources, line_format=line_format, wait=wait)


def read_lines(store: Store, row: JobRow, query: LogQuery, wait: Wait | None = None) -> Iterator[LogLine]:
    """Yield the same as lines with their times."""
    from workbench.logs.follow import LineFormat, follow

    sources = [_source(store, row, query, learner, f"{learner} ") for learner in query.learners]
    line_format = LineFormat(timestamps=True, local=False, pattern=query.pattern, invert=query.invert)
    for data in follow(sources, line_format=line_format, wait=wait):
        for line in data.removesuffix(b"\n").split(b"\n"):
            learner, when, text = line.split(b" ", 2)
            yield LogLine(query.attempt, int(learner), when.decode(), text.decode(errors="replace"))


def _source(store: Store, row: JobRow, query: LogQuery, learner: int, label: str) -> LearnerOutput:
    from workbench.logs.follow import LearnerOutput
    from workbench.logs.journal import JournalReader
    from workbench.paths import SetupFolder

    folder = store.home.job(row.id).attempt(query.attempt).learner(learner)
    reader = JournalReader(SetupFolder(folder.path) if query.setup else folder)
    start = 0
    if query.since_us is not None:
        start = reader.offset_of_time(query.since_us)
    if query.tail is not None:
        start = max(start, reader.tail_offset(query.tail))

    def ended() -> bool:
        # A learner that is lost never records its end; the store knows.
        return reader.ended() or is_attempt_over(store, row, query.attempt)

    return LearnerOutput(reader, label, start, ended)


def learner_lines(
    row: JobRow, *, learner: int, attempt: int, tail: int | None, follow: bool
) -> Iterator[str]:
    """Yield a learner's lines, also a last one without its end; with ``follow`` to the end of the attempt.

    It opens a store for itself, in the thread that reads the first line.
    """
    from workbench.learner.journal.output_search import BLOCK
    from workbench.logs.journal import JournalReader
    from workbench.services.open_store import open_store

    with open_store() as store:
        with JournalReader(store.home.job(row.id).attempt(attempt).learner(learner)) as journal:
            offset = 0 if tail is None else journal.tail_offset(tail)
            rest = b""
            for _ in rounds(store, row, attempt) if follow else (True,):
                while data := journal.read(offset, BLOCK):
                    offset += len(data)
                    *lines, rest = (rest + data).split(b"\n")
                    yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")
