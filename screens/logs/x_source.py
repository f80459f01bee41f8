"""One learner's journal with what a viewer keeps of it: its lines, their levels, and which of them match."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from workbench.logs.grep import Pattern
from workbench.logs.journal import JournalReader
from workbench.logs.levels import Level, Levels
from workbench.logs.line_filter import LineFilter
from workbench.logs.line_index import LineIndex
from workbench.paths import LearnerFolder

if TYPE_CHECKING:
    from screens.logs.document import LogLine


class Source:
    """A learner's output."""

    def __init__(self, learner: int, folder: LearnerFolder) -> None:
        self.learner = learner
        self.journal = JournalReader(folder)
        self.index = LineIndex(folder.output, published=self.journal.published)
        self.levels = Levels(self.index)
        self.placed = 0
        """So many of its lines have a place in the order of all."""
        self.entries = 0
        """So many of its index entries have been read."""
        self.behind = False
        """Whether much is there that is not indexed yet."""
        self._filter: LineFilter | None = None
        self._generation = 0

    def update(self, limit_bytes: int, cancelled: Callable[[], bool]) -> tuple[bool, bool]:
        """Index what is new; return whether anything was, and whether the file is another than before."""
        before = self.index.size
        moved = self.index.update(limit_bytes=limit_bytes, cancelled=cancelled)
        self.behind = self.index.size - before >= limit_bytes
        anew = self.index.generation != self._generation
        self._generation = self.index.generation
        return moved, anew

    def new_runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the time, first line and length of each run of whole lines that is new."""
        while found := self.journal.entries_from(self.entries):
            for entry in found:
                lines = min(entry.newlines, self.index.whole)
                if lines > self.placed:
                    yield entry.time_us, self.placed, lines - self.placed
                    self.placed = lines
                if entry.newlines > self.index.whole:
                    return  # not indexed yet: this entry is looked at again
                self.entries += 1

    # Filtering

    def look_for(self, pattern: Pattern | None, *, invert: bool) -> None:
        """Look for other lines from now on."""
        self._filter = None if pattern is None else LineFilter(self.index, pattern, invert=invert)

    def search_on(self, cancelled: Callable[[], bool]) -> bool:
        """Search the next block; return whether there was one."""
        return self._filter is not None and next(self._filter.advance(cancelled=cancelled), None) is not None

    @property
    def sifted(self) -> int:
        """How many lines are known well enough to be let through or not."""
        known = len(self.levels.kinds)
        return known if self._filter is None else min(known, self._filter.searched)

    def passing(self, first: int, stop: int, least: Level, from_line: int) -> Iterable[int]:
        """Return which of these lines are let through."""
        first = max(first, from_line)
        if self._filter is None:
            candidates: Iterable[int] = range(first, stop)
        else:
            lines = self._filter.lines
            candidates = lines[bisect_left(lines, first) : bisect_left(lines, stop)]
        if least is Level.NONE:
            return candidates
        kinds = self.levels.kinds
        return [line for line in candidates if kinds[line] >= least]

    def has_error(self, first: int, stop: int) -> bool:
        """Say whether one of these lines is an error or begins a traceback."""
        kinds = self.levels.kinds
        return any(kinds.find(level, first, stop) >= 0 for level in (Level.ERROR, Level.TRACEBACK))

    # Lines

    def offset_of_time(self, time_us: int) -> int:
        """Return where the first line begins that was printed at a time or after it."""
        return self.journal.offset_of_time(time_us)

    def line_of_time(self, time_us: int) -> int:
        """Return the first line that was printed at a time or after it."""
        return self.index.line_at(self.journal.offset_of_time(time_us))

    def line(self, number: int, *, timed: bool) -> LogLine:
        """Read a line as it is shown."""
        from screens.logs.document import CELLS, LogLine

        kinds = self.levels.kinds
        level = Level(kinds[number]) if number < len(kinds) else Level.NONE
        time_us = None
        if timed:
            begin, end = self.index.span(number)
            time_us = self.journal.time_of_offset(max(begin, end - 1))
        settled = number < min(self.index.whole, len(kinds))
        return LogLine(self.learner, number, self.index.text(number, CELLS), level, time_us, settled)

    def close(self) -> None:
        """Give the files back."""
        self.index.close()
        self.journal.close()
