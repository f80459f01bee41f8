"""The level of each line: debug, info, warning, error, or the beginning and body of a traceback.

A few words are searched one by one, since that is ten times as fast as one regular expression; a hit is then matched
against its expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from workbench.logs.line_filter import _forward
from workbench.logs.line_index import LineIndex
from workbench.values import dataclass


class Level(IntEnum):
    """A line's level; where two fit, the higher one counts."""

    NONE = 0
    DEBUG = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    TRACEBACK = 5
    """The first line of a traceback."""
    DETAIL = 6
    """A later line of a traceback."""
    RAISED = 7
    """The last line of a traceback: it names the exception."""


_WORD = rb"(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_TRACEBACK: Final = b"Traceback (most recent call last):"
_TIME: Final = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d+)?(?![\d:])"
)
"""A time of day or a date with one, as programs and loggers put before a line."""
_PREFIX_MOST: Final = 200
"""No more bytes before a traceback are taken for what stands before each of its lines."""
_AWAITED_LINES: Final = 200
"""A traceback whose lines do not go on within so many lines of others is over."""
_STRUCTURED: Final = rb"[\"']?(?:level|severity|levelname|lvl)[\"']?\s*[:=]\s*[\"']?(?i:{})"


def _whole(word: str) -> re.Pattern[bytes]:
    return re.compile(_WORD.replace(b"{}", word.encode()))


def _named(word: str) -> re.Pattern[bytes]:
    return re.compile(_STRUCTURED.replace(b"{}", word.encode()))


_MARKERS: Final[tuple[tuple[Level, bytes, re.Pattern[bytes]], ...]] = (
    (Level.DEBUG, b"DEBUG", _whole("DEBUG")),
    (Level.DEBUG, b"TRACE", _whole("TRACE")),
    (Level.DEBUG, b"lev", _named("debug|trace")),
    (Level.INFO, b"INFO", _whole("INFO")),
    (Level.INFO, b"\nI", re.compile(rb"\nI\d{4} \d\d:")),
    (Level.INFO, b"lev", _named("info|notice")),
    (Level.WARNING, b"WARN", _whole("WARN(?:ING)?")),
    (Level.WARNING, b"arning:", re.compile(rb"arning:(?=\s|\Z)")),
    (Level.WARNING, b"\nW", re.compile(rb"\nW\d{4} \d\d:")),
    (Level.WARNING, b"lev", _named("warn")),
    (Level.ERROR, b"ERROR", _whole("ERROR")),
    (Level.ERROR, b"FATAL", _whole("FATAL")),
    (Level.ERROR, b"CRITICAL", _whole("CRITICAL")),
    (Level.ERROR, b"rror:", re.compile(rb"rror:(?=\s|\Z)")),
    (Level.ERROR, b"xception:", re.compile(rb"xception:(?=\s|\Z)")),
    (Level.ERROR, b"atal:", re.compile(rb"(?<![A-Za-z])[Ff]?atal:(?=\s|\Z)|(?<=[Ff])atal:(?=\s|\Z)")),
    (Level.ERROR, b"panic:", _whole("panic:")),
    (Level.ERROR, b"\nE", re.compile(rb"\nE\d{4} \d\d:")),
    (Level.ERROR, b"\nF", re.compile(rb"\nF\d{4} \d\d:")),
    (Level.ERROR, b"lev", _named("err|crit|fatal|panic")),
    (Level.ERROR, b"Segmentation fault", _whole("Segmentation fault")),
    (Level.TRACEBACK, _TRACEBACK, re.compile(re.escape(_TRACEBACK))),
)


@dataclass(frozen=True, slots=True)
class OpenTraceback:
    """A traceback whose last line has not come."""

    prefix: bytes
    """What stands before each of its lines (``[rank0]: ``), times in it taken out; empty for nothing."""
    is_continued: bool = False
    """Whether a line with the prefix has come: only then it is known to be more than the head of one line."""
    others: int = 0
    """How many lines of others have come since its last one."""


class Levels:
    """The level of each whole line of an index, one byte a line, found bit by bit as the file grows."""

    def __init__(self, index: LineIndex) -> None:
        self.index = index
        self.kinds = bytearray()
        """The :class:`Level` of each line, so far."""
        self._generation = index.generation
        self._open: tuple[OpenTraceback, ...] = ()

    def advance(self, *, cancelled: Callable[[], bool] | None = None) -> bool:
        """Look at what has been indexed since; return whether there was anything."""
        if self._generation != self.index.generation:
            self._generation = self.index.generation
            self.kinds, self._open = bytearray(), ()
        before = len(self.kinds)
        for _, block in _forward(self.index, before, whole=True):
            if cancelled and cancelled():
                break
            self.kinds += self._of_block(block)
        return len(self.kinds) > before

    def find(self, start: int, *, backward: bool = False) -> int | None:
        """Return the nearest line after ``start``, or before it, that is an error or begins a traceback."""
        if backward:
            found = max(self.kinds.rfind(level, 0, max(0, start)) for level in (Level.ERROR, Level.TRACEBACK))
            return None if found < 0 else found
        hits = [self.kinds.find(level, start + 1) for level in (Level.ERROR, Level.TRACEBACK)]
        return min((hit for hit in hits if hit >= 0), default=None)

    def of_last(self, line: bytes) -> Level:
        """Return the level of the line after all that are known, whose newline has not come."""
        return Level(classify(line + b"\n", self._open)[0][0])

    def counts(self) -> dict[Level, int]:
        """Return how many lines of each level there are."""
        return {level: self.kinds.count(level) for level in Level}

    def _of_block(self, block: bytes) -> bytearray:
        found, self._open = classify(block, self._open)
        return found


