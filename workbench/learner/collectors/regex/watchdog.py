"""Interrupts a regular expression that takes too long: catastrophic backtracking must not stop the output.

Python's matcher handles signals while it works, so a timer of the process's CPU time whose handler raises ends it.
Signals reach the main thread only: in any other thread the time is not limited.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Callable, Optional

TICK_SECONDS = 0.25


class TooSlow(Exception):
    """Raised in a match that took more than two ticks of CPU time."""


class Watchdog:
    """Raises :class:`TooSlow` in a call through :meth:`guarded` that takes longer than two ticks.

    A context manager: the timer runs, and the process's handler of SIGVTALRM is replaced, only inside of it.
    """

    def __init__(self) -> None:
        self._ticks = -1
        self._previous: Any = None
        self._armed = False

    def __enter__(self) -> Watchdog:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGVTALRM, self._tick)
            signal.setitimer(signal.ITIMER_VIRTUAL, TICK_SECONDS, TICK_SECONDS)
            self._armed = True
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._armed:
            self._armed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._previous or signal.SIG_DFL)

    def guarded(self, match: Callable[[str], Any], text: str) -> Any:
        """Return ``match(text)``.

        Raises:
            TooSlow: the match took too long.
        """
        self._ticks = 0
        try:
            return match(text)
        finally:
            self._ticks = -1

    def _tick(self, _number: int, _frame: Optional[FrameType]) -> None:
        if self._ticks >= 0:
            self._ticks += 1
            if self._ticks > 2:
                raise TooSlow
