"""``--timeout``: halts a job that is followed when its time is over, queue and start included."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from workbench.cli.follow.signals import Policy
from workbench.formats import duration
from workbench.terminal.console import narrate

EXIT_TIMED_OUT: Final = 124
KILLED_AFTER_SECONDS: Final = 60.0
"""How much longer than its own grace period a job that was halted may take before it is killed."""


class TimeLimit:
    """Counts within a ``with`` block; without seconds it never ends."""

    def __init__(self, seconds: float | None, grace_seconds: float, stop: Callable[[Policy], None]) -> None:
        self._seconds = seconds
        self._grace_seconds = grace_seconds
        self._stop = stop
        self._timers: list[threading.Timer] = []
        self.over = False
        """Whether the time was over before the block was."""

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._start(self._seconds, self._halt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()

    def _start(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _halt(self) -> None:
        self.over = True
        narrate(f"--timeout: {duration(self._seconds or 0.0)} are over")
        self._start(self._grace_seconds + KILLED_AFTER_SECONDS, lambda: self._stop("kill"))
        self._stop("halt")
