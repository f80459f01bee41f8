"""How long a job and its phases took, as far as the store knows; ``now_us`` stands for the end of what still runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workbench.formats import MICROSECONDS
from workbench.job import TERMINAL, State

if TYPE_CHECKING:
    from workbench.store.db.rows import AttemptRow, JobRow

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
    """Return how long the last attempt's command ran, or has run as far as was seen; None before it starts."""
    if row.started_us is None:
        return None
    end = row.ended_us if row.state in TERMINAL and row.ended_us else known_until_us(row, now_us)
    return max(0.0, (end - row.started_us) / MICROSECONDS)


def known_until_us(row: JobRow, now_us: int) -> int:
    """Return until when the state of a job is known: now, unless no controller runs or its backend does not answer."""
    if row.state in TERMINAL:
        return now_us
    # Of a job that was never launched the backend has nothing to say.
    seen_us = None if row.state is State.QUEUED else row.seen_us
    return min(now_us, *(time_us for time_us in (row.as_of_us, seen_us) if time_us is not None), now_us)


def unseen_seconds(row: JobRow, now_us: int) -> float | None:
    """Return for how long nobody has seen an open job; None while it is in sight."""
    seconds = (now_us - known_until_us(row, now_us)) / MICROSECONDS
    return seconds if seconds > STALE_AFTER_SECONDS else None
