"""Draws a job's metrics in the terminal, in braille: two columns and four rows of dots in each cell."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from workbench.cli.commands.inspect.metric_tables import chosen_metrics, narrate_shared, narrate_superseded
from workbench.formats import number
from workbench.job import short_id
from workbench.learner.texts import escaped
from workbench.metrics.short_names import shared_folder
from workbench.terminal.console import narrate, style, width
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.cli.commands.inspect.metric_tables import MetricSelection
    from workbench.store.db.database import Store
    from workbench.store.db.rows import Bucket, JobRow, SeriesRow

LEARNERS_SHOWN: Final = 8
"""Of more learners the first ones' charts are drawn, and the others are named."""
ROWS: Final = 10
LABEL: Final = 10
WIDEST: Final = 100
EMPTY: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot, by its column and row in the cell."""


def print_plots(store: Store, row: JobRow, *, names: Sequence[str], selection: MetricSelection) -> None:
    """Print a chart for each metric of each learner, or for the metrics that are named.

    Raises:
        UsageError: the job has no metric of that name; the hint names the nearest.
    """
    from workbench.metrics.chart_axis import ChartRange, chart_axis, chart_points, infinities

    found = [each for each in selection.series(store, row, ("value",)) if each.points]
    if not found:
        narrate(
            f"{short_id(row.id)} has no metrics; evaluation_metrics in its manifest says how to find them"
        )
        return
    shown_names = chosen_metrics([each.name for each in found], names)
    chosen = [each for name in shown_names for each in found if each.name == name]
    learners = sorted({each.learner for each in chosen})
    shown = ChartRange(attempt=selection.attempt, superseded=selection.superseded)
    columns = max(20, min(width(), WIDEST) - LABEL - 1)
    shared = shared_folder(each.name for each in found)
    for each in chosen:
        if each.learner not in learners[:LEARNERS_SHOWN]:
            continue
        axis = chart_axis(store, [each], shown)
        parts = chart_points(store, each, axis, width=columns, shown=shown) or []
        drawing = Chart(each, tuple(parts), axis, infinities(store, each, shown), row.learners > 1, shared)
        sys.stdout.write("\n".join(chart(drawing, columns)) + "\n\n")
    narrate_shared(shared)
    narrate_superseded(store, row, selection)
    if hidden := learners[LEARNERS_SHOWN:]:
        narrate(f"learners {hidden[0]} to {hidden[-1]} are not shown; --learner shows one")


@dataclass(frozen=True, slots=True)
class Chart:
    """What one chart shows."""

    series: SeriesRow
    parts: tuple[Bucket, ...]
    """In the order of their x, which is their step."""
    axis: str
    infinities: int = 0
    names_learner: bool = False
    shared: str = ""
    """What all names begin with, and are shown without."""


def chart(shown: Chart, columns: int) -> list[str]:
    """Return the lines of one chart; values that are not finite are left out and counted."""
    series, parts = shown.series, shown.parts
    values = [value for part in parts for value in (part.minimum, part.maximum) if value is not None]
    finite = [value for value in values if math.isfinite(value)]
    nans = sum(part.nans for part in parts)
    left_out = [
        f"{many:,} {'is' if many == 1 else 'are'} {what}"
        for many, what in ((nans, "nan"), (shown.infinities, "inf"))
        if many
    ]
    head = escaped(series.name.removeprefix(shown.shared)) + (
        f"  learner {series.learner}" if shown.names_learner else ""
    )
    head += f"  last {number(series.last)}" + (f"  ({', '.join(left_out)})" if left_out else "")
    if not finite:
        return [style(head, "bold", sys.stdout)]
    low, high = min(finite), max(finite)
    cells = _drawn(parts, columns, low, high)
    sign = _braille if _has_braille() else _star
    lines = []
    for at, cell_row in enumerate(cells):
        label = number(high) if at == 0 else number(low) if at == len(cells) - 1 and high > low else ""
        text = "".join(map(sign, cell_row)).rstrip(sign(0))
        lines.append(f"{label:>{LABEL}} {style(text, 'cyan', sys.stdout)}".rstrip())
    first, last = _ends(shown)
    foot = " " * LABEL + f" {first}" + f"{last}".rjust(columns - len(first))
    return [style(head, "bold", sys.stdout), *lines, foot]


def _has_braille() -> bool:
    try:
        chr(EMPTY).encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _braille(cell: int) -> str:
    return chr(EMPTY + cell)


def _star(cell: int) -> str:
    """Return what a terminal without Unicode shows of a cell."""
    return "*" if cell else " "


def _ends(shown: Chart) -> tuple[str, str]:
    """Return what stands below the ends of the x axis."""
    word = "" if shown.axis == "number" else f"{shown.axis} "
    low, high = _range(shown.parts)
    return f"{word}{low:.10g}", f"{word}{high:.10g}"


def _range(parts: Sequence[Bucket]) -> tuple[float, float]:
    """Return the ends of the x axis."""
    return parts[0].first_step or 0.0, parts[-1].last_step or 0.0


def _drawn(parts: Sequence[Bucket], columns: int, low: float, high: float) -> list[list[int]]:
    cells = [[0] * columns for _ in range(ROWS)]
    dots_x, dots_y = columns * 2, ROWS * 4
    left, right = _range(parts)
    before: tuple[int, int] | None = None
    for part in parts:
        middle = (part.first_step or 0.0) / 2 + (part.last_step or 0.0) / 2
        x = round(_share(middle, left, right) * (dots_x - 1))
        ends = [value for value in (part.first, part.minimum, part.maximum, part.last) if value is not None]
        rows = [
            dots_y - 1 - round(_share(value, low, high) * (dots_y - 1))
            for value in ends
            if math.isfinite(value)
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


def _share(value: float, low: float, high: float) -> float:
    """Return where a value lies in a range, from 0 to 1; halves, since the whole range may be no float."""
    span = high / 2 - low / 2
    return min(1.0, max(0.0, (value / 2 - low / 2) / span)) if span > 0 else 0.0


def _line(cells: list[list[int]], begin: tuple[int, int], end: tuple[int, int]) -> None:
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for step in range(steps + 1):
        x = begin[0] + (end[0] - begin[0]) * step / steps
        y = begin[1] + (end[1] - begin[1]) * step / steps
        _dot(cells, round(x), round(y))


def _dot(cells: list[list[int]], x: int, y: int) -> None:
    cells[y // 4][x // 2] |= DOTS[x % 2][y % 4]
