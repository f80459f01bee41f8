from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.quick.metrics.test_ingesting import JOB, take_all
from tests.quick.metrics.writing import Records
from workbench.metrics import latest_texts, series
from workbench.metrics.chart_axis import chart_axis, chart_points
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
    assert list(first.values) == ["accuracy", "loss", "epoch"]
    assert (first.step, first.time_us, dict(first.values)) == (
        1,
        10,
        {"loss": 3.0, "accuracy": 0.5, "epoch": 1.0},
    )
    assert dict(second.values) == {"loss": 2.0}
    assert third.values["loss"] == 1.0
    assert math.isnan(third.values["accuracy"])


def test_what_was_reported_in_words_stands_beside_what_was_measured(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [3.0, 2.0], "phase": ["warm", "hot"]}, steps=[1, 2], times=[10, 20])
    records.points({"phase": ["over"]}, steps=[None], times=[30])
    take_all(store, records)
    learner = Records(tmp_path / "records-2.jsonl")
    learner.points({"phase": ["cold"], "mood": ["good"]}, steps=[1])
    take_all(store, learner, learner=2)

    found = table(store, JOB, texts=True)

    assert (found.columns, found.texts) == (("loss",), ("phase", "mood"))
    assert [(row.learner, row.step, dict(row.values), dict(row.texts)) for row in found.rows] == [
        (1, 1, {"loss": 3.0}, {"phase": "warm"}),
        (1, 2, {"loss": 2.0}, {"phase": "hot"}),
        (1, None, {}, {"phase": "over"}),
        (2, 1, {}, {"mood": "good", "phase": "cold"}),
    ]
    assert [dict(row.texts) for row in table(store, JOB).rows] == [{}, {}]
    assert latest_texts(store, JOB) == {"phase": "over", "mood": "good"}


