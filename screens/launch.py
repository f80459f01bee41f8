"""A new job: the words of the command, and below them what they would start, checked while one types."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widgets import Input, Static

from screens.launching import manifests_here, plan
from screens.pages.writing import plain
from workbench.errors import FabricError

if TYPE_CHECKING:
    from screens.app import FabricApp

PAUSE_SECONDS: Final = 0.5
"""What was typed is checked when nothing more came for so long."""
HINT: Final = "a manifest, with --set params.lr=0.1, --name, --gpus; or -- python train.py"


class Launch(ModalScreen[str]):
    """Asks what to start; gives back the words, or nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("pagedown", "page(8)", "page down"),
        ("pageup", "page(-8)", "page up"),
    ]

    def __init__(self, line: str = "") -> None:
        super().__init__()
        self.line = line
        self._waiting: Timer | None = None
        self._asked = 0

    @property
    def _fabric(self) -> FabricApp:
        return cast("FabricApp", self.app)

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog launch"):
            yield Static(Content("New job"), classes="title")
            yield Static(plain("fabric run", "key"), id="launch-command")
            line = Input(self.line, placeholder=HINT, select_on_focus=False)
            line.cursor_blink = False
            yield line
            with VerticalScroll(classes="text", can_focus=False):
                yield Static(plain("what would be started is shown here", "dim"), id="launch-plan")
            yield Static(plain("enter starts it, esc leaves, right completes, pgdn and pgup scroll", "dim"))

    def on_mount(self) -> None:
        """Offer what is at hand."""
        self._fabric.aside(manifests_here, self._offer)
        if self.line:
            self._check(self.line)

    def _offer(self, manifests: list[str]) -> None:
        if self.is_attached:
            known = [*self._fabric.memory.texts("launches")[::-1], *manifests]
            self.query_one(Input).suggester = SuggestFromList(known, case_sensitive=True)
            if not self.query_one(Input).value and manifests:
                self.query_one(Input).placeholder = f"{manifests[0]}   ({HINT})"

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = self.set_timer(PAUSE_SECONDS, partial(self._check, event.value))

    def _check(self, line: str) -> None:
        """Have it planned in the background; an answer to what is no longer there is dropped."""
        self._asked += 1
        if line.strip():
            asked, home = self._asked, self._fabric.home
            self._fabric.aside(lambda: (asked, _planned(partial(plan, home, line))), self._show)

    def _show(self, answer: tuple[int, Content]) -> None:
        asked, shown = answer
        if asked == self._asked and self.is_attached:
            self.query_one("#launch-plan", Static).update(shown)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_page(self, lines: int) -> None:
        """Scroll the plan."""
        self.query_one(".text").scroll_relative(y=lines, animate=False)

    def action_leave(self) -> None:
        """Start nothing."""
        self.dismiss("")


def _planned(ask: partial[str]) -> Content:
    try:
        return plain(ask())
    except FabricError as error:
        return plain(str(error), "error")
