"""One answerer for every asker, so that none waits for another's answer or is interrupted with it."""

from __future__ import annotations

import threading
from typing import Callable, Dict, Generic, TypeVar


class Subscriber:
    """Answers one asker's calls, one at a time; others can make a call that waits return."""

    def interrupt(self) -> None:
        """Make the call that waits, or the next one, return at once."""
        raise NotImplementedError

    def close(self) -> None:
        """Give everything back, once no call waits any more."""
        raise NotImplementedError


A = TypeVar("A", bound=Subscriber)


class Subscribers(Generic[A]):
    """The answerers by the names of those who ask, made when they first ask."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._answerers: Dict[str, A] = {}

    def of(self, asker: str) -> A:
        """Return an asker's own answerer."""
        with self._lock:
            if asker not in self._answerers:
                self._answerers[asker] = self._make()
            return self._answerers[asker]

    def interrupt(self, asker: str) -> None:
        """Make an asker's call that waits, or its next one, return at once."""
        self.of(asker).interrupt()

    def forget(self, asker: str) -> None:
        """Give back what is kept for an asker."""
        with self._lock:
            answerer = self._answerers.pop(asker, None)
        if answerer is not None:
            answerer.close()

    def close(self) -> None:
        """Give everything back."""
        for asker in list(self._answerers):
            self.forget(asker)