def test_texts_stand_beside_their_values_where_steps_begin_anew(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for epoch in (1, 2):
        for step in (1, 2):
            time = 100 * epoch + step
            records.points(
                {"loss": [1.0 / time], "phase": [f"{epoch}.{step}"]},
                steps=[step],
                times=[time],
                etimes={"epoch": [epoch]},
            )
    take_all(store, records)

    rows = list(table(store, JOB, texts=True).rows)

    assert [dict(row.texts)["phase"] for row in rows] == ["1.1", "1.2", "2.1", "2.2"]
    assert all("loss" in row.values for row in rows)


def phases(store: Store, **asked: Any) -> list[tuple[int, float | None, str, bool]]:
    return [
        (row.attempt, row.step, row.texts["phase"], row.is_superseded)
        for row in table(store, JOB, texts=True, **asked).rows
        if "phase" in row.texts
    ]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("saved", [True, False])
def test_a_text_is_superseded_as_a_value_is(
    store: Store, tmp_path: Path, *, together: bool, saved: bool
) -> None:
    for attempt, first, last in ((1, 1, 6), (2, 5, 7)):
        records = Records(tmp_path / f"records-{attempt}.jsonl")
        for step in range(first, last + 1):
            at: Any = {"steps": [step], "times": [attempt * 10_000 + step * 100]}
            words = {"phase": [f"{attempt}.{step}"]}
            if together:
                records.points({"loss": [float(step)]}, texts=words, **at)
            else:
                records.points({"loss": [float(step)]}, **at)
                records.points(words, **at)
            if saved and attempt == 1 and step == 4:
                records.add("checkpoint", path="/c", step=4, time=10_450)
        take_all(store, records, attempt=attempt)

    live = [(1, step, f"1.{step}", False) for step in (1, 2, 3, 4)]
    live += [(2, step, f"2.{step}", False) for step in (5, 6, 7)]
    given_up = [(1, 5, "1.5", True), (1, 6, "1.6", True)]
    assert phases(store) == live
    assert phases(store, superseded=True) == sorted(live + given_up)
    assert phases(store, attempt=1) == sorted(live[:4] + given_up)
    assert latest_texts(store, JOB) == {"phase": "2.7"}


@pytest.mark.parametrize("together", [True, False])
def test_the_last_text_is_one_that_counts(store: Store, tmp_path: Path, *, together: bool) -> None:
    for attempt, steps in ((1, (1, 2, 3, 4)), (2, (3, 4))):
        records = Records(tmp_path / f"records-{attempt}.jsonl")
        for step in steps:
            at: Any = {"steps": [step], "times": [attempt * 1000 + step * 10]}
            words = {"phase": [f"{attempt}.{step}"], "mood": ["bad"]} if attempt == 1 else {}
            if attempt == 1 and step < 3:
                words.pop("mood")
            records.points({"loss": [1.0]}, **at, texts=words if together else {})
            if words and not together:
                records.points(words, **at)
        take_all(store, records, attempt=attempt)

    assert latest_texts(store, JOB) == {"phase": "1.2"}
    assert table(store, JOB, texts=True).texts == ("phase",)
    assert table(store, JOB, texts=True, superseded=True).texts == ("mood", "phase")


def test_a_text_of_a_file_without_times_counts_by_its_step(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records-1.jsonl")
    records.points({"loss": [1.0, 1.0, 1.0]}, steps=[1, 2, 3], times=[11, 12, 13])
    records.add("checkpoint", path="/c", step=3, time=14)
    records.points({"loss": [1.0, 1.0]}, steps=[4, 5], times=[15, 16])
    records.points({"phase": ["a", "b", "c", "d", "e"]}, steps=[1, 2, 3, 4, 5], times=[50] * 5)
    take_all(store, records)
    records = Records(tmp_path / "records-2.jsonl")
    records.points({"loss": [1.0, 1.0]}, steps=[4, 5], times=[101, 102])
    take_all(store, records, attempt=2)

    assert [text for _, _, text, _ in phases(store)] == ["a", "b", "c"]
    assert latest_texts(store, JOB) == {"phase": "c"}


def test_learners_and_attempts_follow_one_another(store: Store, tmp_path: Path) -> None:
    for learner in (1, 2):
        for attempt in (1, 2):
            records = Records(tmp_path / f"records-{learner}-{attempt}.jsonl")
            records.points({"loss": [float(learner), float(attempt)]}, steps=[2 * attempt - 1, 2 * attempt])
            take_all(store, records, attempt=attempt, learner=learner)

    rows = list(table(store, JOB).rows)

    assert [(row.learner, row.attempt, row.step) for row in rows] == [
        (learner, attempt, 2 * attempt - 2 + step)
        for learner in (1, 2)
        for attempt in (1, 2)
        for step in (1, 2)
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


def rows_of(store: Store, **asked: Any) -> list[tuple[float | None, dict[str, float]]]:
    return [(row.step, dict(row.values)) for row in table(store, JOB, **asked).rows]


def test_a_report_is_one_row_though_steps_go_back_or_are_absent(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [3.0, 2.0, 1.0], "ppl": [30.0, 20.0, 10.0]}, steps=[3, 1, 3], times=[5, 5, 5])
    records.points({"loss": [9.0, 8.0], "ppl": [90.0, 80.0]}, times=[7, 7])
    records.points({"ppl": [70.0]}, times=[7])
    records.points({"loss": [6.0]}, times=[7], etimes={"epoch": [0.5]})
    take_all(store, records)

    assert rows_of(store) == [
        (1, {"loss": 2.0, "ppl": 20.0}),
        (3, {"loss": 3.0, "ppl": 30.0}),
        (3, {"loss": 1.0, "ppl": 10.0}),
        (None, {"loss": 9.0, "ppl": 90.0}),
        (None, {"loss": 8.0, "ppl": 80.0}),
        (None, {"ppl": 70.0}),
        (None, {"loss": 6.0, "epoch": 0.5}),
    ]


@pytest.mark.parametrize("limit", [300, 1 << 20])
def test_reports_are_distinguished_however_they_are_taken_in(
    store: Store, tmp_path: Path, limit: int
) -> None:
    records = Records(tmp_path / "records.jsonl")
    for number in range(40):
        group = "train" if number % 3 else "test"
        records.points({"a": [number], "b": [-number]}, times=[1], group=group)
        records.points({"b": [number]}, times=[1], group=group)
    take_all(store, records, limit=limit)

    found = rows_of(store)

    assert len(found) == 80
    for number in range(40):
        group = "train" if number % 3 else "test"
        assert found[2 * number][1] == {f"{group}/a": number, f"{group}/b": -number}
        assert found[2 * number + 1][1] == {f"{group}/b": number}


def test_points_of_an_older_version_are_joined_only_where_it_is_unambiguous(
    store: Store, tmp_path: Path
) -> None:
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [1.0, 2.0, 3.0], "ppl": [10.0, 20.0, 30.0]}, times=[1, 2, 2])
    take_all(store, records)
    store.execute("DROP TABLE report_runs")
    store.execute("DROP TABLE report_counts")

    assert rows_of(store) == [
        (None, {"loss": 1.0, "ppl": 10.0}),
        (None, {"loss": 2.0}),
        (None, {"loss": 3.0}),
        (None, {"ppl": 20.0}),
        (None, {"ppl": 30.0}),
    ]


