"""Cells that lines are drawn on in dots: 2 x 4 a cell in braille, 1 x 2 where there is only ASCII."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Dots and signs in colours; the colour that was drawn last in a cell is the cell's.

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
        self._signs: dict[int, str] = {}

    def sign(self, column: int, row: int, sign: str, colour: int) -> None:
        """Put a sign into the cell that a dot is in, in place of its dots; what lies outside is left out."""
        cell_column, cell_row = (column // 2, row // 4) if self.unicode else (column, row // 2)
        if 0 <= cell_column < self.width and 0 <= cell_row < self.height:
            index = cell_row * self.width + cell_column
            self._bits[index] = self._bits[index] or 1
            self._signs[index], self._colours[index] = sign, colour

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

    def runs(self, spans: Mapping[int, tuple[int, int]], colour: int) -> None:
        """Draw a vertical run in each of these columns, from top to bottom."""
        for column, (top, bottom) in spans.items():
            self.run(column, top, bottom, colour)

    def _braille_run(self, column: int, top: int, bottom: int, colour: int) -> None:
        cell, side = divmod(column, 2)
        first_row, first = divmod(top, 4)
        last_row, last = divmod(bottom, 4)
        masks = _RUNS[side]
        if first_row == last_row:
            index = first_row * self.width + cell
            self._bits[index] |= masks[first][last]
            self._colours[index] = colour
            return
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

    def lay_over(self, front: Canvas) -> None:
        """Have the cells of another canvas of the same size hide those of this one where it has anything."""
        for index, bits in enumerate(front._bits):
            if bits:
                self._bits[index], self._colours[index] = bits, front._colours[index]
                self._signs.pop(index, None)
        self._signs |= front._signs

    def rows_of_text(
        self, behind: Mapping[int, str] = {}, behind_colour: int = 0
    ) -> list[list[tuple[str, int]]]:
        """Return each row as stretches of one colour; blanks go with what stands before them.

        ``behind`` are the texts of some rows that are seen where nothing was drawn.
        """
        return [self._row(row, behind.get(row, ""), behind_colour) for row in range(self.height)]

    def _row(self, row: int, behind: str, behind_colour: int) -> list[tuple[str, int]]:
        stretches: list[tuple[str, int]] = []
        text, colour = "", 0
        start = row * self.width
        stop = start + self.width
        signs = self._signs
        for index, bits, cell_colour in zip(
            range(start, stop), self._bits[start:stop], self._colours[start:stop], strict=True
        ):
            if bits:
                shown = chr(_BRAILLE + bits) if self.unicode else _ASCII[bits]
                if signs and index in signs:
                    shown = signs[index]
            elif behind and behind[index - start] != " ":
                shown, cell_colour = behind[index - start], behind_colour
            else:
                text += " "  # a blank has no colour: it stays in the stretch that it ends
                continue
            if cell_colour != colour and text:
                stretches.append((text, colour))
                text = ""
            colour = cell_colour
            text += shown
        return [*stretches, (text, colour)]
