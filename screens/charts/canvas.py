"""Cells that lines are drawn on in dots: 2 x 4 a cell in braille, 1 x 2 where there is only ASCII."""

from __future__ import annotations

from typing import Final

_BRAILLE: Final = 0x2800
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Unicode's bit of each dot: column, then row from the top."""
_ASCII: Final = " '.|"


def _run_masks() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Precompute, for each column, the bits from one row of a cell to another."""
    return tuple(
        tuple(tuple(sum(column[first : last + 1]) for last in range(4)) for first in range(4))
        for column in _DOTS
    )


_RUNS: Final = _run_masks()


class Canvas:
    """Dots in colours; the colour that was drawn last in a cell is the cell's.

    Colours are small numbers that the caller gives a meaning; 0 is a cell that nothing was drawn in.
    """

    def __init__(self, width: int, height: int, *, unicode: bool = True) -> None:
        self.width = width
        self.height = height
        self.unicode = unicode
        self.columns = width * 2 if unicode else width
        """Dots from side to side."""
        self.rows = height * 4 if unicode else height * 2
        """Dots from top to bottom."""
        self._bits = [0] * (width * height)
        self._colours = [0] * (width * height)

    def run(self, column: int, top: int, bottom: int, colour: int) -> None:
        """Draw a vertical run of dots, both ends included; what lies outside is left out."""
        if top > bottom:
            top, bottom = bottom, top
        if top < 0:
            top = 0
        if bottom >= self.rows:
            bottom = self.rows - 1
        if top > bottom or not 0 <= column < self.columns:
            return
        if self.unicode:
            self._braille_run(column, top, bottom, colour)
        else:
            self._ascii_run(column, top, bottom, colour)

    def _braille_run(self, column: int, top: int, bottom: int, colour: int) -> None:
        cell, side = divmod(column, 2)
        first_row, first = divmod(top, 4)
        last_row, last = divmod(bottom, 4)
        masks = _RUNS[side]
        for row in range(first_row, last_row + 1):
            index = row * self.width + cell
            self._bits[index] |= masks[first if row == first_row else 0][last if row == last_row else 3]
            self._colours[index] = colour

    def _ascii_run(self, column: int, top: int, bottom: int, colour: int) -> None:
        for dot in range(top, bottom + 1):
            index = dot // 2 * self.width + column
            self._bits[index] |= 1 << (dot % 2)
            self._colours[index] = colour

    def line(self, column0: int, row0: int, column1: int, row1: int, colour: int) -> None:
        """Draw a line between two dots, as vertical runs, so that a steep one has no holes."""
        if column1 < column0:
            column0, row0, column1, row1 = column1, row1, column0, row0
        across = column1 - column0
        if across == 0:
            self.run(column0, row0, row1, colour)
            return
        before = row0
        for column in range(column0, column1 + 1):
            row = row0 + round((row1 - row0) * (column - column0) / across)
            # From the dot next to the last one, so that a flat line stays one dot thick.
            start = before + (row > before) - (row < before)
            self.run(column, start, row, colour)
            before = row

    def rows_of_text(self) -> list[list[tuple[str, int]]]:
        """Return each row as stretches of one colour; blanks go with what stands before them."""
        return [self._row(row) for row in range(self.height)]

    def _row(self, row: int) -> list[tuple[str, int]]:
        stretches: list[tuple[str, int]] = []
        text, colour = "", 0
        start = row * self.width
        for bits, cell_colour in zip(
            self._bits[start : start + self.width], self._colours[start : start + self.width], strict=True
        ):
            if not bits:
                text += " "  # a blank has no colour: it stays in the stretch that it ends
                continue
            if cell_colour != colour and text:
                stretches.append((text, colour))
                text = ""
            colour = cell_colour
            text += chr(_BRAILLE + bits) if self.unicode else _ASCII[bits]
        return [*stretches, (text, colour)]
