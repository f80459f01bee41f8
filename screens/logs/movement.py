"""What keys do to move in a log and to change how its lines look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widget import Widget

from screens.base.memory import Memory
from screens.core.app_protocol import fabric_app
from screens.logs.render import TIMES

if TYPE_CHECKING:
    from screens.logs.view import LogView

SIDEWAYS = 16
"""Cells that one step to the side goes."""


class LogMoves(Widget):
    """The keys by which one moves."""

    @property
    def _view(self) -> LogView:
        return self  # type: ignore[return-value] # the keys of nothing else

    def restore(self, memory: Memory) -> None:
        """Look as it was left."""
        state = self._view.state
        state.wrap = memory.flag("wrap")
        times = memory.text("times", "none")
        state.times = times if times in TIMES else "none"

    def return_to(self, memory: Memory) -> None:
        """Go to where the log was left when it was not followed."""
        state = self._view.state
        same = state.job is not None and memory.text("log job") == f"{state.job.id} {state.attempt}"
        if same and not memory.flag("follow", True):
            state.wanted_row = int(memory.number("log row"))

    def leave(self, memory: Memory) -> None:
        """Remember where the log was left."""
        state = self._view.state
        if state.job is not None and state.wanted_row is None:
            memory.put("log job", f"{state.job.id} {state.attempt}")
            memory.put("follow", state.follow)
            memory.put("log row", state.cursor)

    # Moving

    def stop_following(self) -> None:
        """Stay where the reader is."""
        view = self._view
        if view.state.follow:
            view.state.follow = False
            view.state.seen = view.document.count if view.document else 0

    def _step(self, by: int) -> None:
        self.stop_following()
        self._view.reveal(self._view.state.cursor + by)

    def action_move_down(self) -> None:
        """The next row."""
        self._step(1)

    def action_move_up(self) -> None:
        """The row before."""
        self._step(-1)

    def action_move_page_down(self) -> None:
        """A page on."""
        self._step(max(1, self._view.page - 1))

    def action_move_page_up(self) -> None:
        """A page back."""
        self._step(-max(1, self._view.page - 1))

    def action_move_top(self) -> None:
        """The first row."""
        self.stop_following()
        self._view.reveal(0)

    def action_move_bottom(self) -> None:
        """The end, and stay there."""
        self._view.state.follow = True
        self._view.settle()
        self.leave(fabric_app(self).memory)

    def action_log_follow(self) -> None:
        """Follow, or stay."""
        if self._view.state.follow:
            self.stop_following()
            self._view.redraw()
        else:
            self.action_move_bottom()

    def action_log_left(self) -> None:
        """To the left."""
        self._view.state.left = max(0, self._view.state.left - SIDEWAYS)
        self._view.redraw()

    def action_log_right(self) -> None:
        """To the right."""
        self._view.state.left = min(2000, self._view.state.left + SIDEWAYS)
        self._view.redraw()

    # Looks

    def action_log_wrap(self) -> None:
        """Wrap or cut."""
        state = self._view.state
        state.wrap = not state.wrap
        fabric_app(self).memory.put("wrap", state.wrap)
        self._view.settle()
        self._view.reveal(state.cursor)

    def action_log_times(self) -> None:
        """The next way to show times."""
        state = self._view.state
        state.times = TIMES[(TIMES.index(state.times) + 1) % len(TIMES)]
        fabric_app(self).memory.put("times", state.times)
        self._view.settle()

    def action_log_mark(self) -> None:
        """Mark a row, or take its mark away."""
        state = self._view.state
        state.marks.symmetric_difference_update({state.cursor})
        self._view.redraw()
