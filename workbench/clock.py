"""The two clocks: what time it is (UTC, may jump), and how long it took (counts sleep, cannot jump).

Both can be replaced as one, for a simulation whose time passes by itself: see :func:`replace_clock`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """What both clocks are read from."""

    def now_us(self) -> int:
        """Return the time of day, as :func:`now_us` does."""

    def elapsed_seconds(self) -> float:
        """Return how long it took, as :func:`elapsed_seconds` does."""


class SystemClock:
    """The clocks of this machine."""

    def now_us(self) -> int:
        """Return the time of day."""
        return time.time_ns() // 1000

    def elapsed_seconds(self) -> float:
        """Return seconds of CLOCK_BOOTTIME where there is one: it counts the time that a laptop sleeps."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boottime is None else time.clock_gettime(boottime)


_clock: Clock = SystemClock()


def now_us() -> int:
    """Return the time in microseconds since 1970, UTC. For people and records; never for order or time limits."""
    return _clock.now_us()


def elapsed_seconds() -> float:
    """Return seconds on a clock that counts suspended time and cannot jump."""
    return _clock.elapsed_seconds()


@contextmanager
def replace_clock(clock: Clock) -> Iterator[None]:
    """Have both clocks of this process read from another one, for all of its threads."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
