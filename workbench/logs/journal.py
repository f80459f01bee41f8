"""Reads one learner's output by offset, line and time, never beyond the published end."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from workbench.errors import InputMissing
from workbench.paths import LearnerFolder
from workbench.store.db.errors import gone_failure, is_gone, read_failure
from workbench.values import dataclass

HEADER_BYTES: Final = 24
_ENTRY: Final = struct.Struct("<QQQ")
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One index entry: the output up to ``end`` was there at ``time_us``."""

    end: int
    time_us: int
    newlines: int
    """In the whole output up to ``end``."""


_BACK_ENTRIES: Final = 4096
"""So many entries are looked through at once for the last that can be read."""

_NOTHING: Final = JournalEntry(0, 0, 0)

_Condition = Callable[[JournalEntry], bool]


class JournalReader:
    """The published output of a learner. What is not there yet is empty, and found when it appears."""

    def __init__(self, folder: LearnerFolder) -> None:
        self.folder = folder
        self._output = -1
        self._index = -1

    def published(self) -> int:
        """Return the offset where every reader stops."""
        return self.last_entry().end

    def last_entry(self) -> JournalEntry:
        """Return the last whole entry of the index; one of zeros while there is none."""
        count = self.entries()
        return self.entry(count - 1) if count else _NOTHING

    def entries(self) -> int:
        """Count the whole entries of the index, as far as they can be read.

        On sshfs the size of a file that is written may be that of a moment later than its content.
        """
        index = self._index_file()
        if index < 0:
            return 0
        count = max(0, _size(index, self.folder.index) - HEADER_BYTES) // _ENTRY.size
        while count and not self._has_entry(count - 1):
            first = max(0, count - _BACK_ENTRIES)
            count = first + len(self.entries_from(first, count - first - 1))
        return count

    def _has_entry(self, number: int) -> bool:
        at = HEADER_BYTES + number * _ENTRY.size
        return len(_read(self._index_file(), _ENTRY.size, at, self.folder.index)) == _ENTRY.size

    def entry(self, number: int) -> JournalEntry:
        """Return an entry that is there, from 0."""
        at = HEADER_BYTES + number * _ENTRY.size
        data = _read(self._index_file(), _ENTRY.size, at, self.folder.index)
        if len(data) < _ENTRY.size:
            raise InputMissing(
                f"cannot read {self.folder.index}: it is shorter than it was a moment ago",
                hint="try again; where it lies on a mount, see whether that is there",
            )
        return JournalEntry(*_ENTRY.unpack(data))

    def entries_from(self, number: int, limit: int = 4096) -> list[JournalEntry]:
        """Return some entries at once, from a number on."""
        index = self._index_file()
        if index < 0:
            return []
        data = _read(index, limit * _ENTRY.size, HEADER_BYTES + number * _ENTRY.size, self.folder.index)
        return [
            JournalEntry(*fields)
            for fields in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])
        ]

    def read(self, offset: int, limit: int) -> bytes:
        """Read at most ``limit`` published bytes from an offset on."""
        size = min(limit, self.published() - offset)
        output = self.output_file()
        if size <= 0 or output < 0:
            return b""
        return _read(output, size, offset, self.folder.output)

    def ended(self) -> bool:
        """Say whether the agent has recorded an exit. A learner that is lost never does: the store knows."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return bool(json.loads(self.folder.state.read_bytes()).get("phase") == "exited")
        return False

    def offset_of_time(self, time_us: int) -> int:
        """Return where the line begins that holds the first byte printed at a time or after it."""
        number = self._first(lambda entry: entry.time_us >= time_us)
        before = self.entry(number - 1).end if number else 0
        return self._line_start(before)

    def entry_of_offset(self, offset: int) -> int:
        """Return the number of the entry that published the byte at an offset; their count for one not published."""
        return self._first(lambda entry: entry.end > offset)

    def time_of_offset(self, offset: int) -> int | None:
        """Return when the byte at an offset was printed, to within 10 ms; None where nothing is published."""
        number = self.entry_of_offset(offset)
        return self.entry(number).time_us if number < self.entries() else None

    def tail_offset(self, lines: int) -> int:
        """Return where the last ``lines`` lines begin; the file is read backwards, only as far as needed."""
        end = self.published()
        if lines <= 0:
            return end
        missing, position, block = lines, end, _BLOCK
        # The newline at the very end closes the last line, it does not begin one.
        if end and self.read(end - 1, 1) == b"\n":
            missing += 1
        while position > 0:
            start = max(0, position - block)
            data = self.read(start, position - start)
            here = data.count(b"\n")
            if here >= missing:
                return start + _nth_newline(data, here - missing + 1) + 1
            missing -= here
            position, block = start, min(block * 2, 1 << 22)
        return 0

    def output_file(self) -> int:
        """Return the descriptor of the output, -1 while it is not there."""
        if self._output < 0:
            self._output = _open(self.folder.output)
        return self._output

    def close(self) -> None:
        """Give the descriptors back. A file on a mount that has ended cannot be closed without an error."""
        descriptors = (self._output, self._index)
        self._output = self._index = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _index_file(self) -> int:
        if self._index < 0:
            self._index = _open(self.folder.index)
        return self._index

    def _first(self, holds: _Condition) -> int:
        """Return the number of the first entry that a condition holds for, as for all behind it."""
        low, high = 0, self.entries()
        while low < high:
            middle = (low + high) // 2
            if holds(self.entry(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def _line_start(self, offset: int) -> int:
        position, block = offset, _BLOCK
        while position > 0:
            start = max(0, position - block)
            found = self.read(start, position - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            position = start
        return 0


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise read_failure(error, path) from error


def _read(descriptor: int, count: int, offset: int, path: Path) -> bytes:
    try:
        return os.pread(descriptor, count, offset)
    except OSError as error:
        if not is_gone(error):
            raise
        raise gone_failure(error, path) from error


def _size(descriptor: int, path: Path) -> int:
    try:
        return os.fstat(descriptor).st_size
    except OSError as error:
        if not is_gone(error):
            raise
        raise gone_failure(error, path) from error


def _nth_newline(data: bytes, count: int) -> int:
    """Return where the newline with this number, from 1, is; it must be there."""
    position = -1
    for _ in range(count):
        position = data.find(b"\n", position + 1)
    return position
