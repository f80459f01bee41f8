"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0


def wait_for(
    condition: Callable[[], bool], found: Callable[[], str] = lambda: "", *, seconds: float = DEADLINE_SECONDS
) -> None:
    """Wait until a condition holds; fail with what was found instead when it does not come to hold."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"it did not come to hold: {found()}"
        time.sleep(0.002)
