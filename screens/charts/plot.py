"""A chart as rows of text in colours: curves in dots between a value axis and an x axis. Pure, no widget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from screens.charts import axis as axes
from screens.charts.axis import Axis
from screens.charts.canvas import Canvas
from screens.charts.curve import OTHER, Curve, smoothed
from screens.style.glyphs import glyphs
from workbench.values import dataclass

PLAIN: Final = 0
DIM: Final = 100
"""Added to a curve's colour for what lies behind its smoothed line."""
LABEL: Final = 201
CURSOR: Final = 202
GAP: Final = 203
GRID: Final = 204

STEP: Final = "step"
TIME: Final = "time"
NUMBER: Final = "number"

Row = list[tuple[str, int]]
MARGIN: Final = 7
"""Columns of the value axis."""
_ROOMY: Final = 32
"""A narrower plot has no column to give away."""
_GROWTHS: Final = 20
"""An x axis grows by about so small a part of itself at once."""
_SIGN_EVERY: Final = 9
"""Cells from one sign of a curve to the next."""


@dataclass(frozen=True, slots=True)
class ChartView:
    """How charts are shown; one for all charts of a screen, so that they stay in step."""

    logarithmic: bool = False
    smoothing: float = 0.0
    axis: str = STEP
    """What x is: steps, seconds since the start, or what a job reports with its metrics, such as ``epoch``."""
    x_low: float | None = None
    """The part that is zoomed into; None for all."""
    x_high: float | None = None
    cursor: float | None = None
    """The x of the inspect cursor, or None when it is off."""

    @property
    def is_zoomed(self) -> bool:
        """Whether a part of x is shown."""
        return self.x_low is not None and self.x_high is not None


def x_axis(curves: Sequence[Curve], view: ChartView, what: str = "") -> Axis:
    """Return the x axis of charts that are shown together; ``what`` it is where that is not what the view asks for."""
    what = what or view.axis
    unit, least_step = (axes.SECONDS, 0.0) if what == TIME else ("", 1.0 if what in (STEP, NUMBER) else 0.0)
    if view.x_low is not None and view.x_high is not None:
        return Axis(view.x_low, view.x_high, unit=unit, least_step=least_step)
    ends = [end for curve in curves if curve.x for end in (curve.x[0], curve.x[-1])]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    return Axis(low, _growing_end(low, high, unit), unit=unit, least_step=least_step)


def _growing_end(low: float, high: float, unit: str) -> float:
    """Return an end a little behind the last point: new points extend a curve, and seldom draw all of it again."""
    if not high > low or not math.isfinite(high - low):
        return high
    step = axes.round_step((high - low) / _GROWTHS, unit)
    return low + math.ceil((high - low) / step - 1e-9) * step


def draw(
    curves: Sequence[Curve],
    view: ChartView,
    x: Axis,
    width: int,
    height: int,
    *,
    name: str = "",
    marked: bool = False,
) -> list[Row]:
    """Draw curves into so many cells: the value axis to the left, the x axis in the last row.

    Args:
        curves: What is drawn.
        view: How.
        x: The x axis.
        width: Columns.
        height: Lines.
        name: What the x axis is, written at its start.
        marked: Whether curves are told apart by signs as well as by colours.
    """
    y = _value_axis(curves, view, x)
    rows = max(1, height - 1)
    labels = _labels(y, rows)
    margin = margin_of(labels.values(), width)
    canvas = Canvas(max(1, width - margin), rows, unicode=glyphs().unicode)
    below = ticks_of(x, canvas.width)
    cursor = x.dot(view.cursor, canvas.columns) if view.cursor is not None else None
    if cursor is not None:
        canvas.run(cursor, 0, canvas.rows - 1, CURSOR)
    several = len(curves) > 1
    for place, (colour, one) in enumerate(_layers(curves, view)):
        sign = sign_of(one.colour) if marked and several and one.colour != OTHER else ""
        if several:
            _draw_line(canvas, one, x, y, colour, sign, place % len(curves), _grain(len(curves), view))
        else:
            _draw_curve(canvas, one, x, y, colour)
    grid = _grid_line(canvas.width, [dot for dot, _ in below])
    plotted = canvas.rows_of_text(dict.fromkeys(labels, grid), GRID)
    drawn = [[(_label_cell(labels.get(row, ""), margin), LABEL), *plotted[row]] for row in range(rows)]
    drawn.append(axis_row(x, below, canvas.width, margin, name, curves))
    return drawn[:height]


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """One point of a scatter."""

    x: float
    y: float
    colour: int
    sign: str
    label: str = ""
    """Written to its right where there is room."""


