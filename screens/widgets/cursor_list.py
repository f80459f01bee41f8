"""Lines of which one is under the cursor: how it goes from line to line, and stays in view."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.message import Message
from textual.scroll_view import ScrollView

from screens.widgets.cached_style import CachedStyle


class CursorList(CachedStyle, ScrollView, can_focus=True):
    """Says where the cursor is; what the lines are and how they look is for who inherits from it."""

    HEAD_LINES: ClassVar = 0
    """So many lines at the top stay there."""

    class Chosen(Message):
        """A line was clicked twice."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._at = 0

    @property
    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    @property
    def _page(self) -> int:
        return max(1, self.size.height - self.HEAD_LINES)

    def _move(self, at: int) -> None:
        self._at = max(0, min(at, self.count - 1))
        top = self.scroll_offset.y
        if self.size.height and not top <= self._at < top + self._page:
            top = self._at if self._at < top else self._at - self._page + 1
            self.scroll_to(y=top, animate=False, force=True)
        self.refresh()

    def action_move_down(self) -> None:
        """The next line."""
        self._move(self._at + 1)

    def action_move_up(self) -> None:
        """The line before."""
        self._move(self._at - 1)

    def action_move_page_down(self) -> None:
        """A page on."""
        self._move(self._at + max(1, self._page - 1))

    def action_move_page_up(self) -> None:
        """A page back."""
        self._move(self._at - max(1, self._page - 1))

    def action_move_top(self) -> None:
        """The first line."""
        self._move(0)

    def action_move_bottom(self) -> None:
        """The last line."""
        self._move(self.count - 1)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on a line; twice chooses it."""
        if event.y >= self.HEAD_LINES:
            self._move(self.scroll_offset.y + event.y - self.HEAD_LINES)
            if event.chain == 2:
                self.post_message(self.Chosen())
