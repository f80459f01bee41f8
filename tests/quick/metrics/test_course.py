"""Steps that code counts anew in each epoch go on from epoch to epoch, and from an attempt to the one that went on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from screens.jobs.queries import figures
from tests.quick.metrics.programs import Life, Program, lived
from tests.quick.metrics.test_ingesting import take_all
from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import add_job
from workbench.metrics import checkpoints, points, series
from workbench.metrics.chart_axis import STEP, TIME, chart_axis, chart_points
from workbench.metrics.queries import last_step, latest, time_of_step
from workbench.metrics.table import table
from workbench.paths import Home
from workbench.services.inspect.job_series import Series, SeriesQuery
from workbench.services.inspect.job_series import series as python_series
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries import origins, step_course
from workbench.store.queries.job_list import JobList, metric_values, window
from workbench.store.queries.metric_values import MetricName
from workbench.store.queries.sql_console import open_views
from workbench.store.queries.sweeps import Median, median_of_sweep
from workbench.store.queries.where import parse

BATCHES = 3
NAME = "Loss/val"


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


@dataclass(frozen=True)
class Attempt:
    """What an attempt trains: from one batch of all epochs to another, and after which ones it saves."""

    begins: int
    ends: int
    saves: tuple[int, ...] = ()


def trained(
    store: Store, folder: Path, attempts: Sequence[Attempt], *, epochs: bool, name: str = NAME
) -> JobRow:
    """Take in what a training reports that counts its batches from 1 on in each epoch; a loss is its whole step."""
    row = add_job(store)
    for number, attempt in enumerate(attempts, 1):
        records = Records(folder / f"records-{number}.jsonl")
        for at in range(attempt.begins, attempt.ends + 1):
            epoch, batch = divmod(at - 1, BATCHES)
            more = {"etimes": {"epoch": [epoch + 1]}} if epochs else {}
            records.points({name: [float(at)]}, steps=[batch + 1], times=[number * 10_000 + at], **more)
            if at in attempt.saves:
                # A checkpoint's step is of another count: here the epoch.
                records.add("checkpoint", path=f"{at}.pt", step=epoch + 1, time=number * 10_000 + at)
        take_all(store, records, attempt=number, job_id=row.id)
    store.execute("UPDATE jobs SET attempt = ?", (len(attempts),))
    return row


def test_what_is_printed_beside_reports_does_not_say_that_a_checkpoint_was_not_loaded(
    store: Store, tmp_path: Path
) -> None:
    """Keras with Determined's callback prints how far each epoch is, and reports each epoch with all batches so far."""
    row = add_job(store)
    for number, epochs in enumerate(((1, 2, 3), (4, 5)), 1):
        records = Records(tmp_path / f"records-{number}.jsonl")
        for epoch in epochs:
            time = 10_000 * number + 100 * epoch
            for step in (1, 2, 3, 4, *[4 * epoch] * 4):
                # Of training, then of validation; the epoch is how many percent of it are done.
                records.points({"printed": [1 / step]}, steps=[step], times=[time], etimes={"epoch": [100]})
            records.points({"training/loss": [1 / epoch]}, steps=[4 * epoch], times=[time + 5])
            records.add("checkpoint", path=f"{epoch}", step=4 * epoch, time=time + 6)
        take_all(store, records, attempt=number, job_id=row.id)
    store.execute("UPDATE jobs SET attempt = 2")

    assert {each.name: each.superseded for each in series(store, row.id, kinds=("value",))} == {
        "printed": 0,
        "training/loss": 0,
    }
    assert [each.step for each in checkpoints(store, row.id)] == [4, 8, 12, 16, 20]


def test_a_job_that_went_on_has_as_many_checkpoints_as_it_likes(store: Store, tmp_path: Path) -> None:
    row = trained(store, tmp_path, [Attempt(1, 4, saves=(2,)), Attempt(3, 5)], epochs=False)
    store.connection.executemany(
        "INSERT INTO checkpoints (job_id, attempt, learner, seq, time_us, path) VALUES (?, 1, 1, ?, ?, 'saved')",
        [(row.id, 1_000 + number, 1_800_000_000_000_000 - number) for number in range(6_000)],
    )

    (loss,) = series(store, row.id, kinds=("value",))

    assert loss.last == 5.0


