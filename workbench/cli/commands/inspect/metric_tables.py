"""A job's metrics as text: a table, comma-separated values, one JSON document."""

from __future__ import annotations

import csv
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.formats import MICROSECONDS, count, iso, number, short
from workbench.job import short_id
from workbench.learner.texts import escaped
from workbench.metric_names import main_metrics
from workbench.metrics import series
from workbench.metrics.queries import NUMERIC
from workbench.metrics.short_names import shared_folder
from workbench.metrics.table import table
from workbench.terminal.console import narrate, style, width
from workbench.terminal.json_output import print_document
from workbench.terminal.table import GAP, Column, render
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.documents.metrics import (
        MetricRowEntry,
        RecognisedSeriesEntry,
        SeriesDocument,
        TriedDocument,
    )
    from workbench.metrics import MetricRow, MetricTable
    from workbench.services.inspect.metric_dry_run import ExtractedLine
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, SeriesRow


@dataclass(frozen=True, slots=True)
class MetricSelection:
    """Which values are shown."""

    learner: int | None = None
    attempt: int | None = None
    superseded: bool = False
    columns: tuple[str, ...] = ()
    """Names of metrics; empty for all."""

    def table(self, store: Store, row: JobRow, *, texts: bool = False) -> MetricTable:
        """Read them as a table, with what was reported in words or without it.

        Raises:
            UsageError: there is no column of a name; the hint names the nearest.
        """
        read = table(
            store,
            row.id,
            learner=self.learner,
            attempt=self.attempt,
            superseded=self.superseded or self.attempt is not None,
            texts=texts,
        )
        if not self.columns:
            return read
        chosen = chosen_metrics([*read.columns, *read.texts], self.columns)
        return replace(
            read,
            columns=tuple(name for name in chosen if name in read.columns),
            rows=(
                each
                for each in read.rows
                if any(name in each.values or name in each.texts for name in chosen)
            ),
        )

    def series(self, store: Store, row: JobRow, kinds: Sequence[str] = NUMERIC) -> list[SeriesRow]:
        """Read what they come to."""
        found = series(store, row.id, kinds=kinds, attempt=self.attempt, superseded=self.superseded)
        found = [each for each in found if self.learner in (None, each.learner)]
        if not self.columns:
            return found
        chosen = chosen_metrics([each.name for each in found], self.columns)
        return [each for name in chosen for each in found if each.name == name]


