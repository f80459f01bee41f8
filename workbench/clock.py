"""The two clocks: what time it is (UTC, may jump), and how long it took (counts sleep, cannot jump)."""

from __future__ import annotations

import time


def now_us() -> int:
    """Return the time in microseconds since 1970, UTC. For people and records; never for order or time limits."""
    return time.time_ns() // 1000


def elapsed_seconds() -> float:
    """Return seconds on a clock that counts suspended time and cannot jump (CLOCK_BOOTTIME where there is one)."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
