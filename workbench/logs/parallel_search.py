"""Searches many logs at once, by as many processes as there are cores, and gives the hits in their order."""

from __future__ import annotations

import contextlib
import marshal
import os
import struct
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO, Final

from workbench.errors import FabricError, PatternTooSlow
from workbench.logs.grep import Pattern
from workbench.logs.journal import JournalReader
from workbench.paths import LearnerFolder
from workbench.store.db.errors import read_failure

BLOCK: Final = 1 << 18
"""Read at once, into the same memory again and again: it stays in the processor's cache."""


def matching_lines(journal: JournalReader, pattern: Pattern) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes, without the newline, of each published line that matches, in their order.

    Raises:
        InputMissing: the file cannot be read.
    """
    for offset, block, end in _blocks(journal):
        if not pattern.may_match(block, end):
            continue
        whole = bytes(memoryview(block)[:end])
        for begin, stop in pattern.spans(whole):
            yield offset + begin, whole[begin:stop]


def _blocks(journal: JournalReader) -> Iterator[tuple[int, bytearray, int]]:
    """Yield blocks of whole lines: their offset, the memory that they lie in, and where they end in it."""
    published, output = journal.published(), journal.output_file()
    if output < 0:
        return
    block = bytearray(BLOCK)
    start, held = 0, 0
    while start + held < published:
        if held == len(block):
            block.extend(bytes(len(block)))  # a line that is longer than the block
        size = min(len(block) - held, published - start - held)
        with memoryview(block) as view:
            count = _read(journal, output, view[held : held + size], start + held)
        if not count:
            return
        held += count
        end = held if start + held >= published else block.rfind(b"\n", 0, held) + 1
        if not end:
            continue
        yield start, block, end
        rest = held - end
        if rest:
            block[:rest] = block[end:held]
        start, held = start + end, rest


def _read(journal: JournalReader, output: int, view: memoryview, offset: int) -> int:
    try:
        return os.preadv(output, [view], offset)
    except OSError as error:
        raise read_failure(error, journal.folder.output) from error


PARALLEL_BYTES_MIN: Final = 64 << 20
"""Less than this is read sooner than processes are started."""

PROCESSES_MAX: Final = 8
BATCH: Final = 500
"""Hits that are sent at once."""

_LENGTH: Final = struct.Struct("<I")

Hit = tuple[int, bytes]
"""Offset and line."""


def search(
    folders: Sequence[LearnerFolder], pattern: Pattern, limit: int | None = None
) -> Generator[tuple[int, Hit]]:
    """Yield the number of the folder, offset and line of all that matches, folder by folder.

    At most ``limit`` lines are given of each. Closing the iterator ends the processes.

    Raises:
        InputMissing: a log cannot be read.
    """
    sizes = [_size(folder) for folder in folders]
    processes = min(PROCESSES_MAX, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
    processes = min(processes, sum(size > 0 for size in sizes))
    if processes < 2 or sum(sizes) < PARALLEL_BYTES_MIN:
        for number, folder in enumerate(folders):
            for hit in _of(folder, pattern, limit):
                yield number, hit
        return
    workers = [_start(folders, pattern, limit, first, processes) for first in range(processes)]
    try:
        for number in range(len(folders)):
            yield from _received(workers[number % processes][1], number)
    finally:
        for pid, stream in workers:
            stream.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _size(folder: LearnerFolder) -> int:
    try:
        return folder.output.stat().st_size
    except OSError:
        return 0


def _of(folder: LearnerFolder, pattern: Pattern, limit: int | None) -> Iterator[Hit]:
    with JournalReader(folder) as journal:
        for number, hit in enumerate(matching_lines(journal, pattern)):
            if limit is not None and number >= limit:
                return
            yield hit


def _received(stream: BinaryIO, number: int) -> Iterator[tuple[int, Hit]]:
    while head := stream.read(_LENGTH.size):
        message = marshal.loads(stream.read(*_LENGTH.unpack(head)))
        if isinstance(message, tuple):
            raise PatternTooSlow(*message)
        if isinstance(message, str):
            raise FabricError(message)
        if message is None:
            return
        for hit in message:
            yield number, hit
    raise FabricError("a process that searched logs was ended from outside")


def _start(
    folders: Sequence[LearnerFolder], pattern: Pattern, limit: int | None, first: int, step: int
) -> tuple[int, BinaryIO]:
    """Start a process that searches every ``step``-th folder; return its id and what it says."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, os.fdopen(read, "rb", buffering=1 << 16)
    # From here on it is the child, which must not return, flush what its parent has buffered, or be heard.
    try:
        os.close(read)
        with os.fdopen(write, "wb", buffering=1 << 16) as stream:
            for folder in folders[first::step]:
                _send(stream, folder, pattern, limit)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _send(stream: BinaryIO, folder: LearnerFolder, pattern: Pattern, limit: int | None) -> None:
    batch: list[Hit] = []
    try:
        for hit in _of(folder, pattern, limit):
            batch.append(hit)
            if len(batch) >= BATCH:
                _put(stream, batch)
                batch = []
    except PatternTooSlow as error:
        _put(stream, (error.pattern,))
        return
    except (FabricError, OSError) as error:
        message = (
            f"{folder.path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        )
        _put(stream, message)
        return
    if batch:
        _put(stream, batch)
    _put(stream, None)


def _put(stream: BinaryIO, message: list[Hit] | tuple[str] | str | None) -> None:
    data = marshal.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
