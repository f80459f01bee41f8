"""Cuts a stream of bytes into lines, wherever the pieces that arrive were cut."""

from __future__ import annotations

import re
from typing import List, Tuple

LINE_LIMIT = 64 * 1024
"""Bytes of a line that are read, where nothing else is set; the rest of a longer line is skipped."""

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class LineCutter:
    """Cuts at newline, carriage return (progress bars) or both, as Python reads text files.

    A carriage return that is the last byte so far may be half an end; the line waits for the next byte.
    """

    def __init__(self, offset: int, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self.offset = offset
        """Where the first line that was not given out begins."""
        self.cut_short = 0
        """How many lines were longer than the limit."""
        self._held = b""
        self._dropped = False

    def feed(self, data: bytes, end_offset: int) -> List[Tuple[bytes, int]]:
        """Take the bytes up to ``end_offset``; return each whole line without its end, and where it ends."""
        text = self._held + data if self._held else data
        base = end_offset - len(text)
        lines: List[Tuple[bytes, int]] = []
        begin = 0
        if b"\r" in text:
            for match in _END.finditer(text):
                lines.append((text[begin : match.start()], base + match.end()))
                begin = match.end()
        else:
            pieces = text.split(b"\n")
            for piece in pieces[:-1]:
                begin += len(piece) + 1
                lines.append((piece, base + begin))
        if lines:
            self._shorten(lines)
            self.offset = lines[-1][1]
            self._dropped = False
        self._hold(text[begin:] if begin else text)
        return lines

    def skip(self, data: bytes, end_offset: int) -> None:
        """Take bytes in which no whole line is wanted."""
        begin = data.rfind(b"\n") + 1
        begin = max(begin, data.rfind(b"\r", begin, -1) + 1)
        if begin:
            self.offset = end_offset - len(data) + begin
            self._held, self._dropped = b"", False
        self._hold(self._held + data[begin:])

    def pass_over(self) -> None:
        """Forget the line that has no end yet: bytes follow that nobody reads, and then a whole line."""
        self._held, self._dropped = b"", False

    @property
    def held(self) -> bytes:
        """The line that has no end yet."""
        return self._held

    def finish(self, end_offset: int) -> List[Tuple[bytes, int]]:
        """Return the last line, which has no end, if there is one."""
        rest, self._held = self._held.rstrip(b"\r")[: self._limit], b""
        self._dropped = False
        if self.offset >= end_offset:
            return []
        self.offset = end_offset
        return [(rest, end_offset)]

    def _shorten(self, lines: List[Tuple[bytes, int]]) -> None:
        for index, (line, end) in enumerate(lines):
            if len(line) > self._limit:
                lines[index] = (line[: self._limit], end)
                if not (index == 0 and self._dropped):
                    self.cut_short += 1

    def _hold(self, rest: bytes) -> None:
        # The last byte is kept whatever the length: a carriage return there may be half an end.
        if len(rest) > self._limit + 1:
            if not self._dropped:
                self._dropped = True
                self.cut_short += 1
            rest = rest[: self._limit] + rest[-1:]
        self._held = rest
