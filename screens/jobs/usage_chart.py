"""One chart of what a learner uses: an area over time below its limit, the values in its title. No widget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from screens.charts import axis as axes
from screens.charts.axis import Axis, round_step
from screens.charts.plot import axis_row, ticks_of
from screens.style import text
from screens.style.glyphs import glyphs
from workbench import formats
from workbench.values import dataclass

if TYPE_CHECKING:
    from screens.style.themes import Paint
    from workbench.services.inspect.usage_history import UsageCurves, UsageHistory

LABEL_CELLS: Final = 6
"""Of the value axis, with a blank behind it."""
WIDE_TITLE: Final = 44
"""From so many cells on sizes in titles are written out."""
TALL: Final = 7
"""From so many lines on a chart's value axis has a label half-way up."""
TIGHT: Final = 0.9
"""From this share of its limit on memory is about to run out."""

_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille's bits for so many dots from below."""
_LEFT_DOWN: Final = (0x00, 0x01, 0x03, 0x07, 0x47)
_RIGHT_DOWN: Final = (0x00, 0x08, 0x18, 0x38, 0xB8)
"""The same from above, for what is drawn downwards."""


@dataclass(frozen=True, slots=True)
class ChartKind:
    """What a chart shows: one measure, or two that are drawn upwards and downwards from a middle line."""

    title: str
    measures: tuple[str, ...]
    names: tuple[str, ...]
    """What the two are called."""
    unit: str
    """``%``, ``B``, ``B/s``, ``W``, ``C``."""
    colours: tuple[int, ...]
    is_gpu: bool = False
    absent: str = ""
    """What is said where nothing is measured though its agent could; empty: then there is no chart."""


