"""What keys do to move in a log and to change how its lines look."""

from __future__ import annotations

from textual.geometry import Size

from screens.core.app_protocol import fabric_app
from screens.core.memory import Memory
from screens.logs.lines import LogLines
from screens.logs.render import TIMES

SIDEWAYS = 16
"""Cells that one step to the side goes."""


class LogMoves(LogLines):
    """The keys by which one moves."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._epoch = -1

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
        if document.epoch != self._epoch:
            self._epoch = document.epoch
            self._drawn.clear()
            self.state.cursor = min(self.state.cursor, max(0, document.count - 1))
        end = self.last_top()
        self._changes += 1
        self.virtual_size = Size(self.room, end + self.size.height)
        if (row := self.state.wanted_row) is not None and row < document.count:
            self.state.wanted_row = None
            self.stop_following()
            self.reveal(row, middle=True)
        elif self.state.follow:
            self.state.seen = document.count
            self.state.cursor = max(0, document.count - 1)
            self.go_to_top(end)
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
            wanted = row - self.page // 3 if middle else edge
            self.virtual_size = Size(self.room, self.last_top() + self.size.height)
            self.go_to_top(max(0, min(wanted, self.last_top())))
        self.leave(fabric_app(self).memory)
        self.redraw()

    def stop_following(self) -> None:
        """Stay where the reader is."""
        if self.state.follow:
            self.state.follow = False
            self.state.seen = self.document.count if self.document else 0

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
