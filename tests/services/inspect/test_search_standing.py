"""How far a search is: what `fabric experiment` has the store add up, and what the screens show."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.screens import seeding
from workbench.services.inspect.search_standing import READ_SHARE, SearchReader, read_progress
from workbench.store.db.database import Store
from workbench.store.queries.experiments import (
    TrialRow,
    TrialState,
    TrialTotals,
    best_trial,
    experiment,
    find_best_trial,
    trial_totals,
    trials,
)
from workbench.store.updates.experiments import record_event

SECOND_US = 1_000_000
RUNGS = (1.0, 3.0, 9.0)


@pytest.fixture
def search(store: Store) -> str:
    """A search with ten trials that are over, and two that run."""
    return seeding.search(store)


def add_up(found: Sequence[TrialRow]) -> TrialTotals:
    """Add up trials one by one."""
    going = [one for one in found if one.state in ("QUEUED", "RUNNING", "PAUSED", "WAITING", "CANCELLED")]
    finished = [one for one in found if one not in going and one.state != "INVALID"]
    lengths = [one.units for one in finished if one.units is not None and math.isfinite(one.units)]
    usual = sum(lengths) / len(lengths) if lengths else 0.0
    parts = [one.units for one in going if one.units is not None and math.isfinite(one.units)]
    return TrialTotals(
        len(found),
        sum(one.has_begun for one in found),
        sum(one.state == "RUNNING" for one in found),
        sum(one.state == "CANCELLED" or one not in going for one in found),
        len(finished),
        sum(one.state == "INVALID" for one in found),
        sum(min(units / usual, 1.0) for units in parts) if usual > 0 else 0.0,
        tuple(sum(one.units is not None and one.units >= rung for one in found) for rung in RUNGS),
    )


def change_trials(store: Store, search: str, draw: random.Random) -> None:
    """Bring trials into states of all kinds, before and after they have begun, with and without jobs and reports."""
    values = (None, 0.0, 0.5, 1.0, 3.0, 9.0, math.inf, -math.inf)
    states = [
        state for state in get_args(TrialState) if state != "QUEUED"
    ]  # that is how a RUNNING one is shown
    for one in trials(store, search):
        store.execute(
            "UPDATE trials SET state = ?, units = ?, best = ? WHERE experiment = ? AND number = ?",
            (draw.choice(states), draw.choice(values), draw.choice(values), search, one.number),
        )
        if draw.random() < 0.5:
            sql = "UPDATE jobs SET state = ?, started_us = NULL WHERE id = ?"
            store.execute(sql, (draw.choice(("QUEUED", "PENDING", "PROCESSING", "HALTED")), one.job_id))
            store.execute("UPDATE attempts SET processing_us = NULL WHERE job_id = ?", (one.job_id,))
        if draw.random() < 0.2:
            store.execute("DELETE FROM jobs WHERE id = ?", (one.job_id,))


@pytest.mark.parametrize("seed", range(20))
def test_trials_come_to_what_they_are_one_by_one(store: Store, search: str, seed: int) -> None:
    change_trials(store, search, random.Random(seed))

    found = trials(store, search)
    totals = trial_totals(store, search, RUNGS)

    assert replace(totals, going=0.0) == replace(add_up(found), going=0.0)
    assert totals.going == pytest.approx(add_up(found).going)
    row = experiment(store, search)
    assert row is not None
    for goal in ("minimize", "maximize"):
        assert find_best_trial(store, replace(row, goal=goal)) == best_trial(replace(row, goal=goal), found)


def test_a_search_without_trials_comes_to_nothing(store: Store, search: str) -> None:
    store.execute("DELETE FROM trials")
    row = experiment(store, search)

    assert row is not None
    assert trial_totals(store, search, RUNGS) == TrialTotals(0, 0, 0, 0, 0, 0, 0.0, (0, 0, 0))
    assert find_best_trial(store, row) is None


def at(seconds: float, do: str, **more: Any) -> dict[str, Any]:
    """Return an event of a search, so long after its last report."""
    return {"do": do, "time": seeding.NOW_US + round(seconds * SECOND_US), **more}


@pytest.mark.parametrize(
    "events",
    [
        [],
        [at(1, "annotate", note='"pause"'), at(5000, "annotate", tags=["b"])],
        [at(10, "pause"), at(3610, "resume"), at(3700, "note", state="RUNNING")],
        [at(10, "resume"), at(20, "pause"), at(30, "annotate", note="resume"), at(40, "resume")],
        [at(10, "pause"), at(500, "note", state="RUNNING")],
    ],
    ids=["no pause", "annotated", "paused", "annotated within a pause", "pause that goes on"],
)
def test_the_end_is_expected_at_the_same_time_in_list_and_screens(
    store: Store, search: str, events: list[dict[str, Any]]
) -> None:
    for event in events:
        record_event(store, search, event)
    store.execute("UPDATE experiments SET state = 'RUNNING'")
    with store.home.experiment(search).events.open("a") as stream:
        stream.write('{"do": "pause", "time": 1')  # torn by a crash
    row = experiment(store, search)
    assert row is not None

    shown, listed = SearchReader(search)(store), read_progress(store, row)

    assert shown is not None and shown.ends_us is not None
    assert (listed.ends_us, listed.expected_trials) == (shown.ends_us, shown.expected_trials)


def test_the_time_until_a_search_was_continued_does_not_count(store: Store, search: str) -> None:
    document = json.loads(store.home.experiment(search).experiment_file.read_text())
    before = read(store, search)
    record_event(store, search, at(86_400, "continue", search=document["spec"]["search"]))
    store.execute("UPDATE experiments SET state = 'RUNNING', method = 'grid'")

    after = read(store, search)

    assert after - before == pytest.approx(86_400 * SECOND_US, abs=60 * SECOND_US)
    shown = SearchReader(search)(store)
    assert shown is not None and shown.ends_us == after


def read(store: Store, search: str) -> int:
    """Return when a search is expected to end."""
    row = experiment(store, search)
    assert row is not None
    ends_us = read_progress(store, row).ends_us
    assert ends_us is not None
    return ends_us


def test_a_search_of_very_many_trials_is_looked_at_seldom_but_for_its_state(
    store: Store, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, took = 100.0, 2.0

    def look() -> float:
        nonlocal now
        now += took / 2  # the time is asked for before and after a look
        return now

    monkeypatch.setattr("workbench.services.inspect.search_standing.elapsed_seconds", look)
    reader = SearchReader(search)
    first = reader(store)
    record_event(store, search, {"do": "pause", "state": "PAUSED"})
    store.execute("DELETE FROM trials WHERE number > 3")

    paused = reader(store)
    now += took / READ_SHARE
    later = reader(store)

    assert first is not None and first.row.state == "RUNNING"
    assert paused == replace(first, row=replace(first.row, state="PAUSED"), ends_us=None)
    assert later is not None and len(later.trials) == 3


def test_params_differ_where_their_values_are_written_in_another_way(store: Store, search: str) -> None:
    values = [{"a": 1, "b": [1], "c": "x", "d": 0.1}, {"a": True, "b": [1], "c": "x", "d": 0.1}]
    store.execute("DELETE FROM trials WHERE number > 2")
    for number, hparams in enumerate(values, start=1):
        store.execute("UPDATE trials SET hparams = ? WHERE number = ?", (json.dumps(hparams), number))

    shown = SearchReader(search)(store)

    assert shown is not None and shown.params == ("a",)


def test_how_far_a_search_is_is_known_without_its_history(store: Store, search: str) -> None:
    store.home.experiment(search).events.unlink()
    row = experiment(store, search)
    assert row is not None

    progress = read_progress(store, row)

    assert progress.share is not None and progress.share > 0.5
    assert progress.ends_us is None


def test_hyperparameters_that_are_called_as_a_distribution_are_in_no_range(store: Store, search: str) -> None:
    file = store.home.experiment(search).experiment_file
    document = json.loads(file.read_text())
    document["spec"]["search"]["params"] = {
        "choice": 5, "a.uniform": 0.1, "a.b": {"choice": [1, 2]}, "net": {"int": 3, "x": {"uniform": [0, 1]}}
    }  # fmt: skip
    file.write_text(json.dumps(document))

    shown = SearchReader(search)(store)

    assert shown is not None
    assert {name: (each.kind, each.values) for name, each in shown.ranges.items()} == {
        "a.b": ("choice", (1, 2)),
        "net.x": ("uniform", (0, 1)),
    }
