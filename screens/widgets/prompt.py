"""A line at the foot of a screen in which something is typed: a filter, what to find, where to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static

from workbench import formats

if TYPE_CHECKING:
    from textual.widgets import Input


NEWLINE: Final = "\u23ce"
"""Stands for the end of a line, where several are edited in one."""


def shown_lines(text: str) -> str:
    """Return several lines as they are edited in one; what ends a pasted text is no line."""
    return NEWLINE.join(text.rstrip("\r\n").splitlines())


def shown_to_text(shown: str) -> str:
    """Return the lines that were edited in one."""
    return shown.replace(NEWLINE, "\n")


class Prompt(Horizontal, can_focus=True):
    """A label, a line of text, and what is wrong with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("up", "older", "older"),
        ("down", "newer", "newer"),
        ("tab", "complete", "complete"),
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
        self._early_enter = False

    def on_mount(self) -> None:
        """Start hidden."""
        self.display = False

    def ask(self, purpose: str, value: str = "", history: Sequence[str] = ()) -> None:
        """Open the line; ``purpose`` is its label."""
        self.purpose, self._before, self._history, self._age = purpose, value, history, 0
        self._reported, self._early, self._early_enter = value, "", False
        self.display = True
        self.screen.set_focus(self)
        self.run_worker(self._open(), exclusive=True)

    def on_key(self, event: events.Key) -> None:
        """Take what is typed before the line is there to take it itself."""
        if event.key == "enter":
            event.stop()
            if self._line is None:
                self._early_enter = True
            else:
                self._enter(self._line.value)
        elif event.is_printable:
            event.stop()
            self._insert(event.character or "")

    def on_paste(self, event: events.Paste) -> None:
        """Take what is pasted, all lines of it, before the line is there or for it."""
        event.stop()
        self._insert(shown_lines(event.text))

    def _insert(self, text: str) -> None:
        if self._line is None:
            self._early += text
        else:
            self._line.insert_text_at_cursor(text)

    async def _open(self) -> None:
        """Put the line together anew; nothing of it is imported before it is asked for."""
        from textual.suggester import SuggestFromList
        from textual.widgets import Input

        class Line(Input):
            """A line that leaves what is pasted to the prompt: Textual's own takes the first line of it alone."""

            def _on_paste(self, event: events.Paste) -> None:
                event.prevent_default()

        completed = SuggestFromList(list(reversed(self._history)), case_sensitive=False)
        line = Line(
            shown_lines(self._before), select_on_focus=False, suggester=completed if self._history else None
        )
        line.cursor_blink = False
        await self.remove_children()
        shown = self.purpose if self.purpose == ":" else f"{self.purpose}: "
        label = Static(shown, id="prompt-label", markup=False)
        await self.mount(label, line, Static("", id="prompt-fault", markup=False))
        self.screen.set_focus(line)
        if self._early:
            line.insert_text_at_cursor(self._early)
        if self._early_enter:
            self._enter(line.value)

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
        if (shown := self.query_one_optional("#prompt-fault", Static)) is not None:
            shown.update(formats.printable(position + fault) if fault else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell of what was typed, but not of what stood there at first."""
        event.stop()
        if self.display and event.value != self._reported:
            self._reported = event.value
            self.complain("")
            self.post_message(self.Changed(self.purpose, shown_to_text(event.value)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Tell of what was entered."""
        event.stop()
        self._enter(event.value)

    def _enter(self, shown: str) -> None:
        self.post_message(self.Entered(self.purpose, shown_to_text(shown)))

    def action_complete(self) -> None:
        """Take what is proposed behind the cursor."""
        if self._line is not None:
            self._line.action_cursor_right()

    def action_leave(self) -> None:
        """Close the line and leave things as they were."""
        self.close()
        self.post_message(self.Left(self.purpose, self._before))

    def _recall(self, age: int) -> None:
        self._age = max(0, min(age, len(self._history)))
        line = self._line
        if line is None:
            return
        line.value = shown_lines(self._history[-self._age] if self._age else self._before)
        line.cursor_position = len(line.value)

    def action_older(self) -> None:
        """What was typed before."""
        self._recall(self._age + 1)

    def action_newer(self) -> None:
        """What was typed after."""
        self._recall(self._age - 1)
