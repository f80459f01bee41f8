"""Writes records as rows: points, roll-ups and the offset in one transaction, so each record counts once."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, Final, TypeAlias

from workbench.clock import now_us
from workbench.errors import CannotWrite, InputMissing, TryAgain
from workbench.learner.determined_jobs import noted_as
from workbench.learner.texts import clean, clean_json
from workbench.metrics.columns import (
    ReportRun,
    SeriesKind,
    SeriesPoints,
    metric_columns,
    time_of,
    usage_columns,
)
from workbench.metrics.records import RecordBatch, read_records
from workbench.metrics.rollup import roll_up
from workbench.store.db.database import Store
from workbench.store.db.rows import dump
from workbench.store.db.schema import NOTES_OF_TRIALS, REPORTS, REPORTS_NAMES, statements
from workbench.values import dataclass

LIMIT_BYTES: Final = 4 << 20
"""What one transaction takes in by default: some 200,000 points."""

LEARNERS_MAX: Final = 100_000
"""A greater number of a learner is none."""

REPORTS_MAX: Final = 3
"""How many reasons are reported of one batch."""

Statement: TypeAlias = tuple[str, tuple[Any, ...]]
NamedPoints: TypeAlias = tuple[SeriesKind, str, SeriesPoints]
Columns: TypeAlias = dict[tuple[int, SeriesKind, str], SeriesPoints]
"""By learner, kind and name."""

PATH_CHARACTERS: Final = 4096
TEXT_CHARACTERS: Final = 1000
NOTE_CHARACTERS: Final = 4000
LEVELS: Final = ("info", "warning", "error")

_INT64: Final = 1 << 63

_STORE_TROUBLES: Final = (CannotWrite, TryAgain, InputMissing)
"""No record is at fault: the disk is full, the store is locked or damaged."""

_LEFT_OUT_SEQ: Final = -1
"""The number of the note that counts records which are left out; those of records are above 0."""


@dataclass(frozen=True, slots=True)
class _Learner:
    store: Store
    job_id: str
    attempt: int
    learner: int
    report: Callable[[str], object]

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.job_id, self.attempt, self.learner)


@dataclass(slots=True)
class _ReportNumbers:
    """The next number of one learner's attempt, while a batch of its records is taken in.

    A row of a metrics record is a report; in the order of the journal they have the numbers 0, 1, 2, ...
    """

    store: Store
    key: tuple[str, int, int]
    """The job, the attempt and the learner."""
    _first: int | None = None
    _next: int = 0

    def number(self, record: Mapping[str, Any], columns: list[SeriesPoints]) -> None:
        """Give the rows of a record their numbers."""
        if not columns or record["kind"] != "metrics":
            return
        if self._first is None:
            self._first = self._next = self._counted()
        for column in columns:
            column.number_reports(self._next)
        self._next += len(record["times"])

    def write(self) -> None:
        """Write down how many there are; within a transaction, after the points."""
        if self._first is not None:
            self.store.execute(
                "INSERT OR REPLACE INTO report_counts (job_id, attempt, learner, reports) VALUES (?, ?, ?, ?)",
                (*self.key, self._next),
            )
            self._first = self._next

    def _counted(self) -> int:
        if not all(map(self.store.has_table, REPORTS_NAMES)):
            for statement in statements(REPORTS):
                self.store.execute(statement)
        sql = "SELECT reports FROM report_counts WHERE job_id = ? AND attempt = ? AND learner = ?"
        found = self.store.row(sql, self.key)
        return int(found[0]) if found else 0


def ingest(
    store: Store,
    job_id: str,
    attempt: int,
    learner: int,
    records_file: Path,
    *,
    limit_bytes: int = LIMIT_BYTES,
    report: Callable[[str], object] = lambda text: None,
) -> bool:
    """Take in the next whole records of a learner.

    Return whether there were any, so that the caller asks again.

    Records that are in the store already are passed over by their sequence number. Records that cannot be
    understood or kept are left out and counted in one of the learner's notes; ``report`` is called with the reasons.

    Raises:
        ConfigError: the records are of a newer format.
        CannotWrite: the disk is full; nothing was taken in, and the same call works later.
    """
    source = _Learner(store, job_id, attempt, learner, _first_only(report))
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


def _first_only(report: Callable[[str], object]) -> Callable[[str], None]:
    """Let only the first reasons of a batch through: of a learner that writes garbage all are alike."""
    left = REPORTS_MAX

    def report_first(text: str) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            report(text)

    return report_first


def _position(source: _Learner) -> tuple[int, int]:
    sql = "SELECT records_offset, records_seq FROM journals WHERE job_id = ? AND attempt = ? AND learner = ?"
    found = source.store.row(sql, source.key)
    return (found[0], found[1]) if found else (0, 0)


def _take(source: _Learner, batch: RecordBatch, seq: int) -> None:
    """Take in a batch all at once; where the store refuses something of it, record by record."""
    try:
        with source.store.atomic():
            seq_now, left_out = _take_together(source, batch, seq)
    except _STORE_TROUBLES:
        raise
    except Exception as error:
        source.report(
            f"records of {source.job_id}, learner {source.learner}, are taken in one by one: {_error_text(error)}"
        )
        seq_now, left_out = _take_one_by_one(source, batch, seq)
    if left_out:
        _count_left_out(source, left_out)
    source.store.execute(
        "INSERT OR REPLACE INTO journals (job_id, attempt, learner, records_offset, records_seq) "
        "VALUES (?, ?, ?, ?, ?)",
        (*source.key, batch.end, seq_now),
    )


def _take_together(source: _Learner, batch: RecordBatch, seq: int) -> tuple[int, int]:
    """Return the last sequence number, and how many records were left out."""
    left_out = batch.garbage
    columns: Columns = {}
    statements: list[Statement] = []
    numbers: dict[int, _ReportNumbers] = {}
    for record in batch.records:
        if record["seq"] <= seq:
            continue
        if not _is_next(record, seq, batch):
            left_out += 1
            continue
        seq = record["seq"]
        try:
            found, more = _understand(source, record)
        except Exception as error:  # whatever stands in it, the others count
            left_out += 1
            source.report(_left_out_message(source, record, error))
            continue
        learner = _writer(source, record)
        if learner not in numbers:
            numbers[learner] = _ReportNumbers(source.store, (source.job_id, source.attempt, learner))
        numbers[learner].number(record, [column for _, _, column in found])
        _collect(columns, learner, found)
        statements += more
    _write(source, columns, statements)
    for of_learner in numbers.values():
        of_learner.write()
    return seq, left_out


def _take_one_by_one(source: _Learner, batch: RecordBatch, seq: int) -> tuple[int, int]:
    """Do the same when some record can be understood, but not be kept."""
    left_out = batch.garbage
    for record in batch.records:
        if record["seq"] <= seq:
            continue
        if not _is_next(record, seq, batch):
            left_out += 1
            continue
        seq = record["seq"]
        try:
            with source.store.atomic():
                found, statements = _understand(source, record)
                learner = _writer(source, record)
                numbers = _ReportNumbers(source.store, (source.job_id, source.attempt, learner))
                numbers.number(record, [column for _, _, column in found])
                columns: Columns = {}
                _collect(columns, learner, found)
                _write(source, columns, statements)
                numbers.write()
        except _STORE_TROUBLES:
            raise
        except Exception as error:
            left_out += 1
            source.report(_left_out_message(source, record, error))
    return seq, left_out


def _is_next(record: Mapping[str, Any], seq: int, batch: RecordBatch) -> bool:
    """Say whether a sequence number may be true: each takes a line, and one that is made up would hide what follows."""
    return bool(record["seq"] <= seq + batch.end)


def _understand(source: _Learner, record: Mapping[str, Any]) -> tuple[list[NamedPoints], list[Statement]]:
    kind = record["kind"]
    if (to_columns := _TO_COLUMNS.get(kind)) is not None:
        return list(to_columns(record)), []
    if (to_statements := _TO_STATEMENTS.get(kind)) is not None:
        return [], list(to_statements(source.key, record))
    return [], []


def _writer(source: _Learner, record: Mapping[str, Any]) -> int:
    """Return whose the points are: a learner's agent also reads files that the others write."""
    learner = record.get("learner")
    if record["kind"] != "metrics" or type(learner) is not int or not 1 <= learner <= LEARNERS_MAX:
        return source.learner
    return learner


