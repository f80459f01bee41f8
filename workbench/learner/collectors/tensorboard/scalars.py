"""Reads the scalars of an event file as its bytes arrive, fast.

Events of one tag differ in time, step and value only. The first one is parsed, and the bytes around its value become
a template. A later event with the same bytes around its value is read by the template, with one dictionary access.
All checksums are verified: of what templates read those of a whole chunk at once, and one by one if any is wrong.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

from workbench.learner.collectors.tensorboard.events import Malformed, ScalarValue, parse
from workbench.learner.collectors.tensorboard.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    are_intact,
    length_checksum,
    length_checksums,
    masked_crc32c,
)

RECORD_LIMIT = 16 << 20
"""A longer record (an image, a graph) is skipped."""

_BEGIN = struct.Struct("<QIBdB")
"""Length, its checksum, and of the payload: key of wall_time, wall_time, key of step."""
_WALL_TIME_KEY, _STEP_KEY = 0x09, 0x10
_STEP_AT = _BEGIN.size - HEADER_BYTES
_TEMPLATE_LIMIT = 10_000
_CHECKED_BYTES = 64 << 10
"""A longer payload's checksum would take too long in Python."""
DAMAGED = "damaged records"
UNREADABLE = "records that are not events"
"""Kinds of what is not shown though it may have been scalars."""
_nowhere: List[bytes] = []


class Damaged(Exception):
    """The bytes are not an event file from here on."""


class ScalarSeries:
    """The points of one tag, in the order of the file."""

    __slots__ = ("steps", "values", "wall_times")

    def __init__(self) -> None:
        self.steps: List[int] = []
        self.wall_times: List[float] = []
        self.values: List[float] = []

    def append(self, step: int, wall_time: float, value: float) -> None:
        """Add a point."""
        self.steps.append(step)
        self.wall_times.append(wall_time)
        self.values.append(value)

    def move(self) -> ScalarSeries:
        """Return the points so far, and remove them."""
        moved = ScalarSeries()
        moved.steps, moved.wall_times, moved.values = self.steps, self.wall_times, self.values
        self.steps, self.wall_times, self.values = [], [], []
        return moved

    def cut(self, count: int) -> None:
        """Remove all points but the first ones."""
        del self.steps[count:], self.wall_times[count:], self.values[count:]


_Templates = Dict[int, List[Tuple[int, struct.Struct, int, Dict[bytes, ScalarSeries]]]]
"""By the number of bytes after the step: templates of (bytes from the value to the end, the value's layout, its size,
and the series by all other bytes)."""


