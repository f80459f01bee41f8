"""The level of each line: debug, info, warning, error, or the beginning and body of a traceback.

A few words are searched one by one, since that is ten times as fast as one regular expression; a hit is then matched
against its expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from workbench.logs.line_filter import _forward
from workbench.logs.line_index import LineIndex


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


_WORD = rb"(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"
_TRACEBACK: Final = b"Traceback (most recent call last):"
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


class Levels:
    """The level of each whole line of an index, one byte a line, found bit by bit as the file grows."""

    def __init__(self, index: LineIndex) -> None:
        self.index = index
        self.kinds = bytearray()
        """The :class:`Level` of each line, so far."""
        self._generation = index.generation
        self._in_traceback = False

    def advance(self, *, cancelled: Callable[[], bool] | None = None) -> bool:
        """Look at what has been indexed since; return whether there was anything."""
        if self._generation != self.index.generation:
            self._generation = self.index.generation
            self.kinds, self._in_traceback = bytearray(), False
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
        return Level(classify(line + b"\n", in_traceback=self._in_traceback)[0][0])

    def counts(self) -> dict[Level, int]:
        """Return how many lines of each level there are."""
        return {level: self.kinds.count(level) for level in Level}

    def _of_block(self, block: bytes) -> bytearray:
        found, self._in_traceback = classify(block, in_traceback=self._in_traceback)
        return found


def level_of(line: bytes) -> Level:
    """Return the level of one line by itself."""
    return Level(classify(line + b"\n")[0][0])


def classify(block: bytes, *, in_traceback: bool = False) -> tuple[bytearray, bool]:
    """Return the level of each line of a block of whole lines, and whether its end is within a traceback."""
    # One newline before, so that what stands at the beginning of a line looks the same on the first.
    text = b"\n" + block
    kinds = bytearray(block.count(b"\n"))
    for level, word, closely in _MARKERS:
        _mark(text, kinds, level, word, closely)
    return kinds, _mark_bodies(block, kinds, in_traceback)


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


def _mark_bodies(block: bytes, kinds: bytearray, inside: bool) -> bool:
    """Mark the lines that belong to tracebacks.

    All that are indented, and the one that names the exception.
    """
    number = 0 if inside else kinds.find(Level.TRACEBACK) + 1
    if not inside and not number:
        return False
    lines = block.split(b"\n")
    while number < len(kinds):
        line = lines[number]
        if kinds[number] == Level.TRACEBACK:
            pass
        else:
            kinds[number] = Level.DETAIL
            if line[:1] not in (b" ", b"\t", b""):
                following = kinds.find(Level.TRACEBACK, number)
                if following < 0:
                    return False
                number = following
        number += 1
    return True
