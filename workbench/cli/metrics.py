"""``fabric metrics``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.command import command
from workbench.cli.options import Attempt, Job, JsonStream, Learner

if TYPE_CHECKING:
    from workbench.metrics import MetricRow
    from workbench.store.database import Store
    from workbench.store.rows import JobRow

SHOWN = 50
"""How many rows a terminal is shown when nothing is said."""

MICROSECONDS = 1_000_000

Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values, all of them.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as new values come, until the job ends.")]
Tail = Annotated[
    int | None, typer.Option("--tail", "-n", min=1, metavar="N", help=f"The last N steps; else {SHOWN}.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="All steps.")]
Latest = Annotated[
    bool, typer.Option("--latest", help="Only the last value of each, with least and greatest.")
]


@command("metrics", "fabric metrics @last", "fabric metrics digits --csv", "fabric metrics @last -f --json")
def metrics(
    job: Job,
    follow: Follow = False,
    tail: Tail = None,
    all: All = False,
    latest: Latest = False,
    learner: Learner = None,
    attempt: Attempt = None,
    csv: Csv = False,
    json: JsonStream = False,
) -> None:
    """Print what a job measured.

    A table has one row for each step of each learner; --csv and --json hold all of them.
    """
    from workbench.cli.open_store import store_with
    from workbench.errors import UsageError

    if csv and json:
        raise UsageError("--csv and --json exclude each other")
    with store_with(job) as (store, row):
        _check_learner(row, learner)
        if follow:
            _follow(store, row, learner=learner, attempt=attempt, csv=csv, json=json)
        elif latest:
            _print_latest(store, row, json=json)
        elif json:
            _print_document(store, row, learner, attempt)
        elif csv:
            _print_csv(store, row, learner, attempt)
        else:
            _print_table(store, row, learner, attempt, None if all else tail or SHOWN)


def _check_learner(row: JobRow, learner: int | None) -> None:
    if learner is not None and not 1 <= learner <= row.learners:
        from workbench.errors import UnknownName

        raise UnknownName(f"there is no learner {learner}", hint=f"learners are 1 to {row.learners}")


def _print_table(
    store: Store, row: JobRow, learner: int | None, attempt: int | None, shown: int | None
) -> None:
    from collections import deque

    from workbench.cli.console import narrate, width
    from workbench.cli.tables import Column, render
    from workbench.cli.words import number
    from workbench.job import nine
    from workbench.metrics import table

    read = table(store, row.id, learner=learner, attempt=attempt)
    kept: deque[MetricRow] = deque(maxlen=shown)
    total = 0
    for each in read.rows:
        kept.append(each)
        total += 1
    if not total:
        narrate(f"{nine(row.id)} has no metrics; evaluation_metrics in its manifest says how to find them")
        return
    heading = [*_keys(row), "step", *read.columns]
    cells = [
        [*_places(row, each), _step(each), *(_cell(each, name, number) for name in read.columns)]
        for each in kept
    ]
    sys.stdout.write(render([Column(title, right=True) for title in heading], cells, width=width()))
    if total > len(kept):
        narrate(f"showing the last {len(kept):,} of {total:,}; --all shows the rest")


def _keys(row: JobRow) -> list[str]:
    return [*(["learner"] if row.learners > 1 else []), *(["attempt"] if row.attempt > 1 else [])]


def _places(row: JobRow, each: MetricRow) -> list[str]:
    learner = [str(each.learner)] if row.learners > 1 else []
    return [*learner, *([str(each.attempt)] if row.attempt > 1 else [])]


def _step(each: MetricRow) -> str:
    return "-" if each.step is None else str(each.step)


def _cell(each: MetricRow, name: str, write: Any) -> str:
    return str(write(each.values[name])) if name in each.values else ""


def _print_latest(store: Store, row: JobRow, *, json: bool) -> None:
    from workbench.cli.console import width
    from workbench.cli.documents import print_document
    from workbench.cli.tables import Column, render
    from workbench.cli.words import number
    from workbench.metrics import series

    found = series(store, row.id)
    if json:
        print_document([_series_document(each) for each in found])
        return
    columns = [Column("METRIC"), Column("LEARNER", right=True), Column("STEP", right=True)]
    columns += [Column(title, right=True) for title in ("LAST", "LEAST", "GREATEST", "POINTS")]
    cells = [
        [
            each.name,
            str(each.learner),
            "-" if each.last_step is None else str(each.last_step),
            number(each.last),
            number(each.minimum),
            number(each.maximum),
            f"{each.points:,}",
        ]
        for each in found
    ]
    sys.stdout.write(render(columns, cells, width=width()))


def _series_document(each: Any) -> dict[str, Any]:
    from workbench.cli.words import iso

    return {
        "schema": "fabric.series/1",
        "name": each.name,
        "learner": each.learner,
        "kind": each.kind,
        "points": each.points,
        "last_step": each.last_step,
        "last_time": iso(each.last_time_us),
        "last": each.last,
        "minimum": each.minimum,
        "maximum": each.maximum,
    }


def _print_csv(store: Store, row: JobRow, learner: int | None, attempt: int | None) -> None:
    from workbench.metrics import table

    read = table(store, row.id, learner=learner, attempt=attempt)
    write_csv_rows([csv_heading(read.columns)])
    write_csv_rows(csv_row(each, read.columns) for each in read.rows)


def csv_heading(columns: Sequence[str]) -> list[str]:
    """Return the first line of the CSV form."""
    return ["learner", "attempt", "step", "time", *columns]


def csv_row(each: MetricRow, columns: Sequence[str]) -> list[str]:
    """Return one step as the CSV form has it: a value that was not reported is empty, NaN is ``nan``."""
    values = [repr(each.values[name]) if name in each.values else "" for name in columns]
    step = "" if each.step is None else str(each.step)
    return [str(each.learner), str(each.attempt), step, f"{each.time_us / MICROSECONDS:.6f}", *values]


def write_csv_rows(rows: Iterable[Sequence[str]]) -> None:
    """Write lines of comma-separated values to stdout."""
    import csv

    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def _print_document(store: Store, row: JobRow, learner: int | None, attempt: int | None) -> None:
    from workbench.cli.documents import print_document
    from workbench.metrics import series, table

    read = table(store, row.id, learner=learner, attempt=attempt)
    print_document(
        {
            "schema": "fabric.metrics/1",
            "id": row.id,
            "series": [_series_document(each) for each in series(store, row.id)],
            "columns": list(read.columns),
            "rows": [_row_document(each) for each in read.rows],
        }
    )


def _row_document(each: MetricRow) -> dict[str, Any]:
    from workbench.cli.words import iso

    place = {"learner": each.learner, "attempt": each.attempt, "step": each.step, "time": iso(each.time_us)}
    return {**place, "values": dict(each.values)}


def _follow(
    store: Store, row: JobRow, *, learner: int | None, attempt: int | None, csv: bool, json: bool
) -> None:
    from workbench.cli.following_metrics import new_points
    from workbench.cli.words import iso, number, stamp

    for name, point, who in new_points(store, row, learner=learner, attempt=attempt):
        if json:
            from workbench.cli.documents import print_event

            place = {"learner": who, "attempt": point.attempt, "step": point.step, "time": iso(point.time_us)}
            print_event("metric", {"name": name, "value": point.value, **place})
            continue
        if csv:
            value = "nan" if point.value is None else repr(point.value)
            step = "" if point.step is None else str(point.step)
            write_csv_rows(
                [[str(who), str(point.attempt), step, f"{point.time_us / MICROSECONDS:.6f}", name, value]]
            )
        else:
            step = "" if point.step is None else f"step {point.step}  "
            print(f"{stamp(point.time_us)}  {_who(row, who)}{step}{name}={number(point.value)}")
        sys.stdout.flush()


def _who(row: JobRow, learner: int) -> str:
    return f"[{learner}] " if row.learners > 1 else ""
