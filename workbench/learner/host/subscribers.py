"""One subscriber for every caller of a blocking operation, so that none waits for, or is interrupted with, another."""

from __future__ import annotations

import threading
from typing import Callable, Dict, Generic, TypeVar


class Subscriber:
    """Answers one caller's blocking calls, one at a time; another thread can interrupt a call that waits."""

    def interrupt(self) -> None:
        """Make the call that waits, or the next one, return at once."""
        raise NotImplementedError

    def close(self) -> None:
        """Give everything back, once no call waits any more."""
        raise NotImplementedError


A = TypeVar("A", bound=Subscriber)


class Subscribers(Generic[A]):
    """The subscribers by their callers' names (``asker`` in the frames), made at the first call."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._subscribers: Dict[str, A] = {}

    def of(self, caller: str) -> A:
        """Return a caller's own subscriber."""
        with self._lock:
            if caller not in self._subscribers:
                self._subscribers[caller] = self._make()
            return self._subscribers[caller]

    # Frames call these two by keyword, so their parameter keeps the frames' name.
    def interrupt(self, asker: str) -> None:
        """Make a caller's call that waits, or its next one, return at once."""
        self.of(asker).interrupt()

    def forget(self, asker: str) -> None:
        """Release what is held for a caller."""
        with self._lock:
            subscriber = self._subscribers.pop(asker, None)
        if subscriber is not None:
            subscriber.close()

    def close(self) -> None:
        """Give everything back."""
        for caller in list(self._subscribers):
            self.forget(caller)
