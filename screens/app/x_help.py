"""What the keys of a pane do, as a text for the ``?`` window."""

from __future__ import annotations

from textual.content import Content

from screens.core import actions
from screens.core.keymap import KeyMap

_KEYS_WIDTH = 16


def help_text(pane: str, keys: KeyMap, *, readonly: bool = False) -> Content:
    """Return a line for each action of a pane: its keys, and what they do."""
    lines = [Content("")]
    own_first = sorted(actions.of_pane(pane), key=lambda action: action.panes == actions.ALL_PANES)
    for action in own_first:
        shown = Content.styled(f" {keys.shown(action):<{_KEYS_WIDTH}}", "bold $role-key")
        off = " (off: read-only)" if action.changes and readonly else ""
        lines.append(shown + Content(action.help) + Content.styled(off, "$role-warning"))
    return Content("\n").join(lines[1:])
