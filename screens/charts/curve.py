"""What a chart draws: curves, smoothed on request, with colours that stay theirs. Pure."""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from screens.style.themes import CURVE_COLOURS
from workbench.store.db.rows import Bucket
from workbench.values import dataclass

SMOOTHINGS: Final = (0.0, 0.6, 0.9, 0.97)

OTHER: Final = 99
"""The colour of curves that stay in the background: there are more of them than colours."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart; its lists have the same length, ascending in x. NaN is a value that is none."""

    label: str
    colour: int
    """From 1 to :data:`CURVE_COLOURS`."""
    x: Sequence[float]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    gaps: Sequence[float] = ()
    """Every x at which something that is not a number was reported."""

    def nearest(self, x: float) -> int | None:
        """Return the index of the point nearest to an x, or None when there is none."""
        if not self.x:
            return None
        right = bisect_left(self.x, x)
        if right == 0:
            return 0
        if right == len(self.x):
            return right - 1
        return right if self.x[right] - x < x - self.x[right - 1] else right - 1


def curve(
    label: str,
    colour: int,
    buckets: Iterable[Bucket],
    *,
    start_us: int | None = None,
) -> Curve:
    """Make a curve of a series' buckets: over their steps, or over seconds since ``start_us``.

    Of a bucket without a step nothing is drawn: it is on no dot of those with one.
    """
    x: list[float] = []
    value: list[float] = []
    low: list[float] = []
    high: list[float] = []
    gaps: list[float] = []
    for bucket in buckets:
        at = _x(bucket, start_us)
        if at is None:
            continue
        if bucket.nans:
            gaps.append(at)
        x.append(at)
        value.append(_number(bucket.last))
        low.append(_number(bucket.minimum))
        high.append(_number(bucket.maximum))
    if any(b < a for a, b in pairwise(x)):  # a resumed attempt goes back to an earlier step
        order = sorted(range(len(x)), key=x.__getitem__)
        x, value, low, high = ([column[i] for i in order] for column in (x, value, low, high))
    return Curve(label, colour, x, value, low, high, gaps)


def extended(one: Curve, behind: Curve) -> Curve:
    """Return a curve that goes on with the points of another, which lie behind its own."""
    return Curve(
        one.label,
        one.colour,
        [*one.x, *behind.x],
        [*one.value, *behind.value],
        [*one.low, *behind.low],
        [*one.high, *behind.high],
        [*one.gaps, *behind.gaps],
    )


def _x(bucket: Bucket, start_us: int | None) -> float | None:
    if start_us is not None:
        return (bucket.last_time_us - start_us) / 1e6
    return None if bucket.last_step is None else float(bucket.last_step)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """Return the running mean in which what came before weighs so much, without bias at the start.

    NaN stays NaN. It runs over the points that are drawn, so it smooths as much to the eye at every zoom.
    """
    if not weight:
        return list(values)
    mean, count, result = 0.0, 0, []
    for value in values:
        if not math.isfinite(value):
            result.append(value)
            continue
        mean = mean * weight + value * (1 - weight)
        count += 1
        result.append(mean / (1 - weight**count))
    return result


def colours(labels: Sequence[str]) -> dict[str, int]:
    """Give each label a colour: always the same by its name, unless another of these has taken it."""
    taken: dict[str, int] = {}
    for name in sorted(set(labels)):
        preferred = zlib.crc32(name.encode("utf-8", "replace")) % CURVE_COLOURS
        free = [c for c in range(CURVE_COLOURS) if c + 1 not in taken.values()] or range(CURVE_COLOURS)
        taken[name] = min(free, key=lambda colour: (colour - preferred) % CURVE_COLOURS) + 1
    return taken
