"""Runs that wandb writes while offline and that trackio keeps in SQLite: each in a format of its own."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from workbench.learner.collectors.auto.files.rewritten import FILE_BYTES, RewrittenFile, TooLong
from workbench.learner.collectors.auto.files.rows import add_row
from workbench.learner.collectors.streams import BlockStream, StreamSource
from workbench.learner.collectors.tensorboard.events import Malformed, ProtoField, proto_fields
from workbench.learner.collectors.values import parse_time
from workbench.learner.platform import beneath

_FILE_HEADER_BYTES = 7
_BLOCK_BYTES = 32 << 10
_FRAME_HEADER_BYTES = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECORD_LIMIT = 16 << 20

_BYTES = 2
_HISTORY = 2
_ITEM, _STEP = 1, 2
_STEP_NUMBER = 1
_KEY, _NESTED_KEY, _JSON = 1, 2, 16


class _Frames(NamedTuple):
    records: List[Tuple[int, bytes]]
    """Where each begins, and what it holds."""
    end: int
    """Where the first record begins that is not whole yet."""
    is_damaged: bool


class WandbStream(BlockStream):
    """The history in one ``run-ID.wandb``."""

    def __init__(self, source: StreamSource, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until)
        self._source = source
        self._position = offset
        self._held = b""
        self._is_damaged = False

    @property
    def position(self) -> int:
        """Where the first record begins that is not complete yet."""
        return self._position

    def pending_bytes(self, available: int) -> int:
        """Return how many bytes to read next: none of a damaged file."""
        return 0 if self._is_damaged else super().pending_bytes(available)

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take the next bytes and the records that are complete."""
        self.read_offset = end_offset
        found = _frames(self._held + data, self._position)
        for begin, record in found.records:
            row = history_row(record)
            if row:
                add_row(self.blocks_at(begin), self._source, row, time_us)
        self._held = (self._held + data)[found.end - self._position :]
        self._position = found.end
        self._is_damaged = found.is_damaged or len(self._held) > _RECORD_LIMIT

    def finish(self, time_us: int) -> None:
        """Do nothing: an incomplete record stays unread."""


def _frames(data: bytes, begin: int) -> _Frames:
    """Return the complete records in bytes that lie at an offset of a file."""
    records: List[Tuple[int, bytes]] = []
    parts: List[bytes] = []
    at = 0
    end, record_begin = begin, begin
    while True:
        position = begin + at
        if position < _FILE_HEADER_BYTES:
            if len(data) < _FILE_HEADER_BYTES:
                return _Frames(records, end, False)
            at += _FILE_HEADER_BYTES - position
            end = record_begin = begin + at
            continue
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < _FRAME_HEADER_BYTES:
            at += left  # zeros up to the next block
            if not parts:
                end = begin + at
            continue
        if at + _FRAME_HEADER_BYTES > len(data):
            return _Frames(records, min(end, begin + len(data)), False)
        length = int.from_bytes(data[at + 4 : at + 6], "little")
        kind = data[at + 6]
        if kind == 0 and not length:
            return _Frames(records, end, False)  # room that is not written yet
        if not _FULL <= kind <= _LAST or length > left - _FRAME_HEADER_BYTES:
            return _Frames(records, end, True)
        stop = at + _FRAME_HEADER_BYTES + length
        if stop > len(data):
            return _Frames(records, end, False)
        if kind in (_FULL, _FIRST):
            parts, record_begin = [], position
        parts.append(data[at + _FRAME_HEADER_BYTES : stop])
        at = stop
        if kind in (_FULL, _LAST):
            records.append((record_begin, b"".join(parts)))
            parts, end = [], begin + at


def history_row(record: bytes) -> Optional[Dict[str, Any]]:
    """Return the row that a record of a history holds; None for records of other kinds."""
    try:
        for field in proto_fields(record, 0, len(record)):
            if field.number == _HISTORY and field.wire == _BYTES:
                return _history(record, field)
    except (Malformed, IndexError):
        pass
    return None


