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
    """The subscribers by their callers' names (``asker``), made at the first call."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._subscribers: Dict[str, A] = {}

    def of(self, asker: str) -> A:
        """Return a caller's own subscriber."""
        with self._lock:
            if asker not in self._subscribers:
                self._subscribers[asker] = self._make()
            return self._subscribers[asker]

    def interrupt(self, asker: str) -> None:
        """Make an asker's call that waits, or its next one, return at once."""
        self.of(asker).interrupt()

    def forget(self, asker: str) -> None:
        """Give back what is kept for an asker."""
        with self._lock:
            subscriber = self._subscribers.pop(asker, None)
        if subscriber is not None:
            subscriber.close()

    def close(self) -> None:
        """Give everything back."""
        for asker in list(self._subscribers):
            self.forget(asker)
