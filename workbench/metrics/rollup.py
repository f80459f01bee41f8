"""Rolls points up: level L holds one row for each run of 16^L points, written with them.

A batch of new points gives partial buckets, which SQLite joins with what is there. Level L appears with the
first point beyond 16^(L-1), as a copy of the only bucket of the level below; so a short series costs one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from workbench.metrics.columns import SeriesPoints
from workbench.store.db.database import Store

Number = TypeVar("Number", int, float)

BITS: Final = 4
SPAN: Final = 1 << BITS
"""Points of a bucket of level 1, and buckets that make one of the next level."""

Partial = tuple[
    int, int, int, int, float | None, float | None, float | None, float | None,
    float | None, float | None, float | None, float | None, int, int, int, int,
]  # fmt: skip
"""bucket, n, nans, steps, min, max, first, last, step: first, last, min, max, time: first, last, min, max."""

_UPSERT: Final = """
INSERT INTO rollups (series, level, bucket, n, nans, steps, min, max, first, last, first_step, last_step,
  min_step, max_step, first_time, last_time, min_time, max_time)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n, nans = nans + excluded.nans, steps = steps + excluded.steps,
  min = min(coalesce(min, excluded.min), coalesce(excluded.min, min)),
  max = max(coalesce(max, excluded.max), coalesce(excluded.max, max)),
  last = excluded.last, last_step = excluded.last_step, last_time = excluded.last_time,
  min_step = min(coalesce(min_step, excluded.min_step), coalesce(excluded.min_step, min_step)),
  max_step = max(coalesce(max_step, excluded.max_step), coalesce(excluded.max_step, max_step)),
  min_time = min(min_time, excluded.min_time), max_time = max(max_time, excluded.max_time)
"""

_COPY: Final = """
INSERT OR IGNORE INTO rollups SELECT series, ?, 0, n, nans, steps, min, max, first, last, first_step,
  last_step, min_step, max_step, first_time, last_time, min_time, max_time
  FROM rollups WHERE series = ? AND level = ? AND bucket = 0
"""


def levels_of(points: int) -> int:
    """Return how many levels a series of so many points has."""
    level = 1
    while points > 1 << (BITS * level):
        level += 1
    return level


def roll_up(store: Store, series: int, before: int, column: SeriesPoints) -> None:
    """Add new points to a series' levels; ``before`` is how many it had. Within a transaction."""
    after = before + len(column.times)
    if before:
        top = levels_of(before)
        for level in range(top + 1, levels_of(after) + 1):
            store.execute(_COPY, (level, series, top))
    partials = first_level(before, column)
    for level in range(1, levels_of(after) + 1):
        if level > 1:
            partials = next_level(partials)
        store.executemany(_UPSERT, [(series, level, *partial) for partial in partials])


def first_level(before: int, column: SeriesPoints) -> list[Partial]:
    """Make partial buckets of level 1 of new points; ``before`` is how many points the series had."""
    steps, times, values = column.steps, column.times, column.values
    clean = None not in values
    ordered_steps, ordered_times = _ordered(steps), _ordered(times)
    found: list[Partial] = []
    start = 0
    while start < len(times):
        end = min(start + SPAN - (before + start) % SPAN, len(times))
        run = values[start:end]
        nans = 0
        low: float | None
        high: float | None
        if clean or None not in run:
            low, high = min(run), max(run)  # type: ignore[type-var] # no None is among them
        else:
            numbers = [value for value in run if value is not None]
            nans = len(run) - len(numbers)
            low, high = (min(numbers), max(numbers)) if numbers else (None, None)
        step_run = (steps[start], steps[end - 1])
        count, *step_edges = (end - start, *step_run) if ordered_steps else _edges(steps[start:end])
        time_edges = (times[start], times[end - 1]) if ordered_times else _edges(times[start:end])[1:]
        found.append(
            (
                (before + start) >> BITS, end - start, nans, count, low, high, run[0], run[-1],
                *step_run, *step_edges, times[start], times[end - 1], *time_edges,
            )
        )  # fmt: skip
        start = end
    return found


def next_level(partials: Sequence[Partial]) -> list[Partial]:
    """Join partial buckets of one level to those of the next."""
    found: list[Partial] = []
    for partial in partials:
        bucket = partial[0] >> BITS
        if found and found[-1][0] == bucket:
            found[-1] = join(found[-1], partial)
        else:
            found.append((bucket, *partial[1:]))
    return found


def join(a: Partial, b: Partial) -> Partial:
    """Join two partial buckets of which the second's points follow the first's."""
    return (
        a[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], _least(a[4], b[4]), _most(a[5], b[5]), a[6], b[7],
        a[8], b[9], _least(a[10], b[10]), _most(a[11], b[11]), a[12], b[13], min(a[14], b[14]), max(a[15],
        b[15]),
    )  # fmt: skip


def _ordered(cells: Sequence[float | None]) -> bool:
    """Say whether numbers never go down, so that the first is the least; most columns are so."""
    return None not in cells and cells == sorted(cells)  # type: ignore[type-var] # no None is among them


def _edges(cells: Sequence[float | None]) -> tuple[int, float | None, float | None]:
    numbers = [cell for cell in cells if cell is not None]
    return (len(numbers), min(numbers), max(numbers)) if numbers else (0, None, None)


def _least(a: Number | None, b: Number | None) -> Number | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: Number | None, b: Number | None) -> Number | None:
    return b if a is None else a if b is None else max(a, b)
