"""The rows of a log as lines of the screen: which rows are in view, wrapped or not, drawn once and kept."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.logs.document import DocumentLine, LogDocument
from screens.logs.feed import Pages
from screens.logs.render import Manner, render
from screens.logs.state import LogState
from screens.style.glyphs import glyphs
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle

STRIPS_KEPT = 2000


class LogLines(CachedStyle, ScrollView):
    """A document laid out; the first line of the screen is not a row's."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state = LogState()
        self.document: LogDocument | None = None
        self.pages = Pages(self)
        self._drawn: dict[tuple[int, bool], list[Strip]] = {}
        self._drawn_for: object = None
        self._laid: list[tuple[int, int]] = []
        self._laid_for: object = None
        self._changes = 0

    def redraw(self) -> None:
        """Draw again."""
        self._changes += 1
        self.refresh()

    @property
    def page(self) -> int:
        """How many lines of the screen rows have."""
        return max(1, self.size.height - 1)

    @property
    def top(self) -> int:
        """The first row in view."""
        return self.scroll_offset.y

    def last_top(self) -> int:
        """Return the row that is on top when the end is in view."""
        count = self.document.count if self.document else 0
        if not self.state.wrap:
            return max(0, count - self.page)
        return self.top_above(count - 1)

    def top_above(self, row: int) -> int:
        """Return the topmost row from which a row is still whole in view."""
        room, top = self.page, row
        lines = self._lines(range(max(0, row - self.page + 1), row + 1))
        while top >= 0:
            room -= len(self._strips(top, lines.get(top)))
            if room < 0:
                break
            top -= 1
        return max(0, min(top + 1, row))

    def rows_in_view(self) -> set[int]:
        """Return the rows that are whole in view."""
        if not self.state.wrap:
            return set(range(self.top, self.top + self.page))
        laid = self._lay_out()
        return {
            row for index, (row, _) in enumerate(laid) if index + 1 < len(laid) and laid[index + 1][0] != row
        }

    def manner(self) -> Manner:
        """Return how lines are shown now."""
        return self.state.manner(self.room - 1)

    def _lines(self, rows: range) -> Mapping[int, DocumentLine]:
        return self.pages.get(rows, timed=self.state.times != "none")

    def _strips(self, row: int, line: DocumentLine | None) -> list[Strip]:
        """Return a row's lines; those that will not change are kept."""
        if line is None:
            return [Strip([Segment(f" {glyphs().more}", self.base + paint_of(self).style("dim"))])]
        manner = self.manner()
        made_for = (manner, self.base, id(paint_of(self)))
        if made_for != self._drawn_for or len(self._drawn) > STRIPS_KEPT:
            self._drawn_for = made_for
            self._drawn.clear()
        marked = bool(self.document) and row in self.state.marks
        key = row, marked
        if key not in self._drawn:
            strips = render(line, manner, paint_of(self), self.base, marked=marked)
            if not line.settled:
                return strips
            self._drawn[key] = strips
        return self._drawn[key]

    def _lay_out(self) -> list[tuple[int, int]]:
        """Return which row, and which of its lines, stands on each line of the screen."""
        count = self.document.count if self.document else 0
        top = self.top
        if not self.state.wrap:
            return [(row, 0) for row in range(top, min(count, top + self.page))]
        laid: list[tuple[int, int]] = []
        rows = range(top, min(count, top + self.page))
        lines = self._lines(rows)
        for row in rows:
            laid += [(row, piece) for piece in range(len(self._strips(row, lines.get(row))))]
            if len(laid) >= self.page and not self.state.follow:
                break
        # A last row that is longer than the screen ends at its foot when the end is followed.
        return laid[-self.page :] if self.state.follow else laid[: self.page]

    def laid(self) -> list[tuple[int, int]]:
        """Return which row, and which of its lines, stands on each line of the screen; worked out once a change."""
        made_for = (self._changes, self.top, self.size, self.state.wrap)
        if made_for != self._laid_for:
            self._laid_for, self._laid = made_for, self._lay_out()
        return self._laid

    def row_strip(self, line: int) -> Strip:
        """Draw what stands on a line of the screen, from 0."""
        laid = self.laid()
        row, piece = laid[line]
        read = self._lines(range(laid[0][0], laid[-1][0] + 1)).get(row)
        strips = self._strips(row, read)
        return strips[min(piece, len(strips) - 1)].adjust_cell_length(self.room, self.base)