def classify(
    block: bytes, tracebacks: Sequence[OpenTraceback] = ()
) -> tuple[bytearray, tuple[OpenTraceback, ...]]:
    """Return the level of each line of a block of whole lines, and the tracebacks that go on behind it.

    ``tracebacks`` are those that were begun before the block.
    """
    # One newline before, so that what stands at the beginning of a line looks the same on the first.
    text = b"\n" + block
    kinds = bytearray(block.count(b"\n"))
    for level, word, closely in _MARKERS:
        _mark(text, kinds, level, word, closely)
    return kinds, _mark_bodies(block, kinds, tracebacks)


def _mark(text: bytes, kinds: bytearray, level: Level, word: bytes, closely: re.Pattern[bytes]) -> None:
    number, counted = 0, 1
    hit = text.find(word)
    while hit >= 0:
        if closely.match(text, hit):
            begin = hit + 1 if word[:1] == b"\n" else hit
            number += text.count(b"\n", counted, begin)
            if number >= len(kinds):
                return
            kinds[number] = max(kinds[number], level)
            end = text.find(b"\n", begin)
            if end < 0:
                return
            # The newline at the end may itself begin the marker of the next line.
            number, counted = number + 1, end + 1
            hit = text.find(word, end)
        else:
            hit = text.find(word, hit + 1)


def _mark_bodies(
    block: bytes, kinds: bytearray, tracebacks: Sequence[OpenTraceback]
) -> tuple[OpenTraceback, ...]:
    """Mark the lines that belong to tracebacks; return those that go on.

    All that are indented, and the one that names the exception. Lines of several learners may stand in turn: each
    traceback has those that begin as its first line does (``[rank1]: ``, ``2026-01-02 15:04:05 worker: ``).
    """
    opened = {one.prefix: one for one in tracebacks}
    if not opened and kinds.find(Level.TRACEBACK) < 0:
        return ()
    lines = block.split(b"\n")
    number = 0
    while number < len(kinds):
        if not opened:
            number = kinds.find(Level.TRACEBACK, number)
            if number < 0:
                break
        line = lines[number]
        if kinds[number] == Level.TRACEBACK:
            prefix = traceback_prefix(line)
            opened[prefix] = OpenTraceback(prefix)
        else:
            _mark_body(line, number, kinds, opened)
        number += 1
    return tuple(opened.values())


def _mark_body(line: bytes, number: int, kinds: bytearray, opened: dict[bytes, OpenTraceback]) -> None:
    """Mark a line where it belongs to a traceback; one that ends with it is taken out."""
    for prefix in filter(None, opened):
        rest = behind_prefix(line, prefix)
        if rest is not None:
            opened[prefix] = OpenTraceback(prefix, is_continued=True)
            _mark_line(rest, number, kinds, opened, prefix)
            return
    # A logger writes its prefix before the first line alone: the others stand as Python prints them.
    fresh = next((one.prefix for one in opened.values() if one.prefix and one.others == 0), None)
    if fresh is not None and not opened[fresh].is_continued and line[:1] in (b" ", b"\t"):
        del opened[fresh]
        opened[b""] = OpenTraceback(b"")
    for prefix, one in list(opened.items()):
        if prefix and one.others >= _AWAITED_LINES:
            del opened[prefix]
        elif prefix:
            opened[prefix] = replace(one, others=one.others + 1)
    if b"" in opened:
        _mark_line(line, number, kinds, opened, b"")


def _mark_line(
    line: bytes, number: int, kinds: bytearray, opened: dict[bytes, OpenTraceback], prefix: bytes
) -> None:
    """Mark a line of a traceback, of which the prefix has been taken off."""
    is_last = line[:1] not in (b" ", b"\t", b"")
    kinds[number] = Level.RAISED if is_last else Level.DETAIL
    if is_last:
        del opened[prefix]


def traceback_prefix(first_line: bytes) -> bytes:
    """Return what stands before a traceback on its first line, without times; empty for nothing, or too much."""
    prefix = _TIME.sub(b"", first_line[: first_line.find(_TRACEBACK)])
    return prefix if prefix.strip() and len(prefix) <= _PREFIX_MOST else b""


def behind_prefix(line: bytes, prefix: bytes) -> bytes | None:
    """Return what stands behind a prefix of :func:`traceback_prefix`; None where a line does not begin with it."""
    timeless = _TIME.sub(b"", line[: 2 * _PREFIX_MOST])
    if timeless == prefix.rstrip():
        return b""
    return timeless[len(prefix) :] if timeless.startswith(prefix) else None
