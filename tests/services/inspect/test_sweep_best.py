"""What a sweep has come to: its best job, by the metric that says which is better."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.quick.metrics.writing import Records
from tests.services.stored import submitted
from workbench.job import Reason, State
from workbench.metrics import ingest
from workbench.services.inspect import sweep_best
from workbench.services.inspect.sweep_best import SweepOutcome, sweep_outcome
from workbench.services.submit.resume import with_overrides
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import new_attempt


def report(store: Store, job_id: str, name: str, last: float | None, *, learner: int = 1) -> None:
    """Have a job reported one value; SQLite keeps NaN as NULL."""
    value = None if last is not None and math.isnan(last) else last
    store.execute(
        "INSERT INTO series (job_id, learner, name, kind, points, last_step, last, minimum, maximum) "
        "VALUES (?, ?, ?, 'value', 1, 7, ?, ?, ?)",
        (job_id, learner, name, value, value, value),
    )


@pytest.fixture
def sweep(store: Store) -> list[str]:
    """Three jobs that differ in a learning rate and a name, and not in their seed."""
    return [
        add_job(store, f"sweep-{lr}", State.COMPLETED, params={"lr": lr, "opt": opt, "seed": 1}).id
        for lr, opt in ((0.1, "adam"), (0.01, "größe"), (0.001, "adam"))
    ]


def test_a_sweep_without_jobs_or_without_metrics_has_come_to_nothing(store: Store, sweep: list[str]) -> None:
    assert sweep_outcome(store, []) is None
    assert sweep_outcome(store, ["training-unknown"]) is None
    assert sweep_outcome(store, sweep) is None


def test_of_a_loss_the_smallest_is_best_with_the_params_that_differ(store: Store, sweep: list[str]) -> None:
    for job_id, loss in zip(sweep, (0.5, 0.25, 4.0), strict=True):
        report(store, job_id, "train/loss", loss)

    assert sweep_outcome(store, sweep) == SweepOutcome(
        "train/loss", 0.25, 4.0, 0.25, (("lr", "0.01"), ("opt", "größe"))
    )


def test_of_a_score_the_largest_is_best(store: Store, sweep: list[str]) -> None:
    for job_id, accuracy in zip(sweep, (0.5, 0.25, 0.75), strict=True):
        report(store, job_id, "accuracy", accuracy)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert (found.best, found.least, found.most) == (0.75, 0.25, 0.75)
    assert dict(found.params) == {"lr": "0.001", "opt": "adam"}


def test_a_metric_that_tells_good_from_bad_comes_before_one_that_does_not(
    store: Store, sweep: list[str]
) -> None:
    for job_id in sweep:
        report(store, job_id, "a_temperature", 20.0)
    report(store, sweep[0], "loss", 3.0)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert (found.metric, found.best) == ("loss", 3.0)


def test_a_metric_that_does_not_say_which_is_better_has_no_best(store: Store, sweep: list[str]) -> None:
    for number, job_id in enumerate(sweep):
        report(store, job_id, "temperature", number)

    assert sweep_outcome(store, sweep) == SweepOutcome("temperature", 0.0, 2.0, None, ())


def test_what_no_job_has_a_number_of_gives_way_to_what_one_has(store: Store, sweep: list[str]) -> None:
    for job_id in sweep:
        report(store, job_id, "loss", math.nan)
        report(store, job_id, "val_loss", math.inf)
        report(store, job_id, "accuracy", 0.5)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert (found.metric, found.best) == ("accuracy", 0.5)


def test_values_that_are_no_numbers_do_not_count(store: Store, sweep: list[str]) -> None:
    for job_id, loss in zip(sweep, (math.nan, math.inf, 4.0), strict=True):
        report(store, job_id, "loss", loss)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert (found.least, found.most, found.best) == (4.0, 4.0, 4.0)


def test_the_first_learner_that_has_reported_stands_for_its_job(store: Store, sweep: list[str]) -> None:
    report(store, sweep[0], "loss", 9.0, learner=1)
    report(store, sweep[0], "loss", 0.1, learner=2)
    report(store, sweep[1], "loss", 5.0, learner=2)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert (found.least, found.most) == (5.0, 9.0)


def test_the_folder_that_all_metrics_share_is_left_out_of_the_name(store: Store, sweep: list[str]) -> None:
    for name in ("logs/run1/loss", "logs/run1/acc"):
        report(store, sweep[0], name, 1.0)

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert found.metric == "loss"


def test_a_job_that_was_deleted_does_not_count(store: Store, sweep: list[str]) -> None:
    for job_id, loss in zip(sweep, (0.1, 0.25, 4.0), strict=True):
        report(store, job_id, "loss", loss)
    mark_deleted(store, sweep[0])

    found = sweep_outcome(store, sweep)

    assert found is not None
    assert found.best == 0.25


def test_a_job_whose_folder_has_vanished_has_no_params(store: Store, sweep: list[str]) -> None:
    for job_id, loss in zip(sweep, (0.1, 0.25, 4.0), strict=True):
        report(store, job_id, "loss", loss)
    store.home.job(sweep[0]).job_file.unlink()

    assert sweep_outcome(store, sweep) == SweepOutcome("loss", 0.1, 4.0, 0.1, ())


def test_params_are_those_of_the_last_attempt(store: Store, tmp_path: Path) -> None:
    text = "name: a\nframework: {{command: 'true'}}\nparams: {{lr: {}}}\n"
    one, two = (submitted(store, text.format(lr), state=State.HALTED) for lr in (1, 2))
    changed = with_overrides(detail(store, one.id), ["params.lr=7"])["changed"]
    new_attempt(store, one.id, Reason("resumed"), changed=changed)
    records = Records(tmp_path / "records.jsonl")
    records.points({"loss": [0.1]}, steps=[1])
    ingest(store, one.id, 2, 1, records.file)
    report(store, two.id, "loss", 0.2)

    found = sweep_outcome(store, [one.id, two.id])

    assert found is not None
    assert (found.best, found.params) == (0.1, (("lr", "7"),))


def test_of_a_large_sweep_some_tell_which_params_differ(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_best, "_PARAMS_OF", 4)
    ids = [add_job(store, f"s{number}", params={"n": number, "same": 1}).id for number in range(9)]
    report(store, ids[5], "loss", 0.5)

    assert sweep_outcome(store, ids) == SweepOutcome("loss", 0.5, 0.5, 0.5, (("n", "5"),))
