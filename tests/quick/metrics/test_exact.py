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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.gate.lanes import examples
from tests.learner import event_files as tf
from tests.learner.collecting import Rig, context
from tests.quick.metrics.programs import Life, Program, lived, tells_its_course
from tests.quick.metrics.writing import HEADER
from tests.support.stored_jobs import add_job
from workbench.cli.commands.inspect.metric_tables import MetricSelection, print_csv, print_rows
from workbench.learner import checkpoint, report
from workbench.learner.collectors.emetrics import EmetricsCollector
from workbench.learner.collectors.interface import Context
from workbench.learner.collectors.regex.collector import RegexCollector
from workbench.learner.collectors.report import ReportCollector
from workbench.learner.collectors.tensorboard.collector import TensorboardCollector
from workbench.learner.texts import clean_name
from workbench.metrics import ingest, points, series
from workbench.metrics.chart_axis import ChartRange, chart_axis, chart_points
from workbench.metrics.conditions import Condition, judge
from workbench.metrics.queries import cuts_of_series
from workbench.metrics.table import MetricRow, table
from workbench.paths import Home
from workbench.services.inspect.job_series import SeriesQuery
from workbench.services.inspect.job_series import series as python_series
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import metric_values
from workbench.store.queries.metric_values import MetricName
from workbench.store.queries.sql_console import open_views

EXAMPLES = int(os.environ.get("FABRIC_GENERATED_METRICS") or examples(60))
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
    is_checkpoint: bool = False


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
    offset: float = 0
    """What is added to its step so that steps go on from epoch to epoch; the step has it already."""
    epoch: float = 0
    """Where steps are counted anew: the last one that was reported in the attempt."""


def cells_of(job: Job) -> list[Cell]:
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


Step = tuple[int, float]
"""A report, and the step that it was for."""


def counted_on(cells: Sequence[Cell], saved: Sequence[Saved]) -> list[Cell]:
    """Return what was reported with the one count of steps."""
    found = list(cells)
    for learner in {cell.learner for cell in cells}:
        own = [cell for cell in cells if cell.learner == learner]
        epochs = {(cell.attempt, cell.report): cell.value for cell in own if cell.is_time}
        offsets: dict[tuple[int, int], float] = {}
        for names in counted_together(own):
            offsets |= offsets_of([cell for cell in own if cell.name in names], epochs, saved, learner)
        if not any(offsets.values()):
            continue
        for at, cell in enumerate(found):
            if cell.learner == learner:
                offset = offsets.get((cell.attempt, cell.report), 0)
                step = None if cell.step is None else whole(cell.step + offset)
                before = [
                    (other.seconds, other.value)
                    for other in own
                    if other.is_time and other.attempt == cell.attempt and other.seconds <= cell.seconds
                ]
                epoch = epochs.get((cell.attempt, cell.report), max(before, default=(0, -math.inf))[1])
                found[at] = replace(cell, step=step, offset=offset, epoch=epoch)
    return found


def whole(step: float) -> float:
    return float(step) if abs(step) >= 2**63 else step


def counted_together(cells: Sequence[Cell]) -> list[set[str]]:
    """Which metrics share a count: those that have a report in common."""
    groups: list[set[str]] = []
    for key in {(cell.attempt, cell.report) for cell in cells}:
        names = {cell.name for cell in cells if (cell.attempt, cell.report) == key and not cell.is_time}
        touched = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names] + [names.union(*touched)]
    return groups


def goes_back(cells: Sequence[Cell], name: str) -> bool:
    own = [cell for cell in cells if cell.name == name and not cell.is_time and cell.step is not None]
    return any(
        one.attempt == other.attempt and (other.step or 0) < (one.step or 0) for one, other in pairwise(own)
    )


