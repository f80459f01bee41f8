"""The line of launches that look for nodes: those of one home in one namespace, in the order of submission.

At once they would take nodes from each other: several learners would wait with half of the GPUs they need, and a
job that came later would begin before one that came first.
"""

from __future__ import annotations

import itertools
import threading
from typing import Final

from workbench.values import dataclass

_numbers: Final = itertools.count()


@dataclass(frozen=True, slots=True, order=True)
class LinePosition:
    """One launch in the line."""

    seq: int
    """The job's order of submission."""
    number: int
    """The order of arrival, for jobs of the same ``seq``."""
    job_id: str


class LaunchLine:
    """Who looks for nodes now, and who waits behind it. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._positions: set[LinePosition] = set()
        self._holder: LinePosition | None = None

    def enter(self, seq: int, job_id: str) -> LinePosition:
        """Take a position before those that were submitted later; it is to be left in any case."""
        position = LinePosition(seq, next(_numbers), job_id)
        with self._changed:
            self._positions.add(position)
        return position

    def take_turn(self, position: LinePosition, timeout_seconds: float) -> str:
        """Wait for a position's turn; return the job that is ahead when the time is up, empty once it has its turn."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._ahead_of(position), timeout_seconds):
                self._holder = position
            return self._ahead_of(position)

    def leave(self, position: LinePosition) -> None:
        """Give up a position, and the turn with it."""
        with self._changed:
            self._positions.discard(position)
            if self._holder == position:
                self._holder = None
            self._changed.notify_all()

    def _ahead_of(self, position: LinePosition) -> str:
        if self._holder is not None:
            return "" if self._holder == position else self._holder.job_id
        first = min(self._positions, default=position)
        return "" if first == position else first.job_id
