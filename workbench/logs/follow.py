"""The output of a job: of one learner byte for byte, of several by whole lines in the order of their times.

Promised: every published byte comes once; lines of one learner keep their order; a line of one learner never
stands in the middle of another's. Not promised: the order of lines of different learners within 10 ms.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from workbench.logs.grep import Pattern, select
from workbench.logs.journal import Entry, JournalReader

LINE_MAX: Final = 1 << 20
"""A line of several learners' that is longer is broken here, so that it need not be kept in memory."""

_ENTRIES: Final = 4096

Wait = Callable[[Sequence[str]], object]
"""Blocks until one of these files changes, or for a moment: ``Watcher(paths).wait``."""


@dataclass(frozen=True, slots=True)
class Source:
    """One learner's output of one attempt."""

    reader: JournalReader
    label: str = ""
    """What stands before each line, ``[1] ``; empty for none."""
    start: int = 0
    """The offset to begin at."""
    ended: Callable[[], bool] | None = None
    """Whether nothing more will be published; by default, whether the agent recorded an exit."""

    def over(self) -> bool:
        """Say whether nothing more will be published."""
        return self.reader.ended() if self.ended is None else self.ended()


@dataclass(frozen=True, slots=True)
class Dress:
    """How lines are shown."""

    timestamps: bool = False
    local: bool = True
    """Times of the machine's zone, else UTC."""
    pattern: Pattern | None = None
    invert: bool = False


def labels(learners: Sequence[int]) -> list[str]:
    """Return what stands before the lines of each learner: nothing when there is but one."""
    if len(learners) < 2:
        return [""] * len(learners)
    width = max(len(str(learner)) for learner in learners)
    return [f"[{learner}]{' ' * (width - len(str(learner)))} " for learner in learners]


def follow(
    sources: Sequence[Source],
    *,
    dress: Dress | None = None,
    wait: Wait | None = None,
    chunk_bytes: int = 1 << 18,
) -> Iterator[bytes]:
    """Yield the output of the learners of one attempt, as it is to be written.

    Args:
        sources: The learners. One alone, undressed, is passed through byte for byte.
        dress: Timestamps and filter.
        wait: Called when nothing is new and somebody has not ended; without it what is there is the end.
        chunk_bytes: What is read of one learner at once.
    """
    dress = dress or Dress()
    plain = len(sources) == 1 and not sources[0].label and not dress.timestamps and dress.pattern is None
    streams: list[_Raw] | list[_Lines]
    # Times are read one by one only where they are shown, or decide the order.
    timed = len(sources) > 1 or dress.timestamps
    streams = (
        [_Raw(sources[0], chunk_bytes)] if plain else [_Lines(source, dress, timed) for source in sources]
    )
    paths = [str(source.reader.folder.index) for source in sources]
    paths += [str(source.reader.folder.state) for source in sources]
    while True:
        # Asked before reading: what is published before the end is seen is read, too.
        over = wait is None or all(source.over() for source in sources)
        news = False
        for data in _in_order(streams):
            news = True
            yield data
        if over and not news:
            break
        if not news and wait is not None:
            wait(paths)
    for stream in streams:
        if rest := stream.finish():
            yield rest


class _Raw:
    """One learner's bytes as they are."""

    def __init__(self, source: Source, chunk_bytes: int) -> None:
        self._source = source
        self._offset = source.start
        self._chunk = chunk_bytes

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        while data := self._source.reader.read(self._offset, self._chunk):
            self._offset += len(data)
            yield 0, data

    def finish(self) -> bytes:
        return b""


class _Lines:
    """One learner's whole lines, dressed, with their times."""

    def __init__(self, source: Source, dress: Dress, timed: bool) -> None:
        self._source = source
        self._dress = dress
        self._timed = timed
        self._label = source.label.encode()
        self._offset = source.start
        self._number = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._time_us = 0

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is new, with its time, line by line or many lines of one time at once."""
        while entries := self._source.reader.entries_from(self._number, _ENTRIES):
            for first, last in self._runs(entries):
                self._time_us = last.time_us
                if block := self._whole(first, last.end):
                    yield last.time_us, self._dressed(block)
            self._number += len(entries)

    def finish(self) -> bytes:
        """Return the last line, which the learner did not end."""
        block = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return self._dressed(block + b"\n") if block else b""

    def _runs(self, entries: Sequence[Entry]) -> Iterator[tuple[int, Entry]]:
        """Yield the offset to read from and the entry to read up to, of all that is not read yet."""
        for place, entry in enumerate(entries, 1):
            enough = self._timed or place == len(entries) or entry.end - self._offset >= LINE_MAX
            if entry.end > self._offset and enough:
                yield self._offset, entry

    def _whole(self, start: int, end: int) -> bytes:
        """Read up to an offset and return what has become whole lines.

        The rest is held until its end comes.
        """
        pieces = []
        while start < end and (data := self._source.reader.read(start, min(LINE_MAX, end - start))):
            start += len(data)
            cut = data.rfind(b"\n") + 1
            if cut:
                pieces += [*self._held, data[:cut]]
                self._held, self._held_bytes = [], 0
            if cut < len(data):
                self._held.append(data[cut:])
                self._held_bytes += len(data) - cut
            if self._held_bytes >= LINE_MAX:
                pieces += [*self._held, b"\n"]
                self._held, self._held_bytes = [], 0
        self._offset = start
        return b"".join(pieces)

    def _dressed(self, block: bytes) -> bytes:
        if self._dress.pattern is not None:
            block = select(block, self._dress.pattern, invert=self._dress.invert)
        head = self._label
        if self._dress.timestamps:
            head += _stamp(self._time_us, self._dress.local) + b" "
        if not head or not block:
            return block
        return head + block[:-1].replace(b"\n", b"\n" + head) + b"\n"


def _in_order(streams: Sequence[_Raw] | Sequence[_Lines]) -> Iterator[bytes]:
    if len(streams) == 1:
        return (data for _, data in streams[0].pieces() if data)
    merged = heapq.merge(*(stream.pieces() for stream in streams), key=lambda piece: piece[0])
    return (data for _, data in merged if data)


def _stamp(time_us: int, local: bool) -> bytes:
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    if local:
        return moment.astimezone().isoformat(timespec="milliseconds").encode()
    return (moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z").encode()
