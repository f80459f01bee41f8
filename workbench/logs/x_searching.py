"""Finds all lines of one learner's output that match, at the speed at which the file can be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from workbench.logs.grep import Pattern
from workbench.logs.journal import JournalReader
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
        wanted = min(len(block) - held, published - start - held)
        with memoryview(block) as view:
            count = _read(journal, output, view[held : held + wanted], start + held)
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
