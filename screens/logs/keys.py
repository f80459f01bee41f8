"""What keys do in a log: move, find, hide, mark, copy and save lines; none of it waits for a file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from textual import on
from textual.geometry import Size

from screens.core.app_protocol import fabric_app
from screens.core.memory import Memory
from screens.logs.detail import detail, save, texts
from screens.logs.feed import Feed, GivenUp, Search, SearchDone
from screens.logs.lines import LogLines
from screens.logs.render import TIMES
from screens.logs.state import LEVELS, WINDOW_MINUTES
from screens.widgets.prompt import Prompt
from workbench import formats
from workbench.errors import FabricError, UsageError
from workbench.logs.grep import Pattern
from workbench.metrics.queries import time_of_step
from workbench.store.db.database import Store
from workbench.time_expressions import since_us

SIDEWAYS = 16
"""Cells that one step to the side goes."""
COPIED_MOST: Final = 2000
"""So many lines are copied at most: terminals take no more than some 70 kB of text."""
_STEP: Final = re.compile(r"(?:step|s) *([0-9][0-9,]*)", re.IGNORECASE)


class LogMoves(LogLines):
    """The keys by which one moves."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._epoch = -1
        self._kept_position: int | None = None
        """Which line of the whole log the cursor was on when another filter was set."""

    def restore(self, memory: Memory) -> None:
        """Look as it was left."""
        state = self.state
        state.wrap = memory.flag("wrap")
        times = memory.text("times", "none")
        state.times = times if times in TIMES else "none"

    def return_to(self, memory: Memory) -> None:
        """Go to where the log was left when it was not followed."""
        state = self.state
        same = state.job is not None and memory.text("log job") == f"{state.job.id} {state.attempt}"
        if same and not memory.flag("follow", True):
            state.wanted_row = int(memory.number("log row"))

    def leave(self, memory: Memory) -> None:
        """Remember where the log was left."""
        state = self.state
        if state.job is not None and state.wanted_row is None:
            memory.put("log job", f"{state.job.id} {state.attempt}")
            memory.put("follow", state.follow)
            memory.put("log row", state.cursor)

    # Moving

    def settle(self) -> None:
        """Fit the scroll bar to the rows, and go to the end when following."""
        document = self.document
        if document is None:
            return
        anew = document.epoch != self._epoch
        if anew:
            self._epoch = document.epoch
            self._drawn.clear()
            kept, self._kept_position = self._kept_position, None
            if kept is not None and document.sieve.open:
                self.state.cursor = kept
            self.state.cursor = min(self.state.cursor, max(0, document.count - 1))
        end = self.last_top()
        self._changes += 1
        self.virtual_size = Size(self.room, end + self.size.height)
        if (row := self.state.wanted_row) is not None and row < document.count:
            self.state.wanted_row = None
            self.stop_following()
            self.reveal(row, middle=True)
        elif self.state.follow:
            self.state.known_rows = document.count
            self.state.cursor = max(0, document.count - 1)
            self.go_to_top(end)
        elif anew:
            self.reveal(self.state.cursor, middle=True)
        self.refresh()

    def go_to_top(self, row: int) -> None:
        """Scroll, at once."""
        self.scroll_to(y=row, animate=False, force=True, immediate=True)

    def reveal(self, row: int, *, middle: bool = False) -> None:
        """Put the cursor on a row and scroll until it is in view."""
        count = self.document.count if self.document else 0
        row = max(0, min(row, count - 1))
        self.state.cursor = row
        above = row < self.top
        below = row not in self.rows_in_view()
        if above or below:
            edge = row if above else self.top_above(row)
            target = row - self.page // 3 if middle else edge
            self.virtual_size = Size(self.room, self.last_top() + self.size.height)
            self.go_to_top(max(0, min(target, self.last_top())))
        self.leave(fabric_app(self).memory)
        self.redraw()

    def stop_following(self) -> None:
        """Stay where the reader is."""
        if self.state.follow:
            self.state.follow = False
            self.state.known_rows = self.document.count if self.document else 0

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
        self._step(max(1, self.page - 1))

    def action_move_page_up(self) -> None:
        """A page back."""
        self._step(-max(1, self.page - 1))

    def action_move_top(self) -> None:
        """The first row."""
        self.stop_following()
        self.reveal(0)

    def action_move_bottom(self) -> None:
        """The end, and stay there."""
        self.state.follow = True
        self.settle()
        self.leave(fabric_app(self).memory)

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

    # Looks

    def action_log_wrap(self) -> None:
        """Wrap or cut."""
        state = self.state
        state.wrap = not state.wrap
        fabric_app(self).memory.put("wrap", state.wrap)
        self.settle()
        self.reveal(state.cursor)

    def action_log_times(self) -> None:
        """The next way to show times."""
        state = self.state
        state.times = TIMES[(TIMES.index(state.times) + 1) % len(TIMES)]
        fabric_app(self).memory.put("times", state.times)
        self.settle()

    def action_log_mark(self) -> None:
        """Mark a row, or take its mark away."""
        state = self.state
        state.marks.symmetric_difference_update({state.cursor})
        self.redraw()