def offsets_of(
    cells: Sequence[Cell], epochs: Mapping[tuple[int, int], float], saved: Sequence[Saved], learner: int
) -> dict[tuple[int, int], float]:
    """What is added to the steps of each report."""
    values = [cell for cell in cells if not cell.is_time and cell.step is not None]
    steps: dict[int, list[Step]] = {}
    for (attempt, number), step in sorted({(c.attempt, c.report): c.step or 0 for c in values}.items()):
        steps.setdefault(attempt, []).append((number, step))
    back = any(goes_back(cells, name) for name in {cell.name for cell in values})
    later = any(begins_later(values, name, epochs) for name in {cell.name for cell in values})
    passes: dict[int, list[Part]] = {}
    for attempt, listed in steps.items():
        whole_epochs = [epochs.get((attempt, number)) for number, _ in listed]
        passes[attempt] = split(
            listed,
            [None if epoch is None else math.floor(epoch) for epoch in whole_epochs],
            [each for each in passes.values() if len(each) > 1],
        )
    if not (back or later) or not (later or any(len(each) > 1 for each in passes.values())):
        return {}
    seconds = {(cell.attempt, cell.report): cell.seconds for cell in values}
    own = [each for each in saved if each.learner == learner] or list(saved)
    bases: dict[int, float] = {}
    found = {}
    for attempt in sorted(passes):
        bases[attempt] = base_of(attempt, passes, bases, epochs, seconds, own)
        for offset, _, part in passes[attempt]:
            for number, _ in part:
                found[attempt, number] = offset + bases[attempt]
    return found


def begins_later(values: Sequence[Cell], name: str, epochs: Mapping[tuple[int, int], float]) -> bool:
    """Whether an attempt began in a later epoch than another had its greatest step in, and at no greater step."""
    own = [cell for cell in values if cell.name == name]
    firsts = {cell.attempt: cell for cell in reversed(own)}
    return any(
        (first.step or 0) <= (greatest.step or 0)
        and math.floor(epochs[first.attempt, first.report])
        > math.floor(epochs[greatest.attempt, greatest.report])
        for first in firsts.values()
        for before in range(1, first.attempt)
        for greatest in [
            max((c for c in own if c.attempt == before), key=lambda c: c.step or 0, default=first)
        ]
        if {(c.attempt, c.report) for c in (first, greatest)} <= set(epochs)
    )


Part = tuple[float, float, list[Step]]
"""What is added to the steps of a pass, how far behind its greatest the next one begins, and its steps."""


def split(
    steps: Sequence[Step], epochs: Sequence[int | None], anew_before: Sequence[Sequence[Part]]
) -> list[Part]:
    """Cut the steps of an attempt where a later epoch goes no further, or they fall back near to where they began."""
    found: list[Part] = []
    in_part: list[int] = []
    for (number, step), epoch in zip(steps, epochs, strict=True):
        part = found[-1][2] if found else []
        top = max((each for _, each in part), default=step)
        first = part[0][1] if part else step
        if len(found) <= 1 and anew_before:
            first = min(first, *(each[2][0][1] for attempt in anew_before for each in attempt))
        is_later = epoch is not None and bool(in_part) and epoch > max(in_part) and step <= top
        if not part:
            found.append((0, anew_before[-1][-1][1] if anew_before else 0, [(number, step)]))
        elif is_later or (top > first and step - first <= (top - first) / 2):
            found.append((end_of(found[-1]) - step, found[-1][1], [(number, step)]))
            in_part = []
        else:
            offset, gap, _ = found[-1]
            found[-1] = (offset, step - top if step > top else gap, [*part, (number, step)])
        in_part += [] if epoch is None else [epoch]
    return found


def end_of(part: Part) -> float:
    """Where the next pass begins."""
    top = max(step for _, step in part[2])
    return part[0] + top + (part[1] or max(top, 1))