def two_attempts(store: Store, tmp_path: Path) -> None:
    first, second = Records(tmp_path / "first.jsonl"), Records(tmp_path / "second.jsonl")
    first.points({"loss": [0.5, 0.4, 0.1, 0.05]}, steps=[1, 2, 3, 4], times=[1, 2, 3, 4])
    second.points({"loss": [0.3, 0.2]}, steps=[3, 4], times=[11, 12])
    take_all(store, first, attempt=1)
    take_all(store, second, attempt=2)


def test_what_a_later_attempt_went_over_again_is_left_out_and_shown_on_request(
    store: Store, tmp_path: Path
) -> None:
    two_attempts(store, tmp_path)

    assert rows_of(store) == [(1, {"loss": 0.5}), (2, {"loss": 0.4}), (3, {"loss": 0.3}), (4, {"loss": 0.2})]
    every = [(row.attempt, row.step, row.is_superseded) for row in table(store, JOB, superseded=True).rows]
    assert every == [
        (1, 1, False), (1, 2, False), (1, 3, True), (1, 4, True), (2, 3, False), (2, 4, False),
    ]  # fmt: skip
    assert [row.step for row in table(store, JOB, attempt=1).rows] == [1, 2, 3, 4]
    (loss,) = series(store, JOB)
    assert (loss.points, loss.superseded, loss.minimum, loss.last) == (4, 2, 0.2, 0.2)


def test_what_was_reported_after_the_checkpoint_that_the_next_attempt_went_on_from_is_superseded(
    store: Store, tmp_path: Path
) -> None:
    first, second = Records(tmp_path / "first.jsonl"), Records(tmp_path / "second.jsonl")
    first.points({"loss": [5.0, 4.0, 3.0]}, times=[100, 200, 300])
    first.add("checkpoint", path="model.pt", step=None)
    first.points({"loss": [2.0, 1.0]}, times=[5000, 6000])
    second.points({"loss": [2.5]}, times=[9000])
    take_all(store, first, attempt=1)

    assert len(rows_of(store)) == 5
    take_all(store, second, attempt=2)
    assert [values["loss"] for _, values in rows_of(store)] == [5.0, 4.0, 3.0, 2.5]


