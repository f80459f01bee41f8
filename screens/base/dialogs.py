"""Small windows over a screen.

Some ask something (yes or no, one of a few, a line of text), others show something (a text, an error, the tasks in the
background), and one lays the letters to jump by over the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from screens.base.dialog import Dialog
from screens.core.app_protocol import JumpTarget
from screens.style import text
from screens.widgets.markup import bar, page, plain
from screens.widgets.prompt import Prompt
from screens.workers.background import Background, Task
from workbench import formats
from workbench.errors import FabricError
from workbench.values import dataclass

JUMP_KEYS: Final = "asdfghjklqwertyuiopzxcvbnm"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is done that cannot be taken back."""

    title: str
    lines: tuple[str, ...]
    consequence: str
    verb: str
    """What the button says."""
    typed: str = ""
    """What has to be typed first, or empty."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few, chosen by its key."""

    key: str
    title: str
    value: str


class Confirm(Dialog[bool]):
    """Yes or no; no has the focus, so that a stray Enter does nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,n", "no", "no"),
        ("y", "yes", "yes"),
        ("left,up", "app.focus_previous", "previous"),
        ("right,down", "app.focus_next", "next"),
    ]

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        asked = self.question
        with Vertical(classes="dialog"):
            yield Static(Content(formats.printable(asked.title)), classes="title")
            yield Static(Content("\n".join(formats.printable(line) for line in asked.lines)), classes="lines")
            yield Static(Content(asked.consequence), classes="consequence")
            if asked.typed:
                yield Static(Content(f"Type {formats.printable(asked.typed)} to confirm:"))
                yield Input()
            with Horizontal(classes="buttons"):
                yield Button("cancel (n)", id="no")
                yield Button(Content(f"{asked.verb} (y)"), id="yes", variant="error")

    def on_mount(self) -> None:
        """Give the harmless answer the focus."""
        self.query_one(Input if self.question.typed else "#no").focus()

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self.action_yes()
        else:
            self.action_no()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_yes()

    def action_yes(self) -> None:
        """Do it, if what had to be typed was typed."""
        if self.question.typed and self.query_one(Input).value.strip() != self.question.typed:
            self.query_one(Input).add_class("-wrong")
            return
        self.dismiss(True)

    def action_no(self) -> None:
        """Leave it."""
        self.dismiss(False)


class Choose(Dialog[Choice]):
    """One of a few, each with a key."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "leave")]

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.titled = title
        self.choices = tuple(choices)

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog"):
            yield Static(Content(self.titled), classes="title")
            for index, choice in enumerate(self.choices):
                shown = Content.assemble((choice.key, "bold $primary"), f"  {choice.title}  ")
                value = Content.styled(text.shorten(formats.printable(choice.value), 44), "$role-dim")
                yield Static(shown + value, classes="choice", id=f"choice-{index}")

    def on_key(self, event: events.Key) -> None:
        """Choose by key."""
        for choice in self.choices:
            if event.key == choice.key:
                event.stop()
                self.dismiss(choice)

    def on_click(self, event: events.Click) -> None:
        """Choose by mouse."""
        name = event.widget.id if event.widget is not None and event.widget.id else ""
        if name.startswith("choice-"):
            self.dismiss(self.choices[int(name.removeprefix("choice-"))])

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


class TextView(Dialog[None]):
    """A longer text to be read: one line of a log, an error, what is known of this installation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter", "leave", "leave"),
        ("j,down", "move(1)", "down"),
        ("k,up", "move(-1)", "up"),
        ("ctrl+d,pagedown", "move(10)", "page down"),
        ("ctrl+u,pageup", "move(-10)", "page up"),
        ("y", "copy", "copy"),
    ]

    def __init__(self, title: str, body: Content) -> None:
        super().__init__()
        self.titled = title
        self.body = body

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog wide"):
            yield Static(Content(formats.printable(self.titled)), classes="title")
            with Vertical(classes="text"):
                yield Static(self.body)
            yield Static(Content.styled("esc closes, y copies, j and k scroll", "$role-dim"))

    def on_resize(self, event: events.Resize) -> None:
        """Leave room for the title above and the keys below the text."""
        self.query_one(".text").styles.max_height = max(3, event.size.height * 9 // 10 - 6)

    def action_move(self, lines: int) -> None:
        """Scroll."""
        self.query_one(".text").scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        """Copy the whole text."""
        self.app.copy_to_clipboard(self.body.plain)
        self.dismiss(None)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


class AskLine(Dialog[str]):
    """One line at the foot of the screen, with completion; gives back what was typed, or None."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, purpose: str, value: str = "", known: Sequence[str] = ()) -> None:
        super().__init__()
        self.purpose = purpose
        self.value = value
        self.known = known
        self._early: list[events.Key] = []

    def compose(self) -> ComposeResult:
        """Put the line together."""
        yield Prompt()

    def on_key(self, event: events.Key) -> None:
        """Keep what is typed before the line is there."""
        if self.focused is None:
            self._early.append(event)

    def on_mount(self) -> None:
        """Open the line at once."""
        prompt = self.query_one(Prompt)
        prompt.ask(self.purpose, self.value, self.known)
        for event in self._early:
            prompt.on_key(event)

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        self.dismiss(entered.value.strip())

    @on(Prompt.Left)
    def _left(self) -> None:
        self.dismiss(None)


