"""One of many, found by typing a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from screens.style import text


class Pick(ModalScreen[int]):
    """A list that gets shorter while one types; gives back the place of the one that was picked, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("down", "move(1)", "down"),
        ("up", "move(-1)", "up"),
        ("pagedown", "move(10)", "page down"),
        ("pageup", "move(-10)", "page up"),
    ]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self.titled = title
        self.lines = [text.harmless(line) for line in lines]
        self._shown: list[int] = []

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog wide"):
            yield Static(Content(self.titled), classes="title")
            line = Input(placeholder="type a part of it; up, down and enter choose", select_on_focus=False)
            line.cursor_blink = False
            yield line
            listed = OptionList(markup=False)
            listed.can_focus = False
            yield listed

    def on_mount(self) -> None:
        """List everything."""
        self._narrow("")
        self.query_one(Input).focus()

    def _narrow(self, wanted: str) -> None:
        words = wanted.lower().split()
        self._shown = [i for i, line in enumerate(self.lines) if all(word in line.lower() for word in words)]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(Content(self.lines[index])) for index in self._shown])
        listed.highlighted = 0 if self._shown else None

    @on(Input.Changed)
    def _typing(self, event: Input.Changed) -> None:
        self._narrow(event.value)

    @on(Input.Submitted)
    def _submitted(self) -> None:
        at = self.query_one(OptionList).highlighted
        self.dismiss(self._shown[at] if at is not None and at < len(self._shown) else None)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index])

    def action_move(self, by: int) -> None:
        """Move up or down."""
        listed = self.query_one(OptionList)
        if self._shown:
            listed.highlighted = max(0, min(len(self._shown) - 1, (listed.highlighted or 0) + by))

    def action_leave(self) -> None:
        """Pick nothing."""
        self.dismiss(None)
