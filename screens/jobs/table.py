"""The table of runs: draws the rows at hand, and asks for others when the reader comes near their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.core import actions
from screens.core.app_protocol import JumpTarget
from screens.jobs.columns import GAP, Cell, Figures, JobColumn, Line, layout
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.cached_style import CachedStyle
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import JobList, Key, Window


class JobLines(CachedStyle, ScrollView):
    """Draws what it is given."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window: Window | None = None
        self.listing = JobList()
        self.marks: dict[str, JobRow] = {}
        self.notice: Sequence[tuple[str, str]] = (("loading the list of jobs", "dim"),)
        """What is shown while there are no rows: lines with their roles."""
        self._figures: Mapping[str, Figures] = {}
        self._now_us = 0
        self._rank = 0
        self._columns: list[tuple[JobColumn, int]] = []
        self._columns_for: tuple[int, tuple[str, ...]] = (0, ())
        self.wanted_columns: tuple[str, ...] = ()
        """Titles, in order; where it is empty, the columns are chosen by the width."""

    def _row(self, rank: int) -> JobRow | None:
        index = rank - self.window.start if self.window else -1
        return self.window.rows[index] if self.window and 0 <= index < len(self.window.rows) else None

    def render_line(self, y: int) -> Strip:
        """Draw the heading, a row, or what is shown while there are no rows."""
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

    def _cells(self, cells: Sequence[tuple[JobColumn, Cell, int]]) -> list[Segment]:
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
            cells.append((column, Cell(column.heading + arrow, "accent" if sorted_by else "dim"), size))
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


NEAR: Final = 40
"""So many rows before the end of what is at hand, more are asked for."""


