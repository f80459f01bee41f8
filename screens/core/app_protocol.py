"""What screens and widgets need of the app that they belong to, so that none of them imports the app itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from screens.core.keymap import KeyMap
from screens.core.memory import Memory
from screens.workers.background import Background
from screens.workers.reader import StoreReader
from screens.workers.writer import Write
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.rows import JobRow
from workbench.values import dataclass

if TYPE_CHECKING:
    from textual.content import Content
    from textual.message import Message
    from textual.screen import Screen
    from textual.widget import Widget

    from backends.contract.host import BackendOptions

T = TypeVar("T")
Severity = Literal["information", "warning", "error"]
Part = tuple[str, str]
"""Some text and the role that colours it."""


@dataclass(frozen=True, slots=True)
class JumpTarget:
    """Something to jump to, and where it is on the screen."""

    x: int
    y: int
    go: Callable[[], Any]


class LoginOffers(Protocol):
    """Logs in to backends that ask a person for something."""

    def offer(self, options: BackendOptions) -> None:
        """Log in to a backend that needs it, unless that was begun before in this session."""

    def begin(self, options: BackendOptions) -> None:
        """Log in to a backend in the background."""


class AppProtocol(Protocol):
    """The app, as screens and widgets see it."""

    home: Home
    readonly: bool
    key_map: KeyMap
    memory: Memory
    reader: StoreReader
    background: Background
    """Calls and tasks that do not hold up the thread that draws."""
    clock: Callable[[], int]
    trouble: FabricError | None
    """Why the store cannot be read; None while it can."""
    store_error_since_us: int
    last_job: JobRow | None
    """The job that was opened last."""

    @property
    def logins(self) -> LoginOffers:
        """Logs in to backends."""

    @property
    def is_running(self) -> bool:
        """Whether the app has started and not ended yet."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen on top."""

    def post_message(self, message: Message) -> bool:
        """Take a message, from any thread."""

    # Windows

    def push_screen(
        self, screen: Screen[T], callback: Callable[[T | None], Any] | None = None
    ) -> Any:  # what Textual returns; nobody awaits it
        """Put a screen on top; ``callback`` is called with what it gives back."""

    def suspend(self) -> AbstractContextManager[None]:
        """Leave the terminal to another program for a while."""

    def show_message(self, message: str, severity: Severity = "information") -> None:
        """Show a short message for a few seconds."""

    def show_problem(self, error: FabricError, what: str) -> None:
        """Show in a window what went wrong, and what to do."""

    def show_text(self, shown: tuple[str, Content]) -> None:
        """Show a longer text, given with its title, in a window."""

    def ask_line(self, purpose: str, value: str, known: Sequence[str], then: Callable[[str], Any]) -> None:
        """Ask for a line of text; ``then`` is called with it."""

    def write(self, label: str, write: Write) -> None:
        """Write to the store in the background; it is shown how that went."""

    # Moving about

    def news(self) -> tuple[Part, ...]:
        """Return what the heading of every screen shows in addition to its own."""

    def open_search(self, experiment_id: str) -> None:
        """Open a search."""

    def open_job(self, job: JobRow, tab: str = "") -> None:
        """Open a job's screen."""

    async def action_perform(self, action_id: str, number: int | None = None) -> None:
        """Do what a key of the focused pane would do."""


def fabric_app(widget: Widget) -> AppProtocol:
    """Return the app that a widget belongs to."""
    return cast("AppProtocol", widget.app)
