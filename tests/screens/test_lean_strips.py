"""The lines that screens are drawn from remember what Textual's own do, and make a place for it when they need one."""

from __future__ import annotations

import subprocess
import sys

from rich.segment import Segment
from rich.style import Style
from textual.cache import FIFOCache
from textual.strip import Strip

from screens.widgets.lean_strips import CACHES, use_lean_strips

TEXTUALS_OWN = """
from textual.cache import FIFOCache
from textual.strip import Strip
strip = Strip([])
made = {name: getattr(strip, name) for name in Strip.__slots__}
print({name: value._maxsize for name, value in made.items() if isinstance(value, FIFOCache)})
print({name: value for name, value in made.items() if not isinstance(value, FIFOCache)})
"""


def made(strip: Strip) -> list[str]:
    """Return the names of the caches that a line has so far."""
    having = []
    for name in CACHES:
        try:
            object.__getattribute__(strip, name)
        except AttributeError:
            continue
        having.append(name)
    return having


def test_a_line_makes_a_cache_when_it_is_first_asked_for() -> None:
    use_lean_strips()
    line = Strip([Segment("step 41 ", Style(bold=True)), Segment("loss 0.25")])
    assert made(line) == []

    cropped = line.crop(5, 12)

    assert cropped.text == "41 loss" and line.crop(5, 12) is cropped
    assert made(line) == ["_crop_cache"]
    assert line.divide([4, 17])[0].text == "step" and line.divide([4, 17]) is line.divide([4, 17])
    assert not hasattr(line, "_unknown_cache")


def test_a_line_remembers_as_much_as_one_of_textual() -> None:
    """In a process in which no app has begun, lines are Textual's own."""
    use_lean_strips()
    asked = [sys.executable, "-c", TEXTUALS_OWN]

    caches, rest = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()

    line = Strip([])
    kept = {name: getattr(line, name) for name in CACHES}
    assert all(isinstance(cache, FIFOCache) for cache in kept.values())
    assert caches == str({name: kept[name]._maxsize for name in Strip.__slots__ if name in kept})
    assert rest == str({name: getattr(line, name) for name in Strip.__slots__ if name not in kept})
