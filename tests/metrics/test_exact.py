"""Whatever learners report, every reader agrees with a plain model: points, tables, CSV, JSON, Python, SQL, charts.

``FABRIC_GENERATED_METRICS=500`` does so many examples.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.learner import event_files as tf
from tests.learner.collecting import Rig, context
from tests.metrics.writing import HEADER
from tests.store.building import add_job
from workbench.cli.commands.inspect.metric_tables import MetricSelection, print_csv, print_rows
from workbench.learner import report
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.interface import Context
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.collectors.tensorboard.collector import TensorboardCollector
from workbench.learner.texts import clean_name
from workbench.metrics import ingest, points, series
from workbench.metrics.chart_axis import ChartRange, chart_axis, chart_points
from workbench.metrics.conditions import Condition, judge
from workbench.metrics.table import MetricRow, table
from workbench.paths import Home
from workbench.services.inspect.job_series import SeriesQuery
from workbench.services.inspect.job_series import series as python_series
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import metric_values
from workbench.store.queries.metric_values import MetricName
from workbench.store.queries.sql_console import open_views

EXAMPLES = int(os.environ.get("FABRIC_GENERATED_METRICS") or 30)
START_SECONDS = 1_700_000_000
NAMES = ("loss", "Loss/val", "ää ü", "half\ud800", "esc\x1b[31m", "two\nlines", "nul\0", 'a,b"c')
GROUPS = ("", "train", "te\rst")


@dataclass(frozen=True)
class Report:
    """What training code reports at once."""

    group: str
    step: float | None
    epoch: float | None
    values: Mapping[str, float]
    seconds: int = 0


# The model: what every reader must agree with.


@dataclass(frozen=True)
class Cell:
    """One value of one series."""

    learner: int
    attempt: int
    report: int
    name: str
    step: float | None
    seconds: int
    value: float
    is_time: bool


def cells_of(job: Mapping[tuple[int, int], tuple[str, Sequence[Report]]]) -> list[Cell]:
    """Return every value in the order of its report."""
    found = []
    for (learner, attempt), (_, reports) in sorted(job.items()):
        for number, one in enumerate(reports):
            step = one.epoch if one.step is None else one.step
            prefix = f"{clean_name(one.group)}/" if one.group else ""
            times = {} if one.epoch is None else {"epoch": one.epoch}
            for is_time, columns in ((False, one.values), (True, times)):
                for name, value in columns.items():
                    place = (learner, attempt, number, prefix + clean_name(name), step, one.seconds)
                    found.append(Cell(*place, float(value) + 0.0, is_time))  # SQLite has no -0.0
    return found


def series_of(cells: Sequence[Cell]) -> dict[tuple[int, str], list[Cell]]:
    found: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.learner, cell.name), []).append(cell)
    return found


def is_superseded(cell: Cell, cells: Sequence[Cell]) -> bool:
    """A later attempt of the series began at its step, or before it."""
    later = [
        each.step
        for each in cells
        if (each.learner, each.name) == (cell.learner, cell.name)
        and each.attempt > cell.attempt
        and each.step is not None
    ]
    return cell.step is not None and bool(later) and cell.step >= min(later)


@dataclass(frozen=True)
class Row:
    """One row of a table; rows are in the order of :attr:`place`, those of one place in any order."""

    place: tuple[int, int, bool, float]
    """Learner, attempt, whether it has no step, and its step, or its time where it has none."""
    values: frozenset[tuple[str, str]]


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """One row a report; reports of one step share a row unless a metric comes twice."""
    by_step: dict[tuple[int, int, float], list[Cell]] = {}
    for cell in cells:
        if cell.step is not None:
            by_step.setdefault((cell.learner, cell.attempt, cell.step), []).append(cell)
    shared = {key for key, each in by_step.items() if len({cell.name for cell in each}) == len(each)}
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = (cell.learner, cell.attempt, cell.step)
        groups.setdefault((*key, None if key in shared else cell.report), []).append(cell)
    return in_order(
        row_of(learner, attempt, step, each[0].seconds, {cell.name: cell.value for cell in each})
        for (learner, attempt, step, _), each in groups.items()
    )


def row_of(
    learner: int, attempt: int, step: float | None, seconds: float, values: Mapping[str, float]
) -> Row:
    return Row((learner, attempt, step is None, seconds if step is None else step), shown(values))


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.place, sorted(row.values)))


def shown(values: Mapping[str, float]) -> frozenset[tuple[str, str]]:
    """Values that can be compared though some are NaN."""
    return frozenset((name, repr(float(value))) for name, value in values.items())


# What is reported.

VALUES = (
    st.floats(-1e6, 1e6)
    | st.integers(-5, 5)
    | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 2**63, -(2**63), 5e-324])
)
STEPS = st.none() | st.integers(0, 6) | st.sampled_from([0.25, 0.5, 1.5, -3, 10**12, -(2**63), 2**63 - 1])
EPOCHS = st.none() | st.sampled_from([0.5, 1, 1.25, 2])


@st.composite
def reports(draw: st.DrawFn) -> list[Report]:
    found: list[Report] = []
    for _ in range(draw(st.integers(0, 8))):
        values = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=3))
        found.append(Report(draw(st.sampled_from(GROUPS)), draw(STEPS), draw(EPOCHS), values))
    return found


@st.composite
def events(draw: st.DrawFn) -> list[Report]:
    """What TensorBoard can hold: whole steps, floats of 32 bits, names of files and tags in UTF-8."""
    floats = st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
    steps = sorted(draw(st.sets(st.integers(-3, 9), max_size=6)))
    tags = st.dictionaries(st.sampled_from(NAMES[:3]), floats, min_size=1, max_size=3)
    return [Report("tb", step, None, draw(tags)) for step in steps]


@st.composite
def jobs(draw: st.DrawFn) -> dict[tuple[int, int], tuple[str, list[Report]]]:
    found = {}
    for learner in range(1, draw(st.integers(1, 2)) + 1):
        for attempt in range(1, draw(st.integers(1, 3)) + 1):
            source = draw(st.sampled_from(["report", "emetrics", "tensorboard"]))
            what = draw(events() if source == "tensorboard" else reports())
            ticks = draw(st.booleans())  # several reports within one tick of the clock
            begin = START_SECONDS + attempt * 10_000 + learner
            timed = [
                Report(
                    one.group,
                    one.step,
                    one.epoch,
                    one.values,
                    begin + 10 * (number // 3 if ticks else number),
                )
                for number, one in enumerate(what)
            ]
            found[learner, attempt] = (source, timed)
    return found


def by_report(folder: Context, what: Sequence[Report]) -> Rig:
    module = sys.modules["workbench.learner.report"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_REPORT", str(Path(folder.learner_dir) / "report.jsonl"))
        for one in what:
            patch.setattr(module, "time", SimpleNamespace(time=lambda now=one.seconds: now))
            epoch = {} if one.epoch is None else {"epoch": one.epoch}
            report({**one.values, **epoch}, step=one.step, group=one.group)
    return Rig(lambda: ReportCollector({}, folder))


def by_emetrics(folder: Context, what: Sequence[Report]) -> Rig:
    lines = []
    for one in what:
        etimes = {"epoch": {"value": one.epoch}} if one.epoch is not None else {}
        values = {name: {"type": "FLOAT", "value": value} for name, value in one.values.items()}
        meta = {"time": one.seconds}
        lines.append(json.dumps({"meta": meta, "grouplabel": one.group, "etimes": etimes, "values": values}))
    Path(folder.log_dir, "evaluation-metrics.txt").write_text("".join(line + "\n" for line in lines))
    return Rig(lambda: EmetricsCollector({}, folder))


def by_tensorboard(folder: Context, what: Sequence[Report]) -> Rig:
    (Path(folder.log_dir) / "tb").mkdir()
    data = tf.version() + b"".join(
        tf.event(
            one.seconds, int(one.step or 0), *(tf.simple(tag, value) for tag, value in one.values.items())
        )
        for one in what
    )
    Path(folder.log_dir, "tb", "events.out.tfevents.1").write_bytes(data)
    return Rig(lambda: TensorboardCollector({}, folder))


COLLECTED: Mapping[str, Callable[[Context, Sequence[Report]], Rig]] = {
    "report": by_report,
    "emetrics": by_emetrics,
    "tensorboard": by_tensorboard,
}


@contextmanager
def measured(job: Mapping[tuple[int, int], tuple[str, Sequence[Report]]]) -> Iterator[tuple[Store, JobRow]]:
    """A store that has taken in what the collectors made of a job."""
    with (
        tempfile.TemporaryDirectory(prefix="fab-") as folder,
        Store.open(Home(Path(folder) / "home")) as store,
    ):
        row = add_job(store, learners=2)
        for (learner, attempt), (source, what) in job.items():
            place = Path(folder) / f"{learner}-{attempt}"
            rig = COLLECTED[source](context(place), what)
            rig.finish()
            assert rig.notes == []
            lines = [HEADER, *({"seq": seq, **record} for seq, record in enumerate(rig.written, 1))]
            journal = place / "records.jsonl"
            journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
            while ingest(store, row.id, attempt, learner, journal, limit_bytes=600):
                pass
        store.execute("UPDATE jobs SET attempt = ?", (max((attempt for _, attempt in job), default=1),))
        yield store, row


# The readers agree.


def emetrics_have_no_steps(job: Mapping[tuple[int, int], tuple[str, list[Report]]]) -> None:
    """There a step is one of the evaluation times."""
    for source, what in job.values():
        if source == "emetrics":
            what[:] = [Report(one.group, None, one.epoch, one.values, one.seconds) for one in what]


@pytest.mark.timeout(180 + 2 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(jobs())
def test_every_reader_agrees_with_the_model(job: dict[tuple[int, int], tuple[str, list[Report]]]) -> None:
    emetrics_have_no_steps(job)
    cells = cells_of(job)
    live = [cell for cell in cells if not is_superseded(cell, cells)]
    with measured(job) as (store, row):
        check_points(store, row, cells)
        check_sums(store, row, cells, live)
        check_tables(store, row, cells, live)
        check_texts(store, row, live)
        check_python(store, row, cells, live)
        check_sql(store, row, cells, live)
        check_charts(store, row, live)
        check_filters(store, row, live)


def check_points(store: Store, row: JobRow, cells: Sequence[Cell]) -> None:
    found = {(each.learner, each.name): points(store, each.id) for each in series(store, row.id)}
    assert {
        key: [(p.attempt, p.step, p.time_us, repr(math.nan if p.value is None else p.value)) for p in column]
        for key, column in found.items()
    } == {
        key: [(c.attempt, c.step, c.seconds * 1_000_000, repr(c.value)) for c in column]
        for key, column in series_of(cells).items()
    }


def sums(cells: Sequence[Cell]) -> tuple[Any, ...]:
    finite = [cell.value for cell in cells if math.isfinite(cell.value)]
    last = cells[-1]
    return len(cells), last.step, repr(last.value), min(finite, default=None), max(finite, default=None)


def check_sums(store: Store, row: JobRow, cells: Sequence[Cell], live: Sequence[Cell]) -> None:
    every, kept = series_of(cells), series_of(live)
    for each in series(store, row.id):
        key = each.learner, each.name
        last = repr(math.nan if each.last is None else each.last)
        assert (each.points, each.last_step, last, each.minimum, each.maximum) == sums(kept[key])
        assert each.superseded == len(every[key]) - len(kept[key])


def rows_in(found: Iterator[MetricRow]) -> list[Row]:
    rows = [
        row_of(each.learner, each.attempt, each.step, each.time_us // 1_000_000, each.values)
        for each in found
    ]
    assert [row.place for row in rows] == sorted(row.place for row in rows)
    return in_order(rows)


def check_tables(store: Store, row: JobRow, cells: Sequence[Cell], live: Sequence[Cell]) -> None:
    assert rows_in(table(store, row.id).rows) == rows_of(live)
    assert rows_in(table(store, row.id, superseded=True).rows) == rows_of(cells)
    for attempt in (1, 2):
        of_attempt = [cell for cell in cells if cell.attempt == attempt]
        assert rows_in(table(store, row.id, attempt=attempt).rows) == rows_of(of_attempt)
    of_learner = [cell for cell in live if cell.learner == 2]
    assert rows_in(table(store, row.id, learner=2).rows) == rows_of(of_learner)


def printed(write: Callable[[], None]) -> str:
    out = io.StringIO(newline="")
    with redirect_stdout(out):
        write()
    return out.getvalue()


def check_texts(store: Store, row: JobRow, live: Sequence[Cell]) -> None:
    expected = rows_of(live)
    text = printed(lambda: print_csv(store, row, MetricSelection()))
    found = [
        row_of(
            int(line["learner"]),
            int(line["attempt"]),
            json.loads(line["step"]) if line["step"] else None,
            float(line["time"]),
            {name: float(cell) for name, cell in list(line.items())[4:] if cell},
        )
        for line in csv.DictReader(io.StringIO(text, newline=""))
    ]
    assert in_order(found) == expected
    assert not set(text) & set("\x1b\r\0"), "what controls a terminal is written out"
    document = json.loads(printed(lambda: print_rows(store, row, MetricSelection())))
    assert [
        (each["learner"], each["attempt"], each["step"], shown(numbers(each["values"])))
        for each in document["rows"]
    ] == [(each.learner, each.attempt, each.step, shown(each.values)) for each in table(store, row.id).rows]


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def check_python(store: Store, row: JobRow, cells: Sequence[Cell], live: Sequence[Cell]) -> None:
    for asked, of in ((SeriesQuery(1), live), (SeriesQuery(1, superseded=True), cells)):
        wanted = {
            name: column
            for (learner, name), column in series_of(of).items()
            if learner == 1 and not column[0].is_time
        }
        found = python_series(store, row.id, asked)
        assert {
            name: list(zip(each.attempts, each.steps, map(repr, each.values), each.times, strict=True))
            for name, each in found.items()
        } == {
            name: [(c.attempt, c.step, repr(c.value), float(c.seconds)) for c in column]
            for name, column in wanted.items()
        }


def check_sql(store: Store, row: JobRow, cells: Sequence[Cell], live: Sequence[Cell]) -> None:
    query = (
        "SELECT learner, name, number, value, points.superseded FROM metrics "
        f"JOIN points USING (series) WHERE id = '{row.id}' ORDER BY learner, name, number"
    )
    sum_query = (
        f"SELECT learner, name, points, step, last, least, greatest FROM metrics WHERE id = '{row.id}'"
    )
    with open_views(store.home) as views:
        found = list(views.rows(views.run(query)))
        summed = {line[:2]: line[2:] for line in views.rows(views.run(sum_query))}
    assert found == [
        (learner, name, number, None if math.isnan(c.value) else c.value, int(is_superseded(c, cells)))
        for (learner, name), column in sorted(series_of(cells).items())
        for number, c in enumerate(column, 1)
    ]
    for key, column in series_of(live).items():
        count, step, last, low, high = summed[key]
        assert (count, step, repr(math.nan if last is None else last), low, high) == sums(column)


def check_charts(store: Store, row: JobRow, live: Sequence[Cell]) -> None:
    kept = series_of(live)
    epochs = {(c.learner, c.attempt, c.report): c.value for c in live if c.is_time}
    for each in series(store, row.id, kinds=("value",)):
        column = kept[each.learner, each.name]
        beside = [epochs.get((c.learner, c.attempt, c.report)) for c in column]
        if all(cell.step is not None for cell in column):
            axis, places = "step", [cell.step for cell in column]
        elif all(epoch is not None for epoch in beside):
            axis, places = "epoch", beside
        else:
            axis, places = "number", [*range(1, len(column) + 1)]
        found = chart_points(store, each, axis, width=500, shown=ChartRange())
        assert chart_axis(store, [each]) == axis
        assert found is not None
        order = sorted(range(len(column)), key=lambda at: (places[at], at))
        drawn = sorted(found, key=lambda bucket: bucket.last_step or 0.0)
        assert [(b.last_step, repr(math.nan if b.last is None else b.last)) for b in drawn] == [
            (places[at], repr(column[at].value)) for at in order
        ]


def check_filters(store: Store, row: JobRow, live: Sequence[Cell]) -> None:
    rows = series(store, row.id, kinds=("value", "etime"))
    for name in {cell.name for cell in live}:
        wanted = name.encode().lower()
        fitting = [
            column
            for column in series_of(live).values()
            if column[0].name.encode().lower() == wanted
            or column[0].name.encode().lower().endswith(b"/" + wanted)
        ]
        first = min(fitting, key=lambda c: (c[0].learner, c[0].is_time, len(c[0].name), c[0].name))
        _, _, last, low, high = sums(first)
        for which, value in (("last", float(last)), ("min", low), ("max", high)):
            expected = None if value is None or math.isnan(value) else value
            assert metric_values(store, [row.id], MetricName(name, which)) == {
                row.id: (first[0].learner, expected)
            }
            (verdict,) = judge([Condition("", name, which, "<=", math.inf)], rows)
            assert verdict.holds == (expected is not None)
            assert repr(verdict.value) == repr(math.nan if expected is None else expected)
