"""The signs that the screens draw with, and their fall-backs for a terminal without UTF-8."""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from workbench.job import State


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs; every sign is one cell wide."""

    states: Mapping[State, str]
    """A shape a state, so that no state is shown by colour alone."""
    lost: str
    mark: str
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
    ruler: str
    gap: str
    """Where a chart has a value that is not a number."""
    bar: str
    """Full part of a bar."""
    bar_rest: str
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
    cursor="│",
    more="…",
    dash="–",
    dot="·",
    crumb="›",
    up="▲",
    down="▼",
    ruler="─",
    gap="╳",
    bar="█",
    bar_rest="░",
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
    cursor="|",
    more="~",
    dash="-",
    dot="-",
    crumb=">",
    up="^",
    down="v",
    ruler="-",
    gap="x",
    bar="#",
    bar_rest=".",
    unicode=False,
)


def _terminal_takes_unicode() -> bool:
    if setting := os.environ.get("FABRIC_ASCII"):
        return setting == "0"
    encoding = getattr(sys.__stdout__, "encoding", None) or locale.getpreferredencoding(False)
    return "utf" in encoding.lower() and os.environ.get("TERM") != "linux"


@cache
def glyphs() -> Glyphs:
    """Return this terminal's set: ASCII without UTF-8 and on Linux's console; ``FABRIC_ASCII`` (0, 1) decides."""
    return UNICODE if _terminal_takes_unicode() else ASCII
