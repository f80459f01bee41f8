"""Asks for one line over whichever screen is open: a command, the tags of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from screens.widgets.prompt import Prompt


class AskLine(ModalScreen[str]):
    """One line at the foot of the screen, with completion; gives back what was typed, or None."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, purpose: str, value: str = "", known: Sequence[str] = ()) -> None:
        super().__init__()
        self.purpose = purpose
        self.value = value
        self.known = known

    def compose(self) -> ComposeResult:
        """Put the line together."""
        yield Prompt()

    def on_mount(self) -> None:
        """Open the line at once."""
        self.query_one(Prompt).ask(self.purpose, self.value, self.known)

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        self.dismiss(entered.value.strip())

    @on(Prompt.Left)
    def _left(self) -> None:
        self.dismiss(None)
