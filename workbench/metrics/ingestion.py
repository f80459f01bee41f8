"""From records to rows: points, roll-ups and the offset in one transaction, so each record counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from workbench.clock import now_us
from workbench.metrics.columns import Column, Kind, metric_columns, usage_columns
from workbench.metrics.records import Batch, read_records
from workbench.metrics.rollup import roll_up
from workbench.store.db.database import Store
from workbench.store.db.rows import dump

LIMIT_BYTES: Final = 4 << 20
"""What one transaction takes in by default: some 200,000 points."""


@dataclass(frozen=True, slots=True)
class _Learner:
    store: Store
    job_id: str
    attempt: int
    learner: int
    columns: dict[tuple[Kind, str], Column] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.job_id, self.attempt, self.learner)


def ingest(
    store: Store,
    job_id: str,
    attempt: int,
    learner: int,
    records_file: Path,
    *,
    limit_bytes: int = LIMIT_BYTES,
) -> bool:
    """Take in the next whole records of a learner.

    Return whether there were any, so that the caller asks again.

    Records that are in the store already are passed over by their sequence number. Records that cannot be
    understood are counted and named in the learner's notes.

    Raises:
        ConfigError: the records are of a newer format.
        CannotWrite: the disk is full; nothing was taken in, and the same call works later.
    """
    source = _Learner(store, job_id, attempt, learner)
    offset, _ = _position(source)
    batch = read_records(records_file, offset, limit_bytes=limit_bytes)
    if batch.end == offset:
        return False
    with store.atomic():
        # Another process may have been here since.
        offset_now, seq = _position(source)
        if offset_now != offset:
            return True
        _take(source, batch, seq)
    return True


def _position(source: _Learner) -> tuple[int, int]:
    sql = "SELECT records_offset, records_seq FROM journals WHERE job_id = ? AND attempt = ? AND learner = ?"
    found = source.store.row(sql, source.key)
    return (found[0], found[1]) if found else (0, 0)


def _take(source: _Learner, batch: Batch, seq: int) -> None:
    unclear = batch.garbage
    for record in batch.records:
        if record["seq"] <= seq:
            continue
        seq = record["seq"]
        try:
            if handler := _HANDLERS.get(record["kind"]):
                handler(source, record)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            unclear += 1
    _write_points(source)
    if unclear:
        text = f"{unclear} record{'s' if unclear > 1 else ''} could not be understood"
        _write_note(source, {"seq": -batch.end, "time": now_us(), "level": "warning", "text": text})
    source.store.execute(
        "INSERT OR REPLACE INTO journals (job_id, attempt, learner, records_offset, records_seq) "
        "VALUES (?, ?, ?, ?, ?)",
        (*source.key, batch.end, seq),
    )


def _metrics(source: _Learner, record: Mapping[str, Any]) -> None:
    _collect(source, list(metric_columns(record)))


def _usage(source: _Learner, record: Mapping[str, Any]) -> None:
    _collect(source, list(usage_columns(record)))


def _collect(source: _Learner, found: list[tuple[Kind, str, Column]]) -> None:
    for kind, name, column in found:
        if known := source.columns.get((kind, name)):
            known.extend(column)
        else:
            source.columns[(kind, name)] = column


def _write_points(source: _Learner) -> None:
    if not source.columns:
        return
    revision = source.store.bump("series")
    for (kind, name), column in source.columns.items():
        if column.times:
            _write_series(source, kind, name, column, revision)


def _write_series(source: _Learner, kind: Kind, name: str, column: Column, revision: int) -> None:
    store = source.store
    series, before = _series(source, kind, name)
    table, cells = ("texts", column.texts) if kind == "text" else ("points", column.values)
    count = len(column.times)
    store.executemany(
        f"INSERT INTO {table} (series, seq, attempt, step, time, value) VALUES (?, ?, ?, ?, ?, ?)",
        zip(
            repeat(series),
            range(before + 1, before + count + 1),
            repeat(source.attempt),
            column.steps,
            column.times,
            cells,
            strict=False,  # the repeated ones never end
        ),
    )
    numbers = (
        [value for value in column.values if value is not None] if None in column.values else column.values
    )
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)  # type: ignore[type-var] # None is left out
    store.execute(
        "UPDATE series SET points = points + :count, last_step = :step, last_time_us = :time, last = :last, "
        "minimum = min(coalesce(minimum, :low), coalesce(:low, minimum)), "
        "maximum = max(coalesce(maximum, :high), coalesce(:high, maximum)), "
        "revision = :revision WHERE id = :id",
        {
            "count": count,
            "step": column.steps[-1],
            "time": column.times[-1],
            "last": column.values[-1] if column.values else None,
            "low": low,
            "high": high,
            "revision": revision,
            "id": series,
        },
    )
    if kind != "text":
        roll_up(store, series, before, column)


def _series(source: _Learner, kind: Kind, name: str) -> tuple[int, int]:
    """Return id and number of points of a series, which is made when it is new."""
    key = (source.job_id, source.learner, kind, name)
    sql = "SELECT id, points FROM series WHERE job_id = ? AND learner = ? AND kind = ? AND name = ?"
    found = source.store.row(sql, key)
    if found is None:
        source.store.execute("INSERT INTO series (job_id, learner, kind, name) VALUES (?, ?, ?, ?)", key)
        found = source.store.row(sql, key)
        assert found is not None
    return found[0], found[1]


def _checkpoint(source: _Learner, record: Mapping[str, Any]) -> None:
    step = record.get("step")
    # Said once by training code, and once more by the agent, which knows what is in it.
    source.store.execute(
        "DELETE FROM checkpoints WHERE job_id = ? AND attempt = ? AND learner = ? AND path = ? AND step IS ?",
        (*source.key, str(record["path"]), None if step is None else int(step)),
    )
    source.store.execute(
        "INSERT OR REPLACE INTO checkpoints (job_id, attempt, learner, seq, time_us, path, step, metrics, "
        "metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *source.key,
            record["seq"],
            int(record["time"]),
            str(record["path"]),
            None if step is None else int(step),
            dump(dict(record.get("metrics") or {})),
            dump(dict(record.get("metadata") or {})),
        ),
    )


def _progress(source: _Learner, record: Mapping[str, Any]) -> None:
    fraction = record.get("fraction")
    source.store.execute(
        "INSERT OR REPLACE INTO progress (job_id, learner, attempt, time_us, fraction, text) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            source.job_id,
            source.learner,
            source.attempt,
            int(record["time"]),
            None if fraction is None else float(fraction),
            str(record.get("text") or ""),
        ),
    )


def _write_note(source: _Learner, record: Mapping[str, Any]) -> None:
    source.store.execute(
        "INSERT OR REPLACE INTO notes (job_id, attempt, learner, seq, time_us, level, text) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *source.key,
            record["seq"],
            int(record["time"]),
            str(record.get("level") or "info"),
            str(record["text"]),
        ),
    )


_HANDLERS: Final[Mapping[str, Callable[[_Learner, Mapping[str, Any]], None]]] = {
    "metrics": _metrics,
    "usage": _usage,
    "checkpoint": _checkpoint,
    "progress": _progress,
    "note": _write_note,
}
