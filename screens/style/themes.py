"""Our themes, and the colours by role that every theme has: states, log levels, curves.

A role's colour comes from the theme's variables (``role-failed``, ``role-curve-1``), so Textual's own
themes work too: what they do not name is made from their success, warning and error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, cast

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, ColorParseError
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from workbench.job import State

if TYPE_CHECKING:
    from textual.widget import Widget

NO_COLOUR_THEME: Final = "fabric-16"
CURVE_COLOURS: Final = 8
"""How many colours of curves a theme has."""

_CURVES_DARK: Final = ("#4cc2ff", "#ffb454", "#a5e075", "#f277c0", "#b39bff", "#5fe0c8", "#e3e35f", "#d98e5f")
_CURVES_LIGHT: Final = (
    "#0063b1",
    "#ad5600",
    "#3b7a00",
    "#a8006d",
    "#5b3ec8",
    "#007a68",
    "#c2281d",
    "#6f6f00",
)
_CURVES_SAFE: Final = ("#56b4e9", "#e69f00", "#f0e442", "#cc79a7", "#3084d3", "#d55e00", "#bdbdbd", "#ffffff")
"""Told apart by colour-blind eyes too (after Okabe and Ito; blue and grey are lighter, to be seen on black)."""
_CURVES_16: Final = (
    "ansi_bright_blue",
    "ansi_yellow",
    "ansi_green",
    "ansi_magenta",
    "ansi_cyan",
    "ansi_red",
    "ansi_bright_green",
    "ansi_white",
)


def _curves(colours: tuple[str, ...]) -> dict[str, str]:
    return {f"role-curve-{index}": colour for index, colour in enumerate(colours, start=1)}


THEMES: Final = (
    Theme(
        "fabric-dark",
        primary="#4cc2ff",
        secondary="#7a8699",
        accent="#ffb454",
        warning="#ffb454",
        error="#ff6b61",
        success="#8fd46a",
        foreground="#d7dce3",
        background="#10141a",
        surface="#171c24",
        panel="#202733",
        variables=_curves(_CURVES_DARK),
    ),
    Theme(
        "fabric-light",
        primary="#0063b1",
        secondary="#5d6673",
        accent="#9a5b00",
        warning="#9a5b00",
        error="#b3261e",
        success="#2e7d16",
        foreground="#1b1f24",
        background="#fbfbf9",
        surface="#f2f1ed",
        panel="#e5e3dc",
        dark=False,
        variables=_curves(_CURVES_LIGHT),
    ),
    Theme(
        "fabric-safe",  # blue and orange where others have green and red
        primary="#56b4e9",
        secondary="#8a8f98",
        accent="#f0e442",
        warning="#f0e442",
        error="#e69f00",
        success="#56b4e9",
        foreground="#e8e8e8",
        background="#0d0d0d",
        surface="#161616",
        panel="#242424",
        variables={**_curves(_CURVES_SAFE), "role-processing": "#ffffff"},
    ),
    Theme(
        NO_COLOUR_THEME,  # the terminal's own sixteen
        ansi=True,
        primary="ansi_bright_blue",
        secondary="ansi_cyan",
        accent="ansi_yellow",
        warning="ansi_yellow",
        error="ansi_red",
        success="ansi_green",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        variables={
            **BUILTIN_THEMES["ansi-dark"].variables,  # Textual's own styles name some of these
            **_curves(_CURVES_16),
            "role-dim": "ansi_bright_black",
            "role-grid": "ansi_bright_black",
            "role-cursor": "ansi_bright_black",
        },
    ),
)

OURS: Final = tuple(theme.name for theme in THEMES)


def role_variables(theme: Theme) -> dict[str, str]:
    """Return a colour for every role that a theme may not name itself."""
    dark = theme.dark
    dim = "#7d8795" if dark else "#656f7d"
    success, warning, error = (
        theme.success or theme.primary,
        theme.warning or theme.primary,
        theme.error or theme.primary,
    )
    return {
        **_curves(_CURVES_DARK if dark else _CURVES_LIGHT),
        "role-dim": dim,
        "role-grid": "#3d4756" if dark else "#bdbbb4",
        "role-text": theme.foreground or ("#e0e0e0" if dark else "#1b1f24"),
        "role-accent": theme.accent or theme.primary,
        "role-key": theme.primary,
        "role-cursor": "#2b3a4d" if dark else "#cfdcea",
        "role-hit": "#6b5a00" if dark else "#ffe37a",
        "role-error": error,
        "role-warning": warning,
        f"role-{State.QUEUED.lower()}": dim,
        f"role-{State.PENDING.lower()}": warning,
        f"role-{State.DOWNLOADING.lower()}": warning,
        f"role-{State.PROCESSING.lower()}": theme.primary,
        f"role-{State.STORING.lower()}": theme.primary,
        f"role-{State.COMPLETED.lower()}": success,
        f"role-{State.FAILED.lower()}": error,
        f"role-{State.HALTED.lower()}": dim,
    }


class Paint:
    """Rich styles of a theme by role, for widgets that draw line by line."""

    def __init__(self, variables: Mapping[str, str], *, coloured: bool) -> None:
        self._variables = variables
        self._coloured = coloured
        self._styles: dict[tuple[str, str], Style] = {}

    @property
    def coloured(self) -> bool:
        """Whether there are colours to tell things apart by."""
        return self._coloured

    def style(self, role: str, attributes: str = "") -> Style:
        """Return a role's style (``failed``, ``dim``, ``curve-3``) with attributes (``bold reverse``)."""
        key = role, attributes
        if key not in self._styles:
            colour = _rich_colour(self._variables.get(f"role-{role}", ""))
            base = Style(color=colour) if colour else Style()
            self._styles[key] = base + Style.parse(attributes) if attributes else base
        return self._styles[key]

    def cursor(self, *, focused: bool) -> Style:
        """Return what is laid over the line under the cursor: visible without colours too."""
        if not self._coloured:
            return Style(reverse=True) if focused else Style(underline=True)
        colour = _rich_colour(self._variables.get("role-cursor", ""))
        return Style(bgcolor=colour, bold=focused)

    def hit(self) -> Style:
        """Return what is laid over text that was searched for."""
        if not self._coloured:
            return Style(reverse=True, bold=True)
        return Style(bgcolor=_rich_colour(self._variables.get("role-hit", "")), bold=True)


@lru_cache(maxsize=256)
def _rich_colour(value: str) -> RichColor | None:
    """Return Rich's colour of a theme's, or None when there is none."""
    try:
        return Color.parse(value).rich_color if value else None
    except ColorParseError:
        return None


class Painted(Protocol):
    """An app that knows its paint."""

    paint: Paint


def paint_of(widget: Widget) -> Paint:
    """Return the paint of the app that a widget belongs to."""
    return cast("Painted", widget.app).paint


def overlay(strip: Strip, style: Style) -> Strip:
    """Lay a style over all of a line, over what it has of its own."""
    laid = [Segment(shown, style if own is None else own + style) for shown, own, _ in strip]
    return Strip(laid, strip.cell_length)
