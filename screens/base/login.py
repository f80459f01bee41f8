"""Asks in a window for the credentials of a backend and gives them to the controller: once a backend, on any screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from screens.base.dialog import Dialog
from screens.core.app_protocol import AppProtocol
from screens.widgets.markup import plain
from screens.workers.background import TaskReport, post
from workbench.errors import FabricError

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions
    from backends.contract.prompts import LoginPrompt

NEEDS_LOGIN = "needs login"
"""What the reason of a job begins with whose backend waits for a person."""


class PersonAsked(Message, bubble=False):
    """A thread waits for a person: ``show`` opens the window that asks, and is given what takes the answer."""

    def __init__(self, show: Callable[[Callable[[str | None], None]], None]) -> None:
        super().__init__()
        self.show = show
        self.answer: str | None = None
        self.answered = threading.Event()

    def take(self, answer: str | None) -> None:
        """Let the thread go on."""
        self.answer = answer
        self.answered.set()


class TypeAnswer(Dialog[str]):
    """One question of a backend; what is typed is not shown unless it may be."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "leave")]

    def __init__(self, backend: str, question: str, *, shown: bool, refused: bool = False) -> None:
        super().__init__()
        self.refused = refused
        self.backend = backend
        self.question = question
        self.shown = shown

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog"):
            yield Static(plain(f"{self.backend} asks for credentials"), classes="title")
            if self.refused:
                yield Static(plain("The last answer was not accepted.", "error"))
            yield Static(plain(self.question))
            line = Input(password=not self.shown)
            line.cursor_blink = False
            yield line
            yield Static(
                plain("kept only in the controller's memory; enter submits, esc cancels", "dim"),
                classes="keys",
            )

    def on_mount(self) -> None:
        """Take what is typed at once."""
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value or None)

    def action_leave(self) -> None:
        """Give up."""
        self.dismiss(None)


class LoginPrompts:
    """Logs in to backends, each by itself only once a session."""

    def __init__(self, app: AppProtocol) -> None:
        self._app = app
        self._offered: set[str] = set()

    def offer(self, options: BackendOptions) -> None:
        """Log in to a backend that needs it, unless that was begun before."""
        if options.name not in self._offered:
            self.begin(options)

    def begin(self, options: BackendOptions) -> None:
        """Log in to a backend in the background."""
        from workbench.services.backends.setup import log_in

        self._offered.add(options.name)
        app, home = self._app, self._app.home

        def work(report: TaskReport) -> None:
            report(f"logging in to {options.name}")
            log_in(home, options, lambda question: self._type(options.name, question), self._accept)

        app.background.begin(
            f"log in to {options.name}", work, lambda _: app.show_message(f"logged in to {options.name}")
        )

    def _type(self, backend: str, question: LoginPrompt) -> str | None:
        """Ask for an answer; called by the thread that logs in."""
        window = TypeAnswer(backend, question.text, shown=question.shown, refused=question.refused)
        return self._wait(lambda take: self._push(window, take))

    def _push(self, window: TypeAnswer, take: Callable[[str | None], None]) -> None:
        self._app.push_screen(window, take)

    def _accept(self, what: str, fingerprint: str) -> bool:
        """Ask whether a key that nobody knows is the right one; called by the thread that logs in."""
        from screens.base.dialogs import Confirm, Question

        asked = Question(
            f"The host key of {what} is not known yet",
            (f"Its fingerprint is {fingerprint}",),
            "Accept it? Compare it with the fingerprint that the host's owner gives.",
            "accept",
        )

        def show(take: Callable[[str | None], None]) -> None:
            self._app.push_screen(Confirm(asked), lambda yes: take("yes" if yes else None))

        return self._wait(show) is not None

    def _wait(self, show: Callable[[Callable[[str | None], None]], None]) -> str | None:
        asked = PersonAsked(show)
        post(self._app, asked)
        while not asked.answered.wait(0.5):
            if not self._app.is_running:
                raise FabricError("the screens were closed before an answer was given")
        return asked.answer