def _collect(columns: Columns, learner: int, found: list[NamedPoints]) -> None:
    for kind, name, column in found:
        if known := columns.get((learner, kind, name)):
            known.extend(column)
        else:
            columns[(learner, kind, name)] = column


def _count_left_out(source: _Learner, count: int) -> None:
    """Add to the one note of a learner that says how many of its records were left out."""
    sql = "SELECT text FROM notes WHERE job_id = ? AND attempt = ? AND learner = ? AND seq = ?"
    before = source.store.row(sql, (*source.key, _LEFT_OUT_SEQ))
    if before is not None:
        count += int(before[0].split()[0])
    text = f"{count} record{'s' if count > 1 else ''} could not be understood"
    note = {"seq": _LEFT_OUT_SEQ, "time": now_us(), "level": "warning", "text": text}
    for statement in _note_statements(source.key, note):
        source.store.execute(*statement)


def _left_out_message(source: _Learner, record: Mapping[str, Any], error: Exception) -> str:
    return f"record {record['seq']} of {source.job_id}, learner {source.learner}, is left out: {_error_text(error)}"


def _error_text(error: Exception) -> str:
    return clean(f"{type(error).__name__}: {error}", 300)


def _write(source: _Learner, columns: Columns, statements: list[Statement]) -> None:
    _write_points(source, columns)
    for sql, values in statements:
        source.store.execute(sql, values)