CHARTS: Final = (
    ChartKind("CPU", ("cpu_percent",), (), "%", (1,)),
    ChartKind("memory", ("memory_bytes",), (), "B", (5,)),
    ChartKind(
        "disk",
        ("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
        ("read", "write"),
        "B/s",
        (3, 2),
    ),
    ChartKind(
        "network",
        ("network_receive_bytes_per_second", "network_send_bytes_per_second"),
        ("in", "out"),
        "B/s",
        (3, 2),
        absent="the machine's, not its own",
    ),
    ChartKind("use", ("utilization_percent",), (), "%", (6,), is_gpu=True),
    ChartKind("memory", ("memory_bytes",), (), "B", (5,), is_gpu=True),
    ChartKind("power", ("power_watts",), (), "W", (3,), is_gpu=True),
    ChartKind("temperature", ("temperature_celsius",), (), "C", (4,), is_gpu=True),
)
"""All charts of a learner, then of a GPU, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class UsageChart:
    """A chart of a learner, or of one of its GPUs."""

    kind: ChartKind
    learner: int
    gpu: str
    number: int
    """Of the GPU among the learner's, from 0."""

    @property
    def title(self) -> str:
        """What it is called."""
        return f"GPU {self.number} {self.kind.title}" if self.gpu else self.kind.title

    def curves(self, read: UsageCurves) -> list[UsageHistory]:
        """Return its curves as far as they were read."""
        keys = ((self.learner, self.gpu, measure) for measure in self.kind.measures)
        return [read.curves[key] for key in keys if key in read.curves]


def time_axis(read: UsageCurves, start_us: int) -> Axis | None:
    """Return the axis of what was read, in seconds since the job's start; None while there is no stretch of time."""
    if read.to_us - read.from_us < formats.MICROSECONDS:
        return None
    return Axis((read.from_us - start_us) / 1e6, (read.to_us - start_us) / 1e6, unit=axes.SECONDS)


def draw_time(x: Axis | None, width: int, paint: Paint, base: Style) -> Strip:
    """Draw the axis of the charts above it, of which each has so many cells."""
    plot = max(1, width - LABEL_CELLS)
    row = [] if x is None else axis_row(x, _times(x, plot), plot, LABEL_CELLS, "time")
    return _strip([("".join(shown for shown, _ in row), "dim", "")], width, paint, base)


def _times(x: Axis, width: int) -> list[tuple[int, str]]:
    """Return the columns of the axis's ticks with their labels; before a job's start there are none."""
    begin = max(0.0, x.low)
    left = x.dot(begin, width) or 0
    if x.high <= begin or left >= width:
        return []
    return [(left + dot, label) for dot, label in ticks_of(replace(x, low=begin), width - left)]


def draw_usage(
    chart: UsageChart,
    read: UsageCurves,
    size: tuple[int, int],
    paint: Paint,
    base: Style,
    x: Axis | None = None,
) -> list[Strip]:
    """Draw a chart into so many cells, width and height; upright lines stand at the ticks of a time axis."""
    width, height = size
    curves = chart.curves(read)
    kind = chart.kind
    if not curves:
        known = any(measure in read.measures[chart.learner].get(chart.gpu, ()) for measure in kind.measures)
        note = "" if known or not kind.absent else f"  {kind.absent}"
        title = [(chart.title, "text", "bold"), (note, "dim", "")]
        return [_strip(title, width, paint, base), *[Strip.blank(width, base)] * (height - 1)]
    lines = [_title(chart, curves, width, paint, base)]
    plot = max(1, width - LABEL_CELLS), height - 1
    crossed = [] if x is None else [dot for dot, _ in _times(x, plot[0])]
    if len(curves) > 1 and plot[1] >= 2:
        top = _top(kind, [*curves[0].values, *curves[1].values], None)
        above = -(-plot[1] // 2)
        lines += _area(kind, curves[0], 0, (plot[0], above), top, crossed, paint, base)
        lines += _area(kind, curves[1], 1, (plot[0], plot[1] - above), top, crossed, paint, base, down=True)
    else:
        top = _top(kind, curves[0].values, curves[0].limit)
        lines += _area(kind, curves[0], 0, plot, top, crossed, paint, base)
    return [strip.adjust_cell_length(width, base) for strip in lines[:height]]


def _title(chart: UsageChart, curves: Sequence[UsageHistory], width: int, paint: Paint, base: Style) -> Strip:
    kind = chart.kind
    shown = _label if kind.unit.startswith("B") and width < WIDE_TITLE else amount
    rate = "/s" if kind.unit == "B/s" and shown is _label else ""
    parts: list[tuple[str, str, str]] = [(f"{chart.title}{rate} ", "text", "bold")]
    greatest = [max((value for value in one.values if value is not None), default=one.last) for one in curves]
    if len(curves) > 1:
        for index, one in enumerate(curves):
            parts.append((f" {kind.names[index]} ", f"curve-{kind.colours[index]}", ""))
            parts.append((shown(kind, one.last), "text", ""))
    else:
        (one,) = curves
        role = "warning" if is_tight(one) else f"curve-{kind.colours[0]}"
        parts.append((f" {shown(kind, one.last)}", role, "bold"))
        if one.limit is not None and one.measure != "utilization_percent":
            of = f" of {shown(kind, one.limit)}"
            # A part of a number would be another number; the limit stands at its line as well.
            if sum(text.cells(part) for part, _, _ in parts) + text.cells(of) <= width:
                parts.append((of, "dim", ""))
    right = f"max {' '.join(shown(kind, one) for one in greatest)}"
    used = sum(text.cells(part) for part, _, _ in parts)
    if used + 2 + text.cells(right) <= width:
        parts.append((" " * (width - used - text.cells(right)), "dim", ""))
        parts.append((right, "dim", ""))
    return _strip(parts, width, paint, base)


def is_tight(history: UsageHistory) -> bool:
    """Say whether something is so near to its limit that it matters: memory runs out, a hot GPU slows itself down."""
    if history.limit is None:
        return False
    if history.measure == "memory_bytes":
        return history.last >= TIGHT * history.limit
    return history.measure == "temperature_celsius" and history.last >= history.limit


def amount(kind: ChartKind, value: float) -> str:
    """Return a value with its unit."""
    match kind.unit:
        case "B":
            return formats.size(value)
        case "B/s":
            return f"{formats.size(value)}/s"
        case "C":
            return f"{value:.0f} °C" if glyphs().unicode else f"{value:.0f} C"
        case "%":
            return formats.percent(value / 100)
        case _:
            return f"{value:.0f} {kind.unit}"


def amount_of(measure: str, value: float) -> str:
    """Return a value of a measure with its unit."""
    kind = next(kind for kind in CHARTS if measure in kind.measures)
    return amount(kind, value)


def _label(kind: ChartKind, value: float) -> str:
    """Return a value in at most five cells."""
    if kind.unit.startswith("B"):
        return formats.short_size(value)
    if kind.unit == "%":
        return formats.percent(value / 100)
    degree = "°" if kind.unit == "C" and glyphs().unicode else ""
    return f"{value:.0f}{degree}{kind.unit}"


def _top(kind: ChartKind, values: Sequence[float | None], limit: float | None) -> float:
    """Return the value at the upper end of a chart: the limit, unless more is used."""
    most = max((value for value in values if value is not None), default=0.0)
    if limit is not None and most <= limit:
        return limit
    if kind.unit == "C" and most <= 100:
        return 100.0
    if most <= 0:
        return 100.0 if kind.unit == "%" else 1.0
    if kind.unit.startswith("B"):
        power = 1.0
        while most / power >= 1024:
            power *= 1024
        return round_step(most / power) * power
    return round_step(most)


def _area(
    kind: ChartKind,
    curve: UsageHistory,
    index: int,
    size: tuple[int, int],
    top: float,
    crossed: Collection[int],
    paint: Paint,
    base: Style,
    *,
    down: bool = False,
) -> list[Strip]:
    """Draw values as an area, with the limit as a line, its axis to the left; ``crossed`` are columns of the grid."""
    width, rows = size
    unicode = glyphs().unicode
    dots = 4 if unicode else 2
    samples = _resampled(curve.values, width * (2 if unicode else 1))
    heights = [_height(value, top, rows * dots) for value in samples]
    limit_row = None
    if curve.limit is not None and curve.limit <= top and curve.measure != "utilization_percent":
        limit_row = _row_of(curve.limit, top, rows)
    ends = {rows - 1 if down else 0: _label(kind, top)}
    if not down and rows > 1:
        ends[rows - 1] = "0"
    middle = _row_of(top / 2, top, rows)
    if rows >= TALL and not down and top >= 2 and (limit_row is None or abs(limit_row - middle) > 1):
        ends[middle] = _label(kind, top / 2)
    if limit_row and curve.limit is not None:
        ends[limit_row] = _label(kind, curve.limit)
    colour = base + paint.style(f"curve-{kind.colours[index]}")
    line_style = base + paint.style("warning")
    label_style = base + paint.style("dim")
    grid_style = base + paint.style("grid", "" if paint.coloured else "dim")
    grid = "".join(glyphs().grid_upright if column in crossed else " " for column in range(width))
    strips = []
    for row in range(rows):
        floor = (row if down else rows - 1 - row) * dots
        cells = _cells(heights, floor, down=down, unicode=unicode)
        segments = [Segment(f"{ends.get(row, ''):>{LABEL_CELLS - 1}} ", label_style)]
        if row == limit_row:
            segments += _over(cells, colour, ("╌" if unicode else "-") * width, line_style)
        else:
            segments += _over(cells, colour, grid, grid_style)
        strips.append(Strip(segments))
    return strips


def _resampled(values: Sequence[float | None], count: int) -> list[float | None]:
    """Return so many values, the greatest of each stretch."""
    total = len(values)
    found: list[float | None] = []
    for index in range(count):
        start = index * total // count
        part = [
            value
            for value in values[start : max(start + 1, (index + 1) * total // count)]
            if value is not None
        ]
        found.append(max(part, default=None))
    return found


def _height(value: float | None, top: float, dots: int) -> int:
    """Return how many dots high a value is; -1 where nothing is known. What was measured has a dot at least."""
    return -1 if value is None else max(1, min(dots, round(value / top * dots)))


def _cells(heights: Sequence[int], floor: int, *, down: bool, unicode: bool) -> str:
    """Return a row of an area; ``floor`` is how many dots lie between it and the line it stands on."""
    if not unicode:
        half = "'" if down else "."
        return "".join("#" if high - floor >= 2 else half if high - floor == 1 else " " for high in heights)
    left, right = (_LEFT_DOWN, _RIGHT_DOWN) if down else (_LEFT, _RIGHT)
    drawn = []
    for index in range(0, len(heights) - 1, 2):
        bits = (
            left[max(0, min(4, heights[index] - floor))] | right[max(0, min(4, heights[index + 1] - floor))]
        )
        drawn.append(chr(0x2800 + bits) if bits else " ")
    return "".join(drawn)


def _row_of(value: float, top: float, rows: int) -> int:
    """Return the row in which an area of this value ends."""
    return max(0, rows - 1 - int(value / top * rows - 1e-9))


def _over(cells: str, colour: Style, behind: str, behind_style: Style) -> list[Segment]:
    """Draw an area, and where it leaves room what is behind it: a limit's line, or the grid."""
    segments: list[Segment] = []
    for is_free, part in groupby(zip(cells, behind, strict=False), key=lambda pair: pair[0] == " "):
        shown = "".join(pair[1 if is_free else 0] for pair in part)
        segments.append(Segment(shown, behind_style if is_free else colour))
    return segments


def _strip(parts: Sequence[tuple[str, str, str]], width: int, paint: Paint, base: Style) -> Strip:
    segments, room = [], width
    for shown, role, attributes in parts:
        cut = text.shorten(shown, room)
        segments.append(Segment(cut, base + paint.style(role, attributes)))
        room -= text.cells(cut)
    return Strip(segments).adjust_cell_length(width, base)
