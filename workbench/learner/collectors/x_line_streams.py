"""Streams of lines: each line, or window of lines, gives points that are gathered into blocks."""

from __future__ import annotations

from abc import abstractmethod
from typing import List, Optional

from workbench.learner.collectors.blocks import Blocks
from workbench.learner.collectors.interface import Record
from workbench.learner.collectors.lines import LineCutter
from workbench.learner.collectors.streams import Stream


class _Gathered:
    """Points and other records of one stretch of a stream."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.records: List[Record] = []

    @property
    def points(self) -> int:
        return self.blocks.points + len(self.records)

    def drain(self) -> List[Record]:
        records, self.records = self.records, []
        return self.blocks.drain() + records


class BlockStream(Stream):
    """A stream whose points are gathered into blocks."""

    def __init__(self, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until)
        self._gathered = _Gathered()
        self._later = _Gathered()

    @property
    def points(self) -> int:
        """How many points and other records wait."""
        return self._gathered.points + self._later.points

    def blocks_at(self, offset: int) -> Blocks:
        """Return where a point goes that was read at this offset."""
        return self._part(offset).blocks

    def add_record(self, record: Record, offset: int) -> None:
        """Put a record that is no block of points behind the blocks."""
        self._part(offset).records.append(record)

    def _part(self, offset: int) -> _Gathered:
        return self._gathered if self.until is None or offset < self.until else self._later

    def drain(self) -> List[Record]:
        """Return what lies before ``until``, or all if there is none, and forget ``until``."""
        records = self._gathered.drain()
        self._gathered, self._later = self._later, self._gathered
        self.until = None
        return records


class LineStream(BlockStream):
    """A stream in which every line stands for itself."""

    def __init__(self, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until)
        self._cutter = LineCutter(offset)

    @property
    def position(self) -> int:
        """Where the first line begins that has no end yet."""
        return self._cutter.offset

    @abstractmethod
    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one line without its end."""

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Cut the bytes into lines."""
        begin = self._cutter.offset
        for text, end in self._cutter.feed(data, end_offset):
            self.line(text, begin, time_us)
            begin = end
        self.read_offset = end_offset

    def finish(self, time_us: int) -> None:
        """Take the last line as it is."""
        begin = self._cutter.offset
        for text, _end in self._cutter.finish(self.read_offset):
            self.line(text, begin, time_us)
