"""The signs that the screens draw with, and their fall-backs for a terminal without UTF-8."""

from __future__ import annotations

import locale
import os
import sys
import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from workbench.job import State
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs; every sign is one cell wide."""

    states: Mapping[State, str]
    """A shape a state, so that no state is shown by colour alone."""
    lost: str
    mark: str
    mark_some: str
    """Of a line that stands for several jobs, of which not all are marked."""
    cursor: str
    more: str
    """Stands for what was cut off."""
    dash: str
    """Stands for a value that is not there."""
    dot: str
    """Between two facts in a line."""
    crumb: str
    up: str
    down: str
    folded: str
    """Before the title of what is folded away."""
    unfolded: str
    ruler: str
    gap: str
    """Where a chart has a value that is not a number."""
    bar: str
    """Full part of a bar."""
    bar_rest: str
    best: str
    """Behind the best of some values."""
    grid: str
    """Part of a line of a chart's grid."""
    grid_cross: str
    """The same at a tick of the other axis."""
    grid_upright: str
    """Part of an upright line of a chart's grid."""
    points: str
    """Signs of curves and points, in turn, where colour alone does not tell them apart."""
    unicode: bool
    """Whether charts may use braille."""


UNICODE: Final = Glyphs(
    states={
        State.QUEUED: "◌",
        State.PENDING: "◔",
        State.DOWNLOADING: "◑",
        State.PROCESSING: "●",
        State.STORING: "◕",
        State.COMPLETED: "✓",
        State.FAILED: "✗",
        State.HALTED: "■",
    },
    lost="?",
    mark="▎",
    mark_some="╎",
    cursor="│",
    more="…",
    dash="–",
    dot="·",
    crumb="›",
    folded="▸",
    up="▲",
    down="▼",
    unfolded="▾",
    ruler="─",
    gap="╳",
    bar="█",
    bar_rest="░",
    best="★",
    grid="┈",
    grid_cross="┼",
    grid_upright="┊",
    points="●▲■◆○△□◇",
    unicode=True,
)

ASCII: Final = Glyphs(
    states={
        State.QUEUED: ".",
        State.PENDING: ":",
        State.DOWNLOADING: "%",
        State.PROCESSING: "*",
        State.STORING: "&",
        State.COMPLETED: "+",
        State.FAILED: "x",
        State.HALTED: "#",
    },
    lost="?",
    mark="|",
    mark_some=":",
    cursor="|",
    more="~",
    dash="-",
    dot="-",
    crumb=">",
    folded="+",
    up="^",
    down="v",
    unfolded="-",
    ruler="-",
    gap="x",
    bar="#",
    bar_rest=".",
    best="*",
    grid="-",
    grid_cross="+",
    grid_upright=":",
    points="ox*#@%&=",
    unicode=False,
)


_ASCII_TERMINALS: Final = frozenset({"linux", "dumb", "vt100", "vt102", "vt220", "ansi"})
"""Terminals that lack most signs whatever their encoding is."""
_ASCII_LOCALES: Final = frozenset({"C", "POSIX"})


def _terminal_takes_unicode() -> bool:
    if setting := os.environ.get("FABRIC_ASCII"):
        return setting == "0"
    # Under LC_ALL=C, Python writes UTF-8 all the same.
    if os.environ.get("LC_ALL") in _ASCII_LOCALES or os.environ.get("TERM") in _ASCII_TERMINALS:
        return False
    encoding = getattr(sys.__stdout__, "encoding", None) or locale.getpreferredencoding(False)
    return "utf" in encoding.lower()


@cache
def glyphs() -> Glyphs:
    """Return this terminal's set: ASCII without UTF-8 and on Linux's console; ``FABRIC_ASCII`` (0, 1) decides."""
    return UNICODE if _terminal_takes_unicode() else ASCII


_LOOKALIKES: Final = {
    "#": "█▉▊▋▌▍▇▆▅▓■●◆▮",
    "=": "▄▃▀▐▒◉",
    "|": "▎▏▕│┃║▁▂╷╵╎┆┊",
    ".": "░·•∙⋅○◦⠀",
    "-": "─━═╌┄┈–—‐‑−╴╶╸╺⎯",
    "+": "┌┐└┘├┤┬┴┼╭╮╯╰┏┓┗┛╔╗╚╝╋╠╣╦╩╬✓✔☑",
    "'": "‘’‚′",
    '"': "“”„″«»",
    ">": "→⇒▶▸›❯➜",
    "<": "←⇐◀◂‹❮",
    "^": "↑▲⇑",
    "v": "↓▼⇓▾",
    "x": "✗✘×✕✖╳",
    "*": "★☆✨⭐",
    "~": "…",
    " ": "\xa0",
    "s": "ß",
    "o": "ø",
    "O": "Ø",
    "a": "æ",
    "d": "đ",
    "l": "ł",
    "u": "µμ",
}
_IN_ASCII: Final = str.maketrans({sign: shown for shown, signs in _LOOKALIKES.items() for sign in signs})


@lru_cache(maxsize=4096)
def in_ascii(text: str) -> str:
    """Return a text as a terminal without other characters can show it, cell for cell: bars, signs and accents.

    Letters of other scripts become ``?``, pictures ``*``.
    """
    return "".join(map(_sign_in_ascii, text))


def _sign_in_ascii(sign: str) -> str:
    from rich.cells import cell_len

    if sign.isascii():
        return sign
    shown = sign.translate(_IN_ASCII)
    if not shown.isascii():
        shown = unicodedata.normalize("NFKD", sign)[:1]
    if not shown.isascii():
        shown = "?" if unicodedata.category(sign)[0] == "L" else "*"
    return shown.ljust(cell_len(sign))[: cell_len(sign)]
