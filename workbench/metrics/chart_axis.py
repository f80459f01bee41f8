"""What the x of a chart is: one thing for all its points; and the points of a series laid out over it.

Steps where every point has one, continued where code counts those of each epoch from the beginning; else the epochs
that were reported together with the points, where every point has one; else their order. Superseded points are in no
chart, unless they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from workbench.metrics.chart_buckets import buckets, merged
from workbench.metrics.queries import cuts_of_series, points, series
from workbench.metrics.rollup import BITS, levels_of
from workbench.store.db.database import Store
from workbench.store.db.rows import Bucket, Point, SeriesRow
from workbench.store.queries.reports import report_runs
from workbench.store.queries.step_course import course_of
from workbench.store.queries.superseded import NOTHING, Cut, condition, runs_of

STEP: Final = "step"
TIME: Final = "time"
EPOCH: Final = "epoch"
NUMBER: Final = "number"
"""The order of the points, from 1."""

POINTS_MAX: Final = 200_000
"""Longer series are read by their roll-ups alone: they are laid out over steps, time or their order."""

_BUCKETS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class ChartRange:
    """The points of a series that a chart shows."""

    x_from: float | None = None
    x_to: float | None = None
    attempt: int | None = None
    """Only this attempt's, superseded or not; None for all attempts'."""
    superseded: bool = False
    """Whether points are shown that a later attempt went over again."""


def chart_axis(store: Store, rows: Sequence[SeriesRow], shown: ChartRange = ChartRange()) -> str:
    """Return what the x of a chart of these series is: ``step``, ``epoch`` or ``number``."""
    if all(_has_steps(store, row, shown) for row in rows):
        return STEP
    if all(_along(store, row, EPOCH, shown) is not None for row in rows):
        return EPOCH
    return NUMBER


def chart_points(
    store: Store, row: SeriesRow, axis: str, *, width: int, shown: ChartRange = ChartRange()
) -> list[Bucket] | None:
    """Return a series as about ``2 * width`` buckets, ascending in x, whose steps are their x (or times, over time).

    Args:
        store: The store.
        row: The series.
        axis: ``step``, ``time``, ``number``, or the name of what was reported with metrics, such as ``epoch``.
        width: Columns of the chart.
        shown: Which points; ``x_from`` and ``x_to`` are on this axis, microseconds over time.

    Returns:
        None where a point has no value on this axis.
    """
    if axis in (STEP, TIME, NUMBER):
        placed = _placed(store, row, axis, shown)
        return (
            _rolled_up(store, row, axis, width, shown) if placed is None else _laid_out(placed, width, shown)
        )
    placed = _along(store, row, axis, shown)
    return None if placed is None else _laid_out(placed, width, shown)


def _placed(store: Store, row: SeriesRow, axis: str, shown: ChartRange) -> list[tuple[float, Point]] | None:
    """Return the points with their x where roll-ups cannot lay them out; None where they can."""
    if axis == STEP and (course_of(store.connection, row.id) or _is_unordered(store, row, STEP)):
        return _with_steps(_shown_points(store, row, shown))
    has_window = shown.x_from is not None or shown.x_to is not None
    if axis == TIME and has_window and _is_unordered(store, row, TIME):
        return [(point.time_us, point) for point in _shown_points(store, row, shown)]
    if axis == NUMBER and has_window and _total(row) <= POINTS_MAX:
        return list(enumerate(_shown_points(store, row, shown), 1))
    return None


def points_behind(
    store: Store, before: SeriesRow, now: SeriesRow, axis: str, last_x: float
) -> list[Bucket] | None:
    """Return the points that came since a series was read, as buckets of one, where they go on from what was read.

    Args:
        store: The store.
        before: The series as it was when its points were read.
        now: The series as it is.
        axis: ``step`` or ``time``.
        last_x: The x of the last point that was read: its step, or its time in microseconds.

    Returns:
        None where the series has to be read again: another attempt began, a point lies before one that was read, or is
        on no place of this axis.
    """
    if axis not in (STEP, TIME) or before.id != now.id or before.superseded or now.superseded:
        return None
    sql = "SELECT seq, attempt, step, time, value FROM points WHERE series = ? AND seq >= ? AND seq <= ? ORDER BY seq"
    found = [Point(*row) for row in store.rows(sql, (now.id, before.points, now.points))]
    places = [point.step if axis == STEP else point.time_us for point in found]
    if len(found) != now.points - before.points + 1 or places[0] != last_x:
        return None
    goes_on = all(b is not None and a is not None and a <= b for a, b in pairwise(places))
    if not goes_on or found[0].attempt != found[-1].attempt:
        return None
    return [_bucket(point.seq, point.step, point) for point in found[1:]]


def points_axis(store: Store, row: SeriesRow, shown: Sequence[Point]) -> tuple[str, tuple[float, ...]]:
    """Return what the x of some points of a series is, as :func:`chart_axis` does, and the x of each point."""
    steps = tuple(x for x, _ in _with_steps(shown))
    if len(steps) == len(shown):
        return STEP, steps
    epochs = _reported_with(store, row, EPOCH, shown)
    if epochs is not None:
        return EPOCH, tuple(epoch for epoch, _ in epochs)
    return NUMBER, tuple(map(float, range(1, len(shown) + 1)))


def infinities(store: Store, row: SeriesRow, shown: ChartRange = ChartRange()) -> int:
    """Return how many values of a series are infinite; of most the roll-ups tell that none is."""
    top = levels_of(max(1, _total(row)))
    sql = "SELECT 1 FROM rollups WHERE series = ? AND level = ? AND (min = -9e999 OR max = 9e999)"
    if store.row(sql, (row.id, top)) is None:
        return 0
    hidden = _hidden(store, row, shown)
    sql = f"SELECT count(*) FROM points WHERE series = ? AND abs(value) = 9e999 AND NOT ({hidden})"
    found = store.row(sql, (row.id,))
    return int(found[0]) if found else 0


def _with_name(store: Store, row: SeriesRow, name: str) -> list[SeriesRow]:
    """Return the series that count something together with metrics of a learner; those of the metric's group first.

    What comes before the last ``/`` of a metric's name may be part of its group or of its own name.
    """
    parts = row.name.split("/")[:-1]
    own = ["/".join([*parts[:count], name]) for count in range(len(parts), -1, -1)]
    found = [
        each
        for each in series(store, row.job_id, kinds=("etime",))
        if each.learner == row.learner and (each.name == name or each.name.endswith(f"/{name}"))
    ]
    return sorted(found, key=lambda each: own.index(each.name) if each.name in own else len(own))


def _with_steps(read: Iterable[Point]) -> list[tuple[float, Point]]:
    return [(point.step, point) for point in read if point.step is not None]


def _total(row: SeriesRow) -> int:
    return row.points + row.superseded


def _skipped(store: Store, row: SeriesRow, shown: ChartRange) -> list[tuple[int, int]]:
    """Return the runs of points that are not shown."""
    hidden = _hidden(store, row, shown)
    return [] if hidden == NOTHING else runs_of(store.connection, row.id, hidden)


def _hidden(store: Store, row: SeriesRow, shown: ChartRange) -> str:
    """Return the condition on points that they are not shown."""
    if shown.attempt is not None:
        return f"attempt <> {int(shown.attempt)}"
    return NOTHING if shown.superseded else condition(cuts_of_series(store, row))


def _rolled_up(store: Store, row: SeriesRow, axis: str, width: int, shown: ChartRange) -> list[Bucket]:
    skip = _skipped(store, row, shown)
    low, high = (None, None) if axis == NUMBER else (shown.x_from, shown.x_to)
    found = buckets(
        store, row.id, width=width, x_from=low, x_to=high, by="time" if axis == TIME else "step", skip=skip
    )
    if axis != NUMBER:
        return found
    numbered, done = [], 0
    for bucket in found:
        numbered.append(replace(bucket, first_step=done + 1, last_step=done + bucket.count))
        done += bucket.count
    low = -math.inf if shown.x_from is None else shown.x_from
    high = math.inf if shown.x_to is None else shown.x_to
    return [each for each in numbered if (each.last_step or 0) >= low and (each.first_step or 0) <= high]


def _laid_out(placed: Iterable[tuple[float, Point]], width: int, shown: ChartRange) -> list[Bucket]:
    """Return points as buckets in the order of their x."""
    low = -math.inf if shown.x_from is None else shown.x_from
    high = math.inf if shown.x_to is None else shown.x_to
    inside = sorted((one for one in placed if low <= one[0] <= high), key=lambda one: (one[0], one[1].seq))
    found = [_bucket(number, x, point) for number, (x, point) in enumerate(inside, 1)]
    return merged(found, max(2, 2 * width))


def _bucket(number: int, x: float | None, point: Point) -> Bucket:
    value, time_us = point.value, point.time_us
    return Bucket(number, 1, x, x, time_us, time_us, value, value, value, value, int(value is None))


def _shown_points(store: Store, row: SeriesRow, shown: ChartRange) -> list[Point]:
    cuts: dict[int, Cut] = {}
    if shown.attempt is None and not shown.superseded:
        cuts = {cut.attempt: cut for cut in cuts_of_series(store, row)}
    return [
        point
        for point in points(store, row.id)
        if shown.attempt in (None, point.attempt)
        and not (point.attempt in cuts and cuts[point.attempt].holds(point.seq, point.time_us))
    ]


def _has_steps(store: Store, row: SeriesRow, shown: ChartRange) -> bool:
    """Say whether every point of a series that is shown has a step."""
    top = levels_of(max(1, _total(row)))
    sql = "SELECT sum(n - steps) FROM rollups WHERE series = ? AND level = ?"
    found = store.row(sql, (row.id, top))
    if found is None or not found[0]:
        return True
    sql = f"SELECT 1 FROM points WHERE series = ? AND step IS NULL AND NOT ({_hidden(store, row, shown)}) LIMIT 1"
    return store.row(sql, (row.id,)) is None


def _is_unordered(store: Store, row: SeriesRow, axis: str) -> bool:
    """Say whether the steps or times of a series go back, between attempts too, as far as its roll-ups tell.

    What they hide is within a dot.
    """
    if _total(row) > POINTS_MAX:
        return False
    level = 1
    while _total(row) >> (BITS * level) > _BUCKETS_MAX:
        level += 1
    sql = (
        f"SELECT first_{axis}, last_{axis}, min_{axis}, max_{axis} FROM rollups WHERE series = ? AND level = ? "
        "ORDER BY bucket"
    )
    before = -math.inf
    for first, last, low, high in store.rows(sql, (row.id, level)):
        if low is None:
            continue
        if first != low or last != high or low < before:
            return True
        before = high
    return False


def _along(store: Store, row: SeriesRow, name: str, shown: ChartRange) -> list[tuple[float, Point]] | None:
    """Return points with what was reported together with them by a name; None where one has none of it."""
    return _reported_with(store, row, name, None, shown)


def _reported_with(
    store: Store, row: SeriesRow, name: str, read: Sequence[Point] | None, shown: ChartRange = ChartRange()
) -> list[tuple[float, Point]] | None:
    """Do the same for the points that were read, or for those that are shown."""
    reported = _with_name(store, row, name)
    if not reported or max(map(_total, [row, *reported])) > POINTS_MAX:
        return None
    values: dict[_ReportKey, float | None] = {}
    for number, each in enumerate(reported):
        for key, value in _by_report(store, each).items():
            if number == 0 or key[1] is not None:  # of points without a report the group alone tells
                values.setdefault(key, value)
    runs = report_runs(store.connection, row.job_id, row.id)
    found: list[tuple[float, Point]] = []
    for point in _shown_points(store, row, shown) if read is None else read:
        along = values.get(_report_key(point, runs.report_of(point.seq)))
        if along is None:
            return None
        found.append((along, point))
    return found


_ReportKey = tuple[int, int | None, float | None, int]


def _report_key(point: Point, report: int | None) -> _ReportKey:
    """Return what tells a report from others: its number, or step and time where that is not known."""
    if report is not None:
        return point.attempt, report, None, 0
    return point.attempt, None, point.step, point.time_us


def _by_report(store: Store, row: SeriesRow) -> dict[_ReportKey, float | None]:
    """Return the values of a series by their reports; None where several have the same step and time."""
    runs = report_runs(store.connection, row.job_id, row.id)
    found: dict[_ReportKey, float | None] = {}
    for point in points(store, row.id):
        key = _report_key(point, runs.report_of(point.seq))
        is_finite = point.value is not None and math.isfinite(point.value)
        found[key] = point.value if key not in found and is_finite else None
    return found
