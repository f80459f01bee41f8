"""Points for charts: about two a column, from roll-ups, however many points there are.

From the coarsest level down, only buckets in the window are read, until there are enough; so the cost grows
with the width of the chart. The edges of a window are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from workbench.metrics.rollup import BITS, levels_of
from workbench.store.db.database import Store
from workbench.store.db.rows import Bucket
from workbench.values import dataclass

Axis = Literal["step", "time"]

_REFINED: Final = 64
"""So many buckets on the edge of a window are looked into. There are more only where steps go back again
and again; those buckets are then shown whole."""

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _Part:
    level: int
    number: int
    """Number of the bucket on its level; of a point its ``seq`` - 1."""
    inside: bool
    """Whether all of it lies in the window."""
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class _Window:
    axis: Axis
    low: float
    high: float
    everything: bool
    skip: tuple[tuple[int, int], ...] = ()
    """Runs of points that are left out: the numbers of their first and last one."""

    def leaves_out(self, first: int, last: int) -> bool:
        """Say whether all of some consecutive points are left out."""
        return any(low <= first and last <= high for low, high in self.skip)

    def cuts(self, first: int, last: int) -> bool:
        """Say whether some of them are."""
        return any(low <= last and first <= high for low, high in self.skip)


def buckets(
    store: Store,
    series_id: int,
    *,
    width: int,
    x_from: float | None = None,
    x_to: float | None = None,
    by: Axis = "step",
    skip: Sequence[tuple[int, int]] = (),
) -> list[Bucket]:
    """Return a series as about ``2 * width`` buckets in the order of its points.

    Args:
        store: The store.
        series_id: Which series.
        width: Columns of the chart.
        x_from: Only points from this step, or time in microseconds, on.
        x_to: Only points up to this one.
        by: What ``x_from`` and ``x_to`` are. With a window, points without a step are left out.
        skip: Runs of points to leave out, by the numbers of their first and last one: superseded ones.
    """
    found = store.row("SELECT points FROM series WHERE id = ?", (series_id,))
    total = found[0] if found else 0
    if not total:
        return []
    window = _Window(
        by,
        _LOWEST if x_from is None else _bounded(x_from),
        _HIGHEST if x_to is None else _bounded(x_to),
        x_from is None and x_to is None,
        tuple(skip),
    )
    count = max(2, 2 * width)
    parts = _descend(store, series_id, total, window, count)
    return merged([part.bucket for part in _refine(store, series_id, window, parts)], count)


def _bounded(x: float) -> float:
    return min(max(x, _LOWEST), _HIGHEST)


def _descend(store: Store, series: int, total: int, window: _Window, count: int) -> list[_Part]:
    level = levels_of(total)
    if window.everything:
        # Nothing has to be looked for: the finest level that is not finer than needed.
        while level > 0 and (total - 1 >> (BITS * level)) + 1 < count:
            level -= 1
        return _read(store, series, level, [(0, total - 1 >> (BITS * level))], window)
    parts = _read(store, series, level, [(0, total - 1 >> (BITS * level))], window)
    while level > 0 and len(parts) < count:
        level -= 1
        parts = _read(store, series, level, _children([part.number for part in parts]), window)
    return parts


def _refine(store: Store, series: int, window: _Window, parts: list[_Part]) -> list[_Part]:
    edges = [part for part in parts if not part.inside]
    if not edges or (len(edges) > _REFINED and not window.skip):
        return parts
    exact: list[_Part] = []
    for part in parts:
        if part.inside:
            exact.append(part)
        else:
            below = _read(store, series, part.level - 1, _children([part.number]), window)
            exact += _refine(store, series, window, below)
    return exact


def _children(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of the buckets below, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        first, last = number << BITS, (number + 1 << BITS) - 1
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges


def _read(
    store: Store, series: int, level: int, ranges: Sequence[tuple[int, int]], window: _Window
) -> list[_Part]:
    """Read the buckets of a level, or the points, in ranges of numbers that have something in the window."""
    return [part for first, last in ranges for part in _read_range(store, series, level, first, last, window)]


def _read_range(store: Store, series: int, level: int, first: int, last: int, window: _Window) -> list[_Part]:
    values: tuple[float, ...] = (series, first, last)
    if not window.everything:
        values += (window.low, window.high)
    axis = window.axis
    if level == 0:
        where = "" if window.everything else f" AND {axis} >= ? AND {axis} <= ?"
        sql = (
            "SELECT seq, step, time, value FROM points "
            f"WHERE series = ? AND seq > ? AND seq <= ? + 1{where} ORDER BY seq"
        )
        found = store.rows(sql, values)
        if window.skip:
            found = [row for row in found if not window.leaves_out(row[0], row[0])]
        return [_Part(0, row[0] - 1, True, _point(*row)) for row in found]
    where = "" if window.everything else f" AND max_{axis} >= ? AND min_{axis} <= ?"
    sql = (
        "SELECT bucket, n, first_step, last_step, first_time, last_time, min, max, first, last, nans, "
        f"min_{axis}, max_{axis}, steps FROM rollups "
        f"WHERE level = {level} AND series = ? AND bucket >= ? AND bucket <= ?{where} ORDER BY bucket"
    )
    parts = []
    for row in store.rows(sql, values):
        inside = window.everything or (
            row[11] >= window.low and row[12] <= window.high and (axis == "time" or row[13] == row[1])
        )
        bucket = Bucket((row[0] << (BITS * level)) + 1, *row[1:11])
        if window.skip:
            ends = bucket.first_seq, bucket.first_seq + bucket.count - 1
            if window.leaves_out(*ends):
                continue
            inside = inside and not window.cuts(*ends)
        parts.append(_Part(level, row[0], inside, bucket))
    return parts


def _point(seq: int, step: float | None, time_us: int, value: float | None) -> Bucket:
    nans = 1 if value is None else 0
    return Bucket(seq, 1, step, step, time_us, time_us, value, value, value, value, nans)


def merged(found: list[Bucket], count: int) -> list[Bucket]:
    """Join neighbours until there are no more than asked for; runs with a gap between them stay apart."""
    if len(found) <= count:
        return found
    total = sum(bucket.count for bucket in found)
    joined: list[Bucket] = []
    group: list[Bucket] = []
    before = current = 0
    for bucket in found:
        share = before * count // total
        gap = group and group[-1].first_seq + group[-1].count != bucket.first_seq
        if group and (share != current or gap):
            joined.append(_join(group))
            group = []
        current = share
        group.append(bucket)
        before += bucket.count
    joined.append(_join(group))
    return joined


def _join(group: Sequence[Bucket]) -> Bucket:
    if len(group) == 1:
        return group[0]
    head, tail = group[0], group[-1]
    return Bucket(
        first_seq=head.first_seq,
        count=sum(bucket.count for bucket in group),
        first_step=head.first_step,
        last_step=tail.last_step,
        first_time_us=head.first_time_us,
        last_time_us=tail.last_time_us,
        minimum=min((b.minimum for b in group if b.minimum is not None), default=None),
        maximum=max((b.maximum for b in group if b.maximum is not None), default=None),
        first=head.first,
        last=tail.last,
        nans=sum(bucket.nans for bucket in group),
    )