def chosen_metrics(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the metrics of these names, whole or their last part; all, those that matter most first, for none.

    Raises:
        UsageError: there is none of a name; the hint names the nearest.
    """
    if not names:
        return list(main_metrics(dict.fromkeys(known), len(known)))
    chosen: dict[str, None] = {}
    for name in names:
        small = name.lower()
        fitting = [each for each in known if each.lower() == small or each.lower().endswith(f"/{small}")]
        if not fitting:
            from workbench.services.filters import nearest_metric

            raise UsageError(f"the job has no metric {name!r}", hint=nearest_metric(list(known), name))
        chosen.update(dict.fromkeys(fitting))
    return list(chosen)


def print_table(store: Store, row: JobRow, selection: MetricSelection, shown: int | None) -> None:
    """Print the last ``shown`` steps, all of them where it is None, and say what was left out."""
    read = selection.table(store, row)
    kept: deque[MetricRow] = deque(maxlen=shown)
    total = 0
    for each in read.rows:
        kept.append(each)
        total += 1
    if not total:
        narrate(
            f"{short_id(row.id)} has no metrics; evaluation_metrics in its manifest says how to find them"
        )
        return
    marks = ["superseded"] if selection.superseded else []
    times = {each.name for each in replace(selection, columns=()).series(store, row, ("etime",))}
    counts = [name for name in read.columns if name in times]
    metrics = [name for name in read.columns if name not in times]
    if not selection.columns:
        metrics = chosen_metrics(metrics, ())
    shared = shared_folder(read.columns)
    names = {name: escaped(name.removeprefix(shared)) for name in read.columns}
    keys = [[title] for title in (*_keys(row), "step", *marks)]
    for each in kept:
        places = [*_places(row, each), step_text(each.step) or "-"]
        places += ["yes" if each.is_superseded else ""] if marks else []
        for key, cell in zip(keys, places, strict=True):
            key.append(cell)
    shown_columns = [
        [
            f"({names[name]})" if name in times else names[name],
            *(_cell(each, name, number) for each in kept),
        ]
        for name in (*counts, *metrics)
    ]
    for index, part in enumerate(_folded(keys, shown_columns, width())):
        heading, *cells = zip(*keys, *part, strict=True)
        sys.stdout.write("\n" if index else "")
        sys.stdout.write(render([Column(title, right=True) for title in heading], cells, width=width()))
    narrate_shared(shared)
    if total > len(kept):
        narrate(f"showing the last {len(kept):,} of {total:,}; --all shows the rest")
    narrate_superseded(store, row, selection)


def _folded(
    keys: Sequence[Sequence[str]], columns: Sequence[Sequence[str]], wide: int
) -> list[list[Sequence[str]]]:
    """Return the columns in parts, each of which fits beside the keys in a terminal of that width."""
    room = wide - sum(max(map(len, key)) + len(GAP) for key in keys)
    parts: list[list[Sequence[str]]] = [[]]
    left = room
    for column in columns:
        needed = max(map(len, column)) + len(GAP)
        if parts[-1] and needed - len(GAP) > left:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= needed
    return parts


def narrate_shared(folder: str) -> None:
    """Say what the names of all metrics begin with, where they are shown without it."""
    if folder:
        narrate(f"all names begin with {escaped(folder)}, which is left out here")


def narrate_superseded(store: Store, row: JobRow, selection: MetricSelection) -> None:
    """Say how many values are left out since a later attempt went over them again."""
    if selection.superseded or selection.attempt is not None:
        return
    gone = sum(each.superseded for each in selection.series(store, row, ("value",)))
    if gone:
        narrate(
            f"{count(gone, 'value')} of earlier attempts that a later one went over again "
            f"{'is' if gone == 1 else 'are'} left out; --superseded shows {'it' if gone == 1 else 'them'}"
        )


def step_text(step: float | None) -> str:
    """Return a step as tables have it; empty where there is none."""
    return "" if step is None else str(step)


def _keys(row: JobRow) -> list[str]:
    return [*(["learner"] if row.learners > 1 else []), *(["attempt"] if row.attempt > 1 else [])]


def _places(row: JobRow, each: MetricRow) -> list[str]:
    learner = [str(each.learner)] if row.learners > 1 else []
    return [*learner, *([str(each.attempt)] if row.attempt > 1 else [])]


def _cell(each: MetricRow, name: str, write: Any) -> str:
    return str(write(each.values[name])) if name in each.values else ""


def print_latest(store: Store, row: JobRow, selection: MetricSelection, *, json: bool) -> None:
    """Print the last value of each metric, with the least and the greatest that is finite."""
    found = selection.series(store, row)
    if json:
        print_document([_series_document(each) for each in found])
        return
    found = [each for each in found if each.points]
    if not selection.columns:
        ordered = chosen_metrics([each.name for each in found], ())
        found = [each for name in ordered for each in found if each.name == name]
    columns = [Column("METRIC"), Column("LEARNER", right=True), Column("STEP", right=True)]
    columns += [Column(title, right=True) for title in ("LAST", "LEAST", "GREATEST", "POINTS")]
    shared = shared_folder(each.name for each in found)
    cells = [
        [
            escaped(each.name.removeprefix(shared)),
            str(each.learner),
            step_text(each.last_step) or "-",
            number(each.last),
            number(each.minimum),
            number(each.maximum),
            f"{each.points:,}",
        ]
        for each in found
        if each.kind != "etime"
    ]
    sys.stdout.write(render(columns, cells, width=width()))
    narrate_shared(shared)
    narrate_superseded(store, row, selection)


def _series_document(each: SeriesRow) -> SeriesDocument:
    return {
        "schema": "fabric.series/1",
        "name": each.name,
        "learner": each.learner,
        "kind": each.kind,
        "points": each.points,
        "superseded": each.superseded,
        "last_step": each.last_step,
        "last_time": iso(each.last_time_us),
        "last": each.last,
        "minimum": each.minimum,
        "maximum": each.maximum,
    }


_CSV_KEYS: Final = ("learner", "attempt", "step", "time", "superseded")


def print_csv(store: Store, row: JobRow, selection: MetricSelection) -> None:
    """Print all values."""
    read = selection.table(store, row)
    marks = ["superseded"] if selection.superseded else []
    write_csv_rows([["learner", "attempt", "step", "time", *marks, *map(_csv_column, read.columns)]])
    write_csv_rows(_csv_row(each, read.columns, marked=bool(marks)) for each in read.rows)


def _csv_column(name: str) -> str:
    """Return the head of a metric's column, apart from those before it: the second of one name would win in readers."""
    return f"values.{name}" if name in _CSV_KEYS else escaped(name)


def _csv_row(each: MetricRow, columns: Sequence[str], *, marked: bool) -> list[str]:
    """Return one step as the CSV form has it: a value that was not reported is empty, NaN is ``nan``."""
    values = [repr(each.values[name]) if name in each.values else "" for name in columns]
    key = [str(each.learner), str(each.attempt), step_text(each.step), f"{each.time_us / MICROSECONDS:.6f}"]
    return [*key, *([str(int(each.is_superseded))] if marked else []), *values]


def write_csv_rows(rows: Iterable[Sequence[str]]) -> None:
    """Write lines of comma-separated values to stdout."""
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def print_rows(store: Store, row: JobRow, selection: MetricSelection) -> None:
    """Print series, of all attempts, and all values as one document."""
    read = selection.table(store, row, texts=True)
    known = replace(selection, attempt=None, columns=()).series(store, row)
    if selection.columns:
        known = [each for name in read.columns for each in known if each.name == name]
    print_document(
        {
            "schema": "fabric.metrics/1",
            "id": row.id,
            "series": [_series_document(each) for each in known],
            "columns": list(read.columns),
            "rows": [_row_document(each) for each in read.rows],
        }
    )


def _row_document(each: MetricRow) -> MetricRowEntry:
    return {
        "learner": each.learner,
        "attempt": each.attempt,
        "step": each.step,
        "time": iso(each.time_us),
        "superseded": each.is_superseded,
        "values": dict(each.values),
        "texts": dict(each.texts),
    }


def print_manifest(log: str, *, is_job: bool) -> None:
    """Print the extractor that finds for a job, or in a log, what is recognised without any.

    Raises:
        InputMissing: there is no such log, or nothing is recognised in it.
        UnknownName: there is no such job.
    """
    from workbench.services.inspect.metric_dry_run import log_bytes
    from workbench.services.inspect.metric_manifest import extractor_manifest, job_manifest

    if is_job:
        sys.stdout.write(job_manifest(log))
        return
    data = sys.stdin.buffer.read() if log == "-" else log_bytes(log)
    sys.stdout.write(extractor_manifest(data))


def print_dry_run(source: str, log: str, *, json: bool) -> int:
    """Print what the expressions of a manifest, or of a preset, extract from a log; return the exit code.

    Raises:
        InputMissing: there is no such manifest or log.
        UsageError: the manifest has no expressions, or no log is named.
    """
    from workbench.learner.journal.launch_document import AUTO
    from workbench.services.inspect.metric_dry_run import dry_run, expressions_of, log_bytes

    if not log:
        raise UsageError(
            "--try needs a manifest and a log", hint="fabric metrics --try manifest.yml train.log"
        )
    data = sys.stdin.buffer.read() if log == "-" else log_bytes(log)
    if source == AUTO:
        return _print_recognised(data, json=json)
    metrics = expressions_of(source)
    lines = list(dry_run(metrics, data))
    matches = sum(bool(each.group) for each in lines)
    if json:
        print_document([_extracted_document(each) for each in lines])
    else:
        _print_extracted(lines)
        sys.stdout.flush()
        narrate(f"{count(matches, 'match', 'matches')} in {count(len(lines), 'line')}")
    return 0 if matches else 1


def _print_recognised(data: bytes, *, json: bool) -> int:
    """Print the series that are recognised of themselves in a log; return the exit code."""
    from workbench.learner.collectors.auto.printed import TIMES
    from workbench.services.inspect.metric_dry_run import recognised_series

    found, notes = recognised_series(data)
    if json:
        entries: list[RecognisedSeriesEntry] = [
            {"name": each.name, "points": each.points, "last": each.last, "steps": list(each.steps)}
            for each in found
        ]
        print_document({"schema": "fabric.try/1", "series": entries})
        return 0 if found else 1
    rows = [
        [escaped(each.name), *(step_text(step) for step in each.steps), number(each.last), str(each.points)]
        for each in found
    ]
    if rows:
        columns = [
            Column("METRIC"),
            *(Column(title, right=True) for title in ("FIRST STEP", "LAST STEP", "LAST", "POINTS")),
        ]
        sys.stdout.write(render(columns, rows, width=width()))
    sys.stdout.flush()
    for text in notes:
        narrate(text)
    if not found:
        narrate(f"no metrics recognised: no line with a named number comes {TIMES} times with other numbers")
    return 0 if found else 1


def _print_extracted(lines: Sequence[ExtractedLine]) -> None:
    digits = len(str(len(lines)))
    columns = width() - digits - 3
    for each in lines:
        plain = "".join(c if c.isprintable() else "·" for c in each.text)
        cut = plain if len(plain) <= columns else plain[: columns - 1] + "…"
        sys.stdout.write(f"{each.line:>{digits}} | {cut}\n")
        if each.group:
            values = " ".join(f"{key}={_value(value)}" for key, value in (each.values or {}).items())
            step = f" at step {each.step}" if each.step is not None else ""
            note = f"; {each.why}" if each.why else ""
            line = f"{each.group}: {values}{step}{note}"
            sys.stdout.write(" " * digits + " = " + style(line, "green", sys.stdout) + "\n")
        elif each.why:
            sys.stdout.write(" " * digits + " - " + style(short(each.why, columns), "dim", sys.stdout) + "\n")


def _value(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) else str(value)


def _extracted_document(each: ExtractedLine) -> TriedDocument:
    return {
        "schema": "fabric.tried/1",
        "line": each.line,
        "text": each.text,
        "group": each.group or None,
        "values": dict(each.values) if each.values is not None else None,
        "step": each.step,
        "why": each.why or None,
    }
