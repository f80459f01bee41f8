"""A chart as rows of text in colours: curves in dots between a value axis and an x axis. Pure, no widget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from screens.charts import axis as axes
from screens.charts.axis import Axis
from screens.charts.canvas import Canvas
from screens.charts.curve import Curve, smoothed
from screens.style.glyphs import glyphs

PLAIN: Final = 0
DIM: Final = 100
"""Added to a curve's colour for what lies behind its smoothed line."""
LABEL: Final = 201
CURSOR: Final = 202
GAP: Final = 203

STEP: Final = "step"
TIME: Final = "time"

Row = list[tuple[str, int]]
_LABEL_CELLS: Final = 7


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
    def over_time(self) -> bool:
        """Whether x is seconds since the start."""
        return self.axis == TIME


def x_axis(curves: Sequence[Curve], view: ChartView) -> Axis:
    """Return the x axis of charts that are shown together."""
    if view.x_low is not None and view.x_high is not None:
        return Axis(view.x_low, view.x_high)
    ends = [end for curve in curves if curve.x for end in (curve.x[0], curve.x[-1])]
    return Axis(min(ends), max(ends)) if ends else Axis(0.0, 1.0)


def draw(curves: Sequence[Curve], view: ChartView, x: Axis, width: int, height: int) -> list[Row]:
    """Draw curves into so many cells: the value axis to the left, the x axis in the last row."""
    unicode = glyphs().unicode
    y = _value_axis(curves, view, x)
    rows = max(1, height - 1)
    labels = _labels(y, rows)
    margin = min(_LABEL_CELLS, max((len(label) for label in labels.values()), default=0)) + 1
    canvas = Canvas(max(1, width - margin), rows, unicode=unicode)
    cursor = None
    if view.cursor is not None:
        cursor = x.dot(view.cursor, canvas.columns)
    if cursor is not None:
        canvas.run(cursor, 0, canvas.rows - 1, CURSOR)
    for colour, one in _layers(curves, view):
        _draw_curve(canvas, one, x, y, colour)
    plotted = canvas.rows_of_text()
    drawn = [
        [(labels.get(row, "").rjust(margin - 1)[: margin - 1] + " ", LABEL), *plotted[row]]
        for row in range(rows)
    ]
    drawn.append(_bottom(curves, view, x, canvas, margin))
    return drawn[:height]


def _layers(curves: Sequence[Curve], view: ChartView) -> Iterator[tuple[int, Curve]]:
    """Name what is drawn from back to front: with smoothing, what was measured lies dim behind."""
    for one in curves:
        yield (one.colour + DIM if view.smoothing else one.colour), one
    if not view.smoothing:
        return
    for one in curves:
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
    for tick in y.ticks(max(1, min(rows // 2, 6))):
        if (dot := y.dot(tick, rows)) is not None and 0 <= dot < rows:
            labels.setdefault(rows - 1 - dot, axes.label(tick))
    return labels


def _draw_curve(canvas: Canvas, one: Curve, x: Axis, y: Axis, colour: int) -> None:
    """Draw a curve: at each point the span that it stands for, between points a line, which NaN breaks."""
    bottom = canvas.rows - 1
    before: tuple[int, int] | None = None
    for i, at in enumerate(one.x):
        column = x.dot(at, canvas.columns)
        if column is None or not math.isfinite(one.value[i]):
            before = None
            continue
        row = y.dot(one.value[i], canvas.rows)
        low, high = y.dot(one.low[i], canvas.rows), y.dot(one.high[i], canvas.rows)
        if row is None:
            before = None
            continue
        if low is not None and high is not None and low != high:
            canvas.run(column, bottom - high, bottom - low, colour)
        if before is not None and (before[0] >= 0 or column >= 0) and before[0] < canvas.columns:
            canvas.line(*before, column, bottom - row, colour)
        elif before is None:
            canvas.run(column, bottom - row, bottom - row, colour)
        before = (column, bottom - row)


def _bottom(curves: Sequence[Curve], view: ChartView, x: Axis, canvas: Canvas, margin: int) -> Row:
    """Return the last row: labels of the x axis, and a sign where something was not a number."""
    cells: list[tuple[str, int]] = [(" ", PLAIN)] * (margin + canvas.width)
    taken = 0
    for tick in x.ticks(max(1, canvas.width // 9)):
        dot = x.dot(tick, canvas.width)
        if dot is None:
            continue
        text = axes.label(tick, seconds=view.over_time)
        at = max(0, min(margin + dot - len(text) // 2, len(cells) - len(text)))
        if at < taken:
            continue
        cells[at : at + len(text)] = [(sign, LABEL) for sign in text]
        taken = at + len(text) + 1
    for one in curves:
        for gap in one.gaps:
            dot = x.dot(gap, canvas.width)
            if dot is not None and 0 <= dot < canvas.width:
                cells[margin + dot] = (glyphs().gap, GAP)
    return _joined(cells)


def _joined(cells: Sequence[tuple[str, int]]) -> Row:
    row: Row = []
    for sign, colour in cells:
        if row and row[-1][1] == colour:
            row[-1] = (row[-1][0] + sign, colour)
        else:
            row.append((sign, colour))
    return row
