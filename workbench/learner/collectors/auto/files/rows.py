"""Rows of numbers: JSON lines, tables, lists in JSON documents, and MLflow's files, as points."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional

from workbench.learner.collectors.auto.files.series import (
    STEP_COLUMNS,
    TIME_COLUMNS,
    is_series,
    numbers_in,
)
from workbench.learner.collectors.blocks import Blocks
from workbench.learner.collectors.streams import LineStream, StreamSource
from workbench.learner.collectors.values import number, parse_time, step_of

COLUMNS_LIMIT = 1000
_DELIMITERS = (",", "\t", ";")
_EXACT = 1 << 53
_INT64 = 1 << 63


def add_row(blocks: Blocks, source: StreamSource, row: Mapping[str, Any], time_us: int) -> bool:
    """Add the numbers of one row as points; return whether there were any."""
    numbers = sorted(numbers_in(row).items())  # rows whose order differs share a block
    etimes: Dict[str, float] = {}
    for name, value in numbers:
        column = STEP_COLUMNS.get(name.strip().lower())
        if column is not None:
            etimes.setdefault(column, value)
    values = {name: number(value) for name, value in numbers if is_series(name)}
    if not values:
        return False
    blocks.add(
        source.group,
        source.subid,
        step=step_of(etimes),
        time_us=_time_of(row, time_us),
        values=values,
        etimes={name: number(value) for name, value in etimes.items()},
        texts={},
    )
    return True


def _time_of(row: Mapping[str, Any], time_us: int) -> int:
    for name in TIME_COLUMNS[:5]:
        value = row.get(name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            found = parse_time(value, 0)
            # What counts from the job's start is no moment.
            if found > 10**15:
                return found
    return time_us


class RowStream(LineStream):
    """A file of JSON lines."""

    def __init__(self, source: StreamSource, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until)
        self._source = source

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one row; what is not an object of numbers is passed over."""
        row = json_row(text)
        if row is not None:
            add_row(self.blocks_at(begin), self._source, row, time_us)


class MlflowStream(LineStream):
    """One metric of MLflow's file store: ``timestamp value step`` a line."""

    def __init__(self, source: StreamSource, offset: int, until: Optional[int], metric: str) -> None:
        super().__init__(offset, until)
        self._source = source
        self._metric = metric

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one point."""
        parts = text.split()
        try:
            moment, value = int(parts[0]), float(parts[1])
            step = int(parts[2]) if len(parts) > 2 else None
        except (ValueError, IndexError):
            return
        self.blocks_at(begin).add(
            self._source.group,
            self._source.subid,
            step=step,
            time_us=parse_time(moment, time_us),
            values={self._metric: number(value)},
            etimes={},
            texts={},
        )


def json_row(text: bytes) -> Optional[Dict[str, Any]]:
    """Return the object in a line of JSON; None for anything else."""
    if text.lstrip()[:1] != b"{":
        return None
    try:
        row = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def has_metrics(row: Mapping[str, Any]) -> bool:
    """Whether a row counts a step and holds another number."""
    numbers = numbers_in(row)
    steps = [name for name in numbers if name.strip().lower() in STEP_COLUMNS]
    return bool(steps) and any(is_series(name) for name in numbers)


class Table:
    """A CSV file whose first line names its columns, read line by line."""

    def __init__(self, header: str) -> None:
        """Read the header.

        Raises:
            ValueError: it is none of a table that counts steps.
        """
        self._delimiter = max(_DELIMITERS, key=header.count)
        self.columns = [cell.strip() for cell in self._cells(header.lstrip("\ufeff#"))]
        names = [cell.lower() for cell in self.columns]
        if not 2 <= len(names) <= COLUMNS_LIMIT or not any(name in STEP_COLUMNS for name in names):
            raise ValueError("no column counts steps")
        if any(_is_number(name) for name in names):
            raise ValueError("no header")

    def row(self, line: str) -> Optional[Dict[str, Any]]:
        """Return the numbers of one line by column; None where it is not a row of this table."""
        cells = self._cells(line)
        if len(cells) > len(self.columns):
            return None
        found: Dict[str, Any] = {}
        for at, cell in enumerate(cells):
            name, text = self.columns[at], cell.strip()
            if not text:
                continue
            try:
                found[name] = _cell(text)
            except ValueError:
                if name.lower() in TIME_COLUMNS:
                    found[name] = text
        return found

    def _cells(self, line: str) -> List[str]:
        import csv  # most jobs write none

        try:
            return next(csv.reader([line], delimiter=self._delimiter), [])
        except (csv.Error, StopIteration):
            return []


def _cell(text: str) -> float:
    """Return the number in a cell, a whole one where it is printed as one: a step of 64 bits is exact.

    Raises:
        ValueError: it is none.
    """
    value = float(text)
    if not value.is_integer() or "." in text:
        return value
    if abs(value) < _EXACT:
        return int(value)
    return int(text) if abs(value) <= _INT64 and text.lstrip("+-").isdigit() else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text
    return True


def table_lines(data: bytes) -> bytes:
    """Return a table as JSON lines, one for each complete row; a column that comes later changes no row before.

    Raises:
        ValueError: it is not a table that counts steps.
    """
    whole = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    lines = whole.replace("\r\n", "\n").split("\n")
    table = Table(lines[0])
    rows = (table.row(line) for line in lines[1:] if line.strip())
    return b"".join(_line(row) for row in rows if row)


def history_lines(data: bytes) -> bytes:
    """Return the history in a ``trainer_state.json`` as JSON lines.

    Raises:
        ValueError: it holds none.
    """
    try:
        history = json.loads(data.decode("utf-8", "replace"))["log_history"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("no log_history") from error
    if not isinstance(history, list):
        raise ValueError("no log_history")
    return b"".join(_line(entry) for entry in history if isinstance(entry, dict))


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"
