"""Metrics as a table: what was reported together stands in one row.

Reports of one step share a row as long as none of them repeats a metric of another; else each has a row of its own.
Where steps start over within an attempt (batches of each epoch), rows stand in the order of epoch and time, and only
reports of one instant share one: a step says little there, but the tags of TensorBoard have nothing else in common.
Points whose report is not known (an older version wrote them) are joined by step or time where that is unambiguous.
Rows are merged from all series as they are read, so a table of any length needs little memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain, groupby
from typing import Final, NamedTuple

from workbench.metrics.queries import cuts_of_series, points, series
from workbench.store.db.database import Store
from workbench.store.db.rows import Point, SeriesRow
from workbench.store.queries.reports import report_runs
from workbench.store.queries.step_course import EpochOrder, courses_of
from workbench.store.queries.superseded import superseded_texts
from workbench.values import dataclass

_PAGE: Final = 2000
"""So many points of each series are held at once."""

_UNKNOWN: Final = -1
"""Stands for a report that is not known."""


class _Key(NamedTuple):
    """What the points of a row share; rows are in this order."""

    learner: int
    attempt: int
    epoch: float
    """Where steps start over within an attempt: the epoch, if any was reported; else 0."""
    is_without_step: bool
    step: float
    """Or the time, where there is no step, or steps start over: they order nothing then."""


class _TextPoint(NamedTuple):
    """What was reported in words."""

    seq: int
    attempt: int
    step: float | None
    time_us: int
    value: str


class _Cell(NamedTuple):
    key: _Key
    report: int
    time_us: int
    column: int
    """Which of the series that are read: values of a row stand in their order."""
    seq: int
    name: str
    step: float | None
    value: float | str | None
    is_superseded: bool


@dataclass(frozen=True, slots=True)
class MetricRow:
    """What one learner reported together, or for one step."""

    learner: int
    attempt: int
    step: float | None
    time_us: int
    """Of the earliest of its values."""
    values: Mapping[str, float]
    """By name; NaN is one, a metric that was not reported is left out."""
    is_superseded: bool = False
    """Whether a later attempt went over it again."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What was reported in words, by name; empty where nobody asks."""


@dataclass(frozen=True, slots=True)
class MetricTable:
    """A table that is read once, from its first row to its last."""

    columns: tuple[str, ...]
    rows: Iterator[MetricRow]
    texts: tuple[str, ...] = ()
    """Names of what was reported in words."""


def table(
    store: Store,
    job_id: str,
    *,
    learner: int | None = None,
    attempt: int | None = None,
    superseded: bool | None = None,
    texts: bool = False,
) -> MetricTable:
    """Return a job's metrics, of all learners and attempts or of one.

    Args:
        store: The store.
        job_id: Which job.
        learner: Only this learner's.
        attempt: Only this attempt's.
        superseded: Whether points are in it that a later attempt went over again; by default those of an attempt
            that is asked for are.
        texts: Whether what was reported in words is in it.
    """
    found = series(store, job_id, kinds=("value", "etime", *(("text",) if texts else ())))
    selected = [row for row in found if learner in (None, row.learner)]
    shows = attempt is not None if superseded is None else superseded
    measured = [row for row in selected if row.kind != "text" and (shows or row.points)]
    columns = tuple(dict.fromkeys(row.name for row in measured))
    hidden = {
        row.id: superseded_texts(store.connection, job_id, row.learner, row.id)
        for row in selected
        if row.kind == "text"
    }
    words = tuple(
        dict.fromkeys(
            row.name for row in selected if row.id in hidden and (shows or row.points > len(hidden[row.id]))
        )
    )
    learners = {row.learner for row in selected}
    anew = {each for each in learners if courses_of(store.connection, job_id, each)}
    cells = heapq.merge(
        *(
            _cells(store, row, column, hidden.get(row.id, frozenset()), anew=row.learner in anew)
            for column, row in enumerate(selected)
        )
    )
    kept = (
        cell for cell in cells if attempt in (None, cell.key.attempt) and (shows or not cell.is_superseded)
    )
    return MetricTable(columns, _rows(kept), words)


def _cells(
    store: Store, row: SeriesRow, column: int, hidden: Container[int], *, anew: bool
) -> Iterator[_Cell]:
    """Yield the points of a series in the order of the table; ``anew`` is whether the learner's steps start over.

    ``hidden`` has the numbers of texts that are superseded.
    """
    epochs = EpochOrder(store.connection, row.job_id, row.learner) if anew else None
    cuts = {cut.attempt: cut for cut in cuts_of_series(store, row)}
    runs = report_runs(store.connection, row.job_id, row.id)

    steps = _counted_steps(store, row) if anew and row.kind == "text" else {}

    def cell(point: Point | _TextPoint) -> _Cell:
        cut = cuts.get(point.attempt)
        report = runs.report_of(point.seq)
        step = steps.get((point.attempt, report), point.step)
        if epochs is None:
            key = _key(row.learner, point)
        else:
            epoch = epochs.epoch_of((point.attempt, _UNKNOWN if report is None else report), point.time_us)
            key = _Key(row.learner, point.attempt, epoch, True, point.time_us)
        return _Cell(
            key,
            _UNKNOWN if report is None else report,
            point.time_us,
            column,
            point.seq,
            row.name,
            step,
            point.value,
            point.seq in hidden if cut is None else cut.holds(point.seq, point.time_us),
        )

    if row.kind == "text":
        return iter(sorted(map(cell, _text_points(store, row)), key=_order))
    cells = (cell(point) for point in _points(store, row))
    return cells if not anew and _is_ordered(store, row) else iter(sorted(cells, key=_order))


