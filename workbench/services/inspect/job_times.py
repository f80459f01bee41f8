"""How long a job and its phases took, as far as the store knows; ``now_us`` stands for the end of what still runs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from workbench.errors import FabricError
from workbench.formats import MICROSECONDS
from workbench.job import TERMINAL, State
from workbench.store.db.rows import run_us
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.job import JobId
    from workbench.metrics import ProgressRow
    from workbench.paths import Home
    from workbench.store.db.rows import AttemptRow, JobRow

_FIRST_BYTES: Final = 4 << 20
"""The first report of an attempt's progress is looked for in so much of its records."""
_BATCH_BYTES: Final = 128 << 10

STALE_AFTER_SECONDS: Final = 30.0
"""A backend that has not answered for so long is out of sight."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase that an attempt reached."""

    phase: str
    """``queued``, ``pending``, ``downloading``, ``processing``, ``storing``, ``ended``."""
    began_us: int
    seconds: float
    """How long it took, or has taken; 0 for ``ended``."""


def phase_times(attempt: AttemptRow, now_us: int) -> tuple[PhaseTime, ...]:
    """Return the phases that an attempt reached, in their order."""
    began = (
        ("queued", attempt.queued_us),
        ("pending", attempt.pending_us),
        ("downloading", attempt.downloading_us),
        ("processing", attempt.processing_us),
        ("storing", attempt.storing_us),
        ("ended", attempt.ended_us),
    )
    reached = [(phase, time_us) for phase, time_us in began if time_us is not None]
    ends = [time_us for _, time_us in reached[1:]]
    ends += [reached[-1][1] if reached and reached[-1][0] == "ended" else now_us]
    return tuple(
        PhaseTime(phase, start, (end - start) / MICROSECONDS)
        for (phase, start), end in zip(reached, ends, strict=False)
    )


def run_seconds(row: JobRow, now_us: int) -> float | None:
    """Return how long a job's commands ran: the sum of its attempts, of which one that runs adds up as far as was seen.

    What the job waits before an attempt and between two does not count. None before the first one starts.
    """
    end = row.ended_us if row.state in TERMINAL and row.ended_us else known_until_us(row, now_us)
    ran_us = run_us(row, end)
    return None if ran_us is None else ran_us / MICROSECONDS


def known_until_us(row: JobRow, now_us: int) -> int:
    """Return until when the state of a job is known: now, unless no controller runs or its backend does not answer."""
    if row.state in TERMINAL:
        return now_us
    return min(now_us, *(time_us for time_us in (row.as_of_us, row.seen_us) if time_us is not None), now_us)


def unseen_seconds(row: JobRow, now_us: int) -> float | None:
    """Return for how long nobody has seen an open job; None while it is in sight."""
    seconds = (now_us - known_until_us(row, now_us)) / MICROSECONDS
    return seconds if seconds > STALE_AFTER_SECONDS else None


def expected_end_us(
    row: JobRow, progress: ProgressRow | None, first: ProgressRow | None = None
) -> int | None:
    """Return when a running job will be done if its progress keeps its rate; None where that is not known.

    An attempt that was resumed began with some progress: its rate is that since ``first``, what it reported first.
    """
    if progress is None or progress.fraction is None or not 0 < progress.fraction < 1:
        return None
    if row.state is not State.PROCESSING or row.started_us is None or progress.attempt != row.attempt:
        return None
    since_us, before = row.started_us, 0.0
    if row.attempt > 1:
        if first is None or first.fraction is None or first.attempt != row.attempt:
            return None
        since_us, before = first.time_us, first.fraction
    taken_us, done = progress.time_us - since_us, progress.fraction - before
    if taken_us <= 0 or done <= 0:
        return None
    return progress.time_us + round(taken_us * (1 - progress.fraction) / done)


@lru_cache(maxsize=512)
def first_progress(home: Home, job_id: JobId, attempt: int, learner: int) -> ProgressRow | None:
    """Return what a learner reported first of its progress in an attempt; None where that is far from the beginning.

    Ask only once the store knows of a report of that attempt: what is found is kept.
    """
    from workbench.metrics.queries import ProgressRow
    from workbench.metrics.records import read_records

    file, offset = home.job(job_id).attempt(attempt).learner(learner).records, 0
    while offset < _FIRST_BYTES:
        batch = read_records(file, offset, limit_bytes=_BATCH_BYTES)
        for record in batch.records:
            if record.get("kind") != "progress" or not isinstance(record.get("time"), int):
                continue
            fraction = record.get("fraction")
            if isinstance(fraction, float | int) and 0 <= fraction <= 1:
                return ProgressRow(learner, attempt, record["time"], float(fraction), "")
        if batch.end == offset:
            return None
        offset = batch.end
    return None


def first_of_attempt(home: Home, row: JobRow, progress: ProgressRow | None) -> ProgressRow | None:
    """Return what :func:`expected_end_us` needs of a job that was resumed; None of any other."""
    if row.attempt == 1 or row.state is not State.PROCESSING:
        return None
    if progress is None or progress.attempt != row.attempt:
        return None
    try:
        return first_progress(home, row.id, row.attempt, progress.learner)
    except FabricError:
        return None
