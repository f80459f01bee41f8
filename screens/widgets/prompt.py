"""A line at the foot of a screen in which something is typed: a filter, what to find, where to go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from workbench import formats

if TYPE_CHECKING:
    from textual.widget import Widget
    from textual.widgets import Input


NEWLINE: Final = "\u23ce"
"""Stands for the end of a line, where several are edited in one."""


Complete = Callable[[str], Sequence[str]]
"""Returns what a line may become of which so much is typed, the likeliest first."""


def shown_lines(text: str) -> str:
    """Return several lines as they are edited in one; what ends a pasted text is not a line."""
    return NEWLINE.join(text.rstrip("\r\n").splitlines())


def shown_to_text(shown: str) -> str:
    """Return the lines that were edited in one."""
    return shown.replace(NEWLINE, "\n")


class Prompt(Horizontal, can_focus=True):
    """A label, a line of text, and what is wrong with it; who asked for the line gets the messages about it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("up", "older", "older"),
        ("down", "newer", "newer"),
        ("tab", "complete", "complete"),
    ]

    class Changed(Message):
        """Something was typed."""

        def __init__(self, prompt: Prompt, purpose: str, value: str) -> None:
            super().__init__()
            self.prompt = prompt
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
        self._asker: Widget = self
        self._before = ""
        self._history: Sequence[str] = ()
        self._complete: Complete | None = None
        self._age = 0
        self._reported = ""
        self._line: Input | None = None
        """What is typed into; None until it is there."""
        self._early: list[Callable[[], None]] = []
        """What keys are to do once the line is there."""
        self._offered: list[str] = []
        """What the line might become; the first was taken."""

    def on_mount(self) -> None:
        """Start hidden."""
        self.display = False

    def ask(
        self,
        purpose: str,
        value: str = "",
        history: Sequence[str] = (),
        complete: Complete | None = None,
        asker: Widget | None = None,
    ) -> None:
        """Open the line.

        Args:
            purpose: Its label.
            value: What stands there at first.
            history: What may stand there, the likeliest last.
            complete: Says what else a line may become.
            asker: The pane that the line is for, which gets the messages; without one they go to the screen.
        """
        self._asker = asker or self
        self.purpose, self._before, self._history, self._age = purpose, value, history, 0
        self._reported, self._complete = value, complete
        self._line, self._early, self._offered = None, [], []
        self.display = True
        self.screen.set_focus(self)
        self.run_worker(self._open(), exclusive=True)

    def on_key(self, event: events.Key) -> None:
        """Take what is typed before the line is there to take it itself."""
        if event.key == "enter":
            event.stop()
            self._once_open(self._enter_line)
        elif event.is_printable:
            event.stop()
            self._once_open(partial(self._insert, event.character or ""))

    def on_paste(self, event: events.Paste) -> None:
        """Take what is pasted, all lines of it, before the line is there or for it."""
        event.stop()
        self._once_open(partial(self._insert, shown_lines(event.text)))

    def _once_open(self, act: Callable[[], None]) -> None:
        """Do what a key asks for as soon as the line is there."""
        if self._line is None:
            self._early.append(act)
        else:
            act()

    def _insert(self, text: str) -> None:
        if self._line is not None:
            self._line.insert_text_at_cursor(text)

    async def _open(self) -> None:
        """Put the line together again; nothing of it is imported before it is asked for."""
        from textual.suggester import Suggester

        candidates = self._candidates

        class FirstCandidate(Suggester):
            """Proposes what the key that completes would take."""

            async def get_suggestion(self, value: str) -> str | None:
                return next(iter(candidates(value)), None)

        class Line(Input):
            """A line that leaves what is pasted to the prompt: Textual's own takes the first line of it alone."""

            def _on_paste(self, event: events.Paste) -> None:
                event.prevent_default()

        suggester = FirstCandidate(use_cache=False, case_sensitive=True)
        line = Line(shown_lines(self._before), select_on_focus=False, suggester=suggester)
        line.cursor_blink = False
        await self.remove_children()
        shown = self.purpose if self.purpose == ":" else f"{self.purpose}: "
        label = Static(shown, id="prompt-label", markup=False)
        await self.mount(label, line, Static("", id="prompt-fault", markup=False))
        self.screen.set_focus(line)
        self._line, early = line, self._early
        for act in early:
            act()

    def close(self) -> None:
        """Close the line."""
        self.display = False

    def complain(self, fault: str, start: int = 0, end: int = 0) -> None:
        """Say what is wrong, and where it begins; nothing is well."""
        position = f"at {start + 1}-{end}: " if end else ""
        said = formats.printable(position + fault) if fault else ""
        shown = self.query_one_optional("#prompt-fault", Static)
        # A text that is set has the whole screen laid out, at every key.
        if shown is not None and shown.content != said:
            shown.update(said)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell of what was typed, but not of what stood there at first."""
        event.stop()
        if self.display and event.value != self._reported:
            self._reported = event.value
            self.complain("")
            self._asker.post_message(self.Changed(self, self.purpose, shown_to_text(event.value)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Tell of what was entered."""
        event.stop()
        self._enter(event.value)

    def _enter_line(self) -> None:
        if self._line is not None:
            self._enter(self._line.value)

    def _enter(self, shown: str) -> None:
        self._asker.post_message(self.Entered(self, self.purpose, shown_to_text(shown)))

    def _candidates(self, typed: str) -> list[str]:
        """Return what the line may become of which so much is typed: known lines first."""
        if not typed:
            return []
        known = [shown_lines(line) for line in reversed(self._history)]
        found = [line for line in known if line.lower().startswith(typed.lower())]
        found += self._complete(typed) if self._complete is not None else ()
        return [line for line in dict.fromkeys(found) if line != typed]

    def action_complete(self) -> None:
        """Take what is proposed behind the cursor; again, the next that fits."""
        self._once_open(self._take_candidate)

    def _take_candidate(self) -> None:
        line = self._line
        if line is None or not line.cursor_at_end:
            return
        if len(self._offered) > 1 and line.value == self._offered[0]:
            self._offered = [*self._offered[1:], self._offered[0]]
        else:
            self._offered = self._candidates(line.value)
        if self._offered:
            line.value = self._offered[0]
            line.cursor_position = len(line.value)

    def action_leave(self) -> None:
        """Close the line and leave things as they were."""
        self.close()
        self._asker.post_message(self.Left(self.purpose, self._before))

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
