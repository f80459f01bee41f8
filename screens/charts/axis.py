"""One axis of a chart: from values to dots, linear or logarithmic, and its few round labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from workbench import formats

_FAR: Final = 1e300
_NEAR: Final = 1e-290
"""Beyond these, ranges and steps would leave what floating point can say."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values laid out over a number of dots."""

    low: float
    high: float
    logarithmic: bool = False

    def dot(self, value: float, dots: int) -> int | None:
        """Return which of so many dots a value falls on, 0 for the low end; None where it is on none."""
        if self.logarithmic:
            if value <= 0:
                return None
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(value)
        else:
            low, high = self.low, self.high
        if high <= low:
            return dots // 2
        share = (value - low) / (high - low)
        # A hair more, so that values on the edge between two dots do not flicker.
        return round(max(-1.0, min(2.0, share)) * (dots - 1) + 1e-6)

    def value_at(self, dot: int, dots: int) -> float:
        """Return the value that lies on a dot: :meth:`dot` the other way round."""
        share = dot / max(1, dots - 1)
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return float(10.0 ** (low + share * (high - low)))
        return self.low + share * (self.high - self.low)

    def ticks(self, count: int) -> list[float]:
        """Return at most about so many round values inside the range, ascending."""
        if count < 1 or self.high < self.low:
            return []
        if self.high == self.low:
            return [self.low]
        return self._powers(count) if self.logarithmic else self._steps(count)

    def _steps(self, count: int) -> list[float]:
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        ticks = (index * step for index in range(first, min(last, first + 50) + 1))
        return [tick for tick in ticks if math.isfinite(tick)]

    def _powers(self, count: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 1:  # less than a decade: round steps say more than one power
            return [value for value in Axis(self.low, self.high).ticks(count) if value > 0]
        every = max(1, math.ceil((last - first + 1) / count))
        return [10.0**power for power in range(first, last + 1, every)]


def round_step(step: float) -> float:
    """Return the round step (1, 2, 2.5 or 5 times a power of ten) that is not smaller than a step."""
    power = 10.0 ** math.floor(math.log10(step))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if step <= factor * power * (1 + 1e-9):
            return factor * power
    return 10.0 * power


def around(values: Iterable[float], *, logarithmic: bool = False) -> Axis:
    """Return the axis that holds all of these values that it can show; an empty one shows 0 to 1."""
    shown = [max(-_FAR, min(_FAR, v)) for v in values if math.isfinite(v) and (v > 0 or not logarithmic)]
    if not shown:
        return Axis(0.1, 1.0, True) if logarithmic else Axis(0.0, 1.0)
    low, high = min(shown), max(shown)
    if high - low < _NEAR:
        margin = abs(low) * 0.1 or 0.5
        return (
            Axis(max(low * 0.9, 5e-324), high * 1.1, True)
            if logarithmic
            else Axis(low - margin, high + margin)
        )
    return Axis(low, high, logarithmic)


def label(value: float, *, seconds: bool = False) -> str:
    """Say a tick in few cells: ``20k``, ``0.05``, ``1e-05``; a number of seconds as a span."""
    if seconds:
        return formats.short_duration(value)
    if abs(value) < 1e-12:
        return "0"
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor and abs(value) < 1e12:
            return f"{value / factor:.4g}{unit}"
    return f"{value:.3g}"