def _history(record: bytes, history: ProtoField) -> Dict[str, Any]:
    row: Dict[str, Any] = {}
    for field in _fields_of(record, history):
        if field.number == _ITEM and field.wire == _BYTES:
            name, value = _item(record, field)
            if name:
                row[name] = value
        elif field.number == _STEP and field.wire == _BYTES:
            for inner in _fields_of(record, field):
                if inner.number == _STEP_NUMBER and inner.wire == 0:
                    row.setdefault("_step", inner.value)
    return row


def _item(record: bytes, item: ProtoField) -> Tuple[str, Any]:
    name, nested, text = "", [], ""
    for field in _fields_of(record, item):
        if field.wire != _BYTES:
            continue
        value = record[field.value : field.value + field.size].decode("utf-8", "replace")
        if field.number == _KEY:
            name = value
        elif field.number == _NESTED_KEY:
            nested.append(value)
        elif field.number == _JSON:
            text = value
    try:
        return name or "/".join(nested), json.loads(text)
    except (ValueError, RecursionError):
        return "", None


def _fields_of(record: bytes, field: ProtoField) -> Iterator[ProtoField]:
    return proto_fields(record, field.value, field.value + field.size)


_QUERY = "SELECT timestamp, run_name, step, metrics FROM metrics ORDER BY id"
_LOG_SUFFIX = "-wal"


class TrackioFile(RewrittenFile):
    """The database of one of trackio's projects; what its write-ahead log holds is read too."""

    def __init__(self, path: str, writable: Tuple[str, ...], since_us: int) -> None:
        super().__init__(path, writable, lambda data: data)
        self._since_us = since_us

    def newest(self) -> Tuple[str, Tuple[Any, ...], int]:
        """Return the database, and what tells it and its log from others."""
        path, version, modified_us = super().newest()
        try:
            log = os.stat(self.path + _LOG_SUFFIX)
        except OSError:
            return path, version, modified_us
        return path, (*version, log.st_size, log.st_mtime_ns), max(modified_us, log.st_mtime_ns // 1000)

    def lines_of(self, path: str) -> Optional[bytes]:
        """Return the rows as lines; None while they cannot be read as one."""
        import shutil
        import tempfile

        folder = tempfile.mkdtemp(prefix="fabric-")
        try:
            copy = os.path.join(folder, "runs.db")
            self._copy(path, copy)
            with contextlib.suppress(FileNotFoundError):
                self._copy(path + _LOG_SUFFIX, copy + _LOG_SUFFIX)
            return self._rows(copy)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _copy(self, path: str, target: str) -> None:
        with open(beneath.open_plainly(path, self._writable), "rb") as file:
            data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise TooLong(0, "it is longer than %d MiB" % (FILE_BYTES >> 20))
        with open(target, "wb") as made:
            made.write(data)

    def _rows(self, path: str) -> Optional[bytes]:
        try:
            import sqlite3
        except ImportError as error:
            raise OSError(0, "this Python has no sqlite3") from error
        lines: List[bytes] = []
        try:
            connection = sqlite3.connect(path)
            try:
                for moment, _run, step, metrics in connection.execute(_QUERY):
                    row = self._row(moment, step, metrics)
                    if row is not None:
                        lines.append(row)
            finally:
                connection.close()
        except sqlite3.Error:
            return None  # the copy was made while it was written; the next one is whole
        return b"".join(lines)

    def _row(self, moment: Any, step: Any, metrics: Any) -> Optional[bytes]:
        if parse_time(str(moment), 0) < self._since_us:
            return None
        try:
            values = json.loads(metrics)
        except (ValueError, TypeError, RecursionError):
            return None
        if not isinstance(values, dict):
            return None
        row = {**values, "step": step, "timestamp": moment}
        return json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"