def test_what_was_done_between_the_last_reported_checkpoint_and_a_save_without_report_is_shown(
    store: Store, tmp_path: Path
) -> None:
    first, second = Records(tmp_path / "first.jsonl"), Records(tmp_path / "second.jsonl")
    first.points({"loss": [0.9, 0.8]}, steps=[1, 2], times=[100, 200])
    first.add("checkpoint", path="model.pt", step=2)
    first.points({"loss": [0.7, 0.6, 0.5]}, steps=[3, 4, 5], times=[5000, 6000, 7000])
    second.points({"loss": [0.55, 0.45]}, steps=[5, 6], times=[9000, 9100])
    take_all(store, first, attempt=1)
    take_all(store, second, attempt=2)

    assert [(step, values["loss"]) for step, values in rows_of(store)] == [
        (1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6), (5, 0.55), (6, 0.45),
    ]  # fmt: skip


def test_many_points_of_steps_that_begin_anew_are_in_the_order_of_their_passes(
    store: Store, tmp_path: Path
) -> None:
    records = Records(tmp_path / "records.jsonl")
    steps = [step for _ in range(3) for step in range(1500)]
    records.points({"loss": [float(n) for n in range(4500)], "ppl": list(range(4500))}, steps=steps)
    take_all(store, records)

    found = rows_of(store)

    assert [step for step, _ in found] == list(range(4500))
    assert all(values["loss"] == values["ppl"] == step for step, values in found)


def test_where_steps_begin_anew_reports_of_one_step_and_instant_share_a_row(
    store: Store, tmp_path: Path
) -> None:
    counted, tags = Records(tmp_path / "counted.jsonl"), Records(tmp_path / "tags.jsonl")
    for epoch in (1, 2):
        counted.points(
            {"loss": [1.0, 0.9]},
            steps=[0, 1],
            times=[epoch * 10, epoch * 10 + 1],
            etimes={"epoch": [epoch] * 2},
        )
    # TensorBoard's collector writes a record for all steps of a tag, and each row of a record is a report.
    tags.points({"val": [0.1]}, group="tb", steps=[2], times=[9002])
    tags.points({"loss": [0.4, 0.3, 0.2]}, group="tb", steps=[0, 1, 2], times=[9000, 9001, 9002])
    tags.points({"norm": [7.0], "loss": [0.15]}, group="tb", steps=[3], times=[9003])
    tags.points({"loss": [0.16]}, group="tb", steps=[3], times=[9003])
    take_all(store, counted, attempt=1)
    take_all(store, tags, attempt=2)

    found = [(step, dict(values)) for step, values in rows_of(store)][4:]

    assert found == [
        (0, {"tb/loss": 0.4}),
        (1, {"tb/loss": 0.3}),
        (2, {"tb/val": 0.1, "tb/loss": 0.2}),
        (3, {"tb/loss": 0.15, "tb/norm": 7.0}),
        (3, {"tb/loss": 0.16}),
    ]


def test_batches_counted_anew_in_each_epoch_are_in_the_order_of_epochs(store: Store, tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl")
    for epoch in range(1, 4):
        for batch in range(200, 1001, 200):
            values = {"loss": [7.0 - epoch], "ppl": [790.0 - 100 * epoch - batch / 100]}
            records.points(values, steps=[batch], times=[epoch * 10_000 + batch], etimes={"epoch": [epoch]})
        records.points(
            {"valid_loss": [6.0 - epoch]},
            steps=[epoch],
            times=[epoch * 10_000 + 5_000],
            etimes={"epoch": [epoch]},
        )
    take_all(store, records)

    found = [values for _, values in rows_of(store)]

    assert [values["epoch"] for values in found] == [1] * 6 + [2] * 6 + [3] * 6
    assert all("valid_loss" in found[at] for at in (5, 11, 17))
    assert all(values["loss"] == 7 - values["epoch"] for values in found if "loss" in values)
    (loss,) = [row for row in series(store, JOB, kinds=("value",)) if row.name == "loss"]
    chart = chart_points(store, loss, chart_axis(store, [loss]), width=40)
    assert chart is not None
    assert [(bucket.first_step, bucket.first) for bucket in chart] == [
        (200 * (n + 1), 6.0 - n // 5) for n in range(15)
    ]
