"""Texts in cells of a terminal; times, sizes and numbers are written by ``workbench.formats``."""

from __future__ import annotations

from screens.style.glyphs import glyphs


def shorten(text: str, width: int) -> str:
    """Cut a text that is wider than so many cells, and show that it was cut."""
    from rich.cells import set_cell_size

    if cells(text) <= width:
        return text
    return (set_cell_size(text, max(0, width - 1)) + glyphs().more) if width > 0 else ""


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