def base_of(
    attempt: int,
    passes: Mapping[int, Sequence[Part]],
    bases: Mapping[int, float],
    epochs: Mapping[tuple[int, int], float],
    seconds: Mapping[tuple[int, int], int],
    saved: Sequence[Saved],
) -> float:
    """What is added to the steps of an attempt: it went on at its first epoch, or else behind the last checkpoint."""

    begins = [
        (epochs[attempt, report], offset, step)
        for offset, _, part in passes[attempt]
        for report, step in part
        if (attempt, report) in epochs
    ]
    earlier = [
        (each, part, known)
        for each in sorted(bases, reverse=True)
        for part in reversed(passes[each])
        if (known := [math.floor(epochs[each, report]) for report, _ in part[2] if (each, report) in epochs])
    ]
    if begins and earlier:
        epoch, offset, step = begins[0]
        far: list[tuple[int, int, float]] = []
        seen: set[int] = set()
        for each, part, known in earlier:
            if min(known) > math.floor(epoch) or each in seen:
                continue
            seen.add(each)
            if math.floor(epoch) <= max(known):
                return bases[each] + part[0] - offset
            behind = bases[each] + end_of(part) - (offset + max(step, first_of_passes(passes)))
            if math.floor(epoch) == max(known) + 1:
                return behind
            far.append((max(known), each, behind))
        return max(far)[2] if far else 0
    before = sorted((each.attempt, each.seconds) for each in saved if each.attempt < attempt)[-1:]
    if not before or before[0][0] not in bases:
        return base_of_steps(attempt, passes, bases)
    each, at = before[0]
    done = [
        (part, number)
        for part in passes[each]
        for number, (report, _) in enumerate(part[2])
        if seconds[each, report] <= at
    ]
    if not done:
        return bases[each]
    part, number = done[-1]
    first = begins_with(attempt, passes)
    if first > part[2][number][1] or number < len(part[2]) - 1:
        return bases[each] + part[0]
    return bases[each] + end_of(part) - first


def first_of_passes(passes: Mapping[int, Sequence[Part]]) -> float:
    """What a pass begins with that follows another one: a first pass may have a baseline before it."""
    return min((part[2][0][1] for each in passes.values() for part in each[1:]), default=-math.inf)


