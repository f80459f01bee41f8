"""Points that an attempt went over again: those of earlier attempts behind where the next one went on.

The next attempt went on from its own lowest step, or from the last checkpoint before it. What earlier attempts reported
from that step on, or after that checkpoint, belongs to a course of the training that was given up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FINITE = "abs(value) < 9e999"
"""A condition on a point: NaN, which is NULL, and infinities do not fit."""


NOTHING = "0"
"""A condition that no point fits."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A checkpoint that an attempt may have resumed from."""

    attempt: int
    time_us: int
    step: float | None


@dataclass(frozen=True, slots=True)
class Cut:
    """From where on the points of one attempt are superseded."""

    attempt: int
    step: float | None
    """From this step on; None where the next attempts report no step."""
    saved: SavedState | None
    """What was reported after this checkpoint, but for steps that it holds; None where there was none."""

    def holds(self, step: float | None, time_us: int) -> bool:
        """Say whether a point of the attempt is superseded."""
        if step is not None and self.step is not None and step >= self.step:
            return True
        saved = self.saved
        if saved is None or time_us <= saved.time_us:
            return False
        return step is None or saved.step is None or step > saved.step

    @property
    def sql(self) -> str:
        """The same as a condition on ``points``; it is never NULL."""
        parts = []
        if self.step is not None:
            parts.append(f"coalesce(step >= {self.step!r}, 0)")
        if self.saved is not None:
            above = "1" if self.saved.step is None else f"coalesce(step > {self.saved.step!r}, 1)"
            parts.append(f"(time > {self.saved.time_us} AND {above})")
        return f"(attempt = {self.attempt} AND ({' OR '.join(parts)}))"


@dataclass(frozen=True, slots=True)
class Live:
    """What a series comes to without its superseded points."""

    points: int
    superseded: int
    last_step: float | None
    last_time_us: int | None
    last: float | None
    minimum: float | None
    """The least finite value."""
    maximum: float | None


def cuts_of(lowest: Mapping[int, float | None], saved: Iterable[SavedState]) -> tuple[Cut, ...]:
    """Return where the attempts of a series are cut.

    Args:
        lowest: The lowest step that each attempt reported in the series; None where it reported none.
        saved: The checkpoints of the job.
    """
    states = sorted(saved, key=lambda state: (state.attempt, state.time_us))
    found: list[Cut] = []
    for attempt in sorted(lowest)[:-1]:
        later = [step for each, step in lowest.items() if each > attempt and step is not None]
        last = [state for state in states if state.attempt <= attempt][-1:]
        if later or last:
            found.append(Cut(attempt, min(later, default=None), last[0] if last else None))
    return tuple(found)


def has_attempts(connection: sqlite3.Connection, job_id: str) -> bool:
    """Say whether more than one attempt of a job has reported something."""
    sql = "SELECT count(DISTINCT attempt) FROM main.journals WHERE job_id = ?"
    return int(connection.execute(sql, (job_id,)).fetchone()[0]) > 1


def series_cuts(connection: sqlite3.Connection, job_id: str, learner: int, series_id: int) -> tuple[Cut, ...]:
    """Return where the attempts of a stored series are cut; of a job with one attempt nothing is read."""
    if not has_attempts(connection, job_id):
        return ()
    sql = "SELECT attempt, min(step) FROM main.points WHERE series = ? GROUP BY attempt"
    lowest = dict(connection.execute(sql, (series_id,)).fetchall())
    return cuts_of(lowest, _saved(connection, job_id, learner)) if len(lowest) > 1 else ()


def _saved(connection: sqlite3.Connection, job_id: str, learner: int) -> Sequence[SavedState]:
    """Return the checkpoints of a learner; where it made none, those of all."""
    sql = "SELECT learner, attempt, time_us, step FROM main.checkpoints WHERE job_id = ?"
    found = connection.execute(sql, (job_id,)).fetchall()
    own = [row for row in found if row[0] == learner]
    return [SavedState(*row[1:]) for row in own or found]


def condition(cuts: Sequence[Cut]) -> str:
    """Return the condition on ``points`` that a point is superseded."""
    return " OR ".join(cut.sql for cut in cuts) or NOTHING


def live(connection: sqlite3.Connection, series_id: int, hidden: str) -> Live:
    """Sum up a series without the points that ``hidden`` fits, a condition on ``points``."""
    total, count = connection.execute(
        f"SELECT count(*), sum(NOT ({hidden})) FROM main.points WHERE series = ?", (series_id,)
    ).fetchone()
    low, high = connection.execute(
        f"SELECT min(value), max(value) FROM main.points WHERE series = ? AND {FINITE} AND NOT ({hidden})",
        (series_id,),
    ).fetchone()
    found = connection.execute(
        f"SELECT step, time, value FROM main.points WHERE series = ? AND NOT ({hidden}) ORDER BY seq DESC LIMIT 1",
        (series_id,),
    ).fetchone()
    step, time_us, value = found or (None, None, None)
    return Live(count or 0, total - (count or 0), step, time_us, value, low, high)


def runs_of(connection: sqlite3.Connection, series_id: int, hidden: str) -> list[tuple[int, int]]:
    """Return the runs of points that ``hidden`` fits: the numbers of their first and last one, ascending."""
    sql = (
        "SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) AS run FROM main.points "
        f"WHERE series = ? AND ({hidden})) GROUP BY run ORDER BY 1"
    )
    return [(first, last) for first, last in connection.execute(sql, (series_id,))]
