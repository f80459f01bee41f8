"""What something costs in CPU, measured against a loop in the same process: machines differ, and are busy."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable


def loops(do: Callable[[], object]) -> float:
    """Return how many times as much CPU something takes as a loop over a million numbers, which is some 30 ms."""
    return _seconds(do) / _loop_seconds()


@functools.cache
def _loop_seconds() -> float:
    return min(_seconds(_loop) for _ in range(3))


def _loop() -> int:
    total = 0
    for number in range(1_000_000):
        total += number
    return total


def _seconds(do: Callable[[], object]) -> float:
    begun = time.process_time()
    do()
    return time.process_time() - begun
