from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metrics.test_ingesting import JOB, take_all
from tests.metrics.writing import Records
from workbench.metrics.table import table
from workbench.paths import Home
from workbench.store.db.database import Store


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def test_what_was_reported_for_one_step_stands_in_one_row(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [3.0, 2.0, 1.0]}, steps=[1, 2, 3], times=[10, 20, 30])
    records.points({"accuracy": [0.5, None]}, steps=[1, 3], times=[11, 31], etimes={"epoch": [1, 2]})
    take_all(store, records)

    found = table(store, JOB)

    assert found.columns == ("accuracy", "loss", "epoch")
    first, second, third = found.rows
    assert (first.step, first.time_us, dict(first.values)) == (
        1,
        10,
        {"loss": 3.0, "accuracy": 0.5, "epoch": 1.0},
    )
    assert dict(second.values) == {"loss": 2.0}
    assert third.values["loss"] == 1.0
    assert math.isnan(third.values["accuracy"])


def test_learners_and_attempts_follow_one_another(store: Store, tmp_path: Path) -> None:
    for learner in (1, 2):
        for attempt in (1, 2):
            records = Records(tmp_path / f"records-{learner}-{attempt}.jsonl")
            records.points({"loss": [float(learner), float(attempt)]}, steps=[1, 2])
            take_all(store, records, attempt=attempt, learner=learner)

    rows = list(table(store, JOB).rows)

    assert [(row.learner, row.attempt, row.step) for row in rows] == [
        (learner, attempt, step) for learner in (1, 2) for attempt in (1, 2) for step in (1, 2)
    ]
    assert [row.learner for row in table(store, JOB, learner=2).rows] == [2] * 4
    assert [row.attempt for row in table(store, JOB, attempt=1).rows] == [1] * 4


def test_a_metric_reported_twice_for_a_step_stands_in_two_rows(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [1.0, 2.0, 3.0]}, steps=[1, 1, None], times=[5, 6, 7])
    take_all(store, records)

    assert [(row.step, dict(row.values)) for row in table(store, JOB).rows] == [
        (1, {"loss": 1.0}), (1, {"loss": 2.0}), (None, {"loss": 3.0}),
    ]  # fmt: skip


def test_a_long_table_is_read_page_by_page(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [float(n) for n in range(5000)]}, steps=list(range(5000)))
    records.points({"accuracy": [float(n) for n in range(0, 5000, 7)]}, steps=list(range(0, 5000, 7)))
    take_all(store, records)

    rows = list(table(store, JOB).rows)

    assert [row.step for row in rows] == list(range(5000))
    assert [row.step for row in rows if "accuracy" in row.values] == list(range(0, 5000, 7))


def test_a_job_without_metrics_has_an_empty_table(store: Store) -> None:
    found = table(store, JOB)

    assert (found.columns, list(found.rows)) == ((), [])