def scatter(
    points: Sequence[ScatterPoint],
    x: Axis,
    named: Sequence[tuple[float, str]],
    y: Axis,
    size: tuple[int, int],
) -> list[Row]:
    """Draw points into so many cells; ``named`` are values of x with their labels, of which as many stand as fit."""
    width, height = size
    rows = max(1, height - 1)
    x, y = x.wider(), y.wider()
    labels = _labels(y, rows)
    margin = margin_of(labels.values(), width)
    canvas = Canvas(max(1, width - margin), rows, unicode=glyphs().unicode)
    below = _fitting(
        [
            (dot, text)
            for at, text in named
            if (dot := x.dot(at, canvas.width)) is not None and x.low <= at <= x.high
        ],
        canvas.width,
    )
    across, down = canvas.columns // canvas.width, canvas.rows // rows
    taken: set[tuple[int, int]] = set()
    placed = [
        (column, rows - 1 - row, point)
        for point in points
        if (column := x.dot(point.x, canvas.width)) is not None and (row := y.dot(point.y, rows)) is not None
    ]
    for column, row, point in placed:
        canvas.sign(column * across, row * down, point.sign, point.colour)
        taken.add((column, row))
    for column, row, point in placed:
        cells = [(column + 2 + offset, row) for offset in range(len(point.label))]
        if cells and cells[-1][0] < canvas.width - 1 and not taken & {(column + 1, row), *cells}:
            for sign, (at, _) in zip(point.label, cells, strict=True):
                canvas.sign(at * across, row * down, sign, LABEL)
            taken |= set(cells)
    plotted = canvas.rows_of_text(
        dict.fromkeys(labels, _grid_line(canvas.width, [dot for dot, _ in below])), GRID
    )
    drawn: list[Row] = [
        [(_label_cell(labels.get(row, ""), margin), LABEL), *plotted[row]] for row in range(rows)
    ]
    drawn.append(axis_row(x, below, canvas.width, margin, ""))
    return drawn[:height]


def _fitting(ticks: Sequence[tuple[int, str]], width: int) -> list[tuple[int, str]]:
    """Return those ticks whose labels have room behind the one before."""
    shown: list[tuple[int, str]] = []
    end = -2
    for dot, text in ticks:
        at = _place(dot, text, width)
        if at >= end + 2 and at + len(text) <= width:
            shown.append((dot, text))
            end = at + len(text)
    return shown


def sign_of(colour: int) -> str:
    """Return the sign that stands for a colour of curves, from 1."""
    return glyphs().points[(colour - 1) % len(glyphs().points)]