def _write_points(source: _Learner, columns: Columns) -> None:
    if not columns:
        return
    revision = source.store.bump("series")
    for (learner, kind, name), column in columns.items():
        if column.times:
            _write_series(replace(source, learner=learner), kind, name, column, revision)


def _write_series(source: _Learner, kind: SeriesKind, name: str, column: SeriesPoints, revision: int) -> None:
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
    low, high = _extremes(column.values)
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
    _write_runs(store, source.job_id, series, before, column.runs)


def _extremes(values: list[float | None]) -> tuple[float | None, float | None]:
    """Return the least and the greatest finite value: what diverged to -inf is never the best."""
    finite = values
    total = None if None in values else sum(values)  # type: ignore[arg-type] # none is None
    if total is None or total - total != 0:
        finite = [value for value in values if value is not None and math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (None, None)  # type: ignore[type-var] # None is left out


def _series(source: _Learner, kind: SeriesKind, name: str) -> tuple[int, int]:
    """Return id and number of points of a series, which is made when it is new."""
    key = (source.job_id, source.learner, kind, name)
    sql = "SELECT id, points FROM series WHERE job_id = ? AND learner = ? AND kind = ? AND name = ?"
    found = source.store.row(sql, key)
    if found is None:
        source.store.execute("INSERT INTO series (job_id, learner, kind, name) VALUES (?, ?, ?, ?)", key)
        found = source.store.row(sql, key)
        assert found is not None
    return found[0], found[1]


def _write_runs(store: Store, job_id: str, series_id: int, before: int, runs: list[ReportRun]) -> None:
    """Write down which reports new points come from; ``before`` is how many points the series had."""
    if not runs:
        return
    first = before + 1
    sql = "SELECT first, count, report FROM report_runs WHERE job_id = ? AND series = ? ORDER BY first DESC LIMIT 1"
    last = store.row(sql, (job_id, series_id))
    if last is not None and (last[0] + last[1], last[2] + last[1]) == (first, runs[0].report):
        store.execute(
            "UPDATE report_runs SET count = count + ? WHERE job_id = ? AND series = ? AND first = ?",
            (runs[0].points, job_id, series_id, last[0]),
        )
        first += runs[0].points
        runs = runs[1:]
    rows = []
    for run in runs:
        rows.append((job_id, series_id, first, run.points, run.report))
        first += run.points
    if rows:
        store.executemany(
            "INSERT INTO report_runs (job_id, series, first, count, report) VALUES (?, ?, ?, ?, ?)", rows
        )


def _checkpoint_statements(key: tuple[str, int, int], record: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield the statements that store a checkpoint; ``key`` is the learner's job, attempt and number.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: the record is not what it should be.
    """
    path = clean(str(record["path"]), PATH_CHARACTERS)
    step = _step(record.get("step"))
    # Said once by training code, and once more by the agent, which knows what is in it.
    yield (
        "DELETE FROM checkpoints WHERE job_id = ? AND attempt = ? AND learner = ? AND path = ? AND step IS ?",
        (*key, path, step),
    )
    objects = [_object(record.get(name)) for name in ("metrics", "metadata")]
    yield (
        "INSERT OR REPLACE INTO checkpoints (job_id, attempt, learner, seq, time_us, path, step, metrics, "
        "metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, record["seq"], time_of(record["time"]), path, step, *objects),
    )


def _progress_statements(key: tuple[str, int, int], record: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield the statement that stores a learner's progress; raises as :func:`_checkpoint_statements` does."""
    job_id, attempt, learner = key
    fraction = None if record.get("fraction") is None else float(record["fraction"])
    if fraction is not None:
        fraction = None if math.isnan(fraction) else min(1.0, max(0.0, fraction))
    text = clean(str(record.get("text") or ""), TEXT_CHARACTERS)
    yield (
        "INSERT OR REPLACE INTO progress (job_id, learner, attempt, time_us, fraction, text) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (job_id, learner, attempt, time_of(record["time"]), fraction, text),
    )


def _note_statements(key: tuple[str, int, int], record: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield the statement that stores a note; raises as :func:`_checkpoint_statements` does.

    Of notes that count, those of one collector are one note: the first one, with the sum of all.
    """
    level = record.get("level") or "info"
    text = clean(str(record["text"]), NOTE_CHARACTERS)
    count = record.get("count")
    is_counted = type(count) is int and 0 < count < _INT64 >> 16 and text.startswith(f"{count} ")
    if text.startswith(noted_as("external_trial_id")):
        yield NOTES_OF_TRIALS, ()
    yield (
        "INSERT INTO notes (job_id, attempt, learner, seq, time_us, level, text) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET text = "
        "(CAST(text AS INTEGER) + CAST(excluded.text AS INTEGER)) || substr(text, instr(text, ' '))"
        if is_counted
        else "INSERT OR REPLACE INTO notes (job_id, attempt, learner, seq, time_us, level, text) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            _counting_seq(record) if is_counted else record["seq"],
            time_of(record["time"]),
            level if level in LEVELS else "warning",
            text,
        ),
    )


def _counting_seq(record: Mapping[str, Any]) -> int:
    """Return the number of the one note in which a collector counts."""
    return _LEFT_OUT_SEQ - 1 - zlib.crc32(str(record.get("source")).encode(errors="surrogatepass"))


def _step(value: Any) -> int | None:
    if value is None:
        return None
    step = int(value)
    if not -_INT64 <= step < _INT64:
        raise ValueError("a step out of range")
    return step


def _object(value: Any) -> str:
    found = dump(clean_json(dict(value or {}), PATH_CHARACTERS))
    json.loads(found)  # what cannot be read back must not get in
    return found


_TO_COLUMNS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[NamedPoints]]]] = {
    "metrics": metric_columns,
    "usage": usage_columns,
}
_TO_STATEMENTS: Final[
    Mapping[str, Callable[[tuple[str, int, int], Mapping[str, Any]], Iterable[Statement]]]
] = {
    "checkpoint": _checkpoint_statements,
    "progress": _progress_statements,
    "note": _note_statements,
}
