"""Plain aligned tables, drawn without a library so that a list costs nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.formats import printable, short
from workbench.values import dataclass

GAP = "  "
STRETCH_LEAST = 12
"""Characters that a column which gives way keeps."""

Paint = Callable[[str, int], str]
"""Colours a cell: gets its padded text and the row's number."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``stretch`` is cut (with an ellipsis) where the terminal is too narrow."""

    title: str
    right: bool = False
    stretch: bool = False
    paint: Paint | None = None
    drop: int = 0
    """Columns that a narrow terminal still has no room for are left out, the highest number first; 0: never."""


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> str:
    """Return a table with a heading; no line is longer than ``width`` while a column can give way."""
    rows = [[printable(cell) for cell in row] for row in rows]
    kept = _kept(columns, rows, width)
    if len(kept) < len(columns):
        columns, rows = [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]
    widths = [max([len(c.title), *(len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    over = sum(widths) + len(GAP) * (len(columns) - 1) - width
    # The last stretch column gives way first: reasons before names.
    for i in reversed(range(len(columns))):
        if over > 0 and columns[i].stretch:
            cut = max(0, min(over, widths[i] - _least(columns[i])))
            widths[i] -= cut
            over -= cut
    lines = [_line(columns, widths, [c.title for c in columns], None)]
    lines += [_line(columns, widths, row, number) for number, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


def _least(column: Column) -> int:
    """Return how narrow a column that gives way may become."""
    return max(len(column.title), STRETCH_LEAST)


def _kept(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the numbers of the columns that are shown."""
    widths = [max([len(c.title), *(len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    least = [min(wide, _least(c)) if c.stretch else wide for wide, c in zip(widths, columns, strict=True)]
    kept = list(range(len(columns)))
    for i in sorted((i for i in kept if columns[i].drop), key=lambda i: -columns[i].drop):
        if sum(least[each] for each in kept) + len(GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(i)
    return kept


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], number: int | None) -> str:
    parts = []
    last = len(columns) - 1
    for i, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        text = short(cell, width) if column.stretch else cell
        text = text.rjust(width) if column.right else text if i == last else text.ljust(width)
        parts.append(column.paint(text, number) if column.paint and number is not None else text)
    return GAP.join(parts).rstrip()


def fields(pairs: Sequence[tuple[str, str]], *, indent: str = "") -> str:
    """Return ``name  value`` lines with aligned values; more lines of a value stand under its first."""
    wide = max((len(name) for name, _ in pairs), default=0)
    lines = []
    for name, value in pairs:
        first, *rest = value.split("\n")
        lines.append(f"{indent}{name:{wide}}  {first}".rstrip())
        lines += [f"{indent}{'':{wide}}  {line}".rstrip() for line in rest]
    return "\n".join(lines) + "\n" if lines else ""
