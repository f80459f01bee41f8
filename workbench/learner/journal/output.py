"""The files that a learner leaves behind as it runs: the index of its output, and its records.

Their writers repair what a killed one left: a torn entry or line at the end is cut off. Nothing is ever
half written for longer than the call: a write that the disk cuts short is taken back, so that it can be
tried again.
"""

from __future__ import annotations

import json
import os
import struct

from workbench.learner.platform import system
from workbench.learner.platform.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.journal.tail import FileTail

MAGIC = b"FABRIDX1"
HEADER = struct.Struct("<8sQQ")
"""Magic, start in microseconds since 1970, zero."""
ENTRY = struct.Struct("<QQQ")
"""End offset, microseconds since 1970, newlines so far."""
ENTRY_BYTES = 65536
"""An index entry for so much output, or for 10 ms."""
_READ_ENTRIES = 64
FORMAT = 1
REPORT_FILE = "report.jsonl"
"""Where ``report()`` of training code writes to, in the learner's folder."""
PROCESSES_FILE = "processes.json"
"""The processes of the last sample of its usage, one line, overwritten by the next one and removed at its end."""


class IndexEntry:
    """One index entry: up to ``end`` there are ``newlines`` newlines, and that was known at ``time_us``."""

    __slots__ = ("end", "newlines", "time_us")

    def __init__(self, end: int = 0, time_us: int = 0, newlines: int = 0) -> None:
        self.end = end
        self.time_us = time_us
        self.newlines = newlines


class Index:
    """The writer of an index; ``last`` is its last entry: the published end of the output."""

    def __init__(self, path: str, *, start_us: int, output_bytes: int) -> None:
        """Open or make the index; entries behind the output's end, which a crash can leave, are cut off."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._repair(start_us, output_bytes)
        except OSError:
            os.close(self._descriptor)
            raise

    def _repair(self, start_us: int, output_bytes: int) -> None:
        size = os.fstat(self._descriptor).st_size
        header = os.pread(self._descriptor, HEADER.size, 0)
        if len(header) < HEADER.size or header[:8] != MAGIC:
            os.ftruncate(self._descriptor, 0)
            self._size = 0
            self._append(HEADER.pack(MAGIC, start_us, 0))
            size = self._size
        self.count = (size - HEADER.size) // ENTRY.size
        self.last = self.entry(self.count - 1) if self.count else IndexEntry()
        while self.count and self.last.end > output_bytes:
            self.count -= 1
            self.last = self.entry(self.count - 1) if self.count else IndexEntry()
        self._size = HEADER.size + self.count * ENTRY.size
        if self._size < size:
            os.ftruncate(self._descriptor, self._size)

    def entry(self, number: int) -> IndexEntry:
        """Return an entry that is there."""
        data = os.pread(self._descriptor, ENTRY.size, HEADER.size + number * ENTRY.size)
        return IndexEntry(*ENTRY.unpack(data))

    def entries(self, number: int) -> list[IndexEntry]:
        """Return some entries from one that is there on."""
        count = min(_READ_ENTRIES, self.count - number)
        data = os.pread(self._descriptor, count * ENTRY.size, HEADER.size + number * ENTRY.size)
        return [IndexEntry(*found) for found in ENTRY.iter_unpack(data)]

    def first_behind(self, offset: int) -> int:
        """Return the number of the first entry whose end lies behind an offset."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).end > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def append(self, entries: list[IndexEntry]) -> None:
        """Publish up to the last of these entries.

        Raises:
            OSError: the disk takes no more; nothing was published.
        """
        self._append(b"".join(ENTRY.pack(entry.end, entry.time_us, entry.newlines) for entry in entries))
        self.count += len(entries)
        self.last = entries[-1]

    def _append(self, data: bytes) -> None:
        self._size = append_whole(self._descriptor, data, self._size)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class Records:
    """The writer of ``records.jsonl``; ``seq`` is the number of the last record."""

    def __init__(self, path: str, header: dict[str, Any], tail: FileTail | None = None) -> None:
        """Open the file, cut off a torn line; ``header`` is written where there is none yet.

        With a ``tail`` what the file has lost since is written again, and what is appended is noted there.
        """
        self._tail = tail
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._repair(header)
        except OSError:
            os.close(self._descriptor)
            raise

    def _repair(self, header: dict[str, Any]) -> None:
        size = os.fstat(self._descriptor).st_size
        self._size = _whole_lines(self._descriptor, size)
        if self._size < size:
            os.ftruncate(self._descriptor, self._size)
        if self._tail is not None and self._tail.start <= self._size < self._tail.end:
            lost = self._tail.since(self._size)
            self._size = append_whole(self._descriptor, lost, self._size)
        self.seq = 0
        if not self._size:
            self._append(_line(header))
            return
        for record in self.backwards():
            if type(record.get("seq")) is int:
                self.seq = record["seq"]
                break

    def append(self, records: list[dict[str, Any]]) -> None:
        """Write records, numbered, in one write.

        Raises:
            OSError: the disk takes no more; nothing was written and no number was used.
            TypeError, ValueError, RecursionError: some of them cannot be written; nothing was.
        """
        numbered = [
            {"seq": self.seq + offset, **_unnumbered(record)} for offset, record in enumerate(records, 1)
        ]
        data = b"".join(map(_line, numbered))
        self._append(data)
        self.seq += len(records)

    def _append(self, data: bytes) -> None:
        before = self._size
        self._size = append_whole(self._descriptor, data, before)
        if self._tail is not None:
            self._tail.note(before, data)

    def backwards(self) -> Iterator[dict[str, Any]]:
        """Give the records that are there, the last one first, without the header."""
        end, carry = self._size, b""
        while end > 0:
            start = max(0, end - 65536)
            data = os.pread(self._descriptor, end - start, start) + carry
            lines = data.split(b"\n")
            carry, end = lines[0], start
            yield from _parsed(lines[:0:-1])
        # What is left is the header's line.

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


