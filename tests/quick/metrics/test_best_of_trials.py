"""The best value that the trials of a search have reported of a metric: what superseded points had is not it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.quick.metrics.test_ingesting import take_all
from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import add_job
from workbench.controller.loop import actions
from workbench.controller.loop.actions import BestValidations
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.schema import EXPERIMENTS, statements
from workbench.store.queries.metric_values import BestOfTrials, best_of_trials

SEARCH = "experiment-222222222"
LOSS = "validation/loss"
MOST_HUNDREDS = 250


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        for statement in statements(EXPERIMENTS):
            opened.execute(statement)
        yield opened


def add_trial(store: Store, number: int, search: str = SEARCH) -> str:
    job_id = add_job(store, parent=search, trial=number).id
    store.execute(
        "INSERT INTO trials (experiment, number, trial, job_id, hparams, seed, state) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (search, number, f"{search}-{number}", job_id, "{}", number, "RUNNING"),
    )
    return job_id


def reports(
    store: Store,
    folder: Path,
    job_id: str,
    values: Sequence[float | str],
    *,
    name: str = LOSS,
    attempt: int = 1,
    learner: int = 1,
    first: int = 1,
    saves: int = 0,
) -> None:
    """Have an attempt report values, step by step, and save a checkpoint after one of the steps."""
    records = Records(folder / f"{job_id}-{attempt}-{learner}-{name.replace('/', '-')}.jsonl")
    for step, value in enumerate(values, first):
        time = attempt * 1000 + 10 * step
        records.points({name: [value]}, steps=[step], times=[time])
        if step == saves:
            records.add("checkpoint", path="saved", step=step, time=time + 1)
    take_all(store, records, attempt=attempt, learner=learner, job_id=job_id)
    store.execute("UPDATE jobs SET attempt = ? WHERE id = ?", (attempt, job_id))


def best(store: Store, *, is_less_better: bool = True, begins: str = "") -> float | None:
    found = best_of_trials(store, SEARCH, LOSS, is_less_better=is_less_better, begins=begins)
    return None if found is None else found.value


def test_it_is_the_best_of_all_trials_of_this_search_by_this_metric(store: Store, tmp_path: Path) -> None:
    first, second, _silent = (add_trial(store, number) for number in (1, 2, 3))
    other = add_trial(store, 1, "experiment-333333333")
    assert best(store) is None

    reports(store, tmp_path, first, [3.0, 2.0, 4.0])
    reports(store, tmp_path, second, [5.0, 6.0])
    reports(store, tmp_path, other, [1.0, 9.0])
    reports(store, tmp_path, first, [0.5, 10.0], name="training/loss")

    assert (best(store), best(store, is_less_better=False)) == (2.0, 6.0)


def test_each_learner_of_a_trial_counts(store: Store, tmp_path: Path) -> None:
    trial = add_trial(store, 1)
    for learner, value in enumerate([2.0, 1.0, 0.5], 1):
        reports(store, tmp_path, trial, [value], learner=learner)

    found = [best_of_trials(store, SEARCH, LOSS, is_less_better=True, learners=count) for count in (1, 2, 3)]
    assert found == [BestOfTrials(2.0, trial, 1), BestOfTrials(1.0, trial, 2), BestOfTrials(0.5, trial, 3)]


@pytest.mark.parametrize("is_less_better", [True, False])
def test_what_is_no_finite_number_is_never_the_best(
    store: Store, tmp_path: Path, is_less_better: bool
) -> None:
    reports(store, tmp_path, add_trial(store, 1), ["NaN", "Infinity", "-Infinity"])
    assert best(store, is_less_better=is_less_better) is None

    reports(store, tmp_path, add_trial(store, 2), ["NaN", 2.0, "-Infinity", "Infinity"])
    assert best(store, is_less_better=is_less_better) == 2.0


def test_what_an_attempt_went_over_again_does_not_count(store: Store, tmp_path: Path) -> None:
    given_up, other = add_trial(store, 1), add_trial(store, 2)
    reports(store, tmp_path, given_up, [5.0, 4.0, 1.0], saves=2)
    reports(store, tmp_path, other, [3.0])
    assert best(store) == 1.0

    reports(store, tmp_path, given_up, [6.0, 7.0], attempt=2, first=3)
    assert best(store) == 3.0


@pytest.mark.parametrize(
    ("saves", "expected"),
    [(0, 9.0), (1, 5.0), (2, 4.0)],
    ids=["no checkpoint", "after the first", "after the second"],
)
def test_a_trial_that_begins_another_attempt_gives_up_what_lies_behind_its_last_checkpoint(
    store: Store, tmp_path: Path, saves: int, expected: float
) -> None:
    trial, other = add_trial(store, 1), add_trial(store, 2)
    reports(store, tmp_path, trial, [5.0, 4.0, 1.0], saves=saves)
    reports(store, tmp_path, other, [9.0])

    assert (best(store, begins=trial), best(store, begins=other)) == (expected, 1.0)


def test_a_validation_at_the_very_step_of_the_last_checkpoint_counts_though_it_came_later(
    store: Store, tmp_path: Path
) -> None:
    trial = add_trial(store, 1)
    records = Records(tmp_path / "records.jsonl")
    records.add("checkpoint", path="saved", step=2, time=1000)
    records.points({LOSS: [5.0, 4.0]}, steps=[2, 3], times=[1001, 1002])
    take_all(store, records, job_id=trial)

    assert best(store, begins=trial) == 5.0


def test_the_best_of_many_trials_is_looked_for_now_and_then_and_that_of_few_each_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_MANY_TRIALS", 3)
    monkeypatch.setattr(actions, "_TRIALS_A_SECOND", 1)
    now = 0.0
    validations = BestValidations(lambda: now)

    def found(begins: str = "") -> float | None:
        return validations.best(store, SEARCH, LOSS, is_less_better=True, learners=1, begins=begins)

    first, second, third = (add_trial(store, number) for number in (1, 2, 3))
    reports(store, tmp_path, first, [5.0])
    assert found() == 5.0
    reports(store, tmp_path, second, [4.0])
    assert found() == 4.0
    reports(store, tmp_path, third, [3.0])
    assert found() == 3.0

    reports(store, tmp_path, add_trial(store, 4), [2.0])
    assert found() == 3.0
    # Its own last value is given up, whenever it was looked for.
    assert (found(begins=second), found(begins=third)) == (3.0, 2.0)

    now = 3.0
    assert found() == 2.0


def test_of_512_trials_a_row_of_each_is_read_whatever_they_have_reported(store: Store) -> None:
    with store.atomic():
        for number in range(1, 513):
            job_id = add_trial(store, number)
            values = {LOSS: number, **{f"training/{name}": 0.0 for name in range(60)}}
            store.connection.executemany(
                "INSERT INTO series (job_id, learner, name, kind, points, minimum, maximum)"
                " VALUES (?, 1, ?, 'value', 9, ?, ?)",
                [(job_id, name, value, value) for name, value in values.items()],
            )
    hundreds = 0

    def count() -> None:
        nonlocal hundreds
        hundreds += 1

    store.connection.set_progress_handler(count, 100)
    assert best(store) == 1.0
    store.connection.set_progress_handler(None, 100)

    # Of SQLite's own steps: one that looked at each series for its name took 3,200.
    assert hundreds < MOST_HUNDREDS
