"""Reads a job's output for ``fabric logs``: whose, from where on, and how it is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.services.follow.job_text import is_over
from workbench.terminal.console import is_terminal
from workbench.terminal.stdout import write_all

if TYPE_CHECKING:
    from workbench.logs.follow import Source, Wait
    from workbench.logs.grep import Pattern
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

WAIT_SECONDS = 0.1
"""How long a change of the store may go unnoticed; output is noticed at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for."""

    learners: tuple[int, ...]
    attempt: int
    tail: int | None = None
    since_us: int | None = None
    pattern: Pattern | None = None
    invert: bool = False
    timestamps: bool = False
    prefix: bool = True
    json: bool = False
    setup: bool = False
    """What the setup command printed, instead of the command."""


def print_attempt(store: Store, row: JobRow, wanted: Wanted) -> None:
    """Print what is there of one attempt."""
    _print(store, row, wanted, None)


@contextmanager
def watched(store: Store) -> Iterator[Wait]:
    """Give what waits for more output, with a controller kept running meanwhile."""
    from workbench.learner.platform.watch import Watcher
    from workbench.services.follow.follower import Keeper

    watcher = Watcher()

    def wait(paths: Any) -> None:
        for path in paths:
            watcher.add(path)
        watcher.wait(WAIT_SECONDS)

    try:
        with Keeper(store.home):
            yield wait
    finally:
        watcher.close()


def follow_attempts(store: Store, row: JobRow, wanted: Wanted, *, to_the_end: bool) -> None:
    """Print an attempt to its end, and where ``to_the_end`` those after it, until the job is over."""
    from workbench.store.jobs import job

    with watched(store) as wait:
        while True:
            _print(store, row, wanted, wait)
            # The attempt's end is recorded a moment after that of its learners.
            while (now := job(store, row.id)) and now.attempt == wanted.attempt and not is_over(now):
                wait(())
            if not to_the_end or now is None or now.attempt == wanted.attempt:
                return
            row, wanted = now, replace(wanted, attempt=wanted.attempt + 1, tail=None, since_us=None)


def print_document(store: Store, row: JobRow, wanted: Wanted) -> None:
    """Print the lines of one attempt as one document."""
    from workbench.terminal import json_output

    lines = [_line_document(line, wanted.attempt) for line in timed_lines(store, row, wanted, None)]
    document = {"schema": "fabric.logs/1", "id": row.id, "attempt": wanted.attempt, "lines": lines}
    json_output.print_document(document)


def _print(store: Store, row: JobRow, wanted: Wanted, wait: Wait | None) -> None:
    if wanted.json:
        from workbench.terminal.json_output import print_event

        for line in timed_lines(store, row, wanted, wait):
            print_event("output", _line_document(line, wanted.attempt))
        return
    sys.stdout.flush()
    sanitiser = None
    if is_terminal(sys.stdout):
        from workbench.logs.sanitise import Sanitiser

        sanitiser = Sanitiser()
    for data in _read(store, row, wanted, wait):
        write_all(sanitiser.feed(data) if sanitiser else data)
    if sanitiser:
        write_all(sanitiser.finish())


def _read(store: Store, row: JobRow, wanted: Wanted, wait: Wait | None) -> Iterator[bytes]:
    from workbench.logs.follow import Dress, follow, labels

    marks = labels(wanted.learners) if wanted.prefix else [""] * len(wanted.learners)
    sources = [
        _source(store, row, wanted, learner, mark)
        for learner, mark in zip(wanted.learners, marks, strict=True)
    ]
    dress = Dress(timestamps=wanted.timestamps, pattern=wanted.pattern, invert=wanted.invert)
    return follow(sources, dress=dress, wait=wait)


def timed_lines(store: Store, row: JobRow, wanted: Wanted, wait: Wait | None) -> Iterator[bytes]:
    """Yield lines that begin with the learner's number and the time, each followed by one blank."""
    from workbench.logs.follow import Dress, follow

    sources = [_source(store, row, wanted, learner, f"{learner} ") for learner in wanted.learners]
    dress = Dress(timestamps=True, local=False, pattern=wanted.pattern, invert=wanted.invert)
    for data in follow(sources, dress=dress, wait=wait):
        yield from data.removesuffix(b"\n").split(b"\n")


def _line_document(line: bytes, attempt: int) -> dict[str, Any]:
    learner, time, text = line.split(b" ", 2)
    shown = text.decode(errors="replace")
    return {"attempt": attempt, "learner": int(learner), "time": time.decode(), "text": shown}


def _source(store: Store, row: JobRow, wanted: Wanted, learner: int, label: str) -> Source:
    from workbench.logs.follow import Source
    from workbench.logs.journal import JournalReader
    from workbench.paths import SetupFolder
    from workbench.store.jobs import job

    folder = store.home.job(row.id).attempt(wanted.attempt).learner(learner)
    reader = JournalReader(SetupFolder(folder.path) if wanted.setup else folder)
    start = 0
    if wanted.since_us is not None:
        start = reader.offset_of_time(wanted.since_us)
    if wanted.tail is not None:
        start = max(start, reader.tail_offset(wanted.tail))

    def ended() -> bool:
        # A learner that is lost never records its end; the store knows.
        if reader.ended():
            return True
        now = job(store, row.id)
        return now is None or now.attempt > wanted.attempt or is_over(now) or now.deleted_us is not None

    return Source(reader, label, start, ended)
