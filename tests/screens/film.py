"""Makes one moving picture of drawn pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

FRAME_SECONDS: Final = 2.5


def film(frames: Sequence[str], seconds: float = FRAME_SECONDS) -> str:
    """Return drawn pages as one picture that shows each for so long, again and again."""
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', frames[0])
    if size is None:
        raise ValueError("a page without a size")
    width, height = size.groups()
    share = 100 / len(frames)
    shown = "".join(
        f'<g class="frame" style="animation-delay:{number * seconds:g}s">{frame}</g>'
        for number, frame in enumerate(frames)
    )
    rules = (
        f".frame{{visibility:hidden;animation:frame {len(frames) * seconds:g}s step-end infinite}}"
        f"@keyframes frame{{0%{{visibility:visible}}{share:.4g}%{{visibility:hidden}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f"<style>{rules}</style>{shown}</svg>\n"
    )
