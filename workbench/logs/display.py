"""Shows one line: its last state, without harmful sequences, and cut to a width."""

from __future__ import annotations

import unicodedata
from typing import Final

from workbench.logs.sanitise import RESET, SGR, sanitise

CUT: Final = "…"
"""Stands at the end of a line that was cut."""


def shown_line(raw: bytes, cells: int, *, cut: bool = False) -> str:
    r"""Return a line as it is shown.

    Args:
        raw: Its bytes without the newline.
        cells: The most terminal cells that it may take.
        cut: Whether there is more of it than ``raw``.
    """
    text = sanitise(last_state(raw).decode("utf-8", "replace"))
    return fitted(text, cells, cut=cut)


def last_state(raw: bytes) -> bytes:
    r"""Return what a line shows in the end: what was written after the last ``\r``, as progress bars do."""
    raw = raw.rstrip(b"\r")
    return raw[raw.rfind(b"\r") + 1 :]


def fitted(text: str, cells: int, *, cut: bool = False) -> str:
    """Return as much of a text as takes at most so many cells; colour sequences take none and stay whole."""
    if not cut and len(text) <= cells and text.isascii():
        return text
    kept: list[str] = []
    room, position, coloured = cells, 0, False
    for match in SGR.finditer(text):
        taken, room = _take(text[position : match.start()], room)
        kept.append(taken)
        if room < 0:
            break
        kept.append(match[0])
        position, coloured = match.end(), True
    else:
        taken, room = _take(text[position:], room)
        kept.append(taken)
    if room >= 0 and not cut:
        return text
    return "".join(kept) + CUT + (RESET if coloured else "")


def width(text: str) -> int:
    """Return how many cells a text without colour sequences takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _take(text: str, room: int) -> tuple[str, int]:
    """Return what fits and the room that is left, -1 when not all fitted."""
    if text.isascii():
        return (text, room - len(text)) if len(text) <= room else (text[:room], -1)
    for position, character in enumerate(text):
        needed = _cells(character)
        if needed > room:
            return text[:position], -1
        room -= needed
    return text, room


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
