"""A line at the foot of a screen in which something is typed: a filter, what to find, where to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from screens import text


class Prompt(Horizontal):
    """A label, a line of text, and what is wrong with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("up", "older", "older"),
        ("down", "newer", "newer"),
    ]

    class Changed(Message):
        """Something was typed."""

        def __init__(self, purpose: str, value: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.value = value

    class Entered(Changed):
        """Enter was pressed."""

    class Left(Message):
        """Escape was pressed; ``before`` is what stood there when it was opened."""

        def __init__(self, purpose: str, before: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.before = before

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.purpose = ""
        self._before = ""
        self._history: Sequence[str] = ()
        self._age = 0

    def compose(self) -> ComposeResult:
        """Put the line together."""
        yield Static("", id="prompt-label", markup=False)
        yield Input(id="prompt-input", select_on_focus=False)
        yield Static("", id="prompt-fault", markup=False)

    def on_mount(self) -> None:
        """Start hidden, and without a blinking cursor."""
        self.display = False
        self.query_one(Input).cursor_blink = False

    def ask(self, purpose: str, value: str = "", history: Sequence[str] = ()) -> None:
        """Open the line; ``purpose`` is its label."""
        self.purpose, self._before, self._history, self._age = purpose, value, history, 0
        self.query_one("#prompt-label", Static).update(f"{purpose}: ")
        self.complain("")
        line = self.query_one(Input)
        line.suggester = SuggestFromList(list(reversed(history)), case_sensitive=False) if history else None
        with self.prevent(Input.Changed):
            line.value = value
        line.cursor_position = len(value)
        self.display = True
        line.focus()

    def close(self) -> None:
        """Close the line."""
        self.display = False

    def complain(self, fault: str, start: int = 0, end: int = 0) -> None:
        """Say what is wrong, and where it begins; nothing is well."""
        place = f"at {start + 1}-{end}: " if end else ""
        self.query_one("#prompt-fault", Static).update(text.harmless(place + fault) if fault else "")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self.complain("")
            self.post_message(self.Changed(self.purpose, event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Entered(self.purpose, event.value))

    def action_leave(self) -> None:
        """Close the line and leave things as they were."""
        self.close()
        self.post_message(self.Left(self.purpose, self._before))

    def _recall(self, age: int) -> None:
        self._age = max(0, min(age, len(self._history)))
        line = self.query_one(Input)
        line.value = self._history[-self._age] if self._age else self._before
        line.cursor_position = len(line.value)

    def action_older(self) -> None:
        """What was typed before."""
        self._recall(self._age + 1)

    def action_newer(self) -> None:
        """What was typed after."""
        self._recall(self._age - 1)
