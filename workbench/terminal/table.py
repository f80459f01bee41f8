"""Plain aligned tables, drawn without a library so that a list costs nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.formats import short

GAP = "  "

Paint = Callable[[str, int], str]
"""Colours a cell: gets its padded text and the row's number."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``stretch`` is cut (with an ellipsis) where the terminal is too narrow."""

    title: str
    right: bool = False
    stretch: bool = False
    paint: Paint | None = None


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int) -> str:
    """Return a table with a heading; no line is longer than ``width`` while a stretch column can give way."""
    widths = [max([len(c.title), *(len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    over = sum(widths) + len(GAP) * (len(columns) - 1) - width
    # The last stretch column gives way first: reasons before names.
    for i in reversed(range(len(columns))):
        if over > 0 and columns[i].stretch:
            least = max(len(columns[i].title), 12)
            cut = max(0, min(over, widths[i] - least))
            widths[i] -= cut
            over -= cut
    lines = [_line(columns, widths, [c.title for c in columns], None)]
    lines += [_line(columns, widths, row, number) for number, row in enumerate(rows)]
    return "\n".join(lines) + "\n"


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
