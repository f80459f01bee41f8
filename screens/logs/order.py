"""Which line of which learner stands where, when several logs are shown as one. Pure; it only grows.

One thread adds; others may read at the same time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator


class Order:
    """Runs of lines of one source after the other."""

    def __init__(self, sources: int) -> None:
        self.count = 0
        """How many lines are placed."""
        self._starts = array("Q")
        self._sources = array("H")
        self._lines = array("Q")
        self._own_lines = [array("Q") for _ in range(sources)]
        self._own_starts = [array("Q") for _ in range(sources)]
        self._own_counts = [array("Q") for _ in range(sources)]

    def add(self, source: int, line: int, count: int) -> None:
        """Place the next lines of a source behind all others."""
        if count <= 0:
            return
        if not (self._sources and self._sources[-1] == source):
            self._starts.append(self.count)
            self._lines.append(line)
            self._own_lines[source].append(line)
            self._own_starts[source].append(self.count)
            self._own_counts[source].append(0)
            self._sources.append(source)
        self._own_counts[source][-1] += count
        self.count += count

    def locate(self, position: int) -> tuple[int, int]:
        """Return source and line of a position that is there."""
        run = bisect_right(self._starts, position) - 1
        return self._sources[run], self._lines[run] + position - self._starts[run]

    def position(self, source: int, line: int) -> int:
        """Return where a line of a source stands; one that is not placed yet stands at the end."""
        lines = self._own_lines[source]
        run = bisect_right(lines, line) - 1
        if run < 0:
            return 0
        return min(self._own_starts[source][run] + line - lines[run], self.count)

    def last_line(self, source: int, position: int) -> int:
        """Return the last line of a source that stands at a position or before it; -1 for none."""
        starts = self._own_starts[source]
        run = bisect_right(starts, position) - 1
        if run < 0:
            return -1
        into = min(position - starts[run], self._own_counts[source][run] - 1)
        return self._own_lines[source][run] + into

    def runs(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield position, source, first line and length of every run from a position on."""
        count, runs = self.count, len(self._sources)
        run = max(0, bisect_right(self._starts, position) - 1)
        while run < runs:
            start = self._starts[run]
            end = self._starts[run + 1] if run + 1 < runs else count
            first = max(start, position)
            if first < end:
                yield first, self._sources[run], self._lines[run] + first - start, end - first
            run += 1
