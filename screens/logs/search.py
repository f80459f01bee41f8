"""What keys do to find and to hide lines of a log; none of it waits for a file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from textual.message import Message

from screens.core.app_protocol import fabric_app
from screens.logs.detail import save
from screens.logs.feed import Feed, Found, Search
from screens.logs.movement import LogMoves
from screens.logs.state import LEVELS, WINDOW_MINUTES
from workbench.errors import FabricError, UsageError
from workbench.logs.grep import Pattern
from workbench.logs.time_expressions import since_us
from workbench.metrics.queries import time_of_step
from workbench.store.db.database import Store

_STEP: Final = re.compile(r"(?:step|s) *([0-9][0-9,]*)", re.IGNORECASE)


class LogSearch(LogMoves):
    """The keys by which a log is searched and narrowed."""

    class PromptWanted(Message):
        """A line is to be typed; :meth:`LogKeys.typing` and :meth:`LogKeys.entered` are told of it."""

        def __init__(self, purpose: str, value: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.value = value

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
        self.feed.sift(self.state.sieve)

    def action_log_level(self) -> None:
        """All, warnings, errors."""
        state = self.state
        index = LEVELS.index(state.sieve.least_level) if state.sieve.least_level in LEVELS else 0
        self._sift(least_level=LEVELS[(index + 1) % len(LEVELS)])

    def action_log_window(self, window: int) -> None:
        """The last minutes, the start, or all."""
        self.state.window = window if window > 1 else 0
        if window == 1:
            self._sift(since_us=None)
            self.action_move_top()
            return
        last = self.last_time_us(fabric_app(self).clock())
        self._sift(since_us=last - WINDOW_MINUTES[window] * 60_000_000 if window else None)
        self.state.follow = True

    # Finding

    def action_log_find(self) -> None:
        """Ask what to find."""
        self.post_message(self.PromptWanted("find", self.state.find_text))

    def action_log_filter(self) -> None:
        """Ask what to show."""
        self.post_message(self.PromptWanted("only lines with", self.state.filter_text))

    def action_log_goto(self) -> None:
        """Ask where to go."""
        self.post_message(self.PromptWanted("go to", ""))

    def typing(self, purpose: str, typed: str) -> None:
        """Show hits while they are typed; a text that cannot be understood yet changes nothing."""
        if purpose == "find":
            try:
                self.state.find = pattern_of(typed)[0]
            except UsageError:
                return
            self.redraw()

    def entered(self, purpose: str, typed: str) -> str:
        """Do what was typed; return what is wrong with it, or nothing."""
        try:
            match purpose:
                case "find":
                    self._find(typed)
                case "only lines with":
                    self._only(typed)
                case "go to":
                    self._go_to(typed.strip())
                case "save to":
                    self._save(typed.strip())
        except FabricError as error:
            return f"{error}"
        return ""

    def _find(self, typed: str) -> None:
        state = self.state
        state.find, _ = pattern_of(typed)
        state.find_text, state.note = typed, ""
        if state.find is not None:
            self._look(backward=state.follow)
        self.redraw()

    def _only(self, typed: str) -> None:
        wanted, invert = pattern_of(typed)
        self.state.filter_text = typed
        self._sift(pattern=wanted, invert=invert)

    def _look(self, *, backward: bool) -> None:
        if self.state.find is None:
            self.action_log_find()
            return
        self.feed.search(Search("find", self.state.cursor, backward, self.state.find))

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

    def on_found(self, found: Found) -> None:
        """Go to what was found, or say that there is nothing."""
        self.state.note = ""
        if found.row is not None:
            self.stop_following()
            self.reveal(found.row, middle=True)
            return
        names = {"find": "hit", "error": "error", "step": "such step"}
        where = "above" if found.backward else "below"
        self.state.note = f"no {names.get(found.what, 'line')} {where}"
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

        fabric_app(self).aside(look, go)

    def _save(self, path: str) -> None:
        document = self.document
        if document is not None and path:
            fabric_app(self).aside(lambda: save(document, path), fabric_app(self).tell)

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
            state.find, state.find_text, state.note = None, "", ""
            self.redraw()
        else:
            return False
        return True


def pattern_of(typed: str) -> tuple[Pattern | None, bool]:
    """Read what is to be found: words, or ``/a regular expression/``, after ``!`` all that do not fit.

    Raises:
        UsageError: the regular expression is wrong.
    """
    invert = typed.startswith("!") and len(typed) > 1
    wanted = typed[1:] if invert else typed
    if not wanted:
        return None, False
    if len(wanted) > 2 and wanted[0] == wanted[-1] == "/":
        return Pattern(wanted[1:-1], smart_case=True), invert
    return Pattern(wanted, literal=True, smart_case=True), invert
