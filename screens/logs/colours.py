"""The colours of a log's line: its own, else those of its level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from screens.widgets.ansi import decoded
from workbench.logs.levels import Level

if TYPE_CHECKING:
    from rich.text import Text

    from screens.style.themes import Paint

_ROLES: Final = {
    Level.DEBUG: "dim",
    Level.WARNING: "warning",
    Level.ERROR: "error",
    Level.TRACEBACK: "error",
    Level.DETAIL: "error",
    Level.RAISED: "error",
}

_ATTRIBUTES: Final = {Level.TRACEBACK: "dim", Level.DETAIL: "dim", Level.RAISED: "bold"}
"""Of a traceback, the line that names the exception stands out."""


def coloured(line: str, level: Level, paint: Paint) -> Text:
    """Return a line in the colours that it has; one without has those of its level. Do not change what is returned."""
    shown = decoded(line)
    role = _ROLES.get(level)
    if role is None or shown.spans:
        return shown
    shown = shown.copy()
    shown.stylize(paint.style(role, _ATTRIBUTES.get(level, "")))
    return shown