def append_whole(descriptor: int, data: bytes, size: int) -> int:
    """Append data to a file of that size, all or nothing; return the new size.

    Raises:
        OSError: the disk takes no more; the file is as long as it was.
    """
    view, at = memoryview(data), size
    try:
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    return at


def published_end(index_path: str) -> int:
    """Return where readers of an output stop; 0 when nothing is published or there is no index."""
    try:
        with open(index_path, "rb", 0) as file:
            count = (os.fstat(file.fileno()).st_size - HEADER.size) // ENTRY.size
            if count <= 0:
                return 0
            data = os.pread(file.fileno(), ENTRY.size, HEADER.size + (count - 1) * ENTRY.size)
            return int(ENTRY.unpack(data)[0])
    except (OSError, struct.error):
        return 0


def _whole_lines(descriptor: int, size: int) -> int:
    """Return how long the file is up to its last newline."""
    end = size
    while end > 0:
        start = max(0, end - 65536)
        at = os.pread(descriptor, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _parsed(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue  # garbage that somebody else wrote
            if isinstance(record, dict):
                yield record


def _unnumbered(record: dict[str, Any]) -> dict[str, Any]:
    # A number of its own would hide all records that follow.
    return {key: value for key, value in record.items() if key != "seq"} if "seq" in record else record


def is_writable(record: dict[str, Any]) -> bool:
    """Say whether a record can be written at all."""
    try:
        _line(record)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def records_header(launch: LaunchDocument) -> dict[str, Any]:
    """Return it, as of now."""
    return {
        "format": FORMAT,
        "agent": VERSION,
        "home": launch.home,
        "job": launch.job,
        "attempt": launch.attempt,
        "learner": launch.learner,
        "time_us": system.now_us(),
        "boottime_us": int(system.elapsed_seconds() * 1e6),
    }