def margin_of(labels: Iterable[str], width: int) -> int:
    """Return how many columns the value axis has: the same in charts beside each other, unless a label is longer."""
    longest = max((len(label) for label in labels), default=0)
    usual = MARGIN if width >= _ROOMY else 0
    return max(1, min(max(usual, longest + 1), width // 2))


def _label_cell(label: str, margin: int) -> str:
    """Return a label of the value axis, and none where only a part of it had room: that would be another number."""
    return label.rjust(margin - 1) + " " if len(label) < margin else " " * margin


def _grid_line(width: int, crossed: Sequence[int]) -> str:
    line = [glyphs().grid if glyphs().unicode or not column % 2 else " " for column in range(width)]
    for column in crossed:
        if 0 <= column < width:
            line[column] = glyphs().grid_cross
    return "".join(line)


def _layers(curves: Sequence[Curve], view: ChartView) -> Iterator[tuple[int, Curve]]:
    """Name what is drawn from back to front: with smoothing, what was measured lies dim behind."""
    ordered = sorted(curves, key=lambda one: one.colour != OTHER)
    for one in ordered:
        yield (one.colour + DIM if view.smoothing else one.colour), one
    if not view.smoothing:
        return
    for one in ordered:
        line = smoothed(one.value, view.smoothing)
        yield one.colour, Curve(one.label, one.colour, one.x, line, line, line)


def _visible(one: Curve, x: Axis) -> Iterator[int]:
    return (i for i, at in enumerate(one.x) if x.low <= at <= x.high)


def _value_axis(curves: Sequence[Curve], view: ChartView, x: Axis) -> Axis:
    values = (v for one in curves for i in _visible(one, x) for v in (one.low[i], one.high[i]))
    return axes.around(values, logarithmic=view.logarithmic)


def _labels(y: Axis, rows: int) -> dict[int, str]:
    """Return the labels of the value axis by row."""
    labels: dict[int, str] = {}
    ticks = y.ticks(max(1, min((rows - 1) // 2, 10)))
    for tick, text in zip(ticks, y.labels(ticks), strict=True):
        if (dot := y.dot(tick, rows)) is not None and 0 <= dot < rows:
            labels.setdefault(rows - 1 - dot, text)
    return labels


def _draw_curve(canvas: Canvas, one: Curve, x: Axis, y: Axis, colour: int) -> None:
    """Draw a curve: at each point the span that it stands for, between points a line, which NaN breaks."""
    bottom = canvas.rows - 1
    before: tuple[int, int] | None = None
    drawn = 0
    spans: dict[int, tuple[int, int]] = {}
    """From where to where each column is drawn: what is connected has no holes, so that one run a column will do."""
    ups = y.dots(one.value, canvas.rows)
    lows, highs = y.dots(one.low, canvas.rows), y.dots(one.high, canvas.rows)
    columns = x.dots(one.x, canvas.columns)
    for value, column, up, low, high in zip(one.value, columns, ups, lows, highs, strict=True):
        if column is None or up is None or not math.isfinite(value):
            before = None
            canvas.runs(spans, colour)
            spans.clear()
            continue
        row = bottom - up
        if low is not None and high is not None and low != high:
            _widen(spans, column, bottom - high, bottom - low)
        if before is None:
            _widen(spans, column, row, row)
        elif (before[0] >= 0 or column >= 0) and before[0] < canvas.columns:
            _connect(spans, *before, column, row)
        before = (column, row)
        drawn += 1
    canvas.runs(spans, colour)
    if drawn == 1 and before is not None:  # a dot alone is easily overlooked
        canvas.sign(*before, sign_of(1), colour)


def _widen(spans: dict[int, tuple[int, int]], column: int, one_end: int, other_end: int) -> None:
    """Have a column drawn from one row to another, and to where it is drawn already."""
    top, bottom = (one_end, other_end) if one_end <= other_end else (other_end, one_end)
    if (known := spans.get(column)) is not None:
        top, bottom = min(top, known[0]), max(bottom, known[1])
    spans[column] = top, bottom


def _connect(spans: dict[int, tuple[int, int]], column0: int, row0: int, column1: int, row1: int) -> None:
    """Have a line drawn between two points of a curve, as :meth:`Canvas.line` draws it."""
    across = column1 - column0
    if across == 0:
        _widen(spans, column0, row0, row1)
        return
    before = row0
    for column in range(column0, column1 + 1):
        row = row0 + round((row1 - row0) * (column - column0) / across)
        _widen(spans, column, before + (row > before) - (row < before), row)
        before = row


def _grain(curves: int, view: ChartView) -> int:
    """Return over how many cells each of several curves is averaged: noise would make one band of them all."""
    return 0 if view.smoothing else 1 if curves <= 3 else 2


def _draw_line(
    canvas: Canvas, one: Curve, x: Axis, y: Axis, colour: int, sign: str, place: int, grain: int
) -> None:
    """Draw one of several curves: a line without its spans, which would cover the others, and a sign now and then."""
    bottom = canvas.rows - 1
    before: tuple[int, int] | None = None
    drawn = 0
    cell = canvas.columns // canvas.width
    next_sign = (3 * place + 2) % _SIGN_EVERY * cell
    for mean in _means(canvas, one, x, y, max(1, grain * cell)):
        if mean is None:
            before = None
            continue
        column, row = mean[0], bottom - mean[1]
        if before is not None and before[0] < canvas.columns:
            canvas.line(*before, column, row, colour)
        else:
            canvas.run(column, row, row, colour)
        before = (column, row)
        drawn += 1
        if sign and column >= next_sign:
            canvas.sign(column, row, sign, colour)
            next_sign = column + _SIGN_EVERY * cell
    if drawn == 1 and before is not None:
        canvas.sign(*before, sign or sign_of(1), colour)


def _means(canvas: Canvas, one: Curve, x: Axis, y: Axis, dots: int) -> Iterator[tuple[int, int] | None]:
    """Yield the mean place of the points of each stretch of so many dots, None where the curve is broken."""
    columns: list[int] = []
    rows: list[int] = []
    for at, value in zip(one.x, one.value, strict=True):
        column, row = x.dot(at, canvas.columns), y.dot(value, canvas.rows) if math.isfinite(value) else None
        if columns and (column is None or row is None or column // dots != columns[-1] // dots):
            yield round(sum(columns) / len(columns)), round(sum(rows) / len(rows))
            columns, rows = [], []
        if column is None or row is None:
            yield None
        else:
            columns.append(column)
            rows.append(row)
    if columns:
        yield round(sum(columns) / len(columns)), round(sum(rows) / len(rows))


@lru_cache(maxsize=64)
def ticks_of(x: Axis, width: int) -> tuple[tuple[int, str], ...]:
    """Return as many ticks as fit side by side: the column of each, and its label."""
    for count in range(max(1, width // 8), 0, -1):
        ticks = x.ticks(count)
        dots = [x.dot(tick, width) for tick in ticks]
        found = [(dot, text) for dot, text in zip(dots, x.labels(ticks), strict=True) if dot is not None]
        places = [_place(dot, text, width) for dot, text in found]
        ends = [at + len(text) for at, (_, text) in zip(places, found, strict=True)]
        if all(at >= end + 2 for at, end in zip(places[1:], ends, strict=False)) and ends[-1:] <= [width]:
            return tuple(found)
    return ()


def _place(dot: int, text: str, width: int) -> int:
    """Return the column at which a label begins that stands below a tick."""
    return max(0, min(dot - len(text) // 2, width - len(text)))


def axis_row(
    x: Axis,
    ticks: Sequence[tuple[int, str]],
    width: int,
    margin: int,
    name: str,
    curves: Sequence[Curve] = (),
) -> Row:
    """Return the row of an x axis: what it is, its labels, and a sign where something was not a number."""
    named = name.rjust(margin - 1) if len(name) < margin else ""
    cells: list[tuple[str, int]] = [(sign, LABEL) for sign in named]
    cells += [(" ", PLAIN)] * (margin + width - len(cells))
    for one in curves:
        for gap in one.gaps:
            dot_of_gap = x.dot(gap, width)
            if dot_of_gap is not None and 0 <= dot_of_gap < width:
                cells[margin + dot_of_gap] = (glyphs().gap, GAP)
    for dot, text in ticks:
        at = margin + _place(dot, text, width)
        cells[at : at + len(text)] = [(sign, LABEL) for sign in text]
    return _joined(cells)


def _joined(cells: Sequence[tuple[str, int]]) -> Row:
    row: Row = []
    for sign, colour in cells:
        if row and row[-1][1] == colour:
            row[-1] = (row[-1][0] + sign, colour)
        else:
            row.append((sign, colour))
    return row
