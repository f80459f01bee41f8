"""One chart as lines of the screen: its name and values, its legend, and the plot."""

from __future__ import annotations

import math

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from screens.charts import curve, plot
from screens.charts.curve import Curve
from screens.charts.data import ChartData
from screens.charts.plot import ChartView
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import Paint
from workbench import formats

LEGEND_FROM_HEIGHT = 7
"""Lower charts keep their lines for the plot."""
LEGEND_SHARE = 8
"""A legend of several lines takes no larger part of a chart: one line in so many."""
PLOTS_KEPT = 64
NAME_LEAST = 8
"""A name has so many cells before the last value has any."""


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
    shared: str = "",
) -> list[Strip]:
    """Draw a chart into so many cells, width and height; with ``plots`` what was drawn before is not drawn again.

    ``shared`` is what its name begins with and is shown without.
    """
    width, height = size
    name = formats.printable(data.name.removeprefix(shared))
    strips = [_title(data, name, view, width, paint, base, focused, pinned)]
    named = any(one.label != data.name for one in data.curves)
    if named and height >= LEGEND_FROM_HEIGHT:
        most = max(1, height // LEGEND_SHARE)
        strips += _legend(data, view, width, paint, base, most)
    drawn = (plots or Plots()).draw(data, view, (width, max(1, height - len(strips))), paint, base)
    return [*strips, *drawn][:height]


class Plots:
    """The last few plots, kept since a chart's last value changes more often than its curves."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[tuple[Curve, ...], list[Strip]]] = {}

    def draw(
        self, data: ChartData, view: ChartView, size: tuple[int, int], paint: Paint, base: Style
    ) -> list[Strip]:
        """Draw the plot of a chart, or return it as it was drawn before."""
        # The curves are kept with their plot, so that no others come to have their identity.
        key = id(data.curves), data.axis, view, size, id(paint), base
        if key not in self._known:
            if len(self._known) >= PLOTS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = data.curves, _plot(data, view, size, paint, base)
        return self._known[key][1]


def _plot(data: ChartData, view: ChartView, size: tuple[int, int], paint: Paint, base: Style) -> list[Strip]:
    x = plot.x_axis(data.curves, view, data.axis)
    marked = not paint.coloured
    styles: dict[int, Style] = {}
    strips = []
    for row in plot.draw(data.curves, view, x, *size, name=data.axis, marked=marked):
        segments = []
        for shown, colour in row:
            if (style := styles.get(colour)) is None:
                style = styles[colour] = base + style_of(colour, paint)
            segments.append(Segment(shown, style))
        strips.append(Strip(segments).adjust_cell_length(size[0], base))
    return strips


def style_of(colour: int, paint: Paint) -> Style:
    """Return the style of a colour of a plot."""
    match colour:
        case plot.PLAIN:
            return Style()
        case plot.LABEL:
            return paint.style("dim")
        case plot.CURSOR:
            return paint.style("accent")
        case plot.GAP:
            return paint.style("error", "bold")
        case plot.GRID:
            return paint.style("grid", "" if paint.coloured else "dim")
        case curve.OTHER:
            return paint.style("dim", "dim")
        case _ if colour > plot.DIM:
            return paint.style(f"curve-{colour - plot.DIM}", "dim")
        case _:
            return paint.style(f"curve-{colour}")


def _title(
    data: ChartData,
    name: str,
    view: ChartView,
    width: int,
    paint: Paint,
    base: Style,
    focused: bool,
    pinned: bool,
) -> Strip:
    facts = _facts(data, view)
    signs = (glyphs().mark if focused else " ") + ("* " if pinned else "")
    # Names of metrics differ in their last parts, and the last value stands behind them.
    value = len(facts[0]) + 2 if facts and len(data.curves) == 1 else 0
    left = signs + text.shorten_start(name, max(NAME_LEAST, width - len(signs) - value))
    left = text.shorten(left, width)
    room = width - text.cells(left) - 1
    while facts and text.cells("  ".join(facts)) > room:
        facts.pop()
    last = facts[0] if facts and len(data.curves) == 1 else ""
    right = "  ".join(facts)
    blank = " " * max(0, width - text.cells(left) - text.cells(right))
    return Strip(
        [
            Segment(left, base + paint.style("accent" if focused else "text", "bold")),
            Segment(blank, base),
            Segment(last, base + paint.style("text", "bold")),
            Segment(right[len(last) :], base + paint.style("dim")),
        ]
    ).adjust_cell_length(width, base)


def _facts(data: ChartData, view: ChartView) -> list[str]:
    """Return the texts about the values, the most important first."""
    if view.cursor is not None and len(data.curves) == 1:
        at = data.curves[0].nearest(view.cursor)
        if at is None:
            return []
        where = data.curves[0].x[at]
        over_time = data.axis == plot.TIME
        x = formats.duration(where) if over_time else f"{data.axis} {formats.compact_number(where)}"
        return [formats.compact_number(data.curves[0].value[at]), f"at {x}"]
    facts = [formats.compact_number(data.last)] if len(data.curves) == 1 and data.points else []
    if data.least is not None and data.most is not None:
        facts += [f"min {formats.compact_number(data.least)}", f"max {formats.compact_number(data.most)}"]
    return [*facts, *_how(view)]


def _how(view: ChartView) -> list[str]:
    shown = ["log"] if view.logarithmic else []
    return shown + ([f"smooth {view.smoothing:g}"] if view.smoothing else [])


def _legend(
    data: ChartData, view: ChartView, width: int, paint: Paint, base: Style, most_lines: int
) -> list[Strip]:
    """Name the curves in their colours, with the value under the cursor or the last one, on so many lines at most."""
    texts = _legend_texts(data, view, marked=not paint.coloured)
    lines: list[list[Segment]] = [[Segment(" ", base)]]
    room = width - 1
    for index, (shown, colour) in enumerate(texts):
        left = len(texts) - index
        more = f"+{left}"
        is_last_line = len(lines) == most_lines
        needed = text.cells(more if colour == curve.OTHER else shown.rstrip())
        # Behind the last one that is named the number of the others must have room.
        rest = len(f"  +{left - 1}") if is_last_line and left > 1 and colour != curve.OTHER else 0
        if needed + rest > room and not is_last_line:
            lines.append([Segment(" ", base)])
            room = width - 1
        elif needed + rest > room or colour == curve.OTHER:
            lines[-1].append(Segment(text.shorten(more, room), base + paint.style("dim")))
            break
        if colour == curve.OTHER:
            lines[-1].append(Segment(more, base + paint.style("dim")))
            break
        lines[-1].append(Segment(shown, base + paint.style(f"curve-{colour}")))
        room -= text.cells(shown)
    return [Strip(segments).adjust_cell_length(width, base) for segments in lines]


def _legend_texts(data: ChartData, view: ChartView, *, marked: bool) -> list[tuple[str, int]]:
    texts = []
    for one in data.curves:
        at = one.nearest(view.cursor) if view.cursor is not None else len(one.x) - 1
        value = one.value[at] if at is not None and at >= 0 else math.nan
        sign = plot.sign_of(one.colour) if marked and one.colour != curve.OTHER else glyphs().ruler
        line = f"{glyphs().ruler}{sign} {formats.printable(one.label)} {formats.compact_number(value)}  "
        texts.append((line, one.colour))
    return sorted(texts, key=lambda shown: shown[1] == curve.OTHER)
