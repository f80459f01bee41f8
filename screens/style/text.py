"""Texts in cells of a terminal; times, sizes and numbers are written by ``workbench.formats``."""

from __future__ import annotations

from collections.abc import Sequence

from screens.style.glyphs import glyphs

Part = tuple[str, str, str]
"""A text with the role and the attributes that it is drawn in."""


def shorten(text: str, width: int) -> str:
    """Cut a text that is wider than so many cells, and show that it was cut."""
    from rich.cells import set_cell_size

    if cells(text) <= width:
        return text
    return (set_cell_size(text, max(0, width - 1)) + glyphs().more) if width > 0 else ""


def shorten_start(text: str, width: int) -> str:
    """Cut the beginning of a text that is wider than so many cells, and show that it was cut."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[max(1, (cells(text) - width + 1) // 2) :]
    return (glyphs().more + text) if width > 0 else ""


def fit(parts: Sequence[Part], width: int) -> list[Part]:
    """Return texts behind each other in so many cells; what does not fit is cut off, and shows that it was cut."""
    fitting, room = [], width
    for shown, role, attributes in parts:
        cut = shorten(shown, room)
        fitting.append((cut, role, attributes))
        room -= cells(cut)
        if room <= 0:
            break
    return fitting


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
