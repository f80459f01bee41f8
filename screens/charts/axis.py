"""One axis of a chart: from values to dots, linear or logarithmic, and its few round labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from workbench import formats
from workbench.values import dataclass

_FAR: Final = 1e300
_NEAR: Final = 1e-290
"""Beyond these, ranges and steps would leave what floating point can say."""
_TICKS_MORE: Final = 2
"""By so many the ticks of an axis may exceed what was asked for."""
_SAME: Final = 1e-10
"""Values that differ by a smaller share of themselves differ by the noise of floating point."""

SECONDS: Final = "seconds"
_SPANS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 6, 12)),
)
"""Round steps of time below a day."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values laid out over a number of dots."""

    low: float
    high: float
    logarithmic: bool = False
    unit: str = ""
    """What its labels are: numbers, or :data:`SECONDS`."""
    least_step: float = 0.0
    """Ticks are no nearer to each other: 1 where values are whole numbers."""

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

    def dots(self, values: Sequence[float], dots: int) -> list[int | None]:
        """Return the dot of each of these values, as :meth:`dot` does; NaN is on none."""
        if self.logarithmic or not self.high > self.low or not math.isfinite(self.high - self.low):
            return [None if math.isnan(value) else self.dot(value, dots) for value in values]
        low, span, last = self.low, self.high - self.low, dots - 1
        least, most = low - span, low + 2 * span
        return [
            round((value - low) / span * last + 1e-6)
            if least < value < most
            else None
            if math.isnan(value)
            else self.dot(value, dots)
            for value in values
        ]

    def value_at(self, dot: int, dots: int) -> float:
        """Return the value that lies on a dot: :meth:`dot` the other way round."""
        share = dot / max(1, dots - 1)
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return float(10.0 ** (low + share * (high - low)))
        return self.low + share * (self.high - self.low)

    def wider(self, share: float = 0.06) -> Axis:
        """Return the axis with some room at both ends, for points that would stand on its edge."""
        if self.logarithmic:
            room = (self.high / self.low) ** share
            return replace(self, low=self.low / room, high=self.high * room)
        by = (self.high - self.low) * share
        return replace(self, low=self.low - by, high=self.high + by)

    def ticks(self, count: int) -> list[float]:
        """Return round values inside the range, ascending, for so many parts of it; two where there can be two."""
        if count < 1 or self.high < self.low:
            return []
        if self.high == self.low:
            return [self.low]
        found = self._powers(count) if self.logarithmic else self._steps(count)
        # Every third one of them would be at steps that are not round.
        fewer = (found[::stride] for stride in (1, 2, 5, 10))
        return next((ticks for ticks in fewer if len(ticks) <= count + _TICKS_MORE), found[:1])

    def _steps(self, count: int) -> list[float]:
        step = round_step((self.high - self.low) / count, self.unit)
        step = max(step, self.least_step)
        first, last = self._first(step), self._last(step)
        if last - first < 1 and count < 6:
            return self._steps(count + 2)
        ticks = (index * step for index in range(first, min(last, first + 50) + 1))
        # Of 3 x 0.1 only so many digits are shown as the step has.
        return [float(f"{tick:.12g}") for tick in ticks if math.isfinite(tick)]

    def _first(self, step: float) -> int:
        return math.ceil(self.low / step - 1e-9)

    def _last(self, step: float) -> int:
        return math.floor(self.high / step + 1e-9)

    def _powers(self, count: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        fine = [f * 10.0**power for power in range(first, last + 1) for f in (1.0, 2.0, 5.0)]
        fine = [float(f"{value:.12g}") for value in fine]
        shown = [value for value in fine if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
        if len(shown) < 2:  # round steps say more than one power
            return [value for value in Axis(self.low, self.high)._steps(count) if value > 0]
        if len(shown) <= count:
            return shown
        powers = [value for value in shown if f"{value:e}".startswith("1.000000e")]
        return powers[:: max(1, math.ceil(len(powers) / count))] or shown[:1]

    def labels(self, ticks: Sequence[float]) -> list[str]:
        """Write ticks, with as many decimals as their step has; never so that two look the same."""
        shown = [label(tick, self.unit) for tick in ticks]
        if self.logarithmic or len(ticks) < 2:
            return shown
        step = ticks[1] - ticks[0]
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        fixed = [f"{tick + 0.0:.{decimals}f}" for tick in ticks]
        if not self.unit and max(map(abs, ticks)) < 1000 and decimals <= 4:
            return fixed
        if len(set(shown)) == len(shown):
            return shown
        return [clock(tick) for tick in ticks] if self.unit == SECONDS and step >= 1 else fixed


def round_step(step: float, unit: str = "") -> float:
    """Return the round step (1, 2, 5 times a power of ten; of time one of a clock) that is not smaller than a step."""
    if unit == SECONDS and step > 1:
        spans: Iterator[float] = (span for span in _SPANS if step <= span * (1 + 1e-9))
        return next(spans, 0.0) or round_step(step / 86_400) * 86_400
    power = 10.0 ** math.floor(math.log10(step))
    for factor in (1.0, 2.0, 5.0):
        if step <= factor * power * (1 + 1e-9):
            return factor * power
    return 10.0 * power


def around(values: Iterable[float], *, logarithmic: bool = False) -> Axis:
    """Return the axis that holds all of these values that it can show; an empty one shows 0 to 1."""
    shown = [v for v in values if math.isfinite(v) and (v > 0 or not logarithmic)]
    if not shown:
        return Axis(0.1, 1.0, True) if logarithmic else Axis(0.0, 1.0)
    low, high = (max(-_FAR, min(_FAR, v)) for v in (min(shown), max(shown)))
    if high - low < max(_NEAR, _SAME * max(abs(low), abs(high))):
        margin = abs(low) * 0.1 or 0.5
        return (
            Axis(max(low * 0.9, 5e-324), high * 1.1, True)
            if logarithmic
            else Axis(low - margin, high + margin)
        )
    return Axis(low, high, logarithmic)


def label(value: float, unit: str = "") -> str:
    """Write one tick in few cells: ``20k``, ``0.05``, ``1e-05``; seconds as ``3 min 07 s``."""
    if unit == SECONDS:
        return _span(value)
    if abs(value) < 1e-290:
        return "0"
    for factor, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if factor <= abs(value) < 1e12:
            return f"{value / factor:.4g}{sign}"
    return f"{value:.3g}"


def clock(seconds: float) -> str:
    """Write a length of time to the second: ``2:01:30``."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _span(seconds: float) -> str:
    """Write a length of time on a clock; what is zero behind its first unit is left out."""
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    shown = formats.duration(seconds)
    for zero in (" 00 s", " 00 min", " 0 h"):
        shown = shown.removesuffix(zero)
    return shown
