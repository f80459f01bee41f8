"""Points that belong to a part of the training that was given up: what an attempt reported after the next one's origin.

Where an attempt went on is found once for all series of its learner (:mod:`workbench.store.queries.origins`): what was
reported after that moment is superseded, whatever its name or step, be it a number or a text. A moment is a time, and
of what came in its microsecond a report. What a learner used of its machine is not a course of a training: none of it
is superseded.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from workbench.store.queries.origins import Moment, has_attempts, is_next, moments_of, points_at
from workbench.store.queries.reports import report_runs
from workbench.store.queries.step_course import course_of, courses_of
from workbench.values import dataclass

__all__ = ["has_attempts"]

FINITE = "abs(value) < 9e999"
"""A condition on a point: NaN, which is NULL, and infinities do not fit."""


NOTHING = "0"
"""A condition that no point fits."""


@dataclass(frozen=True, slots=True)
class Cut:
    """From when on the points of one attempt are superseded, in one series."""

    attempt: int
    time_us: int
    seq: int | None = None
    """Of what came in that very microsecond: from this point on; None for none of it."""
    first: int = 0
    """No point before this one, whenever it came."""

    def holds(self, seq: int, time_us: int) -> bool:
        """Say whether a point of the attempt is superseded."""
        return seq >= self.first and self._is_behind(seq, time_us)

    def _is_behind(self, seq: int, time_us: int) -> bool:
        return time_us > self.time_us or (
            time_us == self.time_us and self.seq is not None and seq >= self.seq
        )

    @property
    def sql(self) -> str:
        """The same as a condition on ``points``; it is never NULL."""
        after = f"time > {self.time_us}"
        if self.seq is not None:
            after += f" OR (time = {self.time_us} AND seq >= {self.seq})"
        first = f"seq >= {self.first} AND " if self.first else ""
        return f"(attempt = {self.attempt} AND {first}({after}))"


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


def series_cuts(connection: sqlite3.Connection, job_id: str, learner: int, series_id: int) -> tuple[Cut, ...]:
    """Return from when on the attempts of a stored series are cut; of a job with one attempt nothing is read."""
    if not has_attempts(connection, job_id):
        return ()
    row = connection.execute("SELECT kind FROM main.series WHERE id = ?", (series_id,)).fetchone()
    if row is None or row[0] not in ("value", "etime"):
        return ()
    found = moments_of(connection, job_id, learner)
    return tuple(_cut(connection, job_id, series_id, *each) for each in sorted(found.items()))


def _cut(connection: sqlite3.Connection, job_id: str, series_id: int, attempt: int, moment: Moment) -> Cut:
    if moment.series == series_id:
        return Cut(attempt, moment.time_us, moment.seq)
    first = moment.firsts.get(series_id, 0)
    if moment.report is None:
        return Cut(attempt, moment.time_us, first=first)
    alike = points_at(connection, series_id, attempt, moment.time_us, moment.time_us)
    if not alike:
        return Cut(attempt, moment.time_us, first=first)
    runs = report_runs(connection, job_id, series_id)
    behind = (
        seq for seq, _, _ in alike if (report := runs.report_of(seq)) is not None and report >= moment.report
    )
    return Cut(attempt, moment.time_us, min(behind, default=None), first)


def superseded_texts(
    connection: sqlite3.Connection, job_id: str, learner: int, series_id: int
) -> frozenset[int]:
    """Return the numbers of the texts of a series that are superseded.

    A text goes with the values that were reported together with it; one that was reported alone goes by the moment.
    """
    moments = moments_of(connection, job_id, learner) if has_attempts(connection, job_id) else {}
    if not moments:
        return frozenset()
    marks = ", ".join("?" * len(moments))
    sql = f"SELECT seq, attempt, step, time FROM main.texts WHERE series = ? AND attempt IN ({marks}) ORDER BY seq"
    runs = report_runs(connection, job_id, series_id)
    found = [
        _ReportedText(seq, attempt, step, time_us, runs.report_of(seq))
        for seq, attempt, step, time_us in connection.execute(sql, (series_id, *moments))
    ]
    beside = _values_beside(connection, job_id, learner, {(text.attempt, text.report) for text in found})
    has_course = bool(courses_of(connection, job_id, learner))
    superseded = set()
    for attempt, moment in moments.items():
        own = [text for text in found if text.attempt == attempt]
        first = 0 if has_course else _first_not_below(own, moment)
        for text in own:
            is_live = beside.get((attempt, text.report))
            if is_live is None:
                is_live = text.seq < first or not _is_behind(text, moment)
            if not is_live:
                superseded.add(text.seq)
    return frozenset(superseded)


@dataclass(frozen=True, slots=True)
class _ReportedText:
    seq: int
    attempt: int
    step: float | None
    time_us: int
    report: int | None


def _values_beside(
    connection: sqlite3.Connection, job_id: str, learner: int, reports: Iterable[tuple[int, int | None]]
) -> Mapping[tuple[int, int | None], bool]:
    """Return whether a value of each of these reports counts; reports without values are left out.

    Args:
        connection: The store.
        job_id: Which job.
        learner: Which learner.
        reports: Attempts, and the numbers of reports in them.
    """
    wanted = sorted({report for _, report in reports if report is not None})
    found: dict[tuple[int, int | None], bool] = {}
    sql = "SELECT id FROM main.series WHERE job_id = ? AND learner = ? AND kind IN ('value', 'etime') AND points"
    for (series_id,) in connection.execute(sql, (job_id, learner)).fetchall():
        cuts = {cut.attempt: cut for cut in series_cuts(connection, job_id, learner, series_id)}
        runs = report_runs(connection, job_id, series_id)
        for first, count, begin in zip(runs.firsts, runs.counts, runs.reports, strict=True):
            for report in wanted[bisect_left(wanted, begin) : bisect_left(wanted, begin + count)]:
                seq = first + report - begin
                point = "SELECT attempt, time FROM main.points WHERE series = ? AND seq = ?"
                attempt, time_us = connection.execute(point, (series_id, seq)).fetchone()
                cut = cuts.get(attempt)
                counts = cut is None or not cut.holds(seq, time_us)
                found[attempt, report] = found.get((attempt, report), False) or counts
    return found


def _first_not_below(texts: Sequence[_ReportedText], moment: Moment) -> int:
    """Return the first text of an attempt that was not done before a moment by its step, as it is with values."""
    stepped = [(text.seq, text.step) for text in texts if text.step is not None]
    if moment.below is None or not stepped:
        return 0
    for seq, step in stepped:
        if step >= moment.below:
            return seq
    before = stepped[-2][1] if len(stepped) > 1 else None
    return texts[-1].seq + 1 if is_next(stepped[-1][1], before, moment.below) else 0


def _is_behind(text: _ReportedText, moment: Moment) -> bool:
    if text.time_us != moment.time_us:
        return text.time_us > moment.time_us
    return moment.report is not None and text.report is not None and text.report >= moment.report


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
    step, time_us, value = last_live(connection, series_id, hidden)
    return Live(count or 0, total - (count or 0), step, time_us, value, low, high)


def last_live(
    connection: sqlite3.Connection, series_id: int, hidden: str
) -> tuple[float | None, int | None, float | None]:
    """Return the step, time and value of the last point of a series that ``hidden`` does not fit; no other is read."""
    found = connection.execute(
        f"SELECT seq, step, time, value FROM main.points WHERE series = ? AND NOT ({hidden}) ORDER BY seq DESC LIMIT 1",
        (series_id,),
    ).fetchone()
    seq, step, time_us, value = found or (0, None, None, None)
    return course_of(connection, series_id).step(seq, step), time_us, value


def runs_of(connection: sqlite3.Connection, series_id: int, hidden: str) -> list[tuple[int, int]]:
    """Return the runs of points that ``hidden`` fits: the numbers of their first and last one, ascending."""
    sql = (
        "SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) AS run FROM main.points "
        f"WHERE series = ? AND ({hidden})) GROUP BY run ORDER BY 1"
    )
    return [(first, last) for first, last in connection.execute(sql, (series_id,))]
