"""The table of runs as lines of the screen: the heading, the rows at hand, and what stands in place of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.jobs.columns import GAP, Cell, Column, Figures, Line, layout
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.drawn import Drawn
from workbench.store.db.rows import JobRow
from workbench.store.queries.listing import Listing, Window


class JobLines(Drawn, ScrollView):
    """Draws what it is given."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window: Window | None = None
        self.listing = Listing()
        self.marks: dict[str, JobRow] = {}
        self.notice: Sequence[tuple[str, str]] = (("loading the list of jobs", "dim"),)
        """What stands in place of rows while there are none: lines with their roles."""
        self._figures: Mapping[str, Figures] = {}
        self._now_us = 0
        self._rank = 0
        self._columns: list[tuple[Column, int]] = []
        self._columns_for: tuple[int, tuple[str, ...]] = (0, ())
        self.wanted_columns: tuple[str, ...] = ()
        """Titles, in order; none are wanted in particular where it is empty."""

    def _row(self, rank: int) -> JobRow | None:
        index = rank - self.window.start if self.window else -1
        return self.window.rows[index] if self.window and 0 <= index < len(self.window.rows) else None

    def render_line(self, y: int) -> Strip:
        """Draw the heading, a row, or what stands in place of rows."""
        width = self.room
        if (width, self.wanted_columns) != self._columns_for:
            self._columns_for = width, self.wanted_columns
            self._columns = layout(max(1, width - 2), self.wanted_columns)
        if y == 0:
            return self._heading(width)
        rank = self.scroll_offset.y + y - 1
        total = self.window.total if self.window else 0
        if not total:
            return self._notice_line(y, width)
        if rank >= total:
            return Strip.blank(width, self.base)
        job = self._row(rank)
        if job is None:
            return Strip([Segment(f"  {glyphs().more}", self._style("dim"))]).adjust_cell_length(
                width, self.base
            )
        line = Line(job, self._figures.get(job.id, Figures()), self._now_us)
        cells = [(column, column.cell(line), size) for column, size in self._columns]
        mark = Segment(
            glyphs().mark if job.id in self.marks else " ", self.base + self._style("accent", "bold")
        )
        strip = Strip([mark, *self._cells(cells)]).adjust_cell_length(width, self.base)
        return overlay(strip, paint_of(self).cursor(focused=self.has_focus)) if rank == self._rank else strip

    def _style(self, role: str, attributes: str = "") -> Style:
        return paint_of(self).style(role, attributes)

    def _cells(self, cells: Sequence[tuple[Column, Cell, int]]) -> list[Segment]:
        segments: list[Segment] = []
        for column, cell, width in cells:
            shown = text.shorten(cell.text, width)
            blank = " " * (width - text.cells(shown))
            padded = blank + shown if column.align == "right" else shown + blank
            segments.append(Segment(padded + " " * GAP, self.base + self._style(cell.role)))
        return segments

    def _heading(self, width: int) -> Strip:
        cells = []
        for column, size in self._columns:
            sorted_by = column.sort == self.listing.sort and bool(column.sort)
            arrow = (glyphs().down if self.listing.descending else glyphs().up) if sorted_by else ""
            cells.append((column, Cell(column.title + arrow, "accent" if sorted_by else "dim"), size))
        strip = Strip([Segment(" ", self.base), *self._cells(cells)]).adjust_cell_length(width, self.base)
        return overlay(strip, Style(bold=True))

    def _notice_line(self, y: int, width: int) -> Strip:
        index = y - max(1, (self.size.height - len(self.notice)) // 2)
        if not 0 <= index < len(self.notice):
            return Strip.blank(width, self.base)
        shown, role = self.notice[index]
        shown = text.shorten(shown, width - 2)
        left = max(0, (width - text.cells(shown)) // 2)
        return Strip(
            [Segment(" " * left, self.base), Segment(shown, self.base + self._style(role))]
        ).adjust_cell_length(width, self.base)