EPOCH_BY_EPOCH = [Attempt(1, 8, saves=(3, 6)), Attempt(7, 11)]
IN_THE_MIDDLE = [Attempt(1, 8, saves=(5,)), Attempt(6, 9)]
TWICE = [Attempt(1, 8, saves=(3, 6)), Attempt(7, 9, saves=(9,)), Attempt(10, 12)]
WITHIN_THE_FIRST_EPOCH = [Attempt(1, 3, saves=(3,)), Attempt(4, 5)]
FROM_THE_BEGINNING = [Attempt(1, 8), Attempt(1, 5)]


@pytest.mark.parametrize(
    ("attempts", "epochs"),
    [
        (EPOCH_BY_EPOCH, True),
        (EPOCH_BY_EPOCH, False),
        (IN_THE_MIDDLE, True),
        (IN_THE_MIDDLE, False),
        (TWICE, True),
        (TWICE, False),
        (WITHIN_THE_FIRST_EPOCH, True),
        (FROM_THE_BEGINNING, True),
        (FROM_THE_BEGINNING, False),
        ([Attempt(1, 10)], True),
        ([Attempt(1, 10)], False),
    ],
)
@pytest.mark.parametrize("name", ["loss", NAME])
def test_every_reader_has_the_one_count(
    store: Store, tmp_path: Path, attempts: Sequence[Attempt], epochs: bool, name: str
) -> None:
    row = trained(store, tmp_path, attempts, epochs=epochs, name=name)
    every = [(number, at) for number, a in enumerate(attempts, 1) for at in range(a.begins, a.ends + 1)]
    kept = [
        (number, at) for number, at in every if not any(at >= later.begins for later in attempts[number:])
    ]
    steps = [at for _, at in kept]

    (loss,) = series(store, row.id, kinds=("value",))
    assert [(point.attempt, point.step) for point in points(store, loss.id)] == every
    assert (loss.points, loss.superseded) == (len(kept), len(every) - len(kept))
    assert (loss.last_step, loss.minimum, loss.maximum) == (steps[-1], min(steps), max(steps))
    found = list(table(store, row.id).rows)
    assert [(each.attempt, each.step, each.values[name]) for each in found] == [(n, at, at) for n, at in kept]
    marked = list(table(store, row.id, superseded=True).rows)
    assert [(each.attempt, each.step) for each in marked if not each.is_superseded] == kept
    assert chart_axis(store, [loss]) == STEP
    chart = chart_points(store, loss, STEP, width=40)
    assert chart is not None
    assert [(bucket.last_step, bucket.last) for bucket in chart] == [(at, at) for at in sorted(steps)]
    curve = python_series(store, row.id)[name]
    assert (list(curve.steps), list(curve.values)) == (steps, steps)
    with open_views(store.home) as views:
        query = "SELECT attempt, points.step FROM points JOIN metrics USING (series) WHERE kind = 'value'"
        assert list(views.rows(views.run(f"{query} AND NOT points.superseded ORDER BY number"))) == kept
        query = "SELECT step, points, superseded, least, greatest FROM metrics WHERE kind = 'value'"
        assert list(views.rows(views.run(query))) == [
            (steps[-1], len(kept), len(every) - len(kept), min(steps), max(steps))
        ]


def test_metrics_that_are_reported_together_share_one_count(store: Store, tmp_path: Path) -> None:
    row = add_job(store)
    records = Records(tmp_path / "records.jsonl")
    for epoch in range(3):
        for batch in range(5):
            seldom = {"accuracy": [0.5]} if batch % 2 == 0 else {}
            records.points({"loss": [1.0], **seldom}, steps=[batch], times=[epoch * 100 + batch])
        records.points({"test_loss": [2.0]}, steps=[epoch + 1], times=[epoch * 100 + 50])
    take_all(store, records, job_id=row.id)

    found = {each.name: [p.step for p in points(store, each.id)] for each in series(store, row.id)}

    assert found == {
        "loss": list(range(15)),
        "accuracy": [0, 2, 4, 5, 7, 9, 10, 12, 14],
        "test_loss": [1, 2, 3],
    }
    rows = list(table(store, row.id).rows)
    assert [each.step for each in rows] == [0, 1, 2, 3, 4, 1, 5, 6, 7, 8, 9, 2, 10, 11, 12, 13, 14, 3]
    assert all(len(each.values) == 1 for each in rows if "test_loss" in each.values)


