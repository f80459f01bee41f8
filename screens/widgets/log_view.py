"""The log viewer: draws the rows in view, and follows the end until the reader scrolls up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens import actions, text
from screens.base import fabric_app
from screens.glyphs import glyphs
from screens.logs.document import LogDocument, LogLine
from screens.logs.feed import Feed, Grown
from screens.logs.pages import Pages
from screens.themes import overlay, paint_of
from screens.widgets.drawn import Drawn
from screens.widgets.log_keys import LogKeys
from screens.widgets.log_render import Manner, render
from screens.widgets.log_state import LogState
from workbench.paths import Home
from workbench.store.rows import JobRow


class LogView(LogKeys, Drawn, ScrollView, can_focus=True):
    """Rows of a document; its first line says how they are shown."""

    PANE: ClassVar = "logs"
    BINDINGS: ClassVar = actions.bindings("logs")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state = LogState()
        self.document: LogDocument | None = None
        self.feed = Feed(self)
        self.pages = Pages(self)
        self._home: Home | None = None
        self._drawn: dict[tuple[int, bool], list[Strip]] = {}
        self._drawn_for: object = None
        self._laid: list[tuple[int, int]] = []
        self._laid_for: object = None
        self._epoch = -1
        self._changes = 0

    # Which log

    def show_job(self, home: Home, job: JobRow) -> None:
        """Show a job's last attempt."""
        self._home, self.state.job = home, job
        self.state.attempt = job.attempt
        self.open_log()

    def job_changed(self, job: JobRow, *, started_again: bool) -> None:
        """Take news of the job; its new attempt's log is shown, unless an earlier one is being read."""
        was_last = self.state.job is not None and self.state.attempt == self.state.job.attempt
        self.state.job = job
        if started_again and was_last:
            self.state.attempt = job.attempt
            self.open_log()
        self.refresh()

    def open_log(self) -> None:
        """Open the log that the state names."""
        job, state = self.state.job, self.state
        if job is None or self._home is None:
            return
        folder = self._home.job(job.id).attempt(state.attempt)
        learners = [state.learner] if state.learner else list(range(1, job.learners + 1))
        self.document = LogDocument([(number, folder.learner(number)) for number in learners])
        self.state.new_log()
        self._drawn.clear()
        self._epoch = -1
        self.pages.open(self.document)
        self.feed.open(self.document)
        if not state.sieve.open:
            self.feed.sift(state.sieve)
        self.redraw()

    def rest(self, *, resting: bool) -> None:
        """Look less often for new lines while another tab is open."""
        self.feed.rest(resting=resting)

    def on_unmount(self) -> None:
        """End the threads."""
        self.feed.close()
        self.pages.close()

    def last_time_us(self, now_us: int) -> int:
        """Return when the job last ran: now, or when it ended."""
        job = self.state.job
        return job.ended_us if job is not None and job.ended_us is not None else now_us

    # Growing and scrolling

    def on_grown(self, grown: Grown) -> None:
        """Show new rows: at the end when following, else only their number."""
        del grown
        if not fabric_app(self).reader.paused:
            self.settle()

    def settle(self) -> None:
        """Fit the scroll bar to the rows, and go to the end when following."""
        document = self.document
        if document is None:
            return
        if document.epoch != self._epoch:
            self._epoch = document.epoch
            self._drawn.clear()
            self.state.cursor = min(self.state.cursor, max(0, document.count - 1))
        end = self.last_top()
        self._changes += 1
        self.virtual_size = Size(self.size.width, end + self.size.height)
        if self.state.follow:
            self.state.seen = document.count
            self.state.cursor = max(0, document.count - 1)
            self.go_to_top(end)
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
        return self._top_above(count - 1)

    def _top_above(self, row: int) -> int:
        """Return the topmost row from which a row is still whole in view."""
        room, top = self.page, row
        lines = self._lines(range(max(0, row - self.page + 1), row + 1))
        while top >= 0:
            room -= len(self._strips(top, lines.get(top)))
            if room < 0:
                break
            top -= 1
        return max(0, min(top + 1, row))

    def go_to_top(self, row: int) -> None:
        """Scroll, at once."""
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def on_mouse_scroll_up(self) -> None:
        """Stop following when the reader scrolls up."""
        self.stop_following()

    def on_scroll_up(self) -> None:
        """Stop following when the scroll bar is clicked."""
        self.stop_following()

    def on_scroll_to(self) -> None:
        """Stop following when the scroll bar is dragged."""
        self.stop_following()

    def reveal(self, row: int, *, middle: bool = False) -> None:
        """Put the cursor on a row and scroll until it is in view."""
        count = self.document.count if self.document else 0
        row = max(0, min(row, count - 1))
        self.state.cursor = row
        above = row < self.top
        below = row not in self._rows_in_view()
        if above or below:
            edge = row if above else self._top_above(row)
            wanted = row - self.page // 3 if middle else edge
            self.virtual_size = Size(self.size.width, self.last_top() + self.size.height)
            self.go_to_top(max(0, min(wanted, self.last_top())))
        self.redraw()

    def _rows_in_view(self) -> set[int]:
        """Return the rows that are whole in view."""
        if not self.state.wrap:
            return set(range(self.top, self.top + self.page))
        laid = self._layout()
        return {
            row for index, (row, _) in enumerate(laid) if index + 1 < len(laid) and laid[index + 1][0] != row
        }

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again."""
        del event
        self._drawn.clear()
        self.settle()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a row; twice shows all of it."""
        laid = self._layout()
        if 1 <= event.y <= len(laid):
            self.stop_following()
            self.state.cursor = laid[event.y - 1][0]
            self.redraw()
            if event.chain == 2:
                self.action_log_detail()

    # Drawing

    def redraw(self) -> None:
        """Draw again."""
        self._changes += 1
        self.refresh()

    def manner(self) -> Manner:
        """Return how lines are shown now."""
        return self.state.manner(self.size.width - 1)

    def _lines(self, rows: range) -> Mapping[int, LogLine]:
        return self.pages.get(rows, timed=self.state.times != "none")

    def _strips(self, row: int, line: LogLine | None) -> list[Strip]:
        """Return a row's lines; those that will not change are kept."""
        if line is None:
            return [Strip([Segment(f" {glyphs().more}", self.base + paint_of(self).style("dim"))])]
        manner = self.manner()
        made_for = (manner, self.base, id(paint_of(self)))
        if made_for != self._drawn_for or len(self._drawn) > 2000:
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

    def _layout(self) -> list[tuple[int, int]]:
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
            if len(laid) >= self.page:
                break
        return laid[: self.page]

    def render_line(self, y: int) -> Strip:
        """Draw the line that says how rows are shown, or a line of a row."""
        width, base = self.size.width, self.base
        if y == 0:
            return self._indicator(width)
        made_for = (self._changes, self.top, self.size, self.state.wrap)
        if made_for != self._laid_for:
            self._laid_for, self._laid = made_for, self._layout()
        if y > len(self._laid):
            return self._beyond(y, width)
        row, piece = self._laid[y - 1]
        first, last = self._laid[0][0], self._laid[-1][0]
        line = self._lines(range(first, last + 1)).get(row)
        strips = self._strips(row, line)
        strip = strips[min(piece, len(strips) - 1)].adjust_cell_length(width, base)
        if row == self.state.cursor and not self.state.follow:
            return overlay(strip, paint_of(self).cursor(focused=self.has_focus))
        return strip

    def _beyond(self, y: int, width: int) -> Strip:
        """Say why there are no rows, where there are none."""
        base = self.base
        count = self.document.count if self.document else 0
        if count or y != max(1, self.size.height // 2):
            return Strip.blank(width, base)
        said = text.shorten(self.state.empty(self.document, fabric_app(self).clock()), width - 2)
        blank = " " * max(0, (width - text.cells(said)) // 2)
        return Strip([Segment(blank + said, base + paint_of(self).style("dim"))]).adjust_cell_length(
            width, base
        )

    def _indicator(self, width: int) -> Strip:
        base, paint = self.base, paint_of(self)
        segments: list[Segment] = [Segment(" ", base)]
        for shown, role in self.state.indicator(self.document):
            segments += [Segment(shown, base + paint.style(role)), Segment("  ", base)]
        return overlay(Strip(segments).adjust_cell_length(width, base), Style(underline=False))
