"""The log of an attempt: its learners' journals in one order, of which a sieve lets some through.

The feed's thread updates it; everything below "for any thread" may be called from others meanwhile.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from screens.logs.order import Order
from workbench.logs.grep import Pattern
from workbench.logs.journal import JournalReader
from workbench.logs.levels import Level, Levels
from workbench.logs.line_filter import EXPRESSION_BYTES, LineFilter, find
from workbench.logs.line_index import LineIndex
from workbench.paths import LearnerFolder
from workbench.values import dataclass

Cancelled = Callable[[], bool]
CHUNK_BYTES: Final = 16 << 20
"""So much is indexed before the screen is notified and the next request is taken."""
MOST_HITS: Final = 1_000_000
"""Counting ends there: each takes 8 bytes."""
LAST_BYTES: Final = 1 << 20
"""So much of a last line without a newline is searched."""
CELLS: Final = 2000
"""A longer line is cut; its detail shows more of it."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which lines are shown."""

    pattern: Pattern | None = None
    invert: bool = False
    least_level: Level = Level.NONE
    since_us: int | None = None

    @property
    def open(self) -> bool:
        """Whether all lines pass."""
        return self.pattern is None and self.least_level is Level.NONE and self.since_us is None


@dataclass(frozen=True, slots=True)
class HitCount:
    """How many rows have what is looked for, as far as is known."""

    total: int
    number: int
    """Which of them a row is, from 1; 0 for none."""
    complete: bool
    """Whether all rows have been counted."""


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """One line as it is shown."""

    learner: int
    number: int
    """Of this learner's lines, from 0."""
    text: str
    """Harmless, with colours; the last state of a progress bar."""
    level: Level
    time_us: int | None
    """None where times were not asked for."""
    settled: bool
    """Whether it will look the same the next time: its newline has come, and its level is known."""


