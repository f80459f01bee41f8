"""Windows of the app itself: an error with what to do about it, the tasks in the background, the letters to jump by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from screens.core.app_protocol import JumpTarget
from screens.style import text
from screens.widgets.markup import bar, page, plain
from screens.workers.tasks import Task, Tasks
from workbench.errors import FabricError

JUMP_KEYS: Final = "asdfghjklqwertyuiopzxcvbnm"


class Problem(ModalScreen[None]):
    """What went wrong with something that the reader asked for, and what to do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter,space", "leave", "leave"),
        ("y", "copy", "copy"),
    ]

    def __init__(self, error: FabricError, title: str = "That did not work") -> None:
        super().__init__()
        self.error = error
        self.titled = title

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog problem"):
            yield Static(Content(text.harmless(self.titled)), classes="title")
            yield Static(plain(str(self.error), "error"))
            if self.error.hint:
                yield Static(plain(self.error.hint), classes="hint")
            yield Static(plain("esc closes, y copies", "dim"), classes="keys")

    def action_copy(self) -> None:
        """Copy what is said."""
        self.app.copy_to_clipboard("\n".join(filter(None, (str(self.error), self.error.hint))))
        self.dismiss(None)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


class TaskList(ModalScreen[None]):
    """What is done in the background, and what was."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,B", "leave", "leave")]

    def __init__(self, tasks: Tasks) -> None:
        super().__init__()
        self.tasks = tasks

    def compose(self) -> ComposeResult:
        """Put the window together."""
        with Vertical(classes="dialog wide"):
            yield Static(Content("In the background"), classes="title")
            yield Static("", id="task-lines", markup=False)
            yield Static(plain("esc closes; what is under way goes on", "dim"), classes="keys")

    def on_mount(self) -> None:
        """Keep it current."""
        self._write()
        self.set_interval(0.25, self._write)

    def _write(self) -> None:
        shown = [_task_lines(task) for task in self.tasks.all[-12:][::-1]]
        self.query_one("#task-lines", Static).update(
            page(*shown) if shown else plain("nothing was done in the background yet", "dim")
        )

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


def _task_lines(task: Task) -> list[Content]:
    took = text.duration(task.seconds)
    if task.error is not None:
        said, role = f"failed: {task.error}", "error"
    elif task.ended is not None:
        said, role = "done", "completed"
    else:
        said, role = task.said or "under way", "text"
    share = (
        f"{bar(task.fraction, 12)} {task.fraction:4.0%}  "
        if task.fraction is not None and task.ended is None
        else ""
    )
    return [plain(task.title, "key") + plain(f"  {took}", "dim"), plain(f"  {share}{said}", role)]


class Jump(ModalScreen[JumpTarget]):
    """A letter on everything that can be gone to; the letter goes there."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,ctrl+o", "leave", "leave")]

    def __init__(self, jump_targets: Sequence[JumpTarget]) -> None:
        super().__init__()
        self.jump_targets = dict(zip(JUMP_KEYS, _apart(jump_targets), strict=False))

    def compose(self) -> ComposeResult:
        """Lay the letters over the screen."""
        for key, target in self.jump_targets.items():
            label = Static(Content(f" {key} "), classes="jump")
            label.styles.offset = target.x, target.y
            yield label

    def on_key(self, event: events.Key) -> None:
        """Go where the letter stands; any other ends it."""
        if event.is_printable:
            event.stop()
            self.dismiss(self.jump_targets.get(event.key))

    def action_leave(self) -> None:
        """Go nowhere."""
        self.dismiss(None)


def _apart(jump_targets: Sequence[JumpTarget]) -> list[JumpTarget]:
    """Leave out what would lie under another letter."""
    kept: list[JumpTarget] = []
    for target in jump_targets:
        if not any(target.y == other.y and abs(target.x - other.x) < 3 for other in kept):
            kept.append(target)
    return kept
