"""One chart as lines of the screen: its name and values, its legend, and the plot."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from screens.charts import plot
from screens.charts.curve import Curve
from screens.charts.data import ChartData
from screens.charts.plot import ChartView
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import Paint
from workbench import formats

LEGEND_FROM_HEIGHT = 7
"""Lower charts keep their lines for the plot."""
PLOTS_KEPT = 64


def tile(
    data: ChartData,
    view: ChartView,
    size: tuple[int, int],
    paint: Paint,
    base: Style,
    *,
    focused: bool = False,
    pinned: bool = False,
    plots: Plots | None = None,
) -> list[Strip]:
    """Draw a chart into so many cells, width and height; with ``plots`` what was drawn before is not drawn again."""
    width, height = size
    strips = [_title(data, view, width, paint, base, focused, pinned)]
    named = any(one.label != data.name for one in data.curves)
    if named and height >= LEGEND_FROM_HEIGHT:
        strips.append(_legend(data, view, width, paint, base))
    drawn = (plots or Plots()).draw(data.curves, view, (width, max(1, height - len(strips))), paint, base)
    return [*strips, *drawn][:height]


class Plots:
    """The last few plots, kept since a chart's last value changes more often than its curves."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[tuple[Curve, ...], list[Strip]]] = {}

    def draw(
        self, curves: tuple[Curve, ...], view: ChartView, size: tuple[int, int], paint: Paint, base: Style
    ) -> list[Strip]:
        """Draw the plot of some curves, or return it as it was drawn before."""
        # The curves are kept with their plot, so that no others come to have their identity.
        key = id(curves), view, size, id(paint), base
        if key not in self._known:
            if len(self._known) >= PLOTS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = curves, _plot(curves, view, size, paint, base)
        return self._known[key][1]


def _plot(
    curves: tuple[Curve, ...], view: ChartView, size: tuple[int, int], paint: Paint, base: Style
) -> list[Strip]:
    strips = []
    for row in plot.draw(curves, view, plot.x_axis(curves, view), *size):
        segments = [Segment(shown, base + _style(colour, paint)) for shown, colour in row]
        strips.append(Strip(segments).adjust_cell_length(size[0], base))
    return strips


def _style(colour: int, paint: Paint) -> Style:
    match colour:
        case plot.PLAIN:
            return Style()
        case plot.LABEL:
            return paint.style("dim")
        case plot.CURSOR:
            return paint.style("accent")
        case plot.GAP:
            return paint.style("error", "bold")
        case _ if colour > plot.DIM:
            return paint.style(f"curve-{colour - plot.DIM}", "dim")
        case _:
            return paint.style(f"curve-{colour}")


def _title(
    data: ChartData, view: ChartView, width: int, paint: Paint, base: Style, focused: bool, pinned: bool
) -> Strip:
    facts = _facts(data, view)
    left = (glyphs().mark if focused else " ") + ("* " if pinned else "") + formats.printable(data.name)
    left = text.shorten(left, width)
    room = width - text.cells(left) - 1
    while facts and text.cells("  ".join(facts)) > room:
        facts.pop()
    right = "  ".join(facts)
    blank = " " * max(0, width - text.cells(left) - text.cells(right))
    return Strip(
        [
            Segment(left, base + paint.style("accent" if focused else "text", "bold")),
            Segment(blank, base),
            Segment(right, base + paint.style("dim")),
        ]
    ).adjust_cell_length(width, base)


def _facts(data: ChartData, view: ChartView) -> list[str]:
    """Return the texts about the values, the most important first."""
    if view.cursor is not None and len(data.curves) == 1:
        at = data.curves[0].nearest(view.cursor)
        if at is None:
            return []
        where = data.curves[0].x[at]
        x = formats.duration(where) if view.over_time else f"{data.axis} {where:g}"
        return [formats.compact_number(data.curves[0].value[at]), f"at {x}"]
    facts = [formats.compact_number(data.last)] if len(data.curves) == 1 else []
    if data.least is not None and data.most is not None:
        facts += [f"min {formats.compact_number(data.least)}", f"max {formats.compact_number(data.most)}"]
    return [*facts, *_how(view)]


def _how(view: ChartView) -> list[str]:
    shown = ["log"] if view.logarithmic else []
    return shown + ([f"smooth {view.smoothing:g}"] if view.smoothing else [])


def _legend(data: ChartData, view: ChartView, width: int, paint: Paint, base: Style) -> Strip:
    """Name the curves in their colours, with the value under the cursor or the last one."""
    segments = [Segment(" ", base)]
    room = width - 1
    for index, one in enumerate(data.curves):
        at = one.nearest(view.cursor) if view.cursor is not None else len(one.x) - 1
        value = one.value[at] if at is not None and at >= 0 else math.nan
        shown = f"{glyphs().ruler}{glyphs().ruler} {formats.printable(one.label)} {formats.compact_number(value)}  "
        if text.cells(shown) > room:
            segments.append(Segment(f"+{len(data.curves) - index}", base + paint.style("dim")))
            break
        room -= text.cells(shown)
        segments.append(Segment(shown, base + paint.style(f"curve-{one.colour}")))
    return Strip(segments).adjust_cell_length(width, base)
