"""The log viewer: its keys, the rows in view, and how it follows the end until the reader scrolls up."""

from __future__ import annotations

import re
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.base.job_tab import JobTab
from screens.core import actions
from screens.core.app_protocol import AppProtocol, fabric_app
from screens.core.memory import Memory
from screens.logs.detail import detail, save, texts
from screens.logs.document import LogDocument
from screens.logs.feed import Feed, GivenUp, Grown, Pages, SearchDone
from screens.logs.lines import Area, LogLines
from screens.logs.render import TIMES
from screens.logs.search import LogSearch
from screens.logs.state import LogState
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.cached_style import CachedStyle
from screens.widgets.prompt import Prompt
from workbench.errors import FabricError
from workbench.store.db.rows import JobRow

SIDEWAYS: Final = 16
"""Cells that one step to the side goes."""
COPIED_MOST: Final = 2000
"""So many lines are copied at most: terminals take no more than some 70 kB of text."""


class LogView(CachedStyle, ScrollView, JobTab, can_focus=True):
    """Rows of a document; its first line says how they are shown.

    Its state is what keys change; its feed keeps the document up to date, its lines lay it out, its search narrows it
    and finds in it.
    """

    TAB: ClassVar = "logs"
    BESIDE: ClassVar = "charts"
    PANE: ClassVar = "logs"
    BINDINGS: ClassVar = actions.bindings("logs")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state = LogState()
        self.document: LogDocument | None = None
        self.feed = Feed(self)
        self._pages = Pages(self)
        self._lines = LogLines(self.state, self._pages)
        self._search = LogSearch(self)
        self._epoch = -1
        self._kept_position: int | None = None
        """Which line of the whole log the cursor was on when another filter was set."""
        self._map: list[bool] = []
        self._map_for: object = None

    @property
    def fabric(self) -> AppProtocol:
        """The app."""
        return fabric_app(self)

    # Which log

    def take_job(self, job: JobRow) -> None:
        """Take the job: its new attempt's log is shown, unless an earlier one is being read."""
        before, state = self.state.job, self.state
        if job == before:
            return
        state.job = job
        if before is None:
            self._restore(self.fabric.memory)
            state.attempt = job.attempt
            self.open_log()
            self._return_to(self.fabric.memory)
        elif job.attempt != before.attempt and state.attempt == before.attempt:
            state.attempt = job.attempt
            self.open_log()
        self.refresh()

    def open_log(self) -> None:
        """Open the log that the state names."""
        job, state = self.state.job, self.state
        if job is None:
            return
        folder = self.fabric.home.job(job.id).attempt(state.attempt)
        learners = [state.learner] if state.learner else list(range(1, job.learners + 1))
        self.document = LogDocument([(number, folder.learner(number)) for number in learners])
        state.new_log()
        self._epoch = -1
        self._lines.open(self.document)
        self.feed.open(self.document)
        if not state.sieve.open:
            self.feed.sift(state.sieve)
        if state.find is not None:
            self.feed.count(state.find)
        self.redraw()

    def opened(self) -> None:
        """Look often for new lines."""
        self.feed.rest(resting=False)

    def rest(self) -> None:
        """Look less often for new lines."""
        self.feed.rest(resting=True)

    def on_unmount(self) -> None:
        """End the threads."""
        self.feed.close()
        self._pages.close()

    def can_do(self, action_id: str) -> bool | None:
        """Offer what can be done with lines once there are any."""
        return self._has_lines if action_id.startswith("log.") else None

    @property
    def _has_lines(self) -> bool:
        return self.document is not None and self.document.lines > 0

    def _restore(self, memory: Memory) -> None:
        """Look as it was left."""
        state = self.state
        state.wrap = memory.flag("wrap")
        times = memory.text("times", "none")
        state.times = times if times in TIMES else "none"

    def _return_to(self, memory: Memory) -> None:
        """Go to where the log was left when it was not followed."""
        state = self.state
        same = state.job is not None and memory.text("log job") == f"{state.job.id} {state.attempt}"
        if same and not memory.flag("follow", True):
            state.wanted_row = int(memory.number("log row"))

    def _remember(self) -> None:
        """Remember where the log was left."""
        state, memory = self.state, self.fabric.memory
        if state.job is not None and state.wanted_row is None:
            memory.put("log job", f"{state.job.id} {state.attempt}")
            memory.put("follow", state.follow)
            memory.put("log row", state.cursor)

    # Growing and scrolling

    @property
    def _page(self) -> int:
        """How many lines of the screen rows have."""
        return max(1, self.size.height - 1)

    @property
    def _area(self) -> Area:
        """Where rows are drawn now."""
        return Area(self.scroll_offset.y, self.room, self._page, self.base, paint_of(self))

    def redraw(self) -> None:
        """Draw again."""
        self._lines.change()
        self.refresh()

    def on_grown(self, grown: Grown) -> None:
        """Show new rows: at the end when following, else only their number."""
        del grown
        self.offer_keys(has_content=self._has_lines)
        if not self.fabric.reader.paused:
            self._settle()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again."""
        del event
        self._lines.forget()
        self._settle()

    def _settle(self) -> None:
        """Fit the scroll bar to the rows, and go to the end when following."""
        document, state = self.document, self.state
        if document is None:
            return
        anew = document.epoch != self._epoch
        if anew:
            self._epoch = document.epoch
            self._lines.forget()
            kept, self._kept_position = self._kept_position, None
            if kept is not None and document.sieve.open:
                state.cursor = kept
            state.cursor = min(state.cursor, max(0, document.count - 1))
        end = self._lines.last_top(self._area)
        self._lines.change()
        self.virtual_size = Size(self.room, end + self.size.height)
        if (row := state.wanted_row) is not None and row < document.count:
            state.wanted_row = None
            self.stop_following()
            self.reveal(row, middle=True)
        elif state.follow:
            state.known_rows = document.count
            state.cursor = max(0, document.count - 1)
            self._scroll_to_row(end)
        elif anew:
            self.reveal(state.cursor, middle=True)
        self.refresh()

    def _scroll_to_row(self, row: int) -> None:
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def reveal(self, row: int, *, middle: bool = False) -> None:
        """Put the cursor on a row and scroll until it is in view."""
        row = max(0, min(row, self._lines.count - 1))
        self.state.cursor = row
        area = self._area
        above = row < area.top
        if above or row not in self._lines.rows_in_view(area):
            edge = row if above else self._lines.top_above(row, area)
            target = row - area.height // 3 if middle else edge
            last = self._lines.last_top(area)
            self.virtual_size = Size(self.room, last + self.size.height)
            self._scroll_to_row(max(0, min(target, last)))
        self._remember()
        self.redraw()

    def keep_line(self) -> None:
        """Keep the cursor on its line of the log, whichever row that is once another filter is set."""
        document, cursor = self.document, self.state.cursor
        if document is not None and cursor < document.count:
            self._kept_position = document.position(cursor)

    @property
    def _row(self) -> int:
        """The row that keys are about: where the end is followed the last one, also of rows not yet reported."""
        if self.state.follow and not self.fabric.reader.paused:
            return max(0, self._lines.count - 1)
        return self.state.cursor

    def stop_following(self) -> None:
        """Stay where the reader is."""
        if self.state.follow:
            self.state.cursor = self._row
            self.state.follow = False
            self.state.known_rows = self._lines.count

    def on_mouse_scroll_up(self) -> None:
        """Stop following when the reader scrolls up."""
        self.stop_following()

    def on_scroll_up(self) -> None:
        """Stop following when the scroll bar is clicked."""
        self.stop_following()

    def on_scroll_to(self) -> None:
        """Stop following when the scroll bar is dragged."""
        self.stop_following()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a row; twice shows all of it."""
        laid = self._lines.laid(self._area)
        if 1 <= event.y <= len(laid):
            self.stop_following()
            self.state.cursor = laid[event.y - 1][0]
            self.redraw()
            if event.chain == 2:
                self.action_log_detail()

    # Keys: moving

    def _step(self, by: int) -> None:
        self.stop_following()
        self.reveal(self.state.cursor + by)

    def action_move_down(self) -> None:
        """The next row."""
        self._step(1)

    def action_move_up(self) -> None:
        """The row before."""
        self._step(-1)

    def action_move_page_down(self) -> None:
        """A page on."""
        self._step(max(1, self._page - 1))

    def action_move_page_up(self) -> None:
        """A page back."""
        self._step(-max(1, self._page - 1))

    def action_move_top(self) -> None:
        """The first row."""
        self.stop_following()
        self.reveal(0)

    def action_move_bottom(self) -> None:
        """The end, and stay there."""
        self.state.follow = True
        self._settle()
        self._remember()

    def action_log_follow(self) -> None:
        """Follow, or stay."""
        if self.state.follow:
            self.stop_following()
            self.redraw()
        else:
            self.action_move_bottom()

    def action_log_left(self) -> None:
        """To the left."""
        self.state.left = max(0, self.state.left - SIDEWAYS)
        self.redraw()

    def action_log_right(self) -> None:
        """To the right."""
        self.state.left = min(2000, self.state.left + SIDEWAYS)
        self.redraw()

    # Keys: which lines, and how they look

    def action_log_wrap(self) -> None:
        """Wrap or cut."""
        state = self.state
        state.wrap = not state.wrap
        self.fabric.memory.put("wrap", state.wrap)
        self._settle()
        self.reveal(state.cursor)

    def action_log_times(self) -> None:
        """The next way to show times."""
        state = self.state
        state.times = TIMES[(TIMES.index(state.times) + 1) % len(TIMES)]
        self.fabric.memory.put("times", state.times)
        self._settle()

    def action_log_level(self) -> None:
        """All, warnings, errors."""
        self._search.next_level()

    def action_log_window(self) -> None:
        """The next of the windows: the last minutes, or all."""
        self._search.next_window()

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

    def back(self) -> bool:
        """Take away what hides lines, then what was found."""
        return self._search.back()

    # Keys: finding, and what is typed for it

    def action_log_find(self) -> None:
        """Ask what to find."""
        self._ask("find", self.state.find_text)

    def action_log_filter(self) -> None:
        """Ask what to show."""
        self._ask("only lines that match", self.state.filter_text)

    def action_log_goto(self) -> None:
        """Ask where to go."""
        self._ask("go to", "")

    def action_log_next(self) -> None:
        """The next hit."""
        self._look(backward=False)

    def action_log_previous(self) -> None:
        """The hit before."""
        self._look(backward=True)

    def _look(self, *, backward: bool) -> None:
        if self.state.find is None:
            self.action_log_find()
        else:
            self._search.look(backward=backward)

    def action_log_error(self) -> None:
        """The next error."""
        self._search.look_for_error(backward=False)

    def action_log_error_back(self) -> None:
        """The error before."""
        self._search.look_for_error(backward=True)

    def on_search_done(self, found: SearchDone) -> None:
        """Go to what was found, or say that there is nothing."""
        self._search.take(found)

    def on_given_up(self, given_up: GivenUp) -> None:
        """Do without an expression that takes too long."""
        self._search.give_up(given_up)

    def _ask(self, purpose: str, value: str) -> None:
        history = self.fabric.memory.texts(f"log {purpose}")
        self.screen.query_one(Prompt).ask(purpose, value, history, asker=self)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        if typed.purpose == "find":
            self._search.show_hits(typed.value)

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        if left.purpose == "find":
            self._search.show_hits(left.before)
        self.focus()

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        """Do what was typed, or say what is wrong with it."""
        try:
            self.obey(entered.purpose, entered.value)
        except FabricError as error:
            entered.prompt.complain(f"{error}")
            return
        if entered.value:
            self.fabric.memory.add_to_history(f"log {entered.purpose}", entered.value)
        entered.prompt.close()
        self.focus()

    def obey(self, purpose: str, typed: str) -> None:
        """Do what was typed.

        Raises:
            FabricError: what is wrong with it.
        """
        match purpose:
            case "find":
                self._search.find(typed)
            case "only lines that match":
                self._search.only(typed)
            case "go to":
                self._search.go_to(typed.strip())
            case "save to":
                self._save(typed.strip())

    # Keys: the line under the cursor, those that are selected, and all of them

    def action_log_mark(self) -> None:
        """Mark a row, or take its mark away."""
        self.state.marks.symmetric_difference_update({self._row})
        self.redraw()

    def action_log_detail(self) -> None:
        """Show the whole line, or the whole traceback that it belongs to."""
        document = self.document
        if document is not None and document.count:
            row = min(self._row, document.count - 1)
            self.fabric.background.run(lambda: detail(document, row), self.fabric.show_text)

    def action_log_select(self) -> None:
        """Begin a selection at the cursor, or give it up."""
        state = self.state
        self.stop_following()
        state.selected_from = state.cursor if state.selected_from is None else None
        self.redraw()

    def action_log_copy(self) -> None:
        """Copy the lines that are selected, else the one under the cursor."""
        state, document = self.state, self.document
        if document is None or not document.count:
            return
        rows = state.selection or range(min(self._row, document.count - 1), document.count)[:1]
        if state.selected_from is None:
            row = rows[0]
            self.fabric.background.run(lambda: [detail(document, row)[1].plain], self._copied)
        else:
            chosen = rows[:COPIED_MOST]
            state.selected_from = None
            self.fabric.background.run(lambda: texts(document, chosen), self._copied)
        self.redraw()

    def _copied(self, lines: list[str]) -> None:
        self.app.copy_to_clipboard("\n".join(lines))
        what = "the line" if len(lines) == 1 else f"{len(lines):,} lines"
        self.fabric.show_message(f"copied {what}")

    def action_log_save(self) -> None:
        """Ask where to save."""
        job = self.state.job
        name = re.sub(r"[^\w.-]+", "-", job.name) if job else "job"
        self._ask("save to", f"{name}.log")

    def _save(self, path: str) -> None:
        document = self.document
        if document is not None and path:
            self.fabric.background.run(lambda: save(document, path), self.fabric.show_message)

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw the line that says how rows are shown, or a line of a row; at the edge, where errors are."""
        area = self._area
        if y == 0:
            return self._indicator(area)
        laid = self._lines.laid(area)
        strip = self._lines.strip(y - 1, area) if y <= len(laid) else self._beyond(y, area)
        if y <= len(laid) and laid[y - 1][0] == self.state.cursor and not self.state.follow:
            strip = overlay(strip, area.paint.cursor(focused=self.has_focus))
        elif y <= len(laid) and laid[y - 1][0] in self.state.selection:
            strip = overlay(strip, area.paint.cursor(focused=False))
        if not self._marked(y, area.height):
            return strip
        edge = Strip([Segment(glyphs().mark, area.base + area.paint.style("error"))])
        return Strip.join([strip.crop(0, area.width - 1), edge])

    def _marked(self, y: int, height: int) -> bool:
        """Say whether the map of the whole log next to the scroll bar has an error at a line of the screen."""
        document = self.document
        if document is None or y > height:
            return False
        made_for = (document.count, document.epoch, height, len(document.sources[0].levels.kinds))
        if made_for != self._map_for:
            self._map_for, self._map = made_for, document.error_marks(height)
        return self._map[y - 1]

    def _beyond(self, y: int, area: Area) -> Strip:
        """Say why there are no rows, where there are none."""
        if self._lines.count:
            return Strip.blank(area.width, area.base)
        notice = self.state.empty(self.document, self.fabric.clock())
        return self.notice_strip(notice, y - 1, (area.width, area.height))

    def _indicator(self, area: Area) -> Strip:
        segments: list[Segment] = [Segment(" ", area.base)]
        for shown, role in self.state.indicator(self.document):
            segments += [Segment(shown, area.base + area.paint.style(role)), Segment("  ", area.base)]
        return overlay(Strip(segments).adjust_cell_length(area.width, area.base), Style(underline=False))
