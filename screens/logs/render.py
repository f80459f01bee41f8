"""One line of a log as lines of the screen: gutter, time, colours, hits, cut or wrapped."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from screens.logs.colours import coloured
from screens.logs.document import DocumentLine
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import CURVE_COLOURS, Paint
from screens.widgets.ansi import strip_of
from workbench import formats
from workbench.logs.grep import Pattern
from workbench.values import dataclass

TIMES: Final = ("none", "since start", "of day")


@dataclass(frozen=True, slots=True)
class Manner:
    """How lines are shown; two lines shown in the same manner at the same width look the same."""

    width: int
    wrap: bool = False
    times: str = "none"
    start_us: int = 0
    gutter: int = 0
    """Cells for the number of the learner; 0 with one learner."""
    left: int = 0
    """Cells that are scrolled out to the left."""
    find: Pattern | None = None

    @property
    def margin(self) -> int:
        """Cells before the text."""
        return 1 + (self.gutter + 1 if self.gutter else 0) + (13 if self.times != "none" else 0)

    @property
    def room(self) -> int:
        """Cells for the text."""
        return max(8, self.width - self.margin)


def render(
    line: DocumentLine, manner: Manner, paint: Paint, base: Style, *, marked: bool = False
) -> list[Strip]:
    """Return the screen's lines of a log's line: one, or with wrapping as many as it needs."""
    shown = _text(line, manner, paint)
    margin = _margin(line, manner, paint, base, marked)
    if not manner.wrap:
        body = _cut(shown, manner, paint, base)
        return [Strip.join([margin, body]).adjust_cell_length(manner.width, base)]
    pieces = _wrapped(shown, manner.room)
    blank = Strip([Segment(" " * manner.margin, base)])
    return [
        Strip.join([margin if index == 0 else blank, strip_of(piece, manner.room, base)]).adjust_cell_length(
            manner.width, base
        )
        for index, piece in enumerate(pieces)
    ]


def _cut(shown: Text, manner: Manner, paint: Paint, base: Style) -> Strip:
    """Return what of a line is in view; a sign stands where it goes on to the left or to the right."""
    body = strip_of(shown, manner.room, base, left=manner.left)
    cells = text.cells(shown.plain)
    sign = Strip([Segment(glyphs().more, base + paint.style("dim"))])
    if cells > manner.left + manner.room:
        body = Strip.join([body.crop(0, manner.room - 1).adjust_cell_length(manner.room - 1, base), sign])
    if manner.left and cells > manner.left:
        body = Strip.join([sign, body.crop(1, manner.room)])
    return body


def _text(line: DocumentLine, manner: Manner, paint: Paint) -> Text:
    shown = coloured(line.text, line.level, paint)
    if manner.find is None:
        return shown
    shown = shown.copy()
    for start, end in manner.find.highlights(shown.plain):
        shown.stylize(paint.hit(), start, end)
    return shown


def _wrapped(shown: Text, width: int) -> list[Text]:
    """Break a line at the edge, wherever that is: a log's columns matter more than whole words."""
    if text.cells(shown.plain) <= width:
        return [shown]
    edges, used = [], 0
    for index, sign in enumerate(shown.plain):
        cells = text.cells(sign)
        if used + cells > width:
            edges.append(index)
            used = 0
        used += cells
    return list(shown.divide(edges))


def _margin(line: DocumentLine, manner: Manner, paint: Paint, base: Style, marked: bool) -> Strip:
    segments = [Segment(glyphs().mark if marked else " ", base + paint.style("accent", "bold"))]
    if manner.gutter:
        colour = (line.learner - 1) % CURVE_COLOURS + 1
        number = str(line.learner).rjust(manner.gutter)
        segments.append(Segment(f"{number} ", base + paint.style(f"curve-{colour}")))
    if manner.times != "none":
        segments.append(Segment(_time(line, manner).ljust(13), base + paint.style("dim")))
    return Strip(segments)


def _time(line: DocumentLine, manner: Manner) -> str:
    if line.time_us is None:
        return ""
    if manner.times == "of day":
        return formats.clock_milliseconds(line.time_us)
    return formats.since_start(line.time_us - manner.start_us)