class LogSearch(LogMoves):
    """The keys by which a log is searched and narrowed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.feed = Feed(self)

    # Which lines

    def last_time_us(self, now_us: int) -> int:
        """Return when the job last ran: now, or when it ended."""
        job = self.state.job
        return job.ended_us if job is not None and job.ended_us is not None else now_us

    def _sift(self, **change: object) -> None:
        self.state.sieve = replace(self.state.sieve, **change)  # type: ignore[arg-type] # fields of Sieve
        self.state.marks.clear()
        document, cursor = self.document, self.state.cursor
        if document is not None and cursor < document.count:
            self._kept_position = document.position(cursor)
        self.feed.sift(self.state.sieve)

    def action_log_level(self) -> None:
        """All, warnings, errors."""
        state = self.state
        index = LEVELS.index(state.sieve.least_level) if state.sieve.least_level in LEVELS else 0
        self._sift(least_level=LEVELS[(index + 1) % len(LEVELS)])

    def action_log_window(self) -> None:
        """The next of the windows: the last minutes, or all."""
        window = (self.state.window + 1) % len(WINDOW_MINUTES)
        self.state.window = window
        last = self.last_time_us(fabric_app(self).clock())
        self._sift(since_us=last - WINDOW_MINUTES[window] * 60_000_000 if window else None)
        self.state.follow = True

    # Finding

    def action_log_find(self) -> None:
        """Ask what to find."""
        self._ask("find", self.state.find_text)

    def action_log_filter(self) -> None:
        """Ask what to show."""
        self._ask("only lines that match", self.state.filter_text)

    def action_log_goto(self) -> None:
        """Ask where to go."""
        self._ask("go to", "")

    def _ask(self, purpose: str, value: str) -> None:
        history = fabric_app(self).memory.texts(f"log {purpose}")
        self.screen.query_one(Prompt).ask(purpose, value, history, asker=self)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        self._show_hits(typed.purpose, typed.value)

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        self._show_hits(left.purpose, left.before)
        self.focus()

    def _show_hits(self, purpose: str, typed: str) -> None:
        """Show hits while they are typed; a text that cannot be understood yet changes nothing."""
        if purpose == "find":
            try:
                self._look_for(typed)
            except UsageError:
                return
            self.redraw()

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        """Do what was typed, or say what is wrong with it."""
        try:
            self.obey(entered.purpose, entered.value)
        except FabricError as error:
            entered.prompt.complain(f"{error}")
            return
        if entered.value:
            fabric_app(self).memory.add_to_history(f"log {entered.purpose}", entered.value)
        entered.prompt.close()
        self.focus()

    def obey(self, purpose: str, typed: str) -> None:
        """Do what was typed.

        Raises:
            FabricError: what is wrong with it.
        """
        match purpose:
            case "find":
                self._find(typed)
            case "only lines that match":
                self._only(typed)
            case "go to":
                self._go_to(typed.strip())
            case "save to":
                self._save(typed.strip())

    def _look_for(self, typed: str) -> None:
        """Light up what is typed, and count it."""
        self.state.find, _ = pattern_of(typed)
        self.feed.count(self.state.find)

    def _find(self, typed: str) -> None:
        state = self.state
        self._look_for(typed)
        state.find_text, state.note = typed, ""
        if state.find is not None:
            self._look(backward=state.follow)
        self.redraw()

    def _only(self, typed: str) -> None:
        pattern, invert = pattern_of(typed)
        self.state.filter_text = typed
        self._sift(pattern=pattern, invert=invert)

    def _look(self, *, backward: bool) -> None:
        if self.state.find is None:
            self.action_log_find()
            return
        document, state = self.document, self.state
        # The end that is followed is looked at, too.
        row = document.count if document is not None and backward and state.follow else state.cursor
        self.feed.search(Search("find", row, backward, self.state.find))

    def action_log_next(self) -> None:
        """The next hit."""
        self._look(backward=False)

    def action_log_previous(self) -> None:
        """The hit before."""
        self._look(backward=True)

    def action_log_error(self) -> None:
        """The next error."""
        row = -1 if self.state.follow else self.state.cursor
        self.feed.search(Search("error", row))

    def action_log_error_back(self) -> None:
        """The error before."""
        row = self.document.count if self.state.follow and self.document else self.state.cursor
        self.feed.search(Search("error", row, backward=True))

    def on_search_done(self, found: SearchDone) -> None:
        """Go to what was found, or say that there is nothing."""
        self.state.note = ""
        if found.row is not None:
            self.stop_following()
            self.reveal(found.row, middle=True)
            return
        names = {"find": "match", "error": "error", "step": "such step"}
        where = "above" if found.backward else "below"
        self.state.note = f"no {names.get(found.what, 'line')} {where}"
        self.redraw()

    def on_given_up(self, given_up: GivenUp) -> None:
        """Show what the expression hid, and say that it took too long; among what was typed before it is kept."""
        state, error = self.state, given_up.error
        filtered, found = state.sieve.pattern, state.find
        if filtered is not None and filtered.text == error.pattern:
            state.filter_text = ""
            self._sift(pattern=None, invert=False)
        if found is not None and found.text == error.pattern:
            state.find, state.find_text = None, ""
            self.feed.count(None)
        state.note = f"/{formats.printable(error.pattern)}/ took too long"
        fabric_app(self).show_message(f"{error}: {error.hint}", "warning")
        self.redraw()

    def _go_to(self, typed: str) -> None:
        if step := _STEP.fullmatch(typed):
            self._go_to_step(int(step[1].replace(",", "")))
        elif typed.replace(",", "").isdigit() and ":" not in typed:
            self.stop_following()
            self.reveal(int(typed.replace(",", "")) - 1, middle=True)
        elif typed:
            time_us = since_us(typed, fabric_app(self).clock())
            self.feed.search(Search("time", 0, time_us=time_us))

    def _go_to_step(self, step: int) -> None:
        """Go to where a step was reported, else to where the log names it."""
        state, home = self.state, fabric_app(self).home
        if state.job is None:
            return
        job_id, attempt = state.job.id, state.attempt

        def look() -> int | None:
            with Store.open(home) as store:
                return time_of_step(store, job_id, step, attempt)

        def go(time_us: int | None) -> None:
            named = Pattern(rf"\bstep\W{{0,3}}0*{step}\b", ignore_case=True)
            search = (
                Search("step", -1, pattern=named) if time_us is None else Search("time", 0, time_us=time_us)
            )
            self.feed.search(search)

        fabric_app(self).background.run(look, go)

    def _save(self, path: str) -> None:
        document = self.document
        if document is not None and path:
            fabric_app(self).background.run(lambda: save(document, path), fabric_app(self).show_message)

    def back(self) -> bool:
        """Take away what hides lines, then what was found."""
        state = self.state
        if not state.sieve.open:
            state.filter_text, state.window = "", 0
            self._sift(pattern=None, invert=False, least_level=LEVELS[0], since_us=None)
        elif state.selected_from is not None:
            state.selected_from = None
            self.redraw()
        elif state.find is not None:
            self._look_for("")
            state.find_text, state.note = "", ""
            self.redraw()
        else:
            return False
        return True


class LogKeys(LogSearch):
    """The keys of a log viewer."""

    def action_log_save(self) -> None:
        """Ask where to save."""
        job = self.state.job
        name = re.sub(r"[^\w.-]+", "-", job.name) if job else "job"
        self._ask("save to", f"{name}.log")

    # The line under the cursor, and all of them

    def action_log_detail(self) -> None:
        """Show the whole line, or the whole traceback that it belongs to."""
        document = self.document
        if document is not None and document.count:
            row = min(self.state.cursor, document.count - 1)
            fabric_app(self).background.run(lambda: detail(document, row), fabric_app(self).show_text)

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
        rows = state.selection or range(min(state.cursor, document.count - 1), document.count)[:1]
        if state.selected_from is None:
            row = rows[0]
            fabric_app(self).background.run(lambda: [detail(document, row)[1].plain], self._copied)
        else:
            chosen = rows[:COPIED_MOST]
            state.selected_from = None
            fabric_app(self).background.run(lambda: texts(document, chosen), self._copied)
        self.redraw()

    def _copied(self, lines: list[str]) -> None:
        self.app.copy_to_clipboard("\n".join(lines))
        what = "the line" if len(lines) == 1 else f"{len(lines):,} lines"
        fabric_app(self).show_message(f"copied {what}")


def pattern_of(typed: str) -> tuple[Pattern | None, bool]:
    """Read what is searched for: text, or ``/a regular expression/``; after ``!``, all that does not match.

    Raises:
        UsageError: the regular expression is wrong.
    """
    invert = typed.startswith("!") and len(typed) > 1
    searched = typed[1:] if invert else typed
    if not searched:
        return None, False
    if len(searched) > 2 and searched[0] == searched[-1] == "/":
        return Pattern(searched[1:-1], smart_case=True), invert
    return Pattern(searched, literal=True, smart_case=True), invert
