"""Parallel coordinates: an upright axis for each quantity, and a line across all of them for each thing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final

from screens.charts.axis import Axis, label
from screens.charts.canvas import Canvas
from screens.charts.curve import OTHER
from screens.charts.plot import LABEL, Row, sign_of
from screens.style import text
from screens.style.glyphs import glyphs
from workbench.values import dataclass

LEAST_GAP: Final = 12
"""The least number of cells between two axes: fewer have no room for a value beside each."""
LAST_CELLS: Final = 12
"""Of the title and the values of the last axis so many cells are shown at most."""
HEAD_LINES: Final = 2
"""The axes' titles, and the upper ends."""
DOTTED: Final = 4
"""Without colours lines in the background are dotted: every so many columns of dots has one."""


@dataclass(frozen=True, slots=True)
class UprightAxis:
    """One axis."""

    title: str
    axis: Axis
    categories: tuple[str, ...] = ()
    """What stands at 0, 1, 2, ... of an axis that has no numbers."""


@dataclass(frozen=True, slots=True)
class AcrossLine:
    """One line."""

    values: tuple[float | None, ...]
    """Its value on each axis; None breaks it."""
    colour: int
    texts: tuple[str, ...] = ()
    """What is written beside it at each axis; empty for nothing."""


@dataclass(frozen=True, slots=True)
class ParallelAxes:
    """All axes, the last of which is always in view, and the lines from back to front."""

    axes: tuple[UprightAxis, ...]
    lines: tuple[AcrossLine, ...]

    def shown(self, width: int) -> int:
        """Return how many axes besides the last one have room in so many cells."""
        return max(1, min(len(self.axes) - 1, (width - 1 - self._last_cells) // LEAST_GAP))

    @property
    def _last_cells(self) -> int:
        last = self.axes[-1]
        beside = [each.texts[-1] for each in self.lines if each.texts]
        return 2 + min(LAST_CELLS, max(map(text.cells, (last.title, *beside, "0.0000"))))

    def draw(self, width: int, height: int, first: int, *, marked: bool) -> list[Row]:
        """Draw them into so many cells.

        Args:
            width: Columns.
            height: Lines.
            first: The first axis that is in view.
            marked: Whether there are no colours to tell lines apart.
        """
        if width < 1:
            return []
        chosen = [*range(first, first + self.shown(width)), len(self.axes) - 1]
        axes = [self.axes[at] for at in chosen]
        room = width - 1 - self._last_cells
        gap = room // (len(chosen) - 1)
        columns = [1 + at * room // (len(chosen) - 1) for at in range(len(chosen))]
        canvas = Canvas(width, max(1, height - HEAD_LINES - 1), unicode=glyphs().unicode)
        lines = [AcrossLine(*self._of(one, chosen)) for one in self.lines]
        for colour, layer in groupby(lines, lambda one: one.colour):
            front = Canvas(width, canvas.height, unicode=canvas.unicode)
            _draw_lines(front, axes, columns, list(layer), is_dotted=marked and colour == OTHER)
            canvas.lay_over(front)
        across, down = canvas.columns // canvas.width, canvas.rows // canvas.height
        for one, column in zip(axes, columns, strict=True):
            for row in range(canvas.height):
                canvas.sign(column * across, row * down, glyphs().cursor, LABEL)
            taken: set[int] = set()
            for number, category in enumerate(one.categories):
                row = _row(one, float(number), canvas.rows) // down
                if row not in taken:
                    _write(canvas, column + 1, row, text.shorten(category, gap - 3) + " ", LABEL)
                taken.add(row)
        for line in lines:
            for at, (one, column) in enumerate(zip(axes, columns, strict=True)):
                if line.texts and (value := line.values[at]) is not None:
                    row = _row(one, value, canvas.rows) // down
                    canvas.sign(column * across, row * down, sign_of(line.colour), line.colour)
                    cells = gap - 3 if at < len(axes) - 1 else self._last_cells - 2
                    shown = text.shorten(line.texts[at], cells)
                    _write(canvas, column + 1, row, f"{shown} " if shown else "", line.colour)
        titles = [one.title for one in axes]
        highs = ["" if one.categories else label(one.axis.high) for one in axes]
        lows = ["" if one.categories else label(one.axis.low) for one in axes]
        return [
            [(_beside(titles, columns, width), 0)],
            [(_beside(highs, columns, width), LABEL)],
            *canvas.rows_of_text(),
            [(_beside(lows, columns, width), LABEL)],
        ][:height]

    def _of(
        self, one: AcrossLine, chosen: Sequence[int]
    ) -> tuple[tuple[float | None, ...], int, tuple[str, ...]]:
        """Return a line with the axes alone that are in view."""
        texts = tuple(one.texts[at] for at in chosen) if one.texts else ()
        return tuple(one.values[at] for at in chosen), one.colour, texts


def _row(one: UprightAxis, value: float, rows: int) -> int:
    """Return the row of dots of a value, from the top; what lies outside is at the edge."""
    dot = one.axis.dot(value, rows)
    return rows - 1 - max(0, min(rows - 1, dot or 0))


def _draw_lines(
    canvas: Canvas,
    axes: Sequence[UprightAxis],
    columns: Sequence[int],
    lines: Sequence[AcrossLine],
    *,
    is_dotted: bool,
) -> None:
    """Draw lines of one colour, each stretch between two axes once."""
    across = canvas.columns // canvas.width
    rows = [
        [None if value is None else _row(axes[at], value, canvas.rows) for at, value in enumerate(one.values)]
        for one in lines
    ]
    for at, (left, right) in enumerate(pairwise(columns)):
        for row0, row1 in {(row[at], row[at + 1]) for row in rows}:
            if row0 is None or row1 is None:
                continue
            if is_dotted:
                width = (right - left) * across
                for column in range(0, width, DOTTED):
                    row = row0 + round((row1 - row0) * column / width)
                    canvas.run(left * across + column, row, row, lines[0].colour)
            else:
                canvas.line(left * across, row0, right * across, row1, lines[0].colour)


def _write(canvas: Canvas, column: int, row: int, shown: str, colour: int) -> None:
    across, down = canvas.columns // canvas.width, canvas.rows // canvas.height
    for sign in shown:
        canvas.sign(column * across, row * down, sign, colour)
        column += 1
        for _ in range(1, text.cells(sign)):  # a wide sign covers the next cell
            canvas.sign(column * across, row * down, "", colour)
            column += 1


def _beside(texts: Sequence[str], columns: Sequence[int], width: int) -> str:
    """Return texts in one line, each from its column on, cut where the next one begins."""
    line = ""
    for shown, column, end in zip(texts, columns, [*columns[1:], width + 1], strict=True):
        line += " " * (column - text.cells(line)) + text.shorten(shown, max(1, end - column - 1))
    return line