class JobTable(JobLines, can_focus=True):
    """Rows of a listing, of which only a window is held; the cursor belongs to a job, not to a line."""

    PANE: ClassVar = "runs"
    BINDINGS: ClassVar = actions.bindings("runs")

    class PageRequested(Message):
        """Rows are needed that are not at hand: those around an anchor, or from an offset on."""

        def __init__(self, anchor: Key | None, offset: int | None) -> None:
            super().__init__()
            self.anchor = anchor
            self.offset = offset

    class Moved(Message):
        """The cursor stands on another job, or what is known of its job has changed."""

        def __init__(self, job: JobRow | None) -> None:
            super().__init__()
            self.job = job

    class SortBy(Message):
        """A heading was clicked."""

        def __init__(self, sort: str) -> None:
            super().__init__()
            self.sort = sort

    class Open(Message):
        """A row was clicked twice."""

    class RangeRequested(Message):
        """All jobs from one to another are to be marked, loaded or not."""

        def __init__(self, anchor: JobRow, job: JobRow, marking: int) -> None:
            super().__init__()
            self.anchor = anchor
            self.job = job
            self.marking = marking
            """Which set of marks it belongs to: after all were removed, another."""

    class MarksChanged(Message):
        """Other jobs are marked than before."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._announced: JobRow | None = None
        self._asked: tuple[Key | None, int | None] | None = None
        self._anew = False
        self._anchor: JobRow | None = None
        """The job that was marked last: a range begins there, wherever it stands by then."""
        self._marking = 0
        self.ranges_pending = 0
        """How many ranges are still to be marked: until then, the marks are not what was asked for."""

    # What is at hand

    @property
    def job(self) -> JobRow | None:
        """The job under the cursor."""
        return self._row(self._rank)

    def show(self, window: Window, figures: Mapping[str, Figures], now_us: int) -> None:
        """Take new rows; the cursor stays on its job wherever that stands now."""
        held = self._announced.id if self._announced and not self._anew else None
        if self._anew:
            self._anew, self._rank, self._announced = False, 0, None
            self.scroll_to(y=0, animate=False, force=True)
        self.window, self._figures, self._now_us, self._asked = window, figures, now_us, None
        index = next((i for i, row in enumerate(window.rows) if row.id == held), None)
        before = self._rank
        self._rank = window.start + index if index is not None else min(before, max(0, window.total - 1))
        for row in window.rows:
            if row.id in self.marks:
                self.marks[row.id] = row
        self.virtual_size = Size(self.room, window.total + 1)
        if self._rank != before:
            self.scroll_to(y=max(0, self.scroll_offset.y + self._rank - before), animate=False, force=True)
        self._tell()
        self.refresh()

    def tick(self, now_us: int) -> None:
        """Draw again what depends on the time."""
        self._now_us = now_us
        self.refresh()

    def begin_listing(self, listing: JobList) -> None:
        """Begin another listing at its top; the rows of the last one stay until its own come."""
        self.listing, self._anew, self._asked = listing, True, None

    # Moving

    def move(self, rank: int) -> None:
        """Put the cursor on the row of that rank, or the nearest there is."""
        if self.window is None or not self.window.total:
            return
        self._rank = max(0, min(rank, self.window.total - 1))
        page = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if self._rank < top or self._rank >= top + page:
            top = self._rank if self._rank < top else self._rank - page + 1
            self.scroll_to(y=top, animate=False, force=True)
        self._want(self._rank)
        self._tell()
        self.refresh()

    def _want(self, rank: int) -> None:
        """Ask for the rows around a rank when those at hand end near it."""
        window = self.window
        if window is None:
            return
        end = window.start + len(window.rows)
        short_above = rank < window.start + NEAR and window.start > 0
        short_below = rank >= end - NEAR and end < window.total
        if not short_above and not short_below:
            return
        index = rank - window.start
        inside = 0 <= index < len(window.keys)
        asked = (window.keys[index], None) if inside else (None, max(0, rank - len(window.rows) // 2))
        if self._asked is None:
            self._asked = asked
            self.post_message(self.PageRequested(*asked))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """See to it that what is scrolled to is at hand."""
        super().watch_scroll_y(old_value, new_value)
        self._want(round(new_value))
        self._want(round(new_value) + self.size.height)

    def _tell(self) -> None:
        job = self.job
        if job is None and self.window is not None and self.window.total:
            return  # its row is on the way
        if job != self._announced:
            self._announced = job
            self.post_message(self.Moved(job))

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name the rows in view."""
        top, total = self.scroll_offset.y, self.window.total if self.window else 0
        for rank in range(top, min(total, top + self.size.height - 1)):
            yield JumpTarget(self.region.x + 1, self.region.y + 1 + rank - top, partial(self._go_to, rank))

    def _go_to(self, rank: int) -> None:
        self.focus()
        self.move(rank)

    def action_move_down(self) -> None:
        """One row down."""
        self.move(self._rank + 1)

    def action_move_up(self) -> None:
        """One row up."""
        self.move(self._rank - 1)

    def action_move_page_down(self) -> None:
        """One page down."""
        self.move(self._rank + max(1, self.size.height - 2))

    def action_move_page_up(self) -> None:
        """One page up."""
        self.move(self._rank - max(1, self.size.height - 2))

    def action_move_top(self) -> None:
        """To the first row."""
        self.move(0)

    def action_move_bottom(self) -> None:
        """To the last row."""
        self.move(self.window.total - 1 if self.window else 0)

    # Marks

    def action_runs_mark(self) -> None:
        """Mark the job under the cursor, or remove its mark, and move to the next."""
        if (job := self.job) is None:
            return
        if self.marks.pop(job.id, None) is None:
            self.marks[job.id] = self._anchor = job
        elif self._anchor is not None and self._anchor.id == job.id:
            self._anchor = None
        self.move(self._rank + 1)
        self.post_message(self.MarksChanged())

    def action_runs_mark_range(self) -> None:
        """Mark all jobs from the one that was marked last to the cursor; without such a job, the one under it."""
        if (job := self.job) is None:
            return
        anchor, self._anchor = self._anchor, job
        if anchor is None or anchor.id == job.id:
            self._mark([job])
        else:
            self.ranges_pending += 1
            self.post_message(self.RangeRequested(anchor, job, self._marking))

    def mark_range(self, request: RangeRequested, jobs: Iterable[JobRow]) -> None:
        """Mark the jobs of a range; none where it has no end any more, or where all marks were removed meanwhile."""
        self.ranges_pending -= 1
        if request.marking != self._marking:
            return
        if not (found := list(jobs)):
            self._anchor = None
        self._mark(found)

    def _mark(self, jobs: Iterable[JobRow]) -> None:
        self.marks |= {job.id: job for job in jobs}
        self.post_message(self.MarksChanged())
        self.refresh()

    def keep_marks(self, jobs: Iterable[JobRow]) -> None:
        """Keep the marks of these jobs alone, and what is known of them now."""
        self.marks = {job.id: job for job in jobs}
        if self._anchor is not None and self._anchor.id not in self.marks:
            self._anchor = None
        self._mark(())

    @property
    def marks_are_current(self) -> bool:
        """Whether every marked job is at hand, as the store has it."""
        window = self.window.rows if self.window else ()
        return self.marks.keys() <= {row.id for row in window}

    def action_runs_unmark(self) -> None:
        """Remove all marks, those too that are still on their way."""
        self._marking += 1
        self.keep_marks(())

    # Events

    def on_resize(self, event: events.Resize) -> None:
        """Fit the scroll bar."""
        del event
        if self.window:
            self.virtual_size = Size(self.room, self.window.total + 1)

    def on_click(self, event: events.Click) -> None:
        """Sort by a heading, or put the cursor on a row; twice opens it."""
        if event.y == 0:
            if sort := self._sort_at(event.x):
                self.post_message(self.SortBy(sort))
            return
        self.move(self.scroll_offset.y + event.y - 1)
        if event.chain == 2:
            self.post_message(self.Open())

    def _sort_at(self, x: int) -> str:
        at = 1
        for column, width in self._columns:
            if at <= x < at + width + GAP:
                return column.sort
            at += width + GAP
        return ""
