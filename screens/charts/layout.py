"""Where each chart of a grid stands: pinned ones first, then by group, in rows of so many columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

CELL_WIDTH = 44
"""About how wide a chart should be, for the number of columns that nobody chose."""
CELL_LEAST_HEIGHT = 8
CELL_MOST_HEIGHT = 14


@dataclass(frozen=True, slots=True)
class Block:
    """A line with a group's name, or a row of charts."""

    top: int
    height: int
    heading: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """All blocks of a grid, from top to bottom."""

    blocks: tuple[Block, ...]
    columns: int
    cell_width: int
    cell_height: int

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
    """Lay charts out; ``columns`` 0 makes as many as there is room for."""
    first = [name for name in names if name in set(pinned)]
    rest = [name for name in names if name not in first]
    count = columns or max(1, width // CELL_WIDTH)
    across = max(1, min(count, len(names) or 1, max(1, width // 12)))
    rows = -(-len(names) // across) or 1
    cell_height = max(
        CELL_LEAST_HEIGHT, min(CELL_MOST_HEIGHT if rows > 1 else height, height // min(rows, 2))
    )
    groups = [("pinned", first)] if first else []
    groups += [(group, list(members)) for group, members in groupby(rest, key=group_of)]
    headed = len(groups) > 1 or any(group for group, _ in groups)
    blocks: list[Block] = []
    top = 0
    for group, members in groups:
        if headed:
            blocks.append(Block(top, 1, heading=group or "metrics"))
            top += 1
        for start in range(0, len(members), across):
            blocks.append(Block(top, cell_height, names=tuple(members[start : start + across])))
            top += cell_height
    return Layout(tuple(blocks), across, width // across, cell_height)


def group_of(name: str) -> str:
    """Return a metric's group: what stands before its last ``/``."""
    return name.rpartition("/")[0]
