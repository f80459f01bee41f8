"""The lines of a growing file, for a viewer: where each begins, read on demand.

One thread calls :meth:`LineIndex.update`; others may read at the same time. The memory that it takes is eight
bytes a line; the file is read by position and never mapped.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Final

from workbench.logs.display import shown_line

_BLOCK: Final = 1 << 20
_LONG: Final = 1 << 16
"""A longer line is not read whole to be shown."""


class LineIndex:
    """Where the lines of a file are.

    The last line counts as one before its newline has come. When the file is replaced or becomes shorter, all
    starts over and ``generation`` grows.
    """

    def __init__(self, path: Path, *, published: Callable[[], int] | None = None) -> None:
        """Look at a file, which need not be there yet.

        ``published`` says where readers stop, by default its end.
        """
        self.path = path
        self.generation = 0
        self._published = published
        self._descriptor = -1
        self._inode = 0
        self._newlines = array("Q")
        self._scanned = 0

    @property
    def size(self) -> int:
        """How many bytes are indexed."""
        return self._scanned

    @property
    def whole(self) -> int:
        """How many lines are ended by a newline."""
        return len(self._newlines)

    @property
    def count(self) -> int:
        """How many lines there are, with one that is not ended."""
        newlines = self._newlines
        ended = len(newlines)
        begun = newlines[ended - 1] + 1 if ended else 0
        return ended + (1 if self._scanned > begun else 0)

    def update(self, *, limit_bytes: int | None = None, cancelled: Callable[[], bool] | None = None) -> bool:
        """Index what is new, at most ``limit_bytes``, and return whether anything was.

        Ask again until it is False.
        """
        changed = self._reopen()
        if self._descriptor < 0:
            return changed
        end = os.fstat(self._descriptor).st_size
        if self._published is not None:
            end = min(end, self._published())
        if limit_bytes is not None:
            end = min(end, self._scanned + limit_bytes)
        while self._scanned < end and not (cancelled and cancelled()):
            data = os.pread(self._descriptor, min(_BLOCK, end - self._scanned), self._scanned)
            if not data:
                break
            self._take(data)
            changed = True
        return changed

    def span(self, line: int) -> tuple[int, int]:
        """Return where a line, from 0, begins and ends, without its newline.

        Nothing for one that is not there.
        """
        newlines, scanned = self._newlines, self._scanned
        ended = len(newlines)
        if line < 0 or line > ended:
            return scanned, scanned
        begin = newlines[line - 1] + 1 if line else 0
        return begin, newlines[line] if line < ended else max(begin, scanned)

    def raw(self, line: int, start: int = 0, limit: int | None = None) -> bytes:
        """Return a line's bytes without its newline, or a part of them."""
        begin, end = self.span(line)
        begin += start
        size = max(0, end - begin) if limit is None else max(0, min(limit, end - begin))
        return self.read(begin, size)

    def text(self, line: int, cells: int = 2000) -> str:
        """Return a line as it is shown: the last state of a progress bar, harmless, cut to so many cells."""
        begin, end = self.span(line)
        if end - begin <= _LONG:
            return shown_line(self.read(begin, end - begin), cells)
        tail = self.read(end - _LONG, _LONG)
        if b"\r" in tail.rstrip(b"\r"):
            return shown_line(tail, cells)
        return shown_line(self.read(begin, _LONG), cells, cut=True)

    def line_at(self, offset: int) -> int:
        """Return the number of the line that the byte at an offset belongs to."""
        return bisect_left(self._newlines, offset)

    def read(self, offset: int, size: int) -> bytes:
        """Read indexed bytes by position."""
        newlines = self._newlines
        ended = len(newlines)
        # Lines are known a moment before ``_scanned`` says so: who reads one of them meanwhile gets it whole.
        indexed = max(self._scanned, newlines[ended - 1] + 1 if ended else 0)
        size = min(size, indexed - offset)
        return os.pread(self._descriptor, size, offset) if size > 0 and self._descriptor >= 0 else b""

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _take(self, data: bytes) -> None:
        # Lengths of the pieces between newlines, summed up: three times as fast as a loop of find.
        pieces = data.split(b"\n")
        pieces.pop()
        positions = accumulate(map((1).__add__, map(len, pieces)), initial=self._scanned - 1)
        next(positions)
        self._newlines.extend(positions)
        self._scanned += len(data)

    def _reopen(self) -> bool:
        """Open the file when it is there, and again when it was replaced or cut.

        Return whether all starts over.
        """
        try:
            found = self.path.stat()
        except OSError:
            return False
        if self._descriptor >= 0 and found.st_ino == self._inode and found.st_size >= self._scanned:
            return False
        anew = self._descriptor >= 0
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        old, self._descriptor = self._descriptor, -1
        self._newlines, self._scanned = array("Q"), 0
        self._inode = os.fstat(descriptor).st_ino
        self._descriptor = descriptor
        if anew:
            os.close(old)
            self.generation += 1
        return anew