class Pick(Dialog[int]):
    """A list that gets shorter while one types; gives back the index of the one that was picked, or None."""

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
        self.lines = [formats.printable(line) for line in lines]
        self._shown: list[int] = []

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog wide"):
            yield Static(Content(self.titled), classes="title")
            line = Input(placeholder="type to filter; up, down and enter choose", select_on_focus=False)
            line.cursor_blink = False
            yield line
            listed = OptionList(markup=False)
            listed.can_focus = False
            yield listed

    def on_mount(self) -> None:
        """List everything."""
        self._narrow("")
        self.query_one(Input).focus()

    def _narrow(self, typed: str) -> None:
        parts = typed.lower().split()
        self._shown = [i for i, line in enumerate(self.lines) if all(word in line.lower() for word in parts)]
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


class Problem(Dialog[None]):
    """What went wrong with something that the reader asked for, and what to do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter,space", "leave", "leave"),
        ("y", "copy", "copy"),
    ]

    def __init__(self, error: FabricError, title: str = "Failed") -> None:
        super().__init__()
        self.error = error
        self.titled = title

    def compose(self) -> ComposeResult:
        """Put the dialog together."""
        with Vertical(classes="dialog problem"):
            yield Static(Content(formats.printable(self.titled)), classes="title")
            yield Static(plain(str(self.error), "error"))
            if self.error.hint:
                yield Static(plain(self.error.hint), classes="hint")
            yield Static(plain("esc closes, y copies", "dim"), classes="keys")

    def action_copy(self) -> None:
        """Copy the message."""
        self.app.copy_to_clipboard("\n".join(filter(None, (str(self.error), self.error.hint))))
        self.dismiss(None)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


class TaskList(Dialog[None]):
    """What is done in the background, and what was."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,B", "leave", "leave")]

    def __init__(self, background: Background) -> None:
        super().__init__()
        self.background = background

    def compose(self) -> ComposeResult:
        """Put the window together."""
        with Vertical(classes="dialog wide"):
            yield Static(Content("Background tasks"), classes="title")
            yield Static("", id="task-lines", markup=False)
            yield Static(plain("esc closes; tasks continue", "dim"), classes="keys")

    def on_mount(self) -> None:
        """Keep it current."""
        self._write()
        self.set_interval(0.25, self._write)

    def _write(self) -> None:
        shown = [_task_lines(task) for task in self.background.tasks[-12:][::-1]]
        self.query_one("#task-lines", Static).update(
            page(*shown)
            if shown
            else plain("no background tasks yet: uploads, downloads and the like", "dim")
        )

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


def _task_lines(task: Task) -> list[Content]:
    took = formats.duration(task.seconds)
    if task.error is not None:
        outcome, role = f"failed: {task.error}", "error"
    elif task.ended is not None:
        outcome, role = "done", "completed"
    else:
        outcome, role = task.text or "running", "text"
    share = (
        f"{bar(task.fraction, 12)} {formats.percent(task.fraction):>4}  "
        if task.fraction is not None and task.ended is None
        else ""
    )
    return [plain(task.title, "key") + plain(f"  {took}", "dim"), plain(f"  {share}{outcome}", role)]


class Jump(Dialog[JumpTarget]):
    """A letter on everything that can be jumped to; the letter goes there."""

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
