"""The log viewer: draws the rows in view, and follows the end until the reader scrolls up."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.strip import Strip

from screens.base.job_tab import JobTab
from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.logs.document import LogDocument
from screens.logs.feed import Grown
from screens.logs.keys import LogKeys
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from workbench.store.db.rows import JobRow


class LogView(LogKeys, JobTab, can_focus=True):
    """Rows of a document; its first line says how they are shown."""

    TAB: ClassVar = "logs"
    BESIDE: ClassVar = "charts"
    PANE: ClassVar = "logs"
    BINDINGS: ClassVar = actions.bindings("logs")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._map: list[bool] = []
        self._map_for: object = None

    # Which log

    def take_job(self, job: JobRow) -> None:
        """Take the job: its new attempt's log is shown, unless an earlier one is being read."""
        before, state = self.state.job, self.state
        if job == before:
            return
        state.job = job
        if before is None:
            memory = fabric_app(self).memory
            self.restore(memory)
            state.attempt = job.attempt
            self.open_log()
            self.return_to(memory)
        elif job.attempt != before.attempt and state.attempt == before.attempt:
            state.attempt = job.attempt
            self.open_log()
        self.refresh()

    def opened(self) -> None:
        """Look often for new lines."""
        self.feed.rest(resting=False)

    def rest(self) -> None:
        """Look less often for new lines."""
        self.feed.rest(resting=True)

    def can_do(self, action_id: str) -> bool | None:
        """Offer what can be done with lines once there are any."""
        is_empty = self.document is None or not self.document.lines
        return not is_empty if action_id.startswith("log.") else None

    def open_log(self) -> None:
        """Open the log that the state names."""
        job, state = self.state.job, self.state
        if job is None:
            return
        folder = fabric_app(self).home.job(job.id).attempt(state.attempt)
        learners = [state.learner] if state.learner else list(range(1, job.learners + 1))
        self.document = LogDocument([(number, folder.learner(number)) for number in learners])
        self.state.new_log()
        self._drawn.clear()
        self._epoch = -1
        self.pages.open(self.document)
        self.feed.open(self.document)
        if not state.sieve.open:
            self.feed.sift(state.sieve)
        if state.find is not None:
            self.feed.count(state.find)
        self.redraw()

    def action_log_learner(self) -> None:
        """The next learner, after the last one all again."""
        state = self.state
        if state.job is not None and state.job.learners > 1:
            state.learner = (state.learner + 1) % (state.job.learners + 1)
            self.open_log()

    def action_log_attempt(self) -> None:
        """The attempt before, after the first one the last again."""
        state = self.state
        if state.job is not None and state.job.attempt > 1:
            state.attempt = state.attempt - 1 or state.job.attempt
            self.open_log()

    def on_unmount(self) -> None:
        """End the threads."""
        self.feed.close()
        self.pages.close()

    # Growing and scrolling

    def on_grown(self, grown: Grown) -> None:
        """Show new rows: at the end when following, else only their number."""
        del grown
        self.offer_keys(has_content=self.document is not None and self.document.lines > 0)
        if not fabric_app(self).reader.paused:
            self.settle()

    def on_mouse_scroll_up(self) -> None:
        """Stop following when the reader scrolls up."""
        self.stop_following()

    def on_scroll_up(self) -> None:
        """Stop following when the scroll bar is clicked."""
        self.stop_following()

    def on_scroll_to(self) -> None:
        """Stop following when the scroll bar is dragged."""
        self.stop_following()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again."""
        del event
        self._drawn.clear()
        self.settle()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a row; twice shows all of it."""
        laid = self.laid()
        if 1 <= event.y <= len(laid):
            self.stop_following()
            self.state.cursor = laid[event.y - 1][0]
            self.redraw()
            if event.chain == 2:
                self.action_log_detail()

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw the line that says how rows are shown, or a line of a row; at the edge, where errors are."""
        width = self.room
        if y == 0:
            return self._indicator(width)
        laid = self.laid()
        strip = self.row_strip(y - 1) if y <= len(laid) else self._beyond(y, width)
        if y <= len(laid) and laid[y - 1][0] == self.state.cursor and not self.state.follow:
            strip = overlay(strip, paint_of(self).cursor(focused=self.has_focus))
        elif y <= len(laid) and laid[y - 1][0] in self.state.selection:
            strip = overlay(strip, paint_of(self).cursor(focused=False))
        if not self._marked(y):
            return strip
        edge = Strip([Segment(glyphs().mark, self.base + paint_of(self).style("error"))])
        return Strip.join([strip.crop(0, width - 1), edge])

    def _marked(self, y: int) -> bool:
        """Say whether the map of the whole log next to the scroll bar has an error at a line of the screen."""
        document, height = self.document, self.page
        if document is None or y > height:
            return False
        made_for = (document.count, document.epoch, height, len(document.sources[0].levels.kinds))
        if made_for != self._map_for:
            self._map_for, self._map = made_for, document.error_marks(height)
        return self._map[y - 1]

    def _beyond(self, y: int, width: int) -> Strip:
        """Say why there are no rows, where there are none."""
        if self.document is not None and self.document.count:
            return Strip.blank(width, self.base)
        notice = self.state.empty(self.document, fabric_app(self).clock())
        return self.notice_strip(notice, y - 1, (width, self.page))

    def _indicator(self, width: int) -> Strip:
        base, paint = self.base, paint_of(self)
        segments: list[Segment] = [Segment(" ", base)]
        for shown, role in self.state.indicator(self.document):
            segments += [Segment(shown, base + paint.style(role)), Segment("  ", base)]
        return overlay(Strip(segments).adjust_cell_length(width, base), Style(underline=False))
