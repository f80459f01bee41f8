"""Reads ``records.jsonl`` from an offset: whole lines only, whatever else may stand there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workbench.errors import ConfigError
from workbench.store.db.errors import read_failure

FORMAT: Final = 1
"""The newest format of the file that is understood."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records that stand one after the other."""

    records: tuple[dict[str, Any], ...]
    """Those with a sequence number; headers are left out."""
    end: int
    """The offset behind the last whole line."""
    garbage: int
    """Lines that are no records."""


def read_records(file: Path, offset: int, *, limit_bytes: int) -> Batch:
    """Read about ``limit_bytes`` of records from an offset on, at least one when there is a whole one.

    A file that has become shorter than the offset was written anew and is read from its start; sequence
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
                data += stream.readline()
    except FileNotFoundError:
        return Batch((), offset, 0)
    except OSError as error:
        raise read_failure(error, file) from error
    whole = data.rfind(b"\n") + 1
    records, garbage = _parse(data[:whole], file)
    return Batch(tuple(records), offset + whole, garbage)


def _parse(data: bytes, file: Path) -> tuple[list[dict[str, Any]], int]:
    records: list[dict[str, Any]] = []
    garbage = 0
    loads = json.loads
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        try:
            record = loads(line)
        except (ValueError, RecursionError):
            garbage += 1
            continue
        if type(record) is not dict:
            garbage += 1
        elif "format" in record:
            _check(record, file)
        elif type(record.get("seq")) is int and type(record.get("kind")) is str:
            records.append(record)
        else:
            garbage += 1
    return records, garbage


def _check(header: dict[str, Any], file: Path) -> None:
    if isinstance(header["format"], int) and header["format"] > FORMAT:
        raise ConfigError(
            f"{file} was written by a newer version of fabric "
            f"(format {header['format']}, this one knows {FORMAT})",
            hint="upgrade fabric; the metrics are kept and will be read then",
        )
