"""Points that an attempt went over again: those of earlier attempts behind where the next one went on.

Steps are those of the one count (:mod:`workbench.store.queries.step_course`), so that steps are compared with steps.
The next attempt went on from its own lowest step: what earlier attempts reported from that step on belongs to a course
of the training that was given up. What they reported between the last checkpoint and that step does not, since training
code may save without a report. Where steps say nothing, the next attempt went on from the last checkpoint before it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from workbench.store.queries.step_course import AS_REPORTED, StepCourse, course_of
from workbench.values import dataclass

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
    """Where steps say nothing: what was reported after this checkpoint, but for steps that it holds; None for none."""
    course: StepCourse = field(default=AS_REPORTED, repr=False)
    """How the steps of the series are counted on: those of ``points`` are as they were reported."""

    def holds(self, step: float | None, time_us: int) -> bool:
        """Say whether a point of the attempt is superseded; its step is that of the one count."""
        if step is not None and self.step is not None:
            return step >= self.step
        saved = self.saved
        if saved is None or time_us <= saved.time_us:
            return False
        return step is None or saved.step is None or step > saved.step

    @property
    def sql(self) -> str:
        """The same as a condition on ``points``; it is never NULL."""
        parts = []
        if self.step is not None:
            parts.append(f"coalesce({self._reaches_sql(self.step)}, 0)")
        if self.saved is not None:
            if self.step is not None:
                above = "step IS NULL"
            else:
                above = "1" if self.saved.step is None else f"coalesce(step > {self.saved.step!r}, 1)"
            parts.append(f"(time > {self.saved.time_us} AND {above})")
        return f"(attempt = {self.attempt} AND ({' OR '.join(parts)}))"

    def _reaches_sql(self, bound: float) -> str:
        """Return the condition that the step of a point, counted on, is not below a bound; NULL without a step."""
        if not self.course:
            return f"step >= {bound!r}"
        parts: list[str] = []
        begun: int | None = None
        for stretch, ends in self.course.spans():
            is_above = stretch.attempt == self.attempt and stretch.low >= bound
            if is_above and begun is None:
                begun = stretch.first
            elif not is_above and begun is not None:
                parts.append(f"seq BETWEEN {begun} AND {stretch.first - 1}")
                begun = None
            if not is_above and stretch.attempt == self.attempt and stretch.high >= bound:
                span = f"seq BETWEEN {stretch.first} AND {ends}"
                parts.append(f"({span} AND {counted_on_sql(stretch.offset)} >= {bound!r})")
        if begun is not None:
            parts.append(f"seq >= {begun}")
        return f"step IS NOT NULL AND ({_any_of(parts)})"


def counted_on_sql(offset: float) -> str:
    """Return the SQL of a step of ``points`` that is counted on; floats where no 64 bits hold the sum, as elsewhere."""
    return f"step + {offset!r}" if abs(offset) < 1 << 62 else f"step + {float(offset)!r}"


def _any_of(conditions: Sequence[str]) -> str:
    """Join conditions so that no expression is nested deeper than SQLite allows, however many there are."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else NOTHING
    middle = len(conditions) // 2
    return f"({_any_of(conditions[:middle])} OR {_any_of(conditions[middle:])})"


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


def cuts_of(
    lowest: Mapping[int, float | None], saved: Iterable[SavedState], course: StepCourse = AS_REPORTED
) -> tuple[Cut, ...]:
    """Return where the attempts of a series are cut.

    Args:
        lowest: The lowest step that each attempt reported in the series, counted on; None where it reported none.
        saved: The checkpoints of the job.
        course: How its steps are counted on.
    """
    states = sorted(saved, key=lambda state: (state.attempt, state.time_us))
    found: list[Cut] = []
    for attempt in sorted(lowest)[:-1]:
        later = [step for each, step in lowest.items() if each > attempt and step is not None]
        last = [state for state in states if state.attempt <= attempt][-1:]
        if later or last:
            found.append(Cut(attempt, min(later, default=None), last[0] if last else None, course))
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
    if len(lowest) < 2:
        return ()
    saved = _saved(connection, job_id, learner)
    course = course_of(connection, series_id)
    if course:
        # What a checkpoint calls its step is another count than that of each epoch: only its time counts.
        saved = [SavedState(each.attempt, each.time_us, None) for each in saved]
        lowest = dict.fromkeys(lowest)
        for stretch, _ in course.spans():
            before = lowest[stretch.attempt]
            if math.isfinite(stretch.low):
                lowest[stretch.attempt] = stretch.low if before is None else min(before, stretch.low)
    return cuts_of(lowest, saved, course)


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
        f"SELECT seq, step, time, value FROM main.points WHERE series = ? AND NOT ({hidden}) ORDER BY seq DESC LIMIT 1",
        (series_id,),
    ).fetchone()
    seq, step, time_us, value = found or (0, None, None, None)
    step = course_of(connection, series_id).step(seq, step)
    return Live(count or 0, total - (count or 0), step, time_us, value, low, high)


def runs_of(connection: sqlite3.Connection, series_id: int, hidden: str) -> list[tuple[int, int]]:
    """Return the runs of points that ``hidden`` fits: the numbers of their first and last one, ascending."""
    sql = (
        "SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) AS run FROM main.points "
        f"WHERE series = ? AND ({hidden})) GROUP BY run ORDER BY 1"
    )
    return [(first, last) for first, last in connection.execute(sql, (series_id,))]
