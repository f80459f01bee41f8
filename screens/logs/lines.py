"""The rows of a log as lines of the screen: which rows are in view, wrapped or not, drawn once and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from textual.strip import Strip

from screens.logs.render import render
from screens.style.glyphs import glyphs
from workbench.values import dataclass

if TYPE_CHECKING:
    from rich.style import Style

    from screens.logs.document import DocumentLine, LogDocument
    from screens.logs.feed import Pages
    from screens.logs.state import LogState
    from screens.style.themes import Paint

STRIPS_KEPT: Final = 2000


@dataclass(frozen=True, slots=True)
class Area:
    """What rows are drawn in."""

    top: int
    """The first row in view."""
    width: int
    height: int
    base: Style
    paint: Paint


class LogLines:
    """Lays a document out in an area."""

    def __init__(self, state: LogState, pages: Pages) -> None:
        self._state = state
        self._pages = pages
        self._document: LogDocument | None = None
        self._drawn: dict[tuple[int, bool], list[Strip]] = {}
        self._drawn_for: object = None
        self._laid: list[tuple[int, int]] = []
        self._laid_for: object = None
        self._changes = 0

    def open(self, document: LogDocument) -> None:
        """Lay another document out from now on."""
        self._document = document
        self._pages.open(document)
        self.forget()

    def forget(self) -> None:
        """Draw all rows again."""
        self._drawn.clear()
        self.change()

    def change(self) -> None:
        """Lay the rows out again: others are there, or they are shown in another way."""
        self._changes += 1

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._document.count if self._document is not None else 0

    def last_top(self, area: Area) -> int:
        """Return the row that is on top when the end is in view."""
        if not self._state.wrap:
            return max(0, self.count - area.height)
        return self.top_above(self.count - 1, area)

    def top_above(self, row: int, area: Area) -> int:
        """Return the topmost row from which a row is still whole in view."""
        room, top = area.height, row
        lines = self._lines(range(max(0, row - area.height + 1), row + 1))
        while top >= 0:
            room -= len(self._strips(top, lines.get(top), area))
            if room < 0:
                break
            top -= 1
        return max(0, min(top + 1, row))

    def rows_in_view(self, area: Area) -> set[int]:
        """Return the rows that are whole in view."""
        if not self._state.wrap:
            return set(range(area.top, area.top + area.height))
        laid = self._lay_out(area)
        return {
            row for index, (row, _) in enumerate(laid) if index + 1 < len(laid) and laid[index + 1][0] != row
        }

    def laid(self, area: Area) -> list[tuple[int, int]]:
        """Return which row, and which of its lines, stands on each line of the screen; worked out once a change."""
        made_for = (self._changes, area.top, area.width, area.height, self._state.wrap)
        if made_for != self._laid_for:
            self._laid_for, self._laid = made_for, self._lay_out(area)
        return self._laid

    def strip(self, line: int, area: Area) -> Strip:
        """Draw what stands on a line of the screen, from 0."""
        laid = self.laid(area)
        row, piece = laid[line]
        read = self._lines(range(laid[0][0], laid[-1][0] + 1)).get(row)
        strips = self._strips(row, read, area)
        return strips[min(piece, len(strips) - 1)].adjust_cell_length(area.width, area.base)

    def _lay_out(self, area: Area) -> list[tuple[int, int]]:
        rows = range(area.top, min(self.count, area.top + area.height))
        if not self._state.wrap:
            return [(row, 0) for row in rows]
        laid: list[tuple[int, int]] = []
        lines = self._lines(rows)
        for row in rows:
            laid += [(row, piece) for piece in range(len(self._strips(row, lines.get(row), area)))]
            if len(laid) >= area.height and not self._state.follow:
                break
        # A last row that is longer than the screen ends at its foot when the end is followed.
        return laid[-area.height :] if self._state.follow else laid[: area.height]

    def _lines(self, rows: range) -> Mapping[int, DocumentLine]:
        return self._pages.get(rows, timed=self._state.times != "none")

    def _strips(self, row: int, line: DocumentLine | None, area: Area) -> list[Strip]:
        """Return a row's lines; those that will not change are kept."""
        if line is None:
            return [Strip([Segment(f" {glyphs().more}", area.base + area.paint.style("dim"))])]
        manner = self._state.manner(area.width - 1)
        made_for = (manner, area.base, id(area.paint))
        if made_for != self._drawn_for or len(self._drawn) > STRIPS_KEPT:
            self._drawn_for = made_for
            self._drawn.clear()
        marked = self._document is not None and row in self._state.marks
        key = row, marked
        if key not in self._drawn:
            strips = render(line, manner, area.paint, area.base, marked=marked)
            if not line.settled:
                return strips
            self._drawn[key] = strips
        return self._drawn[key]
