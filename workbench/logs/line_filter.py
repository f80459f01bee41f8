"""Finds and filters lines of an index, in blocks, so that a search can be given up at any moment."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final

from workbench.logs.grep import Pattern
from workbench.logs.line_index import LineIndex

_BLOCK: Final = 1 << 20
EXPRESSION_BYTES: Final = 8 << 10
"""A regular expression is matched against so much of a line: some look at each part of it as often as it is long."""

Cancelled = Callable[[], bool]


def find(
    index: LineIndex,
    pattern: Pattern,
    start: int,
    *,
    backward: bool = False,
    cancelled: Cancelled | None = None,
) -> int | None:
    """Return the nearest line after ``start``, or before it, that matches.

    None when there is none, or when given up.

    To include line 0 start at -1; to search from the end backwards start at ``index.count``.
    """
    blocks = _backward(index, start) if backward else _forward(index, start + 1)
    for first, block in blocks:
        if cancelled and cancelled():
            return None
        block = _clipped(block, pattern)
        span = pattern.last_span(block) if backward else next(pattern.spans(block), None)
        if span is not None:
            return first + block.count(b"\n", 0, span[0])
    return None


class LineFilter:
    """The numbers of the lines that match, found block by block.

    When the file has grown, the search resumes where it stopped.
    """

    def __init__(self, index: LineIndex, pattern: Pattern, *, invert: bool = False) -> None:
        self.index = index
        self.pattern = pattern
        self.invert = invert
        self.lines = array("Q")
        """Numbers of the lines that match, so far."""
        self.searched = 0
        """How many whole lines have been searched."""
        self._generation = index.generation

    def advance(self, *, cancelled: Cancelled | None = None) -> Iterator[int]:
        """Search on to the end of what is indexed; yield after each block how many lines match so far."""
        if self._generation != self.index.generation:
            self._generation = self.index.generation
            self.lines, self.searched = array("Q"), 0
        for first, block in _forward(self.index, self.searched, whole=True):
            if cancelled and cancelled():
                return
            found = self._matching(first, block)
            self.lines.extend(found)
            self.searched = first + block.count(b"\n")
            yield len(self.lines)

    def _matching(self, first: int, block: bytes) -> list[int]:
        found: list[int] = []
        block = _clipped(block, self.pattern)
        number, position = first, 0
        for begin, _ in self.pattern.spans(block):
            number += block.count(b"\n", position, begin)
            position = begin
            found.append(number)
        if not self.invert:
            return found
        hits = set(found)
        return [line for line in range(first, first + block.count(b"\n")) if line not in hits]


def _clipped(block: bytes, pattern: Pattern) -> bytes:
    """Return the same lines, those cut that are too long for a regular expression."""
    if not pattern.is_expression or len(block) <= EXPRESSION_BYTES:
        return block
    lines = block.split(b"\n")
    if max(map(len, lines)) <= EXPRESSION_BYTES:
        return block
    return b"\n".join(line[:EXPRESSION_BYTES] for line in lines)


def _forward(index: LineIndex, first: int, *, whole: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the bytes of blocks of lines, to the end of the index."""
    while first < (index.whole if whole else index.count):
        begin = index.span(first)[0]
        last = max(first + 1, index.line_at(begin + _BLOCK))
        last = min(last, index.whole if whole else index.count)
        end = index.span(last - 1)[1] + 1
        yield first, index.read(begin, end - begin)
        first = last


def _backward(index: LineIndex, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the same, from the line before ``stop`` back to the first."""
    stop = min(stop, index.count)
    while stop > 0:
        end = index.span(stop - 1)[1] + 1
        begin = max(0, end - _BLOCK)
        first = min(stop - 1, index.line_at(begin))
        if index.span(first)[0] < begin and first < stop - 1:
            first += 1  # its beginning lies before the block
        begin = index.span(first)[0]
        yield first, index.read(begin, end - begin)
        stop = first
