"""Reads ``records.jsonl`` from an offset: whole lines only, whatever else may stand there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Final

from workbench.errors import ConfigError
from workbench.store.db.errors import read_failure
from workbench.values import dataclass

FORMAT: Final = 1
"""The newest format of the file that is understood."""

LINE_BYTES: Final = 64 << 20
"""A longer line is not a record, and is passed over without being held in memory."""

_LARGEST_SEQ: Final = 1 << 62
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Some records that stand one after the other."""

    records: tuple[dict[str, Any], ...]
    """Those with a sequence number; headers are left out."""
    end: int
    """The offset behind the last whole line."""
    garbage: int
    """Lines that are not records."""


def read_records(file: Path, offset: int, *, limit_bytes: int) -> RecordBatch:
    """Read about ``limit_bytes`` of records from an offset on, at least one when there is a whole one.

    A file that has become shorter than the offset was rewritten and is read from its start; sequence
    numbers tell what is known already. A file that is not there has no records.

    Raises:
        ConfigError: the file is of a newer format than this version knows.
        InputMissing: it is there but cannot be read.
    """
    try:
        with file.open("rb") as stream:
            offset = 0 if stream.seek(0, 2) < offset else offset
            stream.seek(offset)
            data = stream.read(limit_bytes)
            if b"\n" not in data and len(data) == limit_bytes:
                data += stream.readline(LINE_BYTES)
                if not data.endswith(b"\n"):
                    end = _end_of_line(stream)
                    return RecordBatch((), offset, 0) if end is None else RecordBatch((), end, 1)
    except FileNotFoundError:
        return RecordBatch((), offset, 0)
    except OSError as error:
        raise read_failure(error, file) from error
    whole = data.rfind(b"\n") + 1
    records, garbage = _parse(data[:whole], file, at_start=offset == 0)
    return RecordBatch(tuple(records), offset + whole, garbage)


def _end_of_line(stream: BinaryIO) -> int | None:
    """Return where the line ends that the stream is in; None where it has no end yet."""
    while data := stream.read(_CHUNK_BYTES):
        if (at := data.find(b"\n")) >= 0:
            return stream.tell() - len(data) + at + 1
    return None


def _parse(data: bytes, file: Path, *, at_start: bool) -> tuple[list[dict[str, Any]], int]:
    records: list[dict[str, Any]] = []
    garbage = 0
    loads = json.loads
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n")[:-1]):
        try:
            record = loads(line)
        except (ValueError, RecursionError):
            garbage += 1
            continue
        if type(record) is not dict:
            garbage += 1
        elif _is_header(record):
            # Only the first line says how the file is written; elsewhere it may be anybody's.
            if at_start and number == 0:
                _check(record, file)
        elif _is_record(record):
            records.append(record)
        else:
            garbage += 1
    return records, garbage


def _is_header(record: dict[str, Any]) -> bool:
    return "format" in record and "seq" not in record


def _is_record(record: dict[str, Any]) -> bool:
    seq = record.get("seq")
    return type(seq) is int and 0 < seq < _LARGEST_SEQ and type(record.get("kind")) is str


def _check(header: dict[str, Any], file: Path) -> None:
    if isinstance(header["format"], int) and header["format"] > FORMAT:
        raise ConfigError(
            f"{file} was written by a newer version of fabric "
            f"(format {header['format']}, this one knows {FORMAT})",
            hint="upgrade fabric; the metrics are kept and will be read then",
        )
