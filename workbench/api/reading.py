"""Reads what a job printed, for the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

WAIT_SECONDS = 0.1


def lines_of(row: JobRow, *, learner: int, attempt: int, tail: int | None, follow: bool) -> Iterator[str]:
    """Yield a learner's lines, with ``follow`` to the end of the job; a last one without its end, too."""
    from workbench.logs.grep import BLOCK
    from workbench.logs.journal import JournalReader
    from workbench.services.open_store import open_store

    with open_store() as store:
        with JournalReader(store.home.job(row.id).attempt(attempt).learner(learner)) as journal:
            offset = 0 if tail is None else journal.tail_offset(tail)
            rest = b""
            for _ in _rounds(store, row, attempt, follow=follow):
                while data := journal.read(offset, BLOCK):
                    offset += len(data)
                    *lines, rest = (rest + data).split(b"\n")
                    yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")


def _rounds(store: Store, row: JobRow, attempt: int, *, follow: bool) -> Iterator[None]:
    """Yield whenever it is worth looking, and a last time after the attempt's end is known."""
    import time

    from workbench.services.follow.follower import Keeper
    from workbench.services.follow.job_text import is_over
    from workbench.store.jobs import job

    if not follow:
        yield
        return
    with Keeper(store.home):
        while True:
            now = job(store, row.id)
            ended = now is None or now.deleted_us is not None or now.attempt > attempt or is_over(now)
            yield
            if ended:
                return
            time.sleep(WAIT_SECONDS)
