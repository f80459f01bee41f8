"""Searches the logs of jobs for a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.logs.grep import Pattern
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@dataclass(frozen=True, slots=True)
class LogHit:
    """One line that matches."""

    row: JobRow
    attempt: int
    learner: int
    offset: int
    """Where the line begins in the learner's log."""
    line: bytes
    """Without its newline."""


def search_logs(
    store: Store,
    pattern: Pattern,
    *,
    where: Sequence[str] = (),
    all_attempts: bool = False,
    hits_per_job_max: int | None = None,
) -> Iterator[LogHit]:
    """Yield the lines that match, the newest job's first.

    Args:
        store: where the jobs are.
        pattern: what a line has to match.
        where: filters of jobs, as ``--where`` takes them.
        all_attempts: whether logs of earlier attempts are searched, too.
        hits_per_job_max: at most so many lines of each job; None yields all.

    Raises:
        UsageError: a filter cannot be read, or names a metric that no job has.
    """
    from workbench.clock import now_us
    from workbench.services.filters import read_where
    from workbench.store.queries.job_list import listed

    matching = read_where(store, list(where))
    rows = listed(store, ["deleted_us IS NULL"], {}, where=matching, now_us=now_us())
    return _hits(store, rows, pattern, all_attempts=all_attempts, hits_per_job_max=hits_per_job_max)


def _hits(
    store: Store,
    rows: Sequence[JobRow],
    pattern: Pattern,
    *,
    all_attempts: bool,
    hits_per_job_max: int | None,
) -> Iterator[LogHit]:
    from workbench.logs.parallel_search import search

    logs = [
        (row, attempt, learner)
        for row in rows
        for attempt in range(1 if all_attempts else row.attempt, row.attempt + 1)
        for learner in range(1, row.learners + 1)
    ]
    folders = [store.home.job(row.id).attempt(attempt).learner(learner) for row, attempt, learner in logs]
    counts: dict[str, int] = {}
    with closing(search(folders, pattern, hits_per_job_max)) as found:
        for number, (offset, line) in found:
            row, attempt, learner = logs[number]
            counts[row.id] = counts.get(row.id, 0) + 1
            if hits_per_job_max is None or counts[row.id] <= hits_per_job_max:
                yield LogHit(row, attempt, learner, offset, line)
