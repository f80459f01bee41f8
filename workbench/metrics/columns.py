"""Turns one metrics record into columns of integers and floats, with None for NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from types import NoneType
from typing import Any, Final, Literal, NamedTuple

from workbench.learner.collectors.values import as_step
from workbench.learner.texts import clean, clean_name
from workbench.values import dataclass

SeriesKind = Literal["value", "etime", "usage", "text"]

LATEST_US: Final = 253_402_300_799_999_999
"""The last time that a calendar has a date for: the end of the year 9999."""

TEXT_CHARACTERS: Final = 1000

Step = float | None
"""Where a point belongs; a fraction of an epoch is one, too."""

_INT64: Final = 1 << 63
_WORDS: Final = {
    "inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}


class ReportRun(NamedTuple):
    """So many points of a series that come from as many reports, one after the other."""

    points: int
    report: int
    """The number of the first one's report."""


@dataclass(slots=True)
class SeriesPoints:
    """Points of one series, in order. Not frozen: batches of one series are joined by extending its lists."""

    steps: list[Step]
    times: list[int]
    values: list[float | None]
    """Of a text series: texts, see :attr:`texts`."""
    texts: list[str]
    runs: list[ReportRun] = field(default_factory=list)
    """The reports that the points come from; empty where nobody asks."""

    def chosen(self, rows: Sequence[int]) -> SeriesPoints:
        """Return some of the points, still without values."""
        steps, times = [self.steps[row] for row in rows], [self.times[row] for row in rows]
        found = SeriesPoints(steps, times, [], [])
        found.add_runs(ReportRun(1, row) for row in rows)
        return found

    def extend(self, other: SeriesPoints) -> None:
        """Append another batch of the same series."""
        self.steps += other.steps
        self.times += other.times
        self.values += other.values
        self.texts += other.texts
        self.add_runs(other.runs)

    def add_runs(self, runs: Iterable[ReportRun]) -> None:
        """Append runs of reports; what follows the last one directly makes it longer."""
        for run in runs:
            if self.runs and (last := self.runs[-1]).report + last.points == run.report:
                self.runs[-1] = ReportRun(last.points + run.points, last.report)
            else:
                self.runs.append(run)

    def number_reports(self, first: int) -> None:
        """Let the numbers of reports, which count from 0 in a record, count from ``first``."""
        self.runs = [ReportRun(run.points, first + run.report) for run in self.runs]


def metric_columns(record: Mapping[str, Any]) -> Iterator[tuple[SeriesKind, str, SeriesPoints]]:
    """Yield kind, name and points of each series that a metrics record holds.

    Raises:
        ValueError, TypeError, KeyError: the record is not what it should be.
    """
    times = _times(record["times"])
    steps = _steps(record.get("steps") or [None] * len(times))
    prefix = _prefix(record)
    for kind in ("values", "etimes", "texts"):
        for name, cells in (record.get(kind) or {}).items():
            if type(cells) is not list:
                raise ValueError("no column")
            if len(cells) != len(times) or len(steps) != len(times):
                raise ValueError("columns of unequal length")
            yield from _series_of(
                "value" if kind == "values" else "etime",
                prefix + clean_name(name),
                SeriesPoints(list(steps), list(times), cells, [], [ReportRun(len(times), 0)]),
                is_text=kind == "texts",
            )


def usage_columns(record: Mapping[str, Any]) -> Iterator[tuple[SeriesKind, str, SeriesPoints]]:
    """Yield each number of a usage sample as one point of its series.

    A GPU's are named ``gpu/<uuid>/<what>``.
    """
    time_us = time_of(record["time"])
    numbers = {
        key: value for key, value in record.items() if key not in ("seq", "time") and _is_number(value)
    }
    for gpu in record.get("gpus") or ():
        uuid = clean_name(str(gpu["uuid"]))
        numbers |= {f"gpu/{uuid}/{clean_name(key)}": value for key, value in gpu.items() if _is_number(value)}
    for name, value in numbers.items():
        yield "usage", clean_name(name), SeriesPoints([None], [time_us], [_float(value)], [])


def time_of(value: Any) -> int:
    """Return a time of a record.

    Raises:
        ValueError, TypeError, OverflowError: no calendar has it.
    """
    return _times([value])[0]


def _series_of(
    kind: SeriesKind, name: str, column: SeriesPoints, *, is_text: bool
) -> Iterator[tuple[SeriesKind, str, SeriesPoints]]:
    """Yield the numbers of a column and its texts: one text does not make texts of the numbers around it."""
    cells: list[Any] = column.values
    texts = _texts_among(cells, is_text=is_text)
    if texts is None:
        column.values = _floats(cells)
        yield kind, name, column
        return
    numbers = [at for at in range(len(cells)) if at not in texts]
    if numbers:
        found = column.chosen(numbers)
        found.values = _floats([cells[at] for at in numbers])
        yield kind, name, found
    found = column.chosen(sorted(texts))
    found.values, found.texts = [], [_text(cells[at]) for at in sorted(texts)]
    yield "text", name, found


def _texts_among(cells: Sequence[Any], *, is_text: bool) -> set[int] | None:
    """Return which cells are texts; None where none is, by far the most common case."""
    if is_text:
        return set(range(len(cells)))
    if not set(map(type, cells)) - {float, int, NoneType, bool}:
        return None
    return {at for at, cell in enumerate(cells) if not _is_numeric(cell)} or None


def _is_numeric(cell: Any) -> bool:  # whatever JSON holds
    if isinstance(cell, str):
        return cell.lower() in _WORDS
    return cell is None or isinstance(cell, int | float)


def _text(cell: Any) -> str:  # whatever JSON holds
    return "" if cell is None else clean(str(cell), TEXT_CHARACTERS)


def _prefix(record: Mapping[str, Any]) -> str:
    return "".join(f"{clean_name(str(part))}/" for part in (record.get("group"), record.get("subid")) if part)


def _floats(cells: Sequence[Any]) -> list[float | None]:
    """Return floats, None for NaN; clean columns take a fast path."""
    kinds = set(map(type, cells))
    if kinds == {float}:
        total = sum(cells)
        if total - total == 0:
            return list(cells)
    if kinds == {int} and min(cells) > -_INT64 and max(cells) < _INT64:
        return list(map(float, cells))
    return [_float(cell) for cell in cells]


def _float(cell: Any) -> float | None:  # whatever JSON holds
    if cell is None:
        return None
    if isinstance(cell, str):
        value = _WORDS.get(cell.lower())
        if value is None:
            raise ValueError("a text, not a number")
    else:
        try:
            value = float(cell)
        except OverflowError:
            value = math.inf if cell > 0 else -math.inf
        except TypeError as error:
            raise ValueError("no number") from error
    return None if value != value else value


def _times(cells: Sequence[Any]) -> list[int]:
    if set(map(type, cells)) != {int}:
        cells = [int(cell) for cell in cells]
    if cells and not (min(cells) >= 0 and max(cells) <= LATEST_US):
        raise ValueError("a time that no calendar has")
    return list(cells)


def _steps(cells: Sequence[Any]) -> list[Step]:
    """Return steps; whole ones take a fast path. What is not a step becomes None, and its point stays."""
    if set(map(type, cells)) == {int} and min(cells) >= -_INT64 and max(cells) < _INT64:
        return list(cells)
    return [None if cell is None else as_step(cell) for cell in cells]


def _is_number(value: Any) -> bool:  # whatever JSON holds
    return isinstance(value, int | float) and not isinstance(value, bool)
