"""Reads what was ingested: series, points, latest values, usage, checkpoints, progress, notes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from workbench.job import JobId
from workbench.store.db.database import Store
from workbench.store.db.rows import Point, SeriesRow

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


def series(store: Store, job_id: str, *, kinds: Iterable[str] = NUMERIC, since: int = 0) -> list[SeriesRow]:
    """List a job's series by learner and name; ``since`` leaves out those whose revision is not above it."""
    selected = list(kinds)
    marks = ", ".join("?" * len(selected))
    sql = (
        f"SELECT {_SERIES_COLUMNS} FROM series WHERE job_id = ? AND kind IN ({marks}) AND revision > ? "
        "ORDER BY learner, kind DESC, name"
    )
    return [SeriesRow(*row) for row in store.rows(sql, (job_id, *selected, since))]


def points(store: Store, series_id: int, *, since_seq: int = 0, limit: int | None = None) -> list[Point]:
    """List a series' points after ``since_seq``, in order, at most ``limit``."""
    sql = (
        "SELECT seq, attempt, step, time, value FROM points WHERE series = ? AND seq > ? ORDER BY seq LIMIT ?"
    )
    return [Point(*row) for row in store.rows(sql, (series_id, since_seq, -1 if limit is None else limit))]


def texts(
    store: Store, series_id: int, *, since_seq: int = 0, limit: int | None = None
) -> list[tuple[int, str]]:
    """List sequence number and text of a text series' points after ``since_seq``."""
    sql = "SELECT seq, value FROM texts WHERE series = ? AND seq > ? ORDER BY seq LIMIT ?"
    return [
        (row[0], row[1]) for row in store.rows(sql, (series_id, since_seq, -1 if limit is None else limit))
    ]


def latest(store: Store, job_id: str) -> dict[str, float]:
    """Return the last value of each metric (NaN is one); of several learners the first one's counts."""
    sql = "SELECT name, last FROM series WHERE job_id = ? AND kind = 'value' ORDER BY learner DESC, name"
    return {name: math.nan if last is None else last for name, last in store.rows(sql, (job_id,))}


def latest_of(store: Store, job_ids: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return :func:`latest` of many jobs at once, for lists."""
    selected = list(job_ids)
    marks = ", ".join("?" * len(selected))
    sql = (
        f"SELECT job_id, name, last FROM series WHERE job_id IN ({marks}) AND kind = 'value' "
        "ORDER BY learner DESC, name"
    )
    found: dict[str, dict[str, float]] = {job_id: {} for job_id in selected}
    for job_id, name, last in store.rows(sql, selected):
        found[job_id][name] = math.nan if last is None else last
    return found


def last_step(store: Store, job_id: str) -> int | None:
    """Return the highest step that any metric of the job was last reported for."""
    found = store.row("SELECT max(last_step) FROM series WHERE job_id = ? AND kind = 'value'", (job_id,))
    return found[0] if found else None


def time_of_step(store: Store, job_id: str, step: int, attempt: int) -> int | None:
    """Return when an attempt first reported a step, or one after it, in microseconds; None where it never did.

    The first series that came so far answers: a job's metrics are reported together.
    """
    for row in series(store, job_id, kinds=("value",)):
        if row.last_step is None or row.last_step < step:
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