def begins_with(attempt: int, passes: Mapping[int, Sequence[Part]]) -> float:
    """The step that an attempt went on with: not the first one if the second is far behind it."""
    _, behind, part = passes[attempt][0]
    steps = [step for _, step in part][:64]
    gaps = sorted(after - before for before, after in pairwise(steps[1:]) if after > before)
    gap = gaps[len(gaps) // 2] if gaps else behind
    is_alone = len(steps) > 1 and gap > 0 and steps[1] - steps[0] > 1.5 * gap
    return max(steps[int(is_alone)], first_of_passes(passes))


def base_of_steps(attempt: int, passes: Mapping[int, Sequence[Part]], bases: Mapping[int, float]) -> float:
    """Without epochs and checkpoints: from the beginning where it began like that, else within the last pass."""
    before = max((each for each in bases if each < attempt), default=None)
    if before is None:
        return 0
    first = max(min(part[2][0][1] for part in passes[before]), first_of_passes(passes))
    return 0 if begins_with(attempt, passes) <= first else bases[before] + passes[before][-1][0]


def series_of(cells: Sequence[Cell]) -> dict[tuple[int, str], list[Cell]]:
    found: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.learner, cell.name), []).append(cell)
    return found


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was reported."""

    learner: int
    attempt: int
    step: float | None
    seconds: int


Job = Mapping[tuple[int, int], tuple[str, Sequence[Report]]]


def saved_in(job: Job) -> list[Saved]:
    return [
        Saved(*key, one.step, one.seconds)
        for key, (_, found) in sorted(job.items())
        for one in found
        if one.is_checkpoint
    ]


GivenUp = tuple[int, int, int, str]
"""Learner, attempt, number of the report and name of a value."""


@dataclass(frozen=True)
class Course:
    """All that was reported, and what of it a later attempt went over again."""

    cells: Sequence[Cell]
    given_up: Set[GivenUp]

    @property
    def live(self) -> list[Cell]:
        return [cell for cell in self.cells if not self.is_superseded(cell)]

    @property
    def anew(self) -> set[int]:
        """The learners whose steps are counted anew."""
        return {cell.learner for cell in self.cells if cell.offset}

    def is_superseded(self, cell: Cell) -> bool:
        return (cell.learner, cell.attempt, cell.report, cell.name) in self.given_up


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    learner: int
    attempt: int
    step: float | None
    seconds: float
    values: frozenset[tuple[str, str]]


Rows = list[list[Row]]
"""Rows in their order; those of one list may come in any order."""


def rows_of(cells: Sequence[Cell], anew: Container[int]) -> Rows:
    """One row a report; reports of one step share a row unless a metric comes twice.

    Where steps are counted anew, those alone share one that come in the same instant of the same epoch.
    """

    def step_of(cell: Cell) -> tuple[float | None, ...]:
        instant = (cell.epoch, cell.seconds) if cell.learner in anew else ()
        return cell.learner, cell.attempt, cell.step, *instant

    by_step: dict[tuple[float | None, ...], list[Cell]] = {}
    for cell in cells:
        if cell.step is not None:
            by_step.setdefault(step_of(cell), []).append(cell)
    shared = {key for key, each in by_step.items() if len({cell.name for cell in each}) == len(each)}
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = step_of(cell)
        groups.setdefault((*key, None if key in shared else cell.report), []).append(cell)
    found: dict[Any, list[Row]] = {}
    for each in groups.values():
        cell = each[0]
        is_by_step = cell.step is not None and cell.learner not in anew
        order = (
            cell.learner,
            cell.attempt,
            cell.epoch if cell.learner in anew else 0,
            not is_by_step,
            cell.step if is_by_step else cell.seconds,
        )
        row = Row(*order[:2], cell.step, cell.seconds, shown({cell.name: cell.value for cell in each}))
        found.setdefault(order, []).append(row)
    return [in_any_order(each) for _, each in sorted(found.items(), key=lambda item: item[0])]


def in_any_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.step is None, row.step or 0, sorted(row.values)))


def grouped(rows: Sequence[Row], like: Rows) -> Rows:
    """Return rows in lists as long as those of the model."""
    left = iter(rows)
    found = [in_any_order(islice(left, len(each))) for each in like]
    return [*found, list(left)] if len(rows) > sum(map(len, like)) else found


def shown(values: Mapping[str, float]) -> frozenset[tuple[str, str]]:
    """Values that can be compared though some are NaN."""
    return frozenset((name, repr(float(value))) for name, value in values.items())


# What is reported.


PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "Trainer": {"counts": "fractions", "has_epochs": True},
    "Lightning": {"first": 0},
    "Keras": {"counts": "epochs"},
    "loop": {},
}


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A program of a usual kind that is halted anywhere, and goes on from a checkpoint or begins anew."""
    kind = draw(st.sampled_from(sorted(PROGRAMS)))
    batches = draw(st.integers(2, 5))
    program = Program(batches=batches, **PROGRAMS[kind])
    if kind == "Keras":
        program = replace(program, every=batches, saves=batches * draw(st.integers(1, 2)))
    elif kind == "Lightning":
        program = replace(program, every=draw(st.integers(1, 4)), saves=batches, validates=batches)
    else:
        program = replace(program, every=draw(st.integers(1, 3)), saves=draw(st.integers(1, 6)))
        program = replace(program, validates=draw(st.sampled_from([0, 2, batches])))
    if kind == "loop":
        program = replace(
            program,
            counts=draw(st.sampled_from(["batches", "epoch"])),
            first=draw(st.integers(0, 1)),
            has_epochs=draw(st.booleans()),
            starts_with=draw(st.sampled_from([None, None, 0, 1])),
        )
    program = replace(program, saved_as=draw(st.sampled_from(["step", "epoch", "none", ""])))
    count = draw(st.integers(1, 4))
    attempts = [(draw(st.integers(1, 40)), draw(st.integers(0, 5)) > 0) for _ in range(count)]
    life = lived(program, attempts, anywhere=True)
    assume(tells_its_course(program, life))
    return life


VALUES = (
    st.floats(-1e6, 1e6)
    | st.integers(-5, 5)
    | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 2**63, -(2**63), 5e-324])
)
STEPS = st.none() | st.integers(0, 6) | st.sampled_from([0.25, 0.5, 1.5, -3, 10**12, -(2**63), 2**63 - 1])
EPOCHS = st.none() | st.sampled_from([0.5, 1, 1.25, 2])


@st.composite
def reports(draw: st.DrawFn, *, checkpoints: bool = False) -> list[Report]:
    found: list[Report] = []
    for _ in range(draw(st.integers(0, 8))):
        if checkpoints and draw(st.integers(0, 4)) == 0:
            found.append(Report("", draw(st.none() | st.integers(0, 6)), None, {}, is_checkpoint=True))
            continue
        values = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, min_size=1, max_size=3))
        found.append(Report(draw(st.sampled_from(GROUPS)), draw(STEPS), draw(EPOCHS), values))
    return found


