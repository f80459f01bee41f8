"""Reads what was ingested: series, points, latest values, usage, checkpoints, progress, notes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from workbench.job import JobId
from workbench.store.db.database import Store
from workbench.store.db.rows import Point, SeriesRow
from workbench.store.queries.step_course import course_of, courses_of
from workbench.store.queries.superseded import (
    NOTHING,
    Cut,
    condition,
    has_attempts,
    live,
    series_cuts,
    superseded_texts,
)
from workbench.values import dataclass

T = TypeVar("T")

NUMERIC: Final = ("value", "etime", "usage")
"""Kinds of series that can be drawn; the other is ``text``."""

_SERIES_COLUMNS: Final = (
    "id, job_id, learner, name, kind, points, last_step, last_time_us, last, minimum, maximum, revision"
)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint that a learner reported."""

    job_id: JobId
    attempt: int
    learner: int
    seq: int
    time_us: int
    path: str
    step: int | None
    metrics: Mapping[str, Any]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """A learner's reported progress."""

    learner: int
    attempt: int
    time_us: int
    fraction: float | None
    """From 0 to 1."""
    text: str


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A message of an agent or collector."""

    attempt: int
    learner: int
    time_us: int
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A learner's last sample of CPU, memory and GPUs, of its whole process tree."""

    learner: int
    time_us: int
    values: Mapping[str, float]
    """``cpu_percent``, ``memory_bytes``, ``processes``, ``gpu/<uuid>/memory_bytes``, ..."""


def series(
    store: Store,
    job_id: str,
    *,
    kinds: Iterable[str] = NUMERIC,
    since: int = 0,
    attempt: int | None = None,
    superseded: bool = False,
) -> list[SeriesRow]:
    """List a job's series by learner and name.

    Args:
        store: The store.
        job_id: Which job.
        kinds: Only series of these kinds.
        since: Leaves out those whose revision is not above it.
        attempt: What they come to by this attempt alone; by default by all, without superseded points.
        superseded: Whether they come to what they do with superseded points.
    """
    selected = list(kinds)
    marks = ", ".join("?" * len(selected))
    sql = (
        f"SELECT {_SERIES_COLUMNS} FROM series WHERE job_id = ? AND kind IN ({marks}) AND revision > ? "
        "ORDER BY learner, kind DESC, name"
    )
    found = [SeriesRow(*row) for row in store.rows(sql, (job_id, *selected, since))]
    if attempt is not None:
        rows = [_summed_up(store, row, f"attempt <> {int(attempt)}") for row in found]
        return [replace(row, superseded=0) for row in rows if row.points]
    several = not superseded and has_attempts(store.connection, job_id)
    if several:
        return [_live(store, row) for row in found]
    courses = {
        learner: courses_of(store.connection, job_id, learner) for learner in {row.learner for row in found}
    }
    return [
        _summed_up(store, row, NOTHING) if row.id in courses[row.learner] else _without_infinities(store, row)
        for row in found
    ]


_known_cuts: dict[tuple[Any, ...], tuple[Cut, ...]] = {}
_known_sums: dict[tuple[Any, ...], SeriesRow] = {}
"""What was found out of series; their revision, and the job's checkpoints, tell whether it still holds."""

_KNOWN_MAX: Final = 10_000


def cuts_of_series(store: Store, row: SeriesRow) -> tuple[Cut, ...]:
    """Return from where on the points of a series' attempts are superseded."""
    if row.kind == "text" or not has_attempts(store.connection, row.job_id):
        return ()
    key = _key(store, row)
    if (known := _known_cuts.get(key)) is None:
        known = series_cuts(store.connection, row.job_id, row.learner, row.id)
        _remember(_known_cuts, key, known)
    return known


def _live(store: Store, row: SeriesRow) -> SeriesRow:
    key = _key(store, row)
    if (known := _known_sums.get(key)) is None:
        cuts = cuts_of_series(store, row)
        is_plain = not cuts and not course_of(store.connection, row.id)
        known = _without_infinities(store, row) if is_plain else _summed_up(store, row, condition(cuts))
        _remember(_known_sums, key, known)
    return known


def _key(store: Store, row: SeriesRow) -> tuple[Any, ...]:
    """Return what changes when a series is another, or is written to, or its job has another checkpoint."""
    saved = store.row("SELECT count(*), max(time_us) FROM checkpoints WHERE job_id = ?", (row.job_id,))
    return store.home.path, row.job_id, row.id, row.revision, row.points + row.superseded, saved


def _remember(known: dict[tuple[Any, ...], T], key: tuple[Any, ...], value: T) -> None:
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[key] = value


def _without_infinities(store: Store, row: SeriesRow) -> SeriesRow:
    """Return a series with finite extremes; older versions took infinities for such, too."""
    if all(value is None or math.isfinite(value) for value in (row.minimum, row.maximum)):
        return row
    return _summed_up(store, row, "0")


def _summed_up(store: Store, row: SeriesRow, superseded: str) -> SeriesRow:
    return replace(row, **asdict(live(store.connection, row.id, superseded)))


def points(store: Store, series_id: int, *, since_seq: int = 0, limit: int | None = None) -> list[Point]:
    """List a series' points after ``since_seq``, in order, at most ``limit``.

    Their steps are those of the one count (:mod:`workbench.store.queries.step_course`).
    """
    sql = (
        "SELECT seq, attempt, step, time, value FROM points WHERE series = ? AND seq > ? ORDER BY seq LIMIT ?"
    )
    found = store.rows(sql, (series_id, since_seq, -1 if limit is None else limit))
    course = course_of(store.connection, series_id)
    if not course:
        return [Point(*row) for row in found]
    return [
        Point(seq, attempt, course.step(seq, step), time_us, value)
        for seq, attempt, step, time_us, value in found
    ]


