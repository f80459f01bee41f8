"""The last lines of a job's output, for the preview: read backwards, and only when the output has grown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from workbench.logs.journal import JournalReader
from workbench.logs.sanitise import sanitise
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow

READ_MOST: Final = 256 * 1024
"""A preview reads no more than this, however long the lines are."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log; ``size`` tells whether it has grown."""

    job_id: str
    lines: tuple[str, ...]
    size: int


def tail(home: Home, job: JobRow, lines: int) -> Callable[[Store], Tail]:
    """Return the query for a job's last lines; it keeps the journal open as long as it is asked."""
    reader = JournalReader(home.job(job.id).attempt(job.attempt).learner(1))
    last = Tail(job.id, (), 0)

    def read(store: Store) -> Tail:
        nonlocal last
        del store
        end = reader.published()
        if end != last.size:
            start = max(reader.tail_offset(lines), end - READ_MOST)
            data = reader.read(start, end - start)
            last = Tail(job.id, tuple(_lines(data)[-lines:]), end)
        return last

    return read


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", "replace")
    return [sanitise(last_state(line)) for line in text.removesuffix("\n").split("\n")]


def last_state(line: str) -> str:
    r"""Return what a line with carriage returns shows in the end: its last state that is not blank."""
    if "\r" not in line:
        return line
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""