def _counted_steps(store: Store, text: SeriesRow) -> dict[tuple[int, int | None], float | None]:
    """Return the steps, in the one count, of what was reported together with texts; by attempt and report."""
    found: dict[tuple[int, int | None], float | None] = {}
    for row in series(store, text.job_id, kinds=("value", "etime")):
        if row.learner == text.learner:
            runs = report_runs(store.connection, row.job_id, row.id)
            for point in _points(store, row):
                if (report := runs.report_of(point.seq)) is not None:
                    found.setdefault((point.attempt, report), point.step)
    return found


def _text_points(store: Store, row: SeriesRow) -> list[_TextPoint]:
    sql = "SELECT seq, attempt, step, time, value FROM texts WHERE series = ? ORDER BY seq"
    return [_TextPoint(*found) for found in store.rows(sql, (row.id,))]


def _order(cell: _Cell) -> tuple[_Key, int, int, int]:
    return cell.key, cell.report, cell.time_us, cell.seq


def _points(store: Store, row: SeriesRow) -> Iterator[Point]:
    last_seq = 0
    while page := points(store, row.id, since_seq=last_seq, limit=_PAGE):
        yield from page
        last_seq = page[-1].seq


def _is_ordered(store: Store, row: SeriesRow) -> bool:
    """Say whether the points of a series come in the order of the table; where steps go back they do not."""
    sql = (
        "SELECT 1 FROM (SELECT attempt, step, time, lag(attempt) OVER points AS attempt_before, "
        "lag(step) OVER points AS step_before, lag(time) OVER points AS time_before, seq "
        "FROM points WHERE series = ? WINDOW points AS (ORDER BY seq)) "
        "WHERE attempt < attempt_before OR attempt = attempt_before AND (step < step_before "
        "OR step IS NOT NULL AND step_before IS NULL AND seq > 1 "
        "OR time < time_before AND step IS step_before) LIMIT 1"
    )
    return store.row(sql, (row.id,)) is None


def _key(learner: int, point: Point | _TextPoint) -> _Key:
    if point.step is None:
        return _Key(learner, point.attempt, 0, True, point.time_us)
    return _Key(learner, point.attempt, 0, False, point.step)


def _rows(cells: Iterable[_Cell]) -> Iterator[MetricRow]:
    for key, group in groupby(cells, key=lambda cell: cell.key):
        if not key.is_without_step:
            yield from _rows_of_step(group)
            continue
        by_step: dict[float | None, list[_Cell]] = {}
        for cell in group:
            by_step.setdefault(cell.step, []).append(cell)
        for step, alike in by_step.items():
            yield from _rows_of_reports(alike) if step is None else _rows_of_step(iter(alike))


def _rows_of_step(cells: Iterator[_Cell]) -> Iterator[MetricRow]:
    """Yield the rows of one step: its reports share one; once a metric comes again, each has its own."""
    together: dict[str, _Cell] = {}
    again: list[_Cell] = []
    for cell in cells:
        if cell.name in together:
            again = [cell]
            break
        together[cell.name] = cell
    if again:
        yield from _rows_of_reports(chain(together.values(), again, cells))
    else:
        yield _row(list(together.values()))


def _rows_of_reports(cells: Iterable[_Cell]) -> Iterator[MetricRow]:
    """Yield a row for each report; cells come in the order of their reports."""
    for report, group in groupby(cells, key=lambda cell: cell.report):
        if report == _UNKNOWN:
            yield from _rows_by_time(group)
        else:
            yield _row(list(group))


def _rows_by_time(cells: Iterable[_Cell]) -> Iterator[MetricRow]:
    """Yield the rows of points whose reports are not known: joined where they share a time that none repeats."""
    for _, group in groupby(cells, key=lambda cell: cell.time_us):
        alike = list(group)
        if len({cell.name for cell in alike}) == len(alike):
            yield _row(alike)
        else:
            yield from (_row([cell]) for cell in alike)


def _row(cells: list[_Cell]) -> MetricRow:
    cells.sort(key=lambda cell: cell.column)
    first = cells[0]
    return MetricRow(
        learner=first.key.learner,
        attempt=first.key.attempt,
        step=first.step,
        time_us=min(cell.time_us for cell in cells),
        values={
            cell.name: math.nan if cell.value is None else cell.value
            for cell in cells
            if not isinstance(cell.value, str)
        },
        is_superseded=any(cell.is_superseded for cell in cells),
        texts={cell.name: cell.value for cell in cells if isinstance(cell.value, str)},
    )