def texts(
    store: Store, series_id: int, *, since_seq: int = 0, limit: int | None = None
) -> list[tuple[int, str]]:
    """List sequence number and text of a text series' points after ``since_seq``."""
    sql = "SELECT seq, value FROM texts WHERE series = ? AND seq > ? ORDER BY seq LIMIT ?"
    return [
        (row[0], row[1]) for row in store.rows(sql, (series_id, since_seq, -1 if limit is None else limit))
    ]


def latest_texts(store: Store, job_id: str) -> dict[str, str]:
    """Return the last text of each name that was reported in words; of several learners the first one's counts.

    Superseded ones do not count.
    """
    sql = (
        "SELECT id, learner, name FROM series WHERE job_id = ? AND kind = 'text' AND points > 0 "
        "ORDER BY learner, name"
    )
    found: dict[str, str] = {}
    for series_id, learner, name in store.rows(sql, (job_id,)):
        hidden = superseded_texts(store.connection, job_id, learner, series_id)
        last = "SELECT seq, value FROM texts WHERE series = ? ORDER BY seq DESC LIMIT ?"
        # One more than are superseded are enough to find one that is not.
        for seq, text in store.rows(last, (series_id, len(hidden) + 1)):
            if seq not in hidden:
                found.setdefault(name, text)
                break
    return found


def latest(store: Store, job_id: str) -> dict[str, float]:
    """Return the last value of each metric (NaN is one); of several learners the first one's counts."""
    return latest_of(store, (job_id,))[job_id]


def latest_of(store: Store, job_ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return :func:`latest` of many jobs at once, for lists; the metrics of each by their learner, then by name."""
    selected = list(job_ids)
    marks = ", ".join("?" * len(selected))
    sql = (
        f"SELECT job_id, name, last FROM series WHERE job_id IN ({marks}) AND kind = 'value' "
        "ORDER BY learner, name"
    )
    found: dict[str, dict[str, float]] = {job_id: {} for job_id in selected}
    for job_id, name, last in store.rows(sql, selected):
        found[job_id].setdefault(name, math.nan if last is None else last)
    again = f"SELECT DISTINCT job_id FROM journals WHERE attempt > 1 AND job_id IN ({marks})"
    for (job_id,) in store.rows(again, selected):
        rows = series(store, job_id, kinds=("value",))
        counted = (row for row in reversed(rows) if row.points)
        found[job_id] = {row.name: math.nan if row.last is None else row.last for row in counted}
    return found


def last_step(store: Store, job_id: str) -> float | None:
    """Return the highest step that any metric of the job was last reported for."""
    steps = (row.last_step for row in series(store, job_id, kinds=("value",)))
    return max((step for step in steps if step is not None), default=None)


def time_of_step(store: Store, job_id: str, step: int, attempt: int) -> int | None:
    """Return when an attempt first reported a step, or one after it, in microseconds; None where it never did.

    The first series that came so far answers: a job's metrics are reported together.
    """
    for row in series(store, job_id, kinds=("value",)):
        if row.last_step is None or row.last_step < step:
            continue
        if course_of(store.connection, row.id):
            times = (
                point.time_us
                for point in points(store, row.id)
                if point.attempt == attempt and point.step is not None and point.step >= step
            )
            if (first := next(times, None)) is not None:
                return first
            continue
        sql = "SELECT time FROM points WHERE series = ? AND attempt = ? AND step >= ? ORDER BY seq LIMIT 1"
        if found := store.row(sql, (row.id, attempt, step)):
            return int(found[0])
    return None


def usage(store: Store, job_id: str) -> list[UsageRow]:
    """Return each learner's last usage sample."""
    sql = (
        "SELECT learner, last_time_us, name, last FROM series WHERE job_id = ? AND kind = 'usage' "
        "AND last IS NOT NULL ORDER BY learner, name"
    )
    times: dict[int, int] = {}
    values: dict[int, dict[str, float]] = {}
    for learner, time_us, name, last in store.rows(sql, (job_id,)):
        times[learner] = max(times.get(learner, 0), time_us)
        values.setdefault(learner, {})[name] = last
    return [UsageRow(learner, times[learner], values[learner]) for learner in times]


def checkpoints(store: Store, job_id: str) -> list[CheckpointRow]:
    """List a job's checkpoints in the order of their attempts and records."""
    sql = (
        "SELECT job_id, attempt, learner, seq, time_us, path, step, metrics, metadata FROM checkpoints "
        "WHERE job_id = ? ORDER BY attempt, learner, seq"
    )
    rows = store.rows(sql, (job_id,))
    return [CheckpointRow(*(*row[:7], json.loads(row[7]), json.loads(row[8]))) for row in rows]


def progress(store: Store, job_id: str) -> list[ProgressRow]:
    """Return the reported progress of each learner."""
    sql = "SELECT learner, attempt, time_us, fraction, text FROM progress WHERE job_id = ? ORDER BY learner"
    return [ProgressRow(*row) for row in store.rows(sql, (job_id,))]


def notes(store: Store, job_id: str) -> list[NoteRow]:
    """List the notes of agents and collectors, in order."""
    sql = (
        "SELECT attempt, learner, time_us, level, text FROM notes WHERE job_id = ? "
        "ORDER BY attempt, time_us, learner"
    )
    return [NoteRow(*row) for row in store.rows(sql, (job_id,))]
