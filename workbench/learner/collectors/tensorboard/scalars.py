"""Reads the scalars out of an event file's bytes as they come, quickly.

Events of one tag differ in time, step and value alone. The first of its kind is read thoroughly and becomes
a template: the bytes around its value. An event whose other bytes are all the same is read by that
template, with one look into a dictionary. The checksum of a length is always verified, that of a payload
only where no template fits.
"""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

from workbench.learner.collectors.tensorboard.events import Malformed, ScalarValue, parse
from workbench.learner.collectors.tensorboard.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    length_checksum,
    length_checksums,
    masked_crc32c,
)

RECORD_LIMIT = 16 << 20
"""A longer record (an image, a graph) is passed over unread."""

_BEGIN = struct.Struct("<QIBdB")
"""Length, its checksum, and of the payload: key of wall_time, wall_time, key of step."""
_WALL_TIME_KEY, _STEP_KEY = 0x09, 0x10
_STEP_AT = _BEGIN.size - HEADER_BYTES
_TEMPLATE_LIMIT = 10_000
_CHECKED_BYTES = 64 << 10
"""A longer payload's checksum would take too long in Python."""


class Damaged(Exception):
    """The file does not go on as an event file does."""


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


_Templates = Dict[int, List[Tuple[int, struct.Struct, int, Dict[bytes, ScalarSeries]]]]
"""Bytes behind the step -> (bytes from the value on, its layout, its size, all other bytes -> series)."""


class ScalarScanner:
    """Reads the scalars of one file; bytes are fed in order, cut anywhere."""

    def __init__(self) -> None:
        self.others: Dict[str, int] = {}
        """Kind of what is no scalar -> how many there were."""
        self.held = 0
        """How many bytes were fed of a record that is not whole yet."""
        self._held = b""
        self._skip = 0
        self._series: Dict[str, ScalarSeries] = {}
        self._templates: _Templates = {}
        self._template_count = 0

    @property
    def points(self) -> int:
        """How many points there are to take."""
        return sum(len(series.steps) for series in self._series.values())

    @property
    def waiting(self) -> Dict[str, ScalarSeries]:
        """The points that there are to take, by tag."""
        return {tag: series for tag, series in self._series.items() if series.steps}

    def take(self) -> Dict[str, ScalarSeries]:
        """Return the points so far by tag, and go on with none."""
        taken: Dict[str, ScalarSeries] = {}
        for tag, series in self._series.items():
            if series.steps:
                moved = taken[tag] = ScalarSeries()
                moved.steps, moved.wall_times, moved.values = series.steps, series.wall_times, series.values
                series.steps, series.wall_times, series.values = [], [], []
        return taken

    def feed(self, data: bytes) -> None:
        """Take the bytes that follow.

        Raises:
            Damaged: they do not go on as an event file does; what came before them is kept.
        """
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            self.held = self.held + passed if self._skip else 0
            data = data[passed:]
        buffer = self._held + data if self._held else data
        self._held = b""
        if buffer:
            at, problem = self._scan(buffer)
            self._hold(buffer[at:])
            if problem:
                raise Damaged(problem)

    def _hold(self, rest: bytes) -> None:
        """Keep the beginning of a record; only count it where the record is too long to be read."""
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

    def _scan(self, buffer: bytes) -> Tuple[int, str]:
        """Read all whole records; return where the first other one begins, and what is wrong with it."""
        unpack, templates = _BEGIN.unpack_from, self._templates
        at, end = 0, len(buffer)
        last = end - _BEGIN.size - FOOTER_BYTES
        while at <= last:
            length, checksum, time_key, wall_time, step_key = unpack(buffer, at)
            stop = at + HEADER_BYTES + length
            if checksum != length_checksums.get(length) and checksum != length_checksum(length):
                # Zeros are space that was made and not written yet.
                return at, "the length of a record is damaged" if any(buffer[at : at + HEADER_BYTES]) else ""
            if stop + FOOTER_BYTES > end:
                return at, ""
            begin = 0
            series = None
            if time_key == _WALL_TIME_KEY and step_key == _STEP_KEY:
                # Four bytes can be looked at whatever the length: the footer of the record is there.
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
                            break
            if series is None:
                problem = self._read(buffer, at + HEADER_BYTES, stop, begin)
                if problem:
                    return at, problem
            at = stop + FOOTER_BYTES
        return at, ""

    def _read(self, buffer: bytes, start: int, stop: int, begin: int) -> str:
        """Read one payload thoroughly; return what is wrong with it, if anything is."""
        payload = buffer[start:stop]
        expected = int.from_bytes(buffer[stop : stop + FOOTER_BYTES], "little")
        if len(payload) <= _CHECKED_BYTES and masked_crc32c(payload) != expected:
            return "a record is damaged"
        try:
            event = parse(payload)
        except Malformed as error:
            return "a record is no event: %s" % error
        for scalar in event.scalars:
            self._series_of(scalar.tag).append(event.step, event.wall_time, scalar.value)
        for kind, _tag in event.others:
            self._count(kind)
        if len(event.scalars) == 1 and not event.others and event.scalars[0].at >= begin - start > 0:
            self._learn(event.scalars[0], payload, begin - start)
        return ""

    def _learn(self, scalar: ScalarValue, payload: bytes, begin: int) -> None:
        """Remember what surrounds the value, so that the next event of this kind is read by it."""
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
