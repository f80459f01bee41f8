"""A line at the foot of a screen in which something is typed: a filter, what to find, where to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from workbench import formats

if TYPE_CHECKING:
    from textual.widgets import Input


class Prompt(Horizontal, can_focus=True):
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
        self._reported = ""
        self._early = ""

    def on_mount(self) -> None:
        """Start hidden."""
        self.display = False

    def ask(self, purpose: str, value: str = "", history: Sequence[str] = ()) -> None:
        """Open the line; ``purpose`` is its label."""
        self.purpose, self._before, self._history, self._age = purpose, value, history, 0
        self._reported, self._early = value, ""
        self.display = True
        self.screen.set_focus(self)
        self.run_worker(self._open(), exclusive=True)

    def on_key(self, event: events.Key) -> None:
        """Take what is typed before the line is there to take it itself."""
        if not event.is_printable:
            return
        event.stop()
        if self._line is None:
            self._early += event.character or ""
        else:
            self._line.insert_text_at_cursor(event.character or "")

    async def _open(self) -> None:
        """Put the line together anew; nothing of it is imported before it is asked for."""
        from textual.suggester import SuggestFromList
        from textual.widgets import Input

        completed = SuggestFromList(list(reversed(self._history)), case_sensitive=False)
        line = Input(self._before, select_on_focus=False, suggester=completed if self._history else None)
        line.cursor_blink = False
        await self.remove_children()
        shown = self.purpose if self.purpose == ":" else f"{self.purpose}: "
        label = Static(shown, id="prompt-label", markup=False)
        await self.mount(label, line, Static("", id="prompt-fault", markup=False))
        self.screen.set_focus(line)
        if self._early:
            line.insert_text_at_cursor(self._early)

    @property
    def _line(self) -> Input | None:
        from textual.widgets import Input

        return self.query_one_optional(Input)

    def close(self) -> None:
        """Close the line."""
        self.display = False

    def complain(self, fault: str, start: int = 0, end: int = 0) -> None:
        """Say what is wrong, and where it begins; nothing is well."""
        position = f"at {start + 1}-{end}: " if end else ""
        self.query_one("#prompt-fault", Static).update(formats.printable(position + fault) if fault else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell of what was typed, but not of what stood there at first."""
        event.stop()
        if self.display and event.value != self._reported:
            self._reported = event.value
            self.complain("")
            self.post_message(self.Changed(self.purpose, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Tell of what was entered."""
        event.stop()
        self.post_message(self.Entered(self.purpose, event.value))

    def action_leave(self) -> None:
        """Close the line and leave things as they were."""
        self.close()
        self.post_message(self.Left(self.purpose, self._before))

    def _recall(self, age: int) -> None:
        self._age = max(0, min(age, len(self._history)))
        line = self._line
        if line is None:
            return
        line.value = self._history[-self._age] if self._age else self._before
        line.cursor_position = len(line.value)

    def action_older(self) -> None:
        """What was typed before."""
        self._recall(self._age + 1)

    def action_newer(self) -> None:
        """What was typed after."""
        self._recall(self._age - 1)