class LogDocument:
    """Rows of one or several learners' output."""

    def __init__(self, folders: Sequence[tuple[int, LearnerFolder]]) -> None:
        self.sources = [LearnerLog(learner, folder) for learner, folder in folders]
        self.sieve = Sieve()
        self.epoch = 0
        """Grows when rows stand for other lines than before: another filter, a file that was replaced."""
        self._order: Order | None = Order(len(folders)) if len(folders) > 1 else None
        self._passed: array[int] | None = None
        self._last: int | None = None
        """The position of a last line without a newline that passes: it may change, or pass no longer."""
        self._looked = 0
        self._since_offsets = [0] * len(folders)
        self._hits: Hits | None = None

    # For the feed's thread

    def update(self, cancelled: Cancelled) -> bool:
        """Take in a bounded piece of what is new; return whether there was any. Ask until it is False."""
        changed = False
        for source in self.sources:
            moved, anew = source.update(CHUNK_BYTES, cancelled)
            changed |= moved
            if anew:
                self._begin_anew()
        if self._order is not None:
            self._place_new(self._order)
        if any(source.behind for source in self.sources):
            return True  # the end of a long log comes first: levels and filters can wait
        for source in self.sources:
            changed |= source.levels.advance(cancelled=cancelled)
        changed |= self._sift(cancelled)
        return self._count_on(cancelled) or changed

    def sift(self, sieve: Sieve) -> None:
        """Show other lines; :meth:`update` finds them bit by bit."""
        self.sieve = sieve
        for number, source in enumerate(self.sources):
            source.look_for(sieve.pattern, invert=sieve.invert)
            self._since_offsets[number] = source.offset_of_time(sieve.since_us) if sieve.since_us else 0
        self._looked = 0
        self._passed, self._last = None if sieve.open else array("Q"), None
        if self._hits is not None:
            self.count_hits(self._hits.pattern)
        self.epoch += 1

    def count_hits(self, pattern: Pattern | None) -> None:
        """Count the rows that match; :meth:`update` does so bit by bit, :meth:`hits` returns how many they are."""
        self._hits = None if pattern is None else Hits(pattern, self.sources)

    def give_up(self, text: str) -> None:
        """Filter and count no more by an expression that takes too long; what it hid is shown."""
        if self._hits is not None and self._hits.pattern.text == text:
            self._hits = None
        if self.sieve.pattern is not None and self.sieve.pattern.text == text:
            self.sift(replace(self.sieve, pattern=None, invert=False))

    def _begin_anew(self) -> None:
        if self._order is not None:
            self._order = Order(len(self.sources))
            for source in self.sources:
                source.placed, source.entries = 0, 0
        self.sift(self.sieve)

    def _place_new(self, order: Order) -> None:
        """Place new lines by the time at which they came; of what came before nothing is moved."""
        runs = [(*run, number) for number, source in enumerate(self.sources) for run in source.new_runs()]
        for _, line, count, number in sorted(runs, key=lambda run: run[0]):
            order.add(number, line, count)

    def _sift(self, cancelled: Cancelled) -> bool:
        """Let new lines through the sieve, up to the next block that was searched."""
        if self._passed is None:
            return False
        more = False
        if self.sieve.pattern is not None:
            for source in self.sources:
                more |= source.search_on(cancelled)
        return self._take_passed(self._passed) or more or self._take_last()

    def _take_last(self) -> bool:
        """Let a last line through that has no newline: an ended job's never gets one. Return whether that changed."""
        before, source = self._last, self.sources[0]
        is_next = self._order is None and self._looked == source.index.whole < source.index.count
        since = source.index.line_at(self._since_offsets[0])
        passes = is_next and self._looked >= since and source.last_passes(self.sieve)
        self._last = self._looked if passes else None
        return self._last != before

    def _take_passed(self, passed: array[int]) -> bool:
        before = self._looked
        if self._last is not None and self._last < self.sources[0].index.whole:
            self._last = None  # its newline has come: it is judged with the others
        for position, number, line, count in self._runs(self._looked):
            source = self.sources[number]
            ready = min(count, source.sifted - line)
            if ready > 0:
                # Known only when so much is indexed; what is before it has none of these lines.
                since = source.index.line_at(self._since_offsets[number])
                passing = source.passing(line, line + ready, self.sieve.least_level, since)
                passed.extend(position - line + hit for hit in passing)
                self._looked = position + ready
            if ready < count:
                break
        return self._looked > before

    def _runs(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield position, source, first line and length of every run of whole lines from a position on."""
        if self._order is not None:
            yield from self._order.runs(position)
        else:
            yield position, 0, position, self.sources[0].index.whole - position

    def _count_on(self, cancelled: Cancelled) -> bool:
        """Count the hits in one more block of each source; return whether more of the log has been counted."""
        hits = self._hits
        if hits is None or len(hits.positions) >= MOST_HITS:
            return False
        before = hits.looked, hits.last
        more = hits.search_on(cancelled)
        if hits.last is not None and hits.last < self.sources[0].index.whole:
            hits.last = None  # its newline has come: it is counted with the others
        for position, number, line, count in self._runs(hits.looked):
            ready = min(count, hits.filters[number].searched - line)
            if self._passed is not None:
                ready = min(
                    ready, self._looked - position
                )  # what the sieve does not know yet is counted later
            if ready > 0:
                found = [position - line + hit for hit in hits.take(number, line + ready)]
                hits.positions.extend(found if self._passed is None else self._shown_of(found, self._passed))
                hits.looked = position + ready
            if ready < count:
                break
        index = self.sources[0].index
        is_last = self._order is None and hits.looked == index.whole < index.count
        is_shown = self._passed is None or self._last == index.whole
        counts = is_last and is_shown and self.sources[0].last_passes(Sieve(pattern=hits.pattern))
        hits.last = index.whole if counts else None
        return more or before != (hits.looked, hits.last)

    @staticmethod
    def _shown_of(positions: list[int], passed: array[int]) -> list[int]:
        """Return those of ascending positions that the sieve lets through."""
        return [
            at for at in positions if (row := bisect_left(passed, at)) < len(passed) and passed[row] == at
        ]

    def search(self, pattern: Pattern, row: int, *, backward: bool, cancelled: Cancelled) -> int | None:
        """Return the nearest row after a row, or before it, that matches; None for none."""
        return self._nearest(
            lambda source, start: find(source.index, pattern, start, backward=backward, cancelled=cancelled),
            row,
            backward=backward,
            cancelled=cancelled,
        )

    def next_error(self, row: int, *, backward: bool, cancelled: Cancelled) -> int | None:
        """Return the nearest row that is an error or begins a traceback."""
        return self._nearest(
            lambda source, start: source.levels.find(start, backward=backward),
            row,
            backward=backward,
            cancelled=cancelled,
        )

    def _nearest(
        self, look: Callable[[LearnerLog, int], int | None], row: int, *, backward: bool, cancelled: Cancelled
    ) -> int | None:
        position = self.position(row) if 0 <= row < self.count else (-1 if row < 0 else self._positions)
        while not cancelled():
            hits = []
            for number, source in enumerate(self.sources):
                line = look(source, self._start(number, position, backward=backward))
                if line is not None:
                    hits.append(self._order.position(number, line) if self._order else line)
            if not hits:
                return None
            position = max(hits) if backward else min(hits)
            shown = self.row_of(position)
            if self._passed is None or (shown < self.count and self.position(shown) == position):
                return shown
        return None

    def _start(self, number: int, position: int, *, backward: bool) -> int:
        """Return the line of a source from which to look on."""
        if self._order is None:
            return position
        last = self._order.last_line(number, position if not backward else position - 1)
        return last + 1 if backward else last

    def row_of_time(self, time_us: int) -> int:
        """Return the row of the first line printed at a time or after it."""
        found = [
            self._order.position(number, source.line_of_time(time_us))
            if self._order
            else source.line_of_time(time_us)
            for number, source in enumerate(self.sources)
        ]
        return self.row_of(min(found, default=0))

    # For any thread

    @property
    def _positions(self) -> int:
        return self._order.count if self._order is not None else self.sources[0].index.count

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._positions if self._passed is None else len(self._passed) + (self._last is not None)

    @property
    def looked_at(self) -> float:
        """How much of the log has been filtered, from 0 to 1."""
        total = self._order.count if self._order is not None else self.sources[0].index.whole
        return 1.0 if self._passed is None or not total else min(1.0, self._looked / total)

    def hits(self, pattern: Pattern, row: int) -> HitCount | None:
        """Return how many rows match, and which of them a row is; None while the count has not begun."""
        hits = self._hits
        if hits is None or hits.pattern is not pattern:
            return None
        total = self._order.count if self._order is not None else self.sources[0].index.whole
        complete = hits.looked >= total and not any(source.behind for source in self.sources)
        try:
            number = hits.number(self.position(row))
        except IndexError:  # another filter is being set
            number = 0
        return HitCount(len(hits.positions) + (hits.last is not None), number, complete)

    @property
    def lines(self) -> int:
        """How many lines the log has, filtered or not."""
        return self._positions

    @property
    def size(self) -> int:
        """How many bytes are at hand."""
        return sum(source.index.size for source in self.sources)

    def position(self, row: int) -> int:
        """Return the position of a row among all lines."""
        if self._passed is None:
            return row
        last = self._last
        return last if last is not None and row == len(self._passed) else self._passed[row]

    def row_of(self, position: int) -> int:
        """Return the row that shows a position, or the next that is shown."""
        return position if self._passed is None else bisect_left(self._passed, position)

    def locate(self, position: int) -> tuple[int, int]:
        """Return the number of the source, and the line in it."""
        return self._order.locate(position) if self._order is not None else (0, position)

    def error_marks(self, height: int) -> list[bool]:
        """Say for each of so many equal pieces of the whole log whether an error is in it; nothing while filtered."""
        count = self._positions
        if self._passed is not None or not count:
            return [False] * height
        edges = [count * piece // height for piece in range(height + 1)]
        return [
            any(
                source.has_error(self._lines_before(number, first), self._lines_before(number, last))
                for number, source in enumerate(self.sources)
            )
            for first, last in pairwise(edges)
        ]

    def _lines_before(self, number: int, position: int) -> int:
        """Return how many lines of a source stand before a position."""
        return position if self._order is None else self._order.last_line(number, position - 1) + 1

    def line(self, row: int, *, timed: bool = False) -> DocumentLine:
        """Read a row that is there."""
        number, line = self.locate(self.position(row))
        return self.sources[number].line(line, timed=timed)

    def raw(self, row: int, limit: int) -> bytes:
        """Read the bytes of a row, at most so many."""
        number, line = self.locate(self.position(row))
        return self.sources[number].index.raw(line, limit=limit)

    def close(self) -> None:
        """Give the files back."""
        for source in self.sources:
            source.close()


class Hits:
    """Where in the log what is looked for is, in its order, as far as that has been searched."""

    def __init__(self, pattern: Pattern, sources: Sequence[LearnerLog]) -> None:
        self.pattern = pattern
        self.filters = [LineFilter(source.index, pattern) for source in sources]
        self.positions = array("Q")
        self.looked = 0
        """All positions before this one have been counted."""
        self.last: int | None = None
        """The position of a last line without a newline that matches."""

    def search_on(self, cancelled: Cancelled) -> bool:
        """Search the next block of each source; return whether there was one."""
        searched = [next(one.advance(cancelled=cancelled), None) is not None for one in self.filters]
        return any(searched)

    def take(self, number: int, stop: int) -> list[int]:
        """Return the lines of a source before a line that match and were not returned before."""
        lines = self.filters[number].lines
        end = bisect_left(lines, stop)
        taken = lines[:end].tolist()
        del lines[:end]  # they are kept by position from now on
        return taken

    def number(self, position: int) -> int:
        """Return which of the hits stands at a position, from 1; 0 for none."""
        if position == self.last:
            return len(self.positions) + 1
        at = bisect_left(self.positions, position)
        return at + 1 if at < len(self.positions) and self.positions[at] == position else 0


class LearnerLog:
    """A learner's output."""

    def __init__(self, learner: int, folder: LearnerFolder) -> None:
        self.learner = learner
        self.journal = JournalReader(folder)
        self.index = LineIndex(folder.output, published=self.journal.published)
        self.levels = Levels(self.index)
        self.placed = 0
        """So many of its lines are in the order of all."""
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
                    return  # not indexed yet: this entry is read again
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

    def last_passes(self, sieve: Sieve) -> bool:
        """Say whether the last line, whose newline has not come, is let through."""
        is_expression = sieve.pattern is not None and sieve.pattern.is_expression
        line = self.index.raw(self.index.whole, limit=EXPRESSION_BYTES if is_expression else LAST_BYTES)
        matches = sieve.pattern is None or (next(sieve.pattern.spans(line), None) is None) == sieve.invert
        return matches and self.levels.of_last(line) >= sieve.least_level

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

    def line(self, number: int, *, timed: bool) -> DocumentLine:
        """Read a line as it is shown."""
        kinds = self.levels.kinds
        level = Level(kinds[number]) if number < len(kinds) else Level.NONE
        time_us = None
        if timed:
            begin, end = self.index.span(number)
            time_us = self.journal.time_of_offset(max(begin, end - 1))
        settled = number < min(self.index.whole, len(kinds))
        return DocumentLine(self.learner, number, self.index.text(number, CELLS), level, time_us, settled)

    def close(self) -> None:
        """Give the files back."""
        self.index.close()
        self.journal.close()