class ScalarScanner:
    """Reads the scalars of one file; bytes are fed in order, cut anywhere."""

    def __init__(self) -> None:
        self.others: Dict[str, int] = {}
        """Counts of what is not a scalar, by kind."""
        self.held = 0
        """How many bytes of an incomplete record were fed."""
        self._held = b""
        self._skip = 0
        self._series: Dict[str, ScalarSeries] = {}
        self._templates: _Templates = {}
        self._template_count = 0

    @property
    def points(self) -> int:
        """The number of points to take."""
        return sum(len(series.steps) for series in self._series.values())

    @property
    def waiting(self) -> Dict[str, ScalarSeries]:
        """The points to take, by tag."""
        return {tag: series for tag, series in self._series.items() if series.steps}

    def take(self) -> Dict[str, ScalarSeries]:
        """Return the points so far by tag, and remove them."""
        taken: Dict[str, ScalarSeries] = {}
        for tag, series in self._series.items():
            if series.steps:
                taken[tag] = series.move()
        return taken

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            Damaged: they are not an event file from some point on; the points before it can be taken.
        """
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            self.held = self.held + passed if self._skip else 0
            data = data[passed:]
        buffer = self._held + data if self._held else data
        self._held = b""
        if buffer:
            at, problem = self._scan_checked(buffer)
            self._hold(buffer[at:])
            if problem:
                raise Damaged(problem)

    def give_back_zeros(self) -> int:
        """Forget held bytes if they are space that is not written yet; return how many they were."""
        if not self._held or any(self._held[:HEADER_BYTES]):
            return 0
        count, self._held, self.held = self.held, b"", 0
        return count

    def _hold(self, rest: bytes) -> None:
        """Keep the beginning of an incomplete record; one that is too long is only counted and skipped."""
        self._held = rest
        self.held = len(rest)
        if len(rest) >= HEADER_BYTES:
            length = int.from_bytes(rest[:8], "little")
            if length > RECORD_LIMIT and length_checksum(length) == int.from_bytes(
                rest[8:HEADER_BYTES], "little"
            ):
                self._skip = HEADER_BYTES + length + FOOTER_BYTES - len(rest)
                self._held = b""
                self._count("oversized records")

    def _scan_checked(self, buffer: bytes) -> Tuple[int, str]:
        """Read all complete records by templates; if a checksum is wrong, read them again one by one."""
        counts = {tag: len(series.steps) for tag, series in self._series.items()}
        others = dict(self.others)
        records: Dict[int, List[bytes]] = {}
        found = self._scan(buffer, self._templates, records)
        if all(are_intact(alike) for alike in records.values()):
            return found
        for tag, series in self._series.items():
            series.cut(counts.get(tag, 0))
        self.others = others
        return self._scan(buffer, {}, {})

    def _scan(self, buffer: bytes, templates: _Templates, records: Dict[int, List[bytes]]) -> Tuple[int, str]:
        """Read all complete records; return the offset of the rest, and what is wrong there, if anything.

        ``records`` collects, by length, what templates read: the payloads with their footers.
        """
        unpack = _BEGIN.unpack_from
        alike_length, add_alike = -1, _nowhere.append
        at, end = 0, len(buffer)
        last = end - _BEGIN.size - FOOTER_BYTES
        while at <= last:
            length, checksum, time_key, wall_time, step_key = unpack(buffer, at)
            stop = at + HEADER_BYTES + length
            if checksum != length_checksums.get(length) and checksum != length_checksum(length):
                # Zeros are space that was allocated and not written yet.
                return at, "the length of a record is damaged" if any(buffer[at : at + HEADER_BYTES]) else ""
            if stop + FOOTER_BYTES > end:
                return at, ""
            begin = 0
            series = None
            if time_key == _WALL_TIME_KEY and step_key == _STEP_KEY:
                # Four bytes can be read whatever the length: the record's footer follows.
                begin = at + _BEGIN.size
                step = buffer[begin]
                begin += 1
                if step >= 1 << 7:
                    step += (buffer[begin] << 7) - (1 << 7)
                    begin += 1
                    if step >= 1 << 14:
                        step += (buffer[begin] << 14) - (1 << 14)
                        begin += 1
                        if step >= 1 << 21:
                            step += (buffer[begin] << 21) - (1 << 21)
                            begin += 1
                if step < 1 << 28:
                    for tail, layout, size, known in templates.get(stop - begin, ()):
                        value_at = stop - tail
                        series = known.get(buffer[begin:value_at] + buffer[value_at + size : stop])
                        if series is not None:
                            series.steps.append(step)
                            series.wall_times.append(wall_time)
                            series.values.append(layout.unpack_from(buffer, value_at)[0])
                            if length != alike_length:
                                alike_length, add_alike = length, records.setdefault(length, []).append
                            add_alike(buffer[at + HEADER_BYTES : stop + FOOTER_BYTES])
                            break
            if series is None:
                self._read(buffer, at + HEADER_BYTES, stop, begin if templates is self._templates else 0)
            at = stop + FOOTER_BYTES
        return at, ""

    def _read(self, buffer: bytes, start: int, stop: int, begin: int) -> None:
        """Parse one payload. One whose checksum is wrong, or that is not an event, is left out: its end is known."""
        payload = buffer[start:stop]
        expected = int.from_bytes(buffer[stop : stop + FOOTER_BYTES], "little")
        if len(payload) <= _CHECKED_BYTES and masked_crc32c(payload) != expected:
            self._count(DAMAGED)
            return
        try:
            event = parse(payload)
        except Malformed:
            self._count(UNREADABLE)
            return
        for scalar in event.scalars:
            self._series_of(scalar.tag).append(event.step, event.wall_time, scalar.value)
        for kind, _tag in event.others:
            self._count(kind)
        if len(event.scalars) == 1 and not event.others and event.scalars[0].at >= begin - start > 0:
            self._learn(event.scalars[0], payload, begin - start)

    def _learn(self, scalar: ScalarValue, payload: bytes, begin: int) -> None:
        """Remember the bytes around the value as a template for the next events of this tag."""
        if self._template_count >= _TEMPLATE_LIMIT:
            return
        layout = struct.Struct(scalar.layout)
        tail = len(payload) - scalar.at
        known = self._templates.setdefault(len(payload) - begin, [])
        key = payload[begin : scalar.at] + payload[scalar.at + layout.size :]
        for other_tail, other_layout, _size, keys in known:
            if (other_tail, other_layout.format) == (tail, layout.format):
                keys[key] = self._series_of(scalar.tag)
                break
        else:
            known.append((tail, layout, layout.size, {key: self._series_of(scalar.tag)}))
        self._template_count += 1

    def _series_of(self, tag: str) -> ScalarSeries:
        series = self._series.get(tag)
        if series is None:
            series = self._series[tag] = ScalarSeries()
        return series

    def _count(self, kind: str) -> None:
        self.others[kind] = self.others.get(kind, 0) + 1
