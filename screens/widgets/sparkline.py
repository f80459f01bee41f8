"""Values over time as a curve of one line."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from screens.style.glyphs import glyphs

_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_HEIGHTS_ASCII: Final = "_.-=*%#@"


def sparkline(shares: Sequence[float | None], width: int) -> str:
    """Return shares of a limit as a curve, the newest to the right; None, where nothing is known, is a blank.

    More values than there are cells are drawn by the greatest of each cell.
    """
    if width <= 0:
        return ""
    heights = _HEIGHTS if glyphs().unicode else _HEIGHTS_ASCII
    shown = list(shares)
    if len(shown) > width:
        edges = [len(shown) * cell // width for cell in range(width + 1)]
        cells = [shown[start:end] for start, end in itertools.pairwise(edges)]
        shown = [max((value for value in cell if value is not None), default=None) for cell in cells]
    drawn = "".join(
        " " if value is None else heights[min(len(heights) - 1, max(0, int(value * len(heights))))]
        for value in shown
    )
    return drawn.rjust(width)