@st.composite
def trainings(draw: st.DrawFn) -> list[list[Report]]:
    """Attempts of a training that counts the batches of each epoch anew and goes on where it had saved."""
    batches, stride = draw(st.integers(2, 4)), draw(st.sampled_from([1, 10, 0.5]))
    start = draw(st.integers(0, 1))
    has_epochs, validates, saves = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    name = draw(st.sampled_from(["loss", "Loss/val"]))
    attempts: list[list[Report]] = []
    done = 0  # batches, over all epochs
    for _ in range(draw(st.integers(1, 3))):
        found: list[Report] = []
        for number in range(done, done + draw(st.integers(0, 3 * batches))):
            epoch, batch = divmod(number, batches)
            counted = epoch + 1 if has_epochs else None
            values = {name: draw(VALUES), **({"ää ü": 1.0} if batch % 2 else {})}
            found.append(Report("train", (batch + start) * stride, counted, values))
            if batch == batches - 1:
                if validates:
                    found.append(Report("val", epoch + 1, counted, {name: draw(VALUES)}))
                if saves:
                    found.append(Report("", epoch + 1, None, {}, is_checkpoint=True))
                    done = number + 1
            elif saves and draw(st.integers(0, 4)) == 0:
                found.append(Report("", None, None, {}, is_checkpoint=True))
                done = number + 1
        attempts.append(found)
    return attempts


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
        trained = draw(st.none() | trainings())
        for attempt in range(1, (draw(st.integers(1, 3)) if trained is None else len(trained)) + 1):
            source = draw(st.sampled_from(["report", "emetrics", "tensorboard", "regex"]))
            if trained is not None:
                source, what = "report", trained[attempt - 1]
            else:
                what = draw(events() if source == "tensorboard" else reports(checkpoints=source == "report"))
            ticks = draw(st.booleans())  # several reports within one tick of the clock
            begin = START_SECONDS + attempt * 10_000 + learner
            timed = [
                Report(
                    one.group,
                    one.step,
                    one.epoch,
                    one.values,
                    begin + 10 * (number // 3 if ticks else number),
                    one.is_checkpoint,
                )
                for number, one in enumerate(what)
            ]
            found[learner, attempt] = (source, timed)
    return found


def job_of(life: Life) -> tuple[Job, set[GivenUp]]:
    """What a program that lived so reports, and which of its reports count no more."""
    job: dict[tuple[int, int], tuple[str, list[Report]]] = {}
    given_up = set()
    gone = {id(one) for one in life.given_up}
    for one in life.reported:
        if not one.is_reported:
            continue
        _, found = job.setdefault((1, one.attempt), ("report", []))
        if id(one) in gone:
            given_up |= {(1, one.attempt, len(found), name) for name in (*one.values, "epoch")}
        seconds = START_SECONDS + int(one.seconds)
        found.append(Report("", one.step, one.epoch, one.values, seconds, one.is_checkpoint))
    return job, given_up


def by_report(folder: Context, what: Sequence[Report]) -> Rig:
    module = sys.modules["workbench.learner.report"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRIC_REPORT", str(Path(folder.learner_dir) / "report.jsonl"))
        for number, one in enumerate(what):
            patch.setattr(module, "time", SimpleNamespace(time=lambda now=one.seconds: now))
            if one.is_checkpoint:
                checkpoint(f"{number}.pt", step=None if one.step is None else int(one.step))
                continue
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


def by_regex(folder: Context, what: Sequence[Report]) -> Rig:
    """Lines of the output, one group of expressions for each group of metrics; a value may be missing in a line."""
    columns = {name: {"type": "FLOAT", "value": f"$v{number}"} for number, name in enumerate(NAMES)}
    parts = "".join(rf"(?:v{number}=%{{FLOAT:v{number}}} )?" for number in range(len(NAMES)))
    groups = {
        group: {
            "regex": rf"report {number} {parts}(?:epoch=%{{FLOAT:epoch}} )?end",
            "scalars": columns,
            "etimes": {"epoch": {"type": "FLOAT", "value": "$epoch"}},
        }
        for number, group in enumerate(GROUPS)
    }
    rig = Rig(lambda: RegexCollector({"groups": groups}, folder))
    for one in what:
        values = "".join(f"v{NAMES.index(name)}={one.values[name]} " for name in NAMES if name in one.values)
        epoch = "" if one.epoch is None else f"epoch={one.epoch} "
        rig.now_us = one.seconds * 1_000_000
        rig.print(f"report {GROUPS.index(one.group)} {values}{epoch}end\n".encode())
    return rig


COLLECTED: Mapping[str, Callable[[Context, Sequence[Report]], Rig]] = {
    "report": by_report,
    "emetrics": by_emetrics,
    "tensorboard": by_tensorboard,
    "regex": by_regex,
}


@contextmanager
def measured(job: Job) -> Iterator[tuple[Store, JobRow]]:
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


def some_have_no_steps(job: Mapping[tuple[int, int], tuple[str, list[Report]]]) -> None:
    """Where a step is one of the evaluation times."""
    for source, what in job.values():
        if source in ("emetrics", "regex"):
            what[:] = [Report(one.group, None, one.epoch, one.values, one.seconds) for one in what]


@pytest.mark.timeout(180 + 2 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(jobs())
def test_every_reader_agrees_with_the_model(job: dict[tuple[int, int], tuple[str, list[Report]]]) -> None:
    some_have_no_steps(job)
    cells = counted_on(cells_of(job), saved_in(job))
    with measured(job) as (store, row):
        # What is reported here is no course of a training: whatever counts as given up is so for every reader.
        check_readers(store, row, Course(cells, given_up_in(store, row, cells)))


@pytest.mark.timeout(180 + 2 * EXAMPLES)
@settings(
    max_examples=max(1, EXAMPLES // 3),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(lives())
def test_what_a_program_gave_up_is_what_every_reader_leaves_out(life: Life) -> None:
    job, given_up = job_of(life)
    with measured(job) as (store, row):
        check_readers(store, row, Course(counted_on(cells_of(job), saved_in(job)), given_up))


def check_readers(store: Store, row: JobRow, course: Course) -> None:
    check_points(store, row, course.cells)
    check_sums(store, row, course.cells, course.live)
    check_tables(store, row, course)
    check_texts(store, row, course)
    check_python(store, row, course.cells, course.live)
    check_sql(store, row, course)
    check_charts(store, row, course.live)
    check_filters(store, row, course.live)


def given_up_in(store: Store, row: JobRow, cells: Sequence[Cell]) -> set[GivenUp]:
    """What fabric takes for given up: the same moment of an attempt for all its series, and none of the last one's."""
    moments: dict[tuple[int, int], list[tuple[int, bool]]] = {}
    given_up = set()
    columns = series_of(cells)
    for each in series(store, row.id):
        cuts = {cut.attempt: cut for cut in cuts_of_series(store, each)}
        for cell, point in zip(columns[each.learner, each.name], points(store, each.id), strict=True):
            cut = cuts.get(cell.attempt)
            is_gone = cut is not None and cut.holds(point.seq, point.time_us)
            moments.setdefault((cell.learner, cell.attempt), []).append((cell.seconds, is_gone))
            if is_gone:
                given_up.add((cell.learner, cell.attempt, cell.report, cell.name))
    for (learner, attempt), reported in moments.items():
        last = max((c.attempt for c in cells if c.learner == learner and not c.is_time), default=attempt)
        kept = max((seconds for seconds, is_gone in reported if not is_gone), default=0)
        assert all(seconds >= kept for seconds, is_gone in reported if is_gone)
        assert attempt != last or not any(is_gone for _, is_gone in reported)
    return given_up


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
    if not cells:
        return 0, None, "nan", None, None
    finite = [cell.value for cell in cells if math.isfinite(cell.value)]
    last = cells[-1]
    return len(cells), last.step, repr(last.value), min(finite, default=None), max(finite, default=None)


def check_sums(store: Store, row: JobRow, cells: Sequence[Cell], live: Sequence[Cell]) -> None:
    every, kept = series_of(cells), series_of(live)
    for each in series(store, row.id):
        key = each.learner, each.name
        last = repr(math.nan if each.last is None else each.last)
        assert (each.points, each.last_step, last, each.minimum, each.maximum) == sums(kept.get(key, ()))
        assert each.superseded == len(every[key]) - len(kept.get(key, ()))


def read_rows(found: Iterable[MetricRow]) -> list[Row]:
    return [
        Row(each.learner, each.attempt, each.step, each.time_us // 1_000_000, shown(each.values))
        for each in found
    ]


def check_tables(store: Store, row: JobRow, course: Course) -> None:
    for asked, of in (
        ({}, course.live),
        ({"superseded": True}, course.cells),
        ({"attempt": 1}, [cell for cell in course.cells if cell.attempt == 1]),
        ({"attempt": 2}, [cell for cell in course.cells if cell.attempt == 2]),
        ({"learner": 2}, [cell for cell in course.live if cell.learner == 2]),
    ):
        expected = rows_of(of, course.anew)
        found: Any = table(store, row.id, **asked).rows
        assert grouped(read_rows(found), expected) == expected


def printed(write: Callable[[], None]) -> str:
    out = io.StringIO(newline="")
    with redirect_stdout(out):
        write()
    return out.getvalue()


def check_texts(store: Store, row: JobRow, course: Course) -> None:
    expected = rows_of(course.live, course.anew)
    text = printed(lambda: print_csv(store, row, MetricSelection()))
    found = [
        Row(
            int(line["learner"]),
            int(line["attempt"]),
            json.loads(line["step"]) if line["step"] else None,
            int(float(line["time"])),
            shown({name: float(cell) for name, cell in list(line.items())[4:] if cell}),
        )
        for line in csv.DictReader(io.StringIO(text, newline=""))
    ]
    assert grouped(found, expected) == expected
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
        assert {name: (each.axis, list(each.x)) for name, each in found.items()} == {
            name: axis_of(column, cells) for name, column in wanted.items()
        }


def check_sql(store: Store, row: JobRow, course: Course) -> None:
    query = (
        "SELECT learner, name, number, points.step, value, points.superseded FROM metrics "
        f"JOIN points USING (series) WHERE id = '{row.id}' ORDER BY learner, name, number"
    )
    sum_query = (
        f"SELECT learner, name, points, step, last, least, greatest FROM metrics WHERE id = '{row.id}'"
    )
    with open_views(store.home) as views:
        found = list(views.rows(views.run(query)))
        summed = {line[:2]: line[2:] for line in views.rows(views.run(sum_query))}
    assert found == [
        (
            learner,
            name,
            number,
            c.step,
            None if math.isnan(c.value) else c.value,
            int(course.is_superseded(c)),
        )
        for (learner, name), column in sorted(series_of(course.cells).items())
        for number, c in enumerate(column, 1)
    ]
    live = series_of(course.live)
    for key, column in ((key, live.get(key, ())) for key in series_of(course.cells)):
        count, step, last, low, high = summed[key]
        assert (count, step, repr(math.nan if last is None else last), low, high) == sums(column)


def axis_of(column: Sequence[Cell], cells: Sequence[Cell]) -> tuple[str, list[float]]:
    """What the x of a series is, and the x of each point."""
    epochs = {(c.learner, c.attempt, c.report): c.value for c in cells if c.is_time}
    reported = [epochs.get((c.learner, c.attempt, c.report)) for c in column]
    steps = [cell.step for cell in column if cell.step is not None]
    known = [epoch for epoch in reported if epoch is not None]
    if len(steps) == len(column):
        return "step", steps
    return ("epoch", known) if len(known) == len(column) else ("number", [*range(1, len(column) + 1)])


def check_charts(store: Store, row: JobRow, live: Sequence[Cell]) -> None:
    kept = series_of(live)
    for each in series(store, row.id, kinds=("value",)):
        column = kept.get((each.learner, each.name), [])
        axis, x = axis_of(column, live)
        found = chart_points(store, each, axis, width=500, shown=ChartRange())
        assert chart_axis(store, [each]) == axis
        assert found is not None
        order = sorted(range(len(column)), key=lambda at: (x[at], at))
        drawn = sorted(found, key=lambda bucket: bucket.last_step or 0.0)
        assert [(b.last_step, repr(math.nan if b.last is None else b.last)) for b in drawn] == [
            (x[at], repr(column[at].value)) for at in order
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
