"""Turns one metrics record into columns of integers and floats, with None for NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from workbench.learner.texts import clean, clean_name

SeriesKind = Literal["value", "etime", "usage", "text"]

LATEST_US: Final = 253_402_300_799_999_999
"""The last time that a calendar has a date for: the end of the year 9999."""

TEXT_CHARACTERS: Final = 1000

_INT64: Final = 1 << 63
_WORDS: Final = {
    "inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}


@dataclass(slots=True)
class SeriesPoints:
    """Points of one series, in order. Not frozen: batches of one series are joined by extending its lists."""

    steps: list[int | None]
    times: list[int]
    values: list[float | None]
    """Of a text series: texts, see :attr:`texts`."""
    texts: list[str]

    def extend(self, other: SeriesPoints) -> None:
        """Append another batch of the same series."""
        self.steps += other.steps
        self.times += other.times
        self.values += other.values
        self.texts += other.texts


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
            yield _column(
                "value" if kind == "values" else "etime",
                prefix + clean_name(name),
                steps,
                times,
                cells,
                kind == "texts",
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


def _column(
    kind: SeriesKind, name: str, steps: list[int | None], times: list[int], cells: Sequence[Any], text: bool
) -> tuple[SeriesKind, str, SeriesPoints]:
    if not text:
        try:
            return kind, name, SeriesPoints(list(steps), list(times), _floats(cells), [])
        except ValueError:
            pass  # texts are shown as texts
    return (
        "text",
        name,
        SeriesPoints(list(steps), list(times), [], [_text(cell) for cell in cells]),
    )


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


def _integers(cells: Sequence[Any]) -> list[int]:
    if set(map(type, cells)) != {int}:
        cells = [int(cell) for cell in cells]
    if cells and not (min(cells) > -_INT64 and max(cells) < _INT64):
        raise ValueError("a number out of range")
    return list(cells)


def _times(cells: Sequence[Any]) -> list[int]:
    times = _integers(cells)
    if times and not (min(times) >= 0 and max(times) <= LATEST_US):
        raise ValueError("a time that no calendar has")
    return times


def _steps(cells: Sequence[Any]) -> list[int | None]:
    if None not in cells:
        return list[int | None](_integers(cells))
    present = iter(_integers([cell for cell in cells if cell is not None]))
    return [None if cell is None else next(present) for cell in cells]


def _is_number(value: Any) -> bool:  # whatever JSON holds
    return isinstance(value, int | float) and not isinstance(value, bool)
