"""Draws a job's metrics in the terminal, in braille: two columns and four rows of dots in each cell."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from workbench.formats import number
from workbench.job import short_id
from workbench.terminal.console import narrate, style, width

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import Bucket, JobRow, SeriesRow

ROWS: Final = 10
LABEL: Final = 10
WIDEST: Final = 100
EMPTY: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot, by its column and row in the cell."""


def print_plots(store: Store, row: JobRow, *, names: Sequence[str], learner: int | None) -> None:
    """Print a chart for each metric, or for those that are named.

    Raises:
        UsageError: the job has no metric of that name; the hint names the nearest.
    """
    from workbench.metrics import buckets, series

    found = [each for each in series(store, row.id, kinds=("value",)) if each.points]
    found = [each for each in found if each.learner == (learner or 1)]
    if not found:
        narrate(
            f"{short_id(row.id)} has no metrics; evaluation_metrics in its manifest says how to find them"
        )
        return
    columns = max(20, min(width(), WIDEST) - LABEL - 1)
    for each in _chosen(found, names):
        parts = buckets(store, each.id, width=columns)
        sys.stdout.write("\n".join(chart(each, parts, columns)) + "\n\n")


def _chosen(found: Sequence[SeriesRow], names: Sequence[str]) -> list[SeriesRow]:
    from workbench.errors import UsageError
    from workbench.services.filters import nearest_metric

    known = [each.name for each in found]
    chosen: list[SeriesRow] = []
    for name in names:
        fitting = [
            each
            for each in found
            if each.name.lower() == name.lower() or each.name.lower().endswith(f"/{name.lower()}")
        ]
        if not fitting:
            raise UsageError(f"the job has no metric {name!r}", hint=nearest_metric(known, name))
        chosen += [each for each in fitting if each not in chosen]
    return chosen or list(found)


def chart(series: SeriesRow, parts: Sequence[Bucket], columns: int) -> list[str]:
    """Return the lines of one chart; values that are no numbers are left out and counted."""
    values = [value for part in parts for value in (part.minimum, part.maximum) if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    nans = sum(part.nans for part in parts)
    head = f"{series.name}  last {number(series.last)}" + (f"  ({nans:,} are nan)" if nans else "")
    if not finite:
        return [style(head, "bold", sys.stdout)]
    low, high = min(finite), max(finite)
    cells = _drawn(parts, columns, low, high)
    lines = []
    for at, cell_row in enumerate(cells):
        label = number(high) if at == 0 else number(low) if at == len(cells) - 1 and high > low else ""
        text = "".join(chr(EMPTY + cell) for cell in cell_row).rstrip(chr(EMPTY))
        lines.append(f"{label:>{LABEL}} {style(text, 'cyan', sys.stdout)}".rstrip())
    first, last = _ends(parts)
    foot = " " * LABEL + f" {first}" + f"{last}".rjust(columns - len(str(first)))
    return [style(head, "bold", sys.stdout), *lines, foot]


def _ends(parts: Sequence[Bucket]) -> tuple[str, str]:
    first = next((part.first_step for part in parts if part.first_step is not None), None)
    last = next((part.last_step for part in reversed(parts) if part.last_step is not None), None)
    if first is None or last is None:
        return "1", str(sum(part.count for part in parts))
    return f"step {first}", f"step {last}"


def _drawn(parts: Sequence[Bucket], columns: int, low: float, high: float) -> list[list[int]]:
    cells = [[0] * columns for _ in range(ROWS)]
    dots_x, dots_y = columns * 2, ROWS * 4
    span = (high - low) or 1.0
    total = sum(part.count for part in parts) or 1
    before: tuple[int, int] | None = None
    done = 0
    for part in parts:
        middle = done + (part.count - 1) / 2
        done += part.count
        x = round(middle / max(1, total - 1) * (dots_x - 1))
        ends = [value for value in (part.first, part.minimum, part.maximum, part.last) if value is not None]
        rows = [
            dots_y - 1 - round((value - low) / span * (dots_y - 1)) for value in ends if math.isfinite(value)
        ]
        if not rows:
            before = None
            continue
        for y in range(min(rows), max(rows) + 1):
            _dot(cells, x, y)
        if before is not None:
            _line(cells, before, (x, rows[0]))
        before = (x, rows[-1])
    return cells


def _line(cells: list[list[int]], begin: tuple[int, int], end: tuple[int, int]) -> None:
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for step in range(steps + 1):
        x = begin[0] + (end[0] - begin[0]) * step / steps
        y = begin[1] + (end[1] - begin[1]) * step / steps
        _dot(cells, round(x), round(y))


def _dot(cells: list[list[int]], x: int, y: int) -> None:
    cells[y // 4][x // 2] |= DOTS[x % 2][y % 4]
