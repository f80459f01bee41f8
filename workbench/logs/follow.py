"""The output of a job: of one learner byte for byte, of several by whole lines in the order of their times.

Promised: every published byte comes once; lines of one learner keep their order; a line of one learner never
stands in the middle of another's. Not promised: the order of lines of different learners within 10 ms.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from workbench.logs.grep import Pattern, select
from workbench.logs.journal import JournalEntry, JournalReader
from workbench.values import dataclass

LINE_MAX: Final = 1 << 20
"""A line of several learners' that is longer is broken here, so that it need not be kept in memory."""

_BLOCK: Final = 1 << 18
"""Read at once."""
_ENTRIES: Final = 4096


@dataclass(frozen=True, slots=True)
class LearnerOutput:
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
class LineFormat:
    """How lines are shown."""

    timestamps: bool = False
    local: bool = True
    """Times of the machine's zone, else UTC."""
    pattern: Pattern | None = None
    invert: bool = False


class RawOutput:
    """A learner's bytes as they are."""

    def __init__(self, source: LearnerOutput) -> None:
        self._source = source
        self._offset = source.start

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is new; its time is of no interest."""
        while data := self._source.reader.read(self._offset, _BLOCK):
            self._offset += len(data)
            yield 0, data

    def finish(self) -> bytes:
        """Return what was held back: nothing."""
        return b""


class FormattedLines:
    """A learner's whole lines, filtered and formatted, with their times."""

    def __init__(self, source: LearnerOutput, line_format: LineFormat, *, timed: bool) -> None:
        """Begin where the source does; ``timed`` keeps lines of different times apart."""
        self._source = source
        self._line_format = line_format
        self._timed = timed
        self._label = source.label.encode()
        self._offset = source.start
        self._number = -1
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._time_us = 0

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is new, with its time."""
        reader = self._source.reader
        if self._number < 0 and reader.entries():
            self._number = reader.entry_of_offset(self._offset)
        while self._number >= 0 and (entries := reader.entries_from(self._number, _ENTRIES)):
            for group in _groups(entries, self._offset):
                data = reader.read(self._offset, group[-1].end - self._offset)
                yield from self._of_group(group, data)
            self._number += len(entries)

    def finish(self) -> bytes:
        """Return the last line, which the learner did not end."""
        return self._formatted(self._release() + b"\n") if self._held else b""

    def _of_group(self, group: Sequence[JournalEntry], data: bytes) -> Iterator[tuple[int, bytes]]:
        base, position = self._offset, 0
        self._offset = group[-1].end
        for entry in group if self._timed else group[-1:]:
            self._time_us = entry.time_us
            stop = min(entry.end - base, len(data))
            if lines := self._take(data, position, stop):
                yield entry.time_us, lines
            position = stop

    def _take(self, data: bytes, start: int, stop: int) -> bytes:
        """Return what has become whole lines, formatted; the rest is held until its end comes."""
        lines: list[bytes] = []
        cut = data.rfind(b"\n", start, stop) + 1
        if cut and self._held:
            first = data.find(b"\n", start) + 1
            lines.append(self._formatted(self._release() + data[start:first]))
            start = first
        if start < cut:
            lines.append(self._formatted(data, start, cut))
            start = cut
        if start < stop:
            self._held.append(data[start:stop])
            self._held_bytes += stop - start
        if self._held_bytes >= LINE_MAX:
            lines.append(self._formatted(self._release() + b"\n"))
        return b"".join(lines)

    def _release(self) -> bytes:
        held = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return held

    def _formatted(self, data: bytes, start: int = 0, end: int | None = None) -> bytes:
        """Filter whole lines, a part of ``data``, and put label and time before each."""
        pattern = self._line_format.pattern
        block = (
            data[start:end]
            if pattern is None
            else select(data, pattern, invert=self._line_format.invert, start=start, end=end)
        )
        head = self._label
        if self._line_format.timestamps:
            head += _stamp(self._time_us, self._line_format.local) + b" "
        if not head or not block:
            return block
        return head + block[:-1].replace(b"\n", b"\n" + head) + b"\n"


def _groups(entries: Sequence[JournalEntry], offset: int) -> Iterator[Sequence[JournalEntry]]:
    """Yield entries that are read at once: about one block's worth, of a larger one a part at a time."""
    group: list[JournalEntry] = []
    for entry in entries:
        while entry.end - offset > LINE_MAX:
            part = JournalEntry(offset + _BLOCK, entry.time_us, entry.newlines)
            yield [*group, part]
            group, offset = [], part.end
        if entry.end <= offset:
            continue
        group.append(entry)
        if entry.end - offset >= _BLOCK:
            yield group
            group, offset = [], entry.end
    if group:
        yield group


def _stamp(time_us: int, local: bool) -> bytes:
    moment = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    if local:
        return moment.astimezone().isoformat(timespec="milliseconds").encode()
    return (moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z").encode()


__all__ = ["LearnerOutput", "LineFormat", "Wait", "follow", "labels"]

Wait = Callable[[Sequence[str]], object]
"""Blocks until one of these files changes, or for a moment: ``Watcher(paths).wait``."""


def labels(learners: Sequence[int]) -> list[str]:
    """Return what stands before the lines of each learner: nothing when there is but one."""
    if len(learners) < 2:
        return [""] * len(learners)
    width = max(len(str(learner)) for learner in learners)
    return [f"[{learner}]{' ' * (width - len(str(learner)))} " for learner in learners]


def follow(
    sources: Sequence[LearnerOutput],
    *,
    line_format: LineFormat | None = None,
    wait: Wait | None = None,
) -> Iterator[bytes]:
    """Yield the output of the learners of one attempt, as it is to be written.

    Args:
        sources: The learners. One alone, without a format, is passed through byte for byte.
        line_format: Timestamps and filter.
        wait: Called when nothing is new and somebody has not ended; without it what is there is the end.
    """
    line_format = line_format or LineFormat()
    plain = (
        len(sources) == 1
        and not sources[0].label
        and not line_format.timestamps
        and line_format.pattern is None
    )
    streams: list[RawOutput] | list[FormattedLines]
    # Times are read one by one only where they are shown, or decide the order.
    timed = len(sources) > 1 or line_format.timestamps
    streams = (
        [RawOutput(sources[0])]
        if plain
        else [FormattedLines(source, line_format, timed=timed) for source in sources]
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


def _in_order(streams: Sequence[RawOutput] | Sequence[FormattedLines]) -> Iterator[bytes]:
    if len(streams) == 1:
        return (data for _, data in streams[0].pieces())
    merged = heapq.merge(*(stream.pieces() for stream in streams), key=lambda piece: piece[0])
    return (data for _, data in merged)
