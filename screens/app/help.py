"""The help window: what every key does here, in groups and columns, narrowed by what is typed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from screens.base.dialog import Dialog
from screens.core import actions
from screens.core.keymap import KeyMap
from screens.style.glyphs import glyphs
from screens.widgets.markup import heading, plain

KEYS_WIDTH: Final = 14
COLUMN_MIN: Final = 48
"""A column is at least so many cells wide."""
COLUMNS_MAX: Final = 3
GAP: Final = 3
"""Cells between two columns."""

Block = list[Content]
"""The lines of one group."""


def help_page(pane: str, keys: KeyMap, width: int, words: str = "", *, readonly: bool = False) -> Content:
    """Return what the keys of a pane do, in so many cells; with words, only the actions that have all of them."""
    columns = max(1, min(COLUMNS_MAX, (width + GAP) // (COLUMN_MIN + GAP)))
    column_width = (width - GAP * (columns - 1)) // columns
    blocks = [
        _block(group, listed, keys, column_width, readonly=readonly)
        for group, listed in groups_of(pane, keys, words).items()
    ]
    if not blocks:
        return plain(f"no key is about {words.strip()!r}", "dim")
    return _side_by_side(_spread(blocks, columns), column_width)


def groups_of(pane: str, keys: KeyMap, words: str = "") -> dict[str, list[actions.Action]]:
    """Return the actions of a pane that have all of some words, by the title of their group, the pane's own first."""
    wanted = words.lower().split()
    shared = ("Tabs", "Moving", "Everywhere")
    found: dict[str, list[actions.Action]] = {}
    for action in actions.of_pane(pane):
        group = actions.group_title(action)
        text = f"{keys.shown(action)} {action.title} {action.help} {action.id} {group}".lower()
        if all(word in text for word in wanted):
            found.setdefault(group, []).append(action)
    return dict(sorted(found.items(), key=lambda item: shared.index(item[0]) + 1 if item[0] in shared else 0))


def _block(
    title: str, listed: Sequence[actions.Action], keys: KeyMap, width: int, *, readonly: bool
) -> Block:
    return [
        heading(title),
        *(line for action in listed for line in _entry(action, keys, width, off=action.changes and readonly)),
    ]


def _entry(action: actions.Action, keys: KeyMap, width: int, *, off: bool) -> Block:
    """Write an action: its keys, and what it does, further lines of which stand under its first."""
    import textwrap

    shown = keys.shown(action)
    says = action.help + (" (off: read-only)" if off else "")
    lines = textwrap.wrap(says, max(10, width - KEYS_WIDTH - 2), break_on_hyphens=False) or [""]
    if len(shown) >= KEYS_WIDTH:  # a line of its own
        first = [Content.styled(f"  {shown}", "bold $role-accent")]
        return [*first, *(plain(" " * (KEYS_WIDTH + 2) + line) for line in lines)]
    name = Content.styled(f"  {shown:<{KEYS_WIDTH}}", "bold $role-accent")
    return [
        (name if at == 0 else Content(" " * (KEYS_WIDTH + 2))) + plain(line, "dim" if off else "")
        for at, line in enumerate(lines)
    ]


def _spread(blocks: Sequence[Block], columns: int) -> list[Block]:
    """Set blocks one below the other in so many columns, as evenly as their order allows."""
    height = max(len(block) for block in blocks)
    while True:
        filled: list[Block] = [[]]
        for block in blocks:
            if filled[-1] and len(filled[-1]) + 1 + len(block) > height:
                filled.append([])
            filled[-1] += [Content("")] if filled[-1] else []
            filled[-1] += block
        if len(filled) <= columns:
            return filled
        height += 1


def _side_by_side(columns: Sequence[Block], width: int) -> Content:
    blank = Content("")
    rows = []
    for cells in zip_longest(*columns, fillvalue=blank):
        padded = [cell.pad_right(max(0, width - cell.cell_length)) for cell in cells]
        rows.append(Content(" " * GAP).join(padded).rstrip())
    return Content("\n").join(rows)


class HelpWindow(Dialog[None]):
    """What every key of a pane does; what is typed narrows it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "leave"),
        ("enter", "close", "close"),
        ("down", "move(1)", "down"),
        ("up", "move(-1)", "up"),
        ("pagedown,ctrl+d", "move(10)", "page down"),
        ("pageup,ctrl+u", "move(-10)", "page up"),
    ]

    def __init__(self, pane: str, keys: KeyMap, *, readonly: bool) -> None:
        super().__init__()
        self.pane = pane
        self.keys = keys
        self.readonly = readonly

    def compose(self) -> ComposeResult:
        """Put the window together."""
        with Vertical(classes="dialog full"):
            yield Static(Content(f"Keys {glyphs().dash} {actions.TITLES[self.pane]}"), classes="title")
            line = Input(placeholder="type to find a key", select_on_focus=False)
            line.cursor_blink = False
            yield line
            with VerticalScroll(classes="text", can_focus=False):
                yield Static(id="help-keys", markup=False)
            yield Static(
                plain("esc closes, up and down scroll; ctrl+p finds and does", "dim"), classes="keys"
            )

    def on_mount(self) -> None:
        """Take what is typed."""
        self.query_one(Input).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the columns."""
        self.query_one(".text").styles.max_height = max(3, event.size.height * 9 // 10 - 8)
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        width = self.query_one(".text").size.width - 2
        words = self.query_one(Input).value
        shown = help_page(self.pane, self.keys, max(20, width), words, readonly=self.readonly)
        self.query_one("#help-keys", Static).update(shown)

    @on(Input.Changed)
    def _typing(self) -> None:
        self._write()
        self.query_one(".text").scroll_home(animate=False)

    @on(Input.Submitted)
    def action_close(self) -> None:
        """Close."""
        self.dismiss(None)

    def action_move(self, lines: int) -> None:
        """Scroll."""
        self.query_one(".text").scroll_relative(y=lines, animate=False)

    def action_leave(self) -> None:
        """Show everything again; then close."""
        line = self.query_one(Input)
        if line.value:
            line.value = ""
        else:
            self.dismiss(None)
