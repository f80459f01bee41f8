"""Where each chart of a grid stands: pinned ones first, then by group, in rows of so many columns. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from screens.charts.plot import MARGIN
from workbench.values import dataclass

CELL_WIDTH = 44
"""About how wide a chart should be, for the number of columns that nobody chose."""
CELL_SHAPE = 3.5
"""How many times as wide as high a chart looks best, in cells, which are twice as high as wide."""
CELL_LEAST_HEIGHT = 8
CELL_MOST_HEIGHT = 14


@dataclass(frozen=True, slots=True)
class Block:
    """A line with a group's name, or a row of charts."""

    top: int
    height: int
    heading: str = ""
    names: tuple[str, ...] = ()
    cell_width: int = 0
    """How wide each of its charts is: they share the pane's width."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All blocks of a grid, from top to bottom."""

    blocks: tuple[Block, ...]
    columns: int
    cell_width: int
    """How wide the widest chart is."""

    @property
    def height(self) -> int:
        """Lines of the whole grid."""
        return self.blocks[-1].top + self.blocks[-1].height if self.blocks else 0

    @property
    def order(self) -> list[str]:
        """The metrics in the order in which they are shown."""
        return [name for block in self.blocks for name in block.names]

    def block_at(self, line: int) -> Block | None:
        """Return the block that a line belongs to."""
        return next((b for b in self.blocks if b.top <= line < b.top + b.height), None)

    def block_of(self, name: str) -> Block | None:
        """Return the row that a metric's chart stands in."""
        return next((block for block in self.blocks if name in block.names), None)

    def in_view(self, top: int, height: int) -> list[str]:
        """Return the metrics whose charts are at least partly in view."""
        shown = (b for b in self.blocks if b.top < top + height and b.top + b.height > top)
        return [name for block in shown for name in block.names]


def lay_out(
    names: Sequence[str], pinned: Iterable[str], width: int, height: int, *, columns: int = 0
) -> Layout:
    """Lay charts out; ``columns`` 0 makes as many as look best."""
    first = [name for name in names if name in set(pinned)]
    rest = [name for name in names if name not in first]
    groups = [("pinned", first)] if first else []
    groups += [(group, list(members)) for group, members in groupby(rest, key=group_of)]
    headed = len(groups) > 1 or any(group for group, _ in groups)
    sizes = [len(members) for _, members in groups]
    room = height - (len(groups) if headed else 0)
    most = max(1, min(len(names) or 1, width // 12))
    across = min(columns, most) if columns else _columns(sizes, width, room, most)
    heights = iter(_cell_heights(_rows(sizes, across), room))
    blocks: list[Block] = []
    top = 0
    for group, members in groups:
        if headed:
            blocks.append(Block(top, 1, heading=group or "metrics"))
            top += 1
        for start in range(0, len(members), across):
            row = tuple(members[start : start + across])
            blocks.append(Block(top, next(heights), names=row, cell_width=width // len(row)))
            top += blocks[-1].height
    widest = max((block.cell_width for block in blocks), default=width)
    return Layout(tuple(blocks), across, widest)


def _rows(sizes: Iterable[int], across: int) -> int:
    """Return how many rows groups of these sizes take, each of which begins a row."""
    return sum(-(-size // across) for size in sizes) or 1


def _columns(sizes: Sequence[int], width: int, height: int, most: int) -> int:
    """Return how many charts stand side by side: where all fit into the pane, their shape decides."""
    counts = range(1, max(1, min(most, width // CELL_WIDTH)) + 1)
    fitting = [count for count in counts if _rows(sizes, count) * CELL_LEAST_HEIGHT <= height]
    if not fitting:
        return counts[-1]

    def strangeness(count: int) -> float:
        return abs(math.log(width / count / (height / _rows(sizes, count)) / CELL_SHAPE))

    return min(fitting, key=strangeness)


def _cell_heights(rows: int, height: int) -> list[int]:
    """Return how high each row is: they fill the pane where all of them fit, else they are of a usual height."""
    if rows * CELL_LEAST_HEIGHT <= height:
        each, more = divmod(height, rows)
        return [each + (row < more) for row in range(rows)]
    return [max(CELL_LEAST_HEIGHT, min(CELL_MOST_HEIGHT, height // 2))] * rows


def plot_width(cell_width: int) -> int:
    """Return how many columns of a chart are its plot."""
    return max(8, cell_width - MARGIN)


def group_of(name: str) -> str:
    """Return a metric's group: what stands before its last ``/``."""
    return name.rpartition("/")[0]
