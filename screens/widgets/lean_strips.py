"""Makes the lines that screens are drawn from cheap: most of them are drawn once and then forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.segment import Segment
from textual.cache import FIFOCache
from textual.strip import Strip

CACHES: Final[Mapping[str, int]] = {
    "_divide_cache": 4,
    "_crop_cache": 16,
    "_style_cache": 16,
    "_filter_cache": 4,
    "_line_length_cache": 4,
    "_crop_extend_cache": 4,
    "_offsets_cache": 4,
}
"""What a line remembers, and how much of each, as Textual 8.2.8 has it."""


def use_lean_strips() -> None:
    """Have every line make a cache when it is first asked for.

    Textual 8.2.8 makes all seven for each part of each line, most of which need one or none: a fifth of all that
    painting a screen takes.
    """
    Strip.__init__ = _begin  # type: ignore[method-assign, assignment]
    Strip.__getattr__ = _make_cache  # type: ignore[attr-defined]


def _begin(strip: Strip, segments: Iterable[Segment], cell_length: int | None = None) -> None:
    strip._segments = list(segments)
    strip._cell_length = cell_length
    strip._render_cache = None
    strip._link_ids = None
    strip._cell_count = None


def _make_cache(strip: Strip, name: str) -> FIFOCache[Any, Any]:
    """Python calls this for what a line does not have yet."""
    if name not in CACHES:
        raise AttributeError(name)
    cache: FIFOCache[Any, Any] = FIFOCache(CACHES[name])
    setattr(strip, name, cache)
    return cache
