"""Text with SGR colours as styled segments; everything else in it is harmless already."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Final

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from workbench.logs.sanitise import RESET, SGR

COLOURS_MAX: Final = 400
"""So many changes of colour in a line are drawn; each costs as much as a piece of text."""


@lru_cache(maxsize=2048)
def decoded(line: str) -> Text:
    """Return a line with its colours as styles, and blanks for tabs. Do not change what is returned."""
    if line.count("\x1b") > COLOURS_MAX:
        line = _with_fewer_colours(line)
    shown = AnsiDecoder().decode_line(line) if "\x1b" in line else Text(line)
    if "\t" in shown.plain:
        shown = shown.copy()
        shown.expand_tabs(8)
    return shown


def _with_fewer_colours(line: str) -> str:
    """Return a line without the colours after the first few hundred changes."""
    end = 0
    for sequence in islice(SGR.finditer(line), COLOURS_MAX):
        end = sequence.end()
    return line[:end] + SGR.sub("", line[end:]) + RESET


def strip_of(shown: Text, width: int, base: Style, *, left: int = 0) -> Strip:
    """Return so many cells of a text from a column on, over a base style."""
    segments = [Segment(part.plain, base + _style(part)) for part in _parts(shown)]
    strip = Strip(segments)
    return strip.crop(left, left + width).adjust_cell_length(width, base)


def _parts(shown: Text) -> list[Text]:
    if not shown.spans:
        return [shown]
    edges = sorted({edge for span in shown.spans for edge in (span.start, span.end)} - {0, len(shown)})
    return list(shown.divide(edges))


def _style(part: Text) -> Style:
    style = part.style if isinstance(part.style, Style) else Style()
    for span in part.spans:
        if isinstance(span.style, Style):
            style += span.style
    return style