def test_steps_that_only_grow_are_as_they_were_reported(store: Store, tmp_path: Path) -> None:
    row = add_job(store)
    for attempt, steps in ((1, [10, 20, 30, 25, 40]), (2, [31, 41, 51])):
        records = Records(tmp_path / f"records-{attempt}.jsonl")
        records.points({"loss": [1.0] * len(steps)}, steps=steps, etimes={"epoch": [s / 10 for s in steps]})
        records.add("checkpoint", path="model.pt", step=30)
        take_all(store, records, attempt=attempt, job_id=row.id)

    (loss, _) = series(store, row.id)

    assert [point.step for point in points(store, loss.id)] == [10, 20, 30, 25, 40, 31, 41, 51]
    assert loss.superseded == 1


def test_many_passes_are_counted_on_and_cut(store: Store, tmp_path: Path) -> None:
    row = add_job(store)
    for attempt, (begins, epochs) in enumerate(((1, 3000), (2500, 100)), 1):
        records = Records(tmp_path / f"records-{attempt}.jsonl")
        steps = [step for _ in range(epochs) for step in range(4)]
        times = [attempt * 1_000_000 + at for at in range(len(steps))]
        count = [float(begins + at // 4) for at in range(len(steps))]
        records.points({"loss": count}, steps=steps, times=times, etimes={"epoch": count})
        take_all(store, records, attempt=attempt, job_id=row.id)

    (loss,) = series(store, row.id, kinds=("value",))

    assert (loss.points, loss.superseded, loss.last_step) == (2499 * 4 + 400, 501 * 4, 2598 * 4 + 3)
    assert [each.step for each in table(store, row.id).rows] == [*range(2499 * 4), *range(9996, 10396)]
    assert time_of_step(store, row.id, 9998, 2) == 2_000_002
    assert last_step(store, row.id) == 10395


KINDS: dict[str, tuple[Program, list[tuple[int, bool]]]] = {
    "plain": (Program(saves=6), [(8, True), (5, True)]),
    "anew each epoch": (Program(counts="epoch", saves=6), [(8, True), (5, True)]),
    "a baseline at 0 on each start": (Program(starts_with=0, saves=6), [(8, True), (5, True), (4, True)]),
    "an early step on each start": (Program(starts_with=1, saves=6), [(8, True), (5, True)]),
    "val only in the given-up part": (
        Program(validates=5, validated_by=1, saves=4),
        [(6, True), (4, True)],
    ),
    "from the beginning": (Program(saves=6), [(8, True), (5, False)]),
    "given up for an earlier state": (Program(saves=3), [(8, True), (4, False), (3, True)]),
    "first steps from 0 on": (Program(first=0, every=2, saves=6), [(9, True), (7, True)]),
}
TELLS: dict[str, dict[str, Any]] = {
    "epochs": {"has_epochs": True},
    "a checkpoint with its step": {"saved_as": "step"},
    "a checkpoint with its epoch": {"saved_as": "epoch"},
    "a checkpoint without a step": {"saved_as": "none"},
    "nothing": {},
}


def program_of(kind: str, tells: str) -> tuple[Program, list[tuple[int, bool]]]:
    program, attempts = KINDS[kind]
    if kind == "anew each epoch" and tells == "nothing":
        # Whoever begins with the first batch again has begun from the beginning then: it goes on within an epoch.
        program = replace(program, saves=7)
    return replace(program, **TELLS[tells]), attempts


def take_life(store: Store, folder: Path, life: Life) -> JobRow:
    row = add_job(store)
    for attempt in sorted({one.attempt for one in life.reported}):
        records = Records(folder / f"records-{attempt}.jsonl")
        for number, one in enumerate(life.reported):
            time = round(one.seconds * 1_000_000)
            if one.attempt != attempt or not one.is_reported:
                continue
            if one.is_checkpoint:
                records.add("checkpoint", path=f"{number}.pt", step=one.step, time=time)
                continue
            more = {} if one.epoch is None else {"etimes": {"epoch": [one.epoch]}}
            values = {name: [value] for name, value in one.values.items()}
            records.points(values, steps=[one.step], times=[time], **more)
        take_all(store, records, attempt=attempt, job_id=row.id)
        store.execute("UPDATE jobs SET attempt = ?", (attempt,))
    return row


def check_every_reader(store: Store, row: JobRow, life: Life) -> None:
    """What counts in the end is what every reader shows: no value is there twice, so values tell points apart."""
    live = {
        name: [one.values[name] for one in life.course if name in one.values]
        for name in dict.fromkeys(name for one in life.reported for name in one.values)
    }
    gone = {name: sum(name in one.values for one in life.given_up) for name in live}

    found = {each.name: each for each in series(store, row.id, kinds=("value",))}
    assert {name: (each.points, each.superseded) for name, each in found.items()} == {
        name: (len(values), gone[name]) for name, values in live.items()
    }
    assert {name: (each.last, each.minimum, each.maximum) for name, each in found.items()} == {
        name: (values[-1], min(values), max(values)) if values else (None, None, None)
        for name, values in live.items()
    }
    shown = list(table(store, row.id).rows)
    every = list(table(store, row.id, superseded=True).rows)
    python = python_series(store, row.id)
    for name, values in live.items():
        assert sorted(each.values[name] for each in shown if name in each.values) == sorted(values)
        marked = [each.values[name] for each in every if name in each.values and not each.is_superseded]
        assert sorted(marked) == sorted(values)
        assert sum(name in each.values for each in every) == len(values) + gone[name]
        assert list(dict.get(python, name, Series(name, (), (), ())).values) == values
        axis = chart_axis(store, [found[name]])
        for x in (axis, TIME):
            chart = chart_points(store, found[name], x, width=4000)
            assert chart is not None
            assert sorted(bucket.last or 0 for bucket in chart) == sorted(values)
        last = values[-1] if values else None
        shows = {row.id: (1, last)} if values else {}
        assert metric_values(store, [row.id], MetricName(name, "last")) == shows
        most = metric_values(store, [row.id], MetricName(name, "max"))
        assert most == ({row.id: (1, max(values))} if values else {})
    assert latest(store, row.id) == {name: values[-1] for name, values in live.items() if values}
    with open_views(store.home) as views:
        query = "SELECT value FROM points JOIN metrics USING (series) WHERE kind = 'value' AND name = '{}'"
        for name, values in live.items():
            run = views.run(f"{query.format(name)} AND NOT points.superseded ORDER BY number")
            assert [value for (value,) in views.rows(run)] == values


@pytest.mark.parametrize("tells", TELLS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_given_up_counts_nowhere_and_all_else_everywhere(
    store: Store, tmp_path: Path, kind: str, tells: str
) -> None:
    life = lived(*program_of(kind, tells))

    check_every_reader(store, take_life(store, tmp_path, life), life)


def test_a_metric_of_the_given_up_part_alone_is_shown_on_request(store: Store, tmp_path: Path) -> None:
    program, attempts = program_of("val only in the given-up part", "nothing")
    row = take_life(store, tmp_path, lived(program, attempts))

    assert table(store, row.id).columns == ("loss",)
    assert table(store, row.id, superseded=True).columns == ("loss", "val")
    assert table(store, row.id, attempt=1).columns == ("loss", "val")
    assert set(python_series(store, row.id)) == {"loss"}
    assert list(python_series(store, row.id, SeriesQuery(superseded=True))["val"].values) == [1e6 + 5]
    for where, jobs in (("val>0", []), ("loss>0", [row.id])):
        listed = window(store, JobList(parse(where)), now_us=0)
        assert [each.id for each in listed.rows] == jobs


def test_a_list_shows_the_loss_and_step_that_count(store: Store, tmp_path: Path) -> None:
    row = add_job(store)
    first, second = Records(tmp_path / "1.jsonl"), Records(tmp_path / "2.jsonl")
    first.points({"train_loss": [4.0, 3.0]}, steps=[1, 2], times=[1, 2])
    first.points({"loss": [9.0]}, steps=[3], times=[3])
    second.points({"train_loss": [2.5]}, steps=[2], times=[11])
    take_all(store, first, attempt=1, job_id=row.id)
    take_all(store, second, attempt=2, job_id=row.id)
    store.execute("UPDATE jobs SET attempt = 2")

    found = figures(store, [row.id])[row.id]

    assert (found.step, found.loss) == (2, 2.5)
    for sort in ("step", "column loss"):
        assert [each.id for each in window(store, JobList(sort=sort), now_us=0).rows] == [row.id]


def test_a_job_is_compared_with_its_sweep_by_what_counts(store: Store, tmp_path: Path) -> None:
    rows = [add_job(store, f"job-{number}", labels={"sweep": "lr"}) for number in range(4)]
    for number, row in enumerate(rows):
        first, second = Records(tmp_path / f"{number}-1.jsonl"), Records(tmp_path / f"{number}-2.jsonl")
        # What was given up was better, for the first job, and worse for the others.
        given_up = [0.1, 0.1] if number == 0 else [9.0, 9.0]
        first.points({"loss": [5.0, 4.0, *given_up]}, steps=[1, 2, 3, 4], times=[1, 2, 3, 4])
        second.points({"loss": [3.0 + number, 2.0 + number]}, steps=[3, 4], times=[11, 12])
        take_all(store, first, attempt=1, job_id=row.id)
        take_all(store, second, attempt=2, job_id=row.id)
    store.execute("UPDATE jobs SET attempt = 2")

    found = median_of_sweep(store, rows[0], "loss", smaller_is_better=True, after=3)

    assert found == Median(own=2.0, others=4.0, jobs=3, values=4)
    assert median_of_sweep(store, rows[0], "loss", smaller_is_better=True, after=4) is None


def test_what_a_learner_used_is_no_course_of_a_training(store: Store, tmp_path: Path) -> None:
    row = add_job(store)
    for attempt in (1, 2):
        records = Records(tmp_path / f"{attempt}.jsonl")
        begins = attempt * 1_000_000
        records.points({"loss": [1.0, 2.0]}, steps=[1, 2], times=[begins, begins + 1])
        records.add("checkpoint", path="model.pt", step=None, time=begins + 1)
        records.add("usage", time=begins + 2, cpu_percent=50.0 * attempt)
        take_all(store, records, attempt=attempt, job_id=row.id)

    (cpu,) = [each for each in series(store, row.id, kinds=("usage",)) if each.name == "cpu_percent"]

    assert (cpu.points, cpu.superseded, cpu.minimum) == (2, 0, 50.0)


def test_many_points_whose_steps_begin_anew_and_are_not_counted_hide_one_pass_at_most(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "POINTS_MAX", 10)
    monkeypatch.setattr(step_course, "POINTS_MAX", 10)
    row = add_job(store)
    first, second = Records(tmp_path / "1.jsonl"), Records(tmp_path / "2.jsonl")
    first.points({"loss": [1.0] * 12}, steps=[1, 2, 3, 4] * 3, times=list(range(12)))
    second.points({"loss": [2.0] * 3}, steps=[3, 4, 1], times=[100, 101, 102])
    take_all(store, first, attempt=1, job_id=row.id)
    take_all(store, second, attempt=2, job_id=row.id)

    (loss,) = series(store, row.id)

    assert (loss.points, loss.superseded) == (10 + 3, 2)


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        # A first line at step 1, then what it went on with.
        ([[1, 2, 3, 4, 5, 6, 7, 8], [1, 7, 8, 9]], [[1, 2, 3, 4, 5, 6], [1, 7, 8, 9]]),
        # A third one goes further back than the second.
        ([[1, 2, 3, 4, 5], [6, 7, 8], [3, 4]], [[1, 2], [], [3, 4]]),
        # The second begins from the beginning, the third goes on from what the first had saved.
        ([[1, 2, 3, 4, 5, 6, 7], [1, 2], [6, 7, 8]], [[1, 2, 3, 4, 5], [], [6, 7, 8]]),
        # A program that ended right behind its baseline.
        ([[0, 1, 2, 3, 4, 5], [0], [0, 4, 5, 6]], [[0, 1, 2, 3], [0], [0, 4, 5, 6]]),
        # Nothing says that it is another course.
        ([[1, 2, 3], [None, None]], [[1, 2, 3], [None, None]]),
        ([[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 5]]),
    ],
)
def test_the_steps_of_attempts_tell_where_each_went_on(
    store: Store, tmp_path: Path, attempts: list[list[int | None]], kept: list[list[int | None]]
) -> None:
    row = add_job(store)
    for number, steps in enumerate(attempts, 1):
        records = Records(tmp_path / f"{number}.jsonl")
        times = [number * 1000 + at for at in range(len(steps))]
        records.points({"loss": [0.0] * len(steps)}, steps=steps, times=times)
        take_all(store, records, attempt=number, job_id=row.id)

    found = [(each.attempt, each.step) for each in table(store, row.id).rows]

    assert found == [(number, step) for number, steps in enumerate(kept, 1) for step in steps]
