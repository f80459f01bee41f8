"""Finds lines of output that an expression matches, in blocks of many lines at once: for the agent and for all else."""

from __future__ import annotations

import os
import re
import signal

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional, Sequence

SEARCHED_BYTES = 256 << 20
"""How much of the end of a learner's output is searched for what bars a restart."""

SEARCH_SECONDS = 10
"""Of the processor, for that search by an agent: an ordinary expression takes a second or two for so much."""

BLOCK = 1 << 20
"""Read at once. Lines that are longer are taken whole all the same."""

_ANYTHING_FIRST = re.compile(r"\A(?:\.\*(?![*+?{]))+(?=.)")


def without_anything_first(expression: str) -> str:
    """Return an expression without what a search need not look for.

    With it a line is gone through once more for each of its characters.
    """
    return _ANYTHING_FIRST.sub("", expression)


def whole_blocks(
    read: Callable[[int, int], bytes], start: int, *, size: int = BLOCK
) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of blocks of whole lines, up to the end; the last line may lack its newline.

    Args:
        read: gives at most so many bytes from an offset on, none at the end.
        start: where a line begins.
        size: how much is read at once.
    """
    offset, position = start, start
    pieces: list[bytes] = []
    while True:
        data = read(position, size)
        if not data:
            break
        position += len(data)
        cut = data.rfind(b"\n") + 1
        if not cut:
            pieces.append(data)  # a line longer than a block
            continue
        block = b"".join((*pieces, data[:cut]))
        yield offset, block
        offset += len(block)
        pieces = [data[cut:]] if cut < len(data) else []
    if pieces:
        yield offset, b"".join(pieces)


def matching_lines(
    block: bytes,
    find: Callable[[int], int],
    is_match: Optional[Callable[[bytes], bool]],
    start: int,
    end: int,
) -> Iterator[tuple[int, int]]:
    """Yield begin and end, without the newline, of each line that matches, from ``start`` to ``end``.

    Both are where lines begin, or the ends of the block.

    Args:
        block: the lines.
        find: gives where the first match from a position on begins; less than 0 where there is none.
        is_match: says whether a line matches by itself, since a match may reach over the end of its line; None where
            none does.
        start: where to begin.
        end: where to end.
    """
    position = start
    while position < end:
        hit = find(position)
        if hit < 0 or hit >= end:
            return
        begin = block.rfind(b"\n", position, hit) + 1 or position
        stop = block.find(b"\n", hit, end)
        stop = end if stop < 0 else stop
        if is_match is None or is_match(block[begin:stop]):
            yield begin, stop
        position = stop + 1


def is_free_of(path: str, expressions: Sequence[str]) -> bool:
    """Say whether it is certain that none of these expressions matches a line of the end of an output.

    It is not where one of them takes too long, or this Python does not understand it. A process of its own looks: an
    expression may be one that takes hours on an ordinary line, and nothing else ends it.

    Raises:
        OSError: there is no room for a process.
    """
    child = os.fork()
    if child == 0:
        _search_in_child(path, expressions)
    return os.waitpid(child, 0)[1] == 0


def _search_in_child(path: str, expressions: Sequence[str]) -> None:
    """End the process, with 0 where nothing matches."""
    code = 1
    try:
        import resource

        from workbench.learner.platform import system  # who only searches output loads none of it

        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (SEARCH_SECONDS, SEARCH_SECONDS))
        system.die_with_parent()
        code = 1 if _has_match(path, expressions) else 0
    finally:  # nothing of the agent's may run on in the child
        os._exit(code)


def _has_match(path: str, expressions: Sequence[str]) -> bool:
    patterns = [
        re.compile(without_anything_first(one).encode("utf-8", "surrogateescape"), re.MULTILINE)
        for one in expressions
    ]
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    size = os.fstat(descriptor).st_size

    def read(offset: int, count: int) -> bytes:
        return os.pread(descriptor, count, offset)

    blocks = whole_blocks(read, max(0, size - SEARCHED_BYTES))
    return any(_matches(pattern, block) for _, block in blocks for pattern in patterns)


def _matches(pattern: re.Pattern[bytes], block: bytes) -> bool:
    def find(position: int) -> int:
        hit = pattern.search(block, position)
        return -1 if hit is None else hit.start()

    def is_match(line: bytes) -> bool:
        return pattern.search(line) is not None

    return next(matching_lines(block, find, is_match, 0, len(block)), None) is not None
