"""Watchers kept between calls, so that nothing that changes while nobody waits is missed."""

from __future__ import annotations

import threading
from typing import List, Sequence, Set

from workbench.learner.platform.watch import Watcher

KEPT = 8
"""How many idle watchers are kept; each has a descriptor of which a user has 128."""


class Watches:
    """Gives each call the idle watcher that knows most of its paths. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Watcher] = []
        self._busy: List[Watcher] = []
        self._closed = False

    def wait(self, paths: Sequence[str], timeout_seconds: float) -> List[str]:
        """Block until one of these files changes or appears, or the time is over; return those that changed.

        What changed since the last call that named it counts; of a path that no call named, what changes
        from now on.
        """
        watcher = self._take(set(paths))
        try:
            return watcher.wait(timeout_seconds)
        finally:
            self._put_back(watcher)

    def close(self) -> None:
        """Give everything back; calls that wait return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for watcher in self._busy:
                watcher.wake()
        for watcher in idle:
            watcher.close()

    def _take(self, paths: Set[str]) -> Watcher:
        with self._lock:
            best = max(self._idle, key=lambda idle: len(paths.intersection(idle.paths())), default=None)
            if best is None or not paths.intersection(best.paths()):
                best = Watcher()
            else:
                self._idle.remove(best)
            self._busy.append(best)
        for path in set(best.paths()) - paths:
            best.remove(path)
        for path in paths:
            best.add(path)
        return best

    def _put_back(self, watcher: Watcher) -> None:
        with self._lock:
            self._busy.remove(watcher)
            self._idle.append(watcher)
            surplus = self._idle if self._closed else self._idle[:-KEPT]
            self._idle = [idle for idle in self._idle if idle not in surplus]
        for idle in surplus:
            idle.close()
