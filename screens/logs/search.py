"""What narrows a log and what is looked for in it: levels, a window of time, a filter, hits, errors, steps, times."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Protocol

from screens.core.app_protocol import AppProtocol
from screens.logs.document import LogDocument
from screens.logs.feed import Feed, GivenUp, Search, SearchDone
from screens.logs.state import LEVELS, WINDOW_MINUTES, LogState
from workbench import formats
from workbench.errors import UsageError
from workbench.logs.grep import Pattern
from workbench.metrics.queries import time_of_step
from workbench.store.db.database import Store
from workbench.time_expressions import since_us

_STEP: Final = re.compile(r"(?:step|s) *([0-9][0-9,]*)", re.IGNORECASE)
_NAMES: Final = {"find": "match", "error": "error", "step": "such step"}
"""What a search is for, where it found nothing."""


class Viewer(Protocol):
    """What shows the log."""

    state: LogState
    document: LogDocument | None
    feed: Feed

    @property
    def fabric(self) -> AppProtocol:
        """The app."""

    def redraw(self) -> None:
        """Draw again."""

    def reveal(self, row: int, *, middle: bool = False) -> None:
        """Put the cursor on a row and scroll until it is in view."""

    def stop_following(self) -> None:
        """Stay where the reader is."""

    def keep_line(self) -> None:
        """Keep the cursor on its line of the log, whichever row that is once another filter is set."""


class LogSearch:
    """Sifts and searches the log of a viewer; the feed does the work, and none of this waits for it."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer

    # Which lines

    def _sift(self, **change: object) -> None:
        viewer, state = self._viewer, self._viewer.state
        state.sieve = replace(state.sieve, **change)  # type: ignore[arg-type] # fields of Sieve
        state.marks.clear()
        viewer.keep_line()
        viewer.feed.sift(state.sieve)

    def next_level(self) -> None:
        """Show all lines, warnings and errors, or errors."""
        least = self._viewer.state.sieve.least_level
        index = LEVELS.index(least) if least in LEVELS else 0
        self._sift(least_level=LEVELS[(index + 1) % len(LEVELS)])

    def next_window(self) -> None:
        """Show the next of the windows, counted from when the job last ran: the last minutes, or all."""
        state = self._viewer.state
        state.window = window = (state.window + 1) % len(WINDOW_MINUTES)
        ended_us = state.job.ended_us if state.job is not None else None
        last = self._viewer.fabric.clock() if ended_us is None else ended_us
        self._sift(since_us=last - WINDOW_MINUTES[window] * 60_000_000 if window else None)
        state.follow = True

    def only(self, typed: str) -> None:
        """Show only the lines that match.

        Raises:
            UsageError: the regular expression is wrong.
        """
        pattern, invert = pattern_of(typed)
        self._viewer.state.filter_text = typed
        self._sift(pattern=pattern, invert=invert)

    def back(self) -> bool:
        """Take away what hides lines, then a selection, then what was found; return whether there was anything."""
        viewer, state = self._viewer, self._viewer.state
        if not state.sieve.open:
            state.filter_text, state.window = "", 0
            self._sift(pattern=None, invert=False, least_level=LEVELS[0], since_us=None)
        elif state.selected_from is not None:
            state.selected_from = None
            viewer.redraw()
        elif state.find is not None:
            self._look_for("")
            state.find_text, state.note = "", ""
            viewer.redraw()
        else:
            return False
        return True

    # Finding

    def _look_for(self, typed: str) -> None:
        """Light up what is typed, and count it."""
        state = self._viewer.state
        state.find, _ = pattern_of(typed)
        self._viewer.feed.count(state.find)

    def show_hits(self, typed: str) -> None:
        """Show hits while they are typed; a text that cannot be understood yet changes nothing."""
        try:
            self._look_for(typed)
        except UsageError:
            return
        self._viewer.redraw()

    def find(self, typed: str) -> None:
        """Go to the nearest hit.

        Raises:
            UsageError: the regular expression is wrong.
        """
        state = self._viewer.state
        self._look_for(typed)
        state.find_text, state.note = typed, ""
        if state.find is not None:
            self.look(backward=state.follow)
        self._viewer.redraw()

    def look(self, *, backward: bool) -> None:
        """Go to the next hit, or the one before."""
        document, state = self._viewer.document, self._viewer.state
        # The end that is followed is looked at, too.
        row = document.count if document is not None and backward and state.follow else state.cursor
        self._viewer.feed.search(Search("find", row, backward, state.find))

    def look_for_error(self, *, backward: bool) -> None:
        """Go to the next error, or the one before."""
        document, state = self._viewer.document, self._viewer.state
        row = state.cursor
        if state.follow:
            row = -1 if not backward else document.count if document else row
        self._viewer.feed.search(Search("error", row, backward=backward))

    def go_to(self, typed: str) -> None:
        """Go to a line, a step, a time or an age.

        Raises:
            UsageError: it is none of these.
        """
        viewer = self._viewer
        if step := _STEP.fullmatch(typed):
            self._go_to_step(int(step[1].replace(",", "")))
        elif typed.replace(",", "").isdigit() and ":" not in typed:
            viewer.stop_following()
            viewer.reveal(int(typed.replace(",", "")) - 1, middle=True)
        elif typed:
            time_us = since_us(typed, viewer.fabric.clock())
            viewer.feed.search(Search("time", 0, time_us=time_us))

    def _go_to_step(self, step: int) -> None:
        """Go to where a step was reported, else to where the log names it."""
        state, home = self._viewer.state, self._viewer.fabric.home
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
            self._viewer.feed.search(search)

        self._viewer.fabric.background.run(look, go)

    # What the feed answers

    def take(self, found: SearchDone) -> None:
        """Go to what was found, or say that there is nothing."""
        viewer = self._viewer
        viewer.state.note = ""
        if found.row is not None:
            viewer.stop_following()
            viewer.reveal(found.row, middle=True)
            return
        where = "above" if found.backward else "below"
        viewer.state.note = f"no {_NAMES.get(found.what, 'line')} {where}"
        viewer.redraw()

    def give_up(self, given_up: GivenUp) -> None:
        """Show what the expression hid, and say that it took too long; among what was typed before it is kept."""
        viewer, state, error = self._viewer, self._viewer.state, given_up.error
        filtered, found = state.sieve.pattern, state.find
        if filtered is not None and filtered.text == error.pattern:
            state.filter_text = ""
            self._sift(pattern=None, invert=False)
        if found is not None and found.text == error.pattern:
            state.find, state.find_text = None, ""
            viewer.feed.count(None)
        state.note = f"/{formats.printable(error.pattern)}/ took too long"
        viewer.fabric.show_message(f"{error}: {error.hint}", "warning")
        viewer.redraw()


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
