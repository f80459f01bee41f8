"""What a line of a list says of a job's reports, for many jobs at once, and as the orders of lists have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import add_job
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_figures import furthest_progress, last_losses, last_steps, series_courses
from workbench.store.queries.job_list import listed
from workbench.store.queries.where import JobFilter


def report(store: Store, row: JobRow, folder: Path, learner: int, **values: list[float]) -> None:
    """Let a learner report metrics, a value a step; two underlines stand for a slash."""
    records = Records(folder / f"{row.id}-{learner}.jsonl")
    for name, numbers in values.items():
        at = list(range(1, len(numbers) + 1))
        records.points({name.replace("__", "/"): numbers}, steps=at, times=at)
    ingest(store, row.id, 1, learner, records.file)


@pytest.mark.parametrize(
    ("reported", "stands"),
    [
        ({"val__loss": [0.5], "train__loss": [0.25]}, 0.25),
        ({"train__loss": [0.5], "loss": [0.125]}, 0.125),
        ({"eval__loss": [0.75], "accuracy": [0.1]}, 0.75),
        ({"accuracy": [0.1]}, None),
    ],
)
def test_the_loss_that_stands_for_a_job_is_the_one_that_lists_are_sorted_by(
    home: Home, tmp_path: Path, reported: dict[str, list[float]], stands: float | None
) -> None:
    with Store.open(home) as store:
        row, other = add_job(store), add_job(store)
        report(store, row, tmp_path, 1, **reported)
        report(store, other, tmp_path, 1, loss=[stands + 0.01 if stands is not None else 1.0])

        found = last_losses(store, [row.id, other.id])
        rows = listed(store, ["deleted_us IS NULL"], {}, where=JobFilter(), sort="loss", now_us=0)

    assert found.get(row.id) == stands
    assert [each.id for each in rows] == [other.id, row.id]


def test_of_several_learners_the_first_ones_loss_stands_and_the_greatest_step(
    home: Home, tmp_path: Path
) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        report(store, row, tmp_path, 2, loss=[4.0, 3.0, 2.0])
        report(store, row, tmp_path, 1, loss=[6.0, 5.0])

        assert last_losses(store, [row.id]) == {row.id: 5.0}
        assert last_steps(store, [row.id]) == {row.id: 3}
        (course,) = series_courses(store, [row.id])[row.id].values()
        assert course.points == 2


def test_a_series_of_one_point_has_no_course(home: Home, tmp_path: Path) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        report(store, row, tmp_path, 1, loss=[1.0])

        assert series_courses(store, [row.id]) == {}


def test_the_furthest_progress_of_any_learner_stands_for_a_job(home: Home, tmp_path: Path) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        for learner, fraction in ((1, 0.5), (2, 0.75)):
            records = Records(tmp_path / f"{learner}.jsonl")
            records.add("progress", fraction=fraction, text=f"of {learner}", time=learner)
            ingest(store, row.id, 1, learner, records.file)

        found = furthest_progress(store, [row.id])[row.id]

    assert (found.learner, found.fraction, found.text) == (2, 0.75, "of 2")


def test_jobs_that_reported_nothing_are_left_out(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store)

        assert not last_losses(store, [row.id])
        assert not last_steps(store, [row.id])
        assert not furthest_progress(store, [row.id])
