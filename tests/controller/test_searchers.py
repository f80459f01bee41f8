"""Searches whose trials a process of its own chooses: Optuna, or a class of the user's."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.controller.test_experiments import (
    decided,
    ended,
    killed_at_random,
    row_of,
    search,
    states,
    steers,
    story,
    train,
)
from tests.support.controllers import end_all, log_of
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.data.code.snapshot import take_snapshot
from workbench.learner.journal.launch_document import AUTO
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.spec import EvaluationMetrics
from workbench.store.db.database import Store
from workbench.store.queries.experiments import events_of, experiment, trials
from workbench.store.updates.rebuild import rebuild

CLIMBING = """
import random

class Searcher:
    def __init__(self, search):
        self.random = random.Random(search.seed)
        self.best, self.seen = None, []
        print("begins with", search.goal, search.metric, search.max_trials)

    def ask(self):
        if self.best is None:
            return {"x": self.random.randint(1, 1000), "part": {"kind": "a"}}
        return {"x": max(1, self.best.hparams["x"] - self.random.randint(1, 100)), "part": {"kind": "b"}}

    def report(self, trial):
        self.seen.append(trial.value)

    def tell(self, trial):
        assert trial.value in self.seen and trial.state == "completed"
        if self.best is None or trial.value < self.best.value:
            self.best = trial
"""
OWN: dict[str, Any] = {
    "method": "python",
    "searcher": "search.py:Searcher",
    "metric": "loss",
    "max_trials": 6,
    "max_concurrent": 1,
    "params": {"x": {"int": [1, 1000]}, "part": {"kind": {"choice": ["a", "b"]}, "rate": 0.5}},
}
OPTUNA: dict[str, Any] = {
    **OWN,
    "method": "optuna",
    "max_trials": 14,
    "params": {
        "x": {"int": [1, 1000]},
        "lr": {"loguniform": [1e-5, 1e-1]},
        "part": {"kind": {"choice": ["a", [1, None]]}, "rate": 0.5, "drop": {"uniform": [0, 0.5]}},
    },
}
QUICK = train("loss=x / epoch", 0.0)


def searched(ground: Ground, folder: Path, text: str, *, command: str = QUICK, **keys: Any) -> str:
    """Begin a search with a class of the user's own."""
    return search(ground, {**OWN, **keys}, command, code_hash=packed(ground, folder, text))


def packed(ground: Ground, folder: Path, text: str) -> str:
    (folder / "search.py").write_text(text)
    return take_snapshot(folder, ground.home).code_hash


def searchers(ground: Ground) -> list[psutil.Process]:
    """Return the processes that choose, of the controller that is there."""
    there = status(ground.home)
    return [
        each
        for each in psutil.process_iter(["ppid", "cmdline"])
        if there is not None
        and each.info["ppid"] == there.pid
        and any(word.endswith("searcher_child.py") for word in each.info["cmdline"] or ())
    ]


def failure(ground: Ground, folder: Path, text: str, **keys: Any) -> str:
    """Return why a search with such a class has failed."""
    row = ended(ground, searched(ground, folder, text, **keys))
    assert row.state == "FAILED"
    return row.reason


def test_a_class_of_the_users_own_chooses_what_is_tried(ground: Ground, tmp_path: Path) -> None:
    experiment_id = searched(ground, tmp_path, CLIMBING, max_concurrent=2)

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert len(found) == 6 and found[0].hparams["part"] == {"kind": "a", "rate": 0.5}
    assert found[5].hparams["x"] < found[0].hparams["x"] and found[5].hparams["part"]["kind"] == "b"
    log = ground.home.experiment(experiment_id).searcher_log
    assert log.read_text() == "begins with minimize loss 6\n"


@pytest.mark.chaos
@pytest.mark.parametrize(
    "method",
    ["python", pytest.param("optuna", marks=pytest.mark.soak("the gate asks a class of the user's"))],
)
def test_a_controller_that_is_killed_changes_nothing_of_what_is_asked(
    home: Home, tmp_path: Path, kills: int, method: str
) -> None:
    draw = random.Random(17)
    stories = []
    for most in (0, kills):
        ground = Ground(home)
        config = OWN if method == "python" else OPTUNA
        code_hash = packed(ground, tmp_path, CLIMBING) if method == "python" else ""
        command = train("loss=x / epoch", 0.05)
        experiment_id = search(ground, config, command, code_hash=code_hash, wakes=False)
        killed_at_random(home, most, draw)
        row = ended(ground, experiment_id)
        assert row.state == "COMPLETED", row
        compared, created = decided(ground, experiment_id)
        assert len(created) == config["max_trials"]
        stories.append((compared, created, story(ground, experiment_id)))
        ground.clean_up()

    assert stories[0] == stories[1]


def test_optuna_draws_within_all_kinds_of_bounds(ground: Ground) -> None:
    auto = EvaluationMetrics(AUTO)
    config = {**OPTUNA, "max_concurrent": 3}
    experiment_id = search(ground, config, "echo loss=${params.x}", evaluation_metrics=auto)

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = [one.hparams for one in trials(ground.store, experiment_id)]
    assert len(found) == 14
    assert all(1 <= each["x"] <= 1000 and isinstance(each["x"], int) for each in found)
    assert all(1e-5 <= each["lr"] <= 1e-1 and 0 <= each["part"]["drop"] <= 0.5 for each in found)
    assert {json.dumps(each["part"]["kind"]) for each in found} == {'"a"', "[1, null]"}
    assert {each["part"]["rate"] for each in found} == {0.5}


def test_optuna_prunes_trials_that_are_worse_than_others(ground: Ground) -> None:
    config = {**OPTUNA, "pruner": "median", "time_metric": "epoch", "max_trials": 10}
    # A trial is to learn of it long before its last epoch.
    experiment_id = search(ground, config, train(seconds=0.05, paced_at=(4, 7)))

    assert ended(ground, experiment_id, seconds=90).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    stopped = [one for one in found if one.state == "STOPPED"]
    assert stopped and all(one.number > 5 for one in stopped)
    assert all("stops after" in ground.output(one.job_id) for one in stopped)
    assert [one.units for one in found[:5]] == [9.0] * 5


@pytest.mark.soak("another pruner of optuna's; the gate has its median above")
def test_hyperband_of_optuna_prunes_in_brackets_of_its_own(ground: Ground) -> None:
    config = {**OPTUNA, "pruner": "hyperband", "time_metric": "epoch", "max_trials": 8}
    # A trial is to learn of it long before its last epoch.
    experiment_id = search(ground, config, train(seconds=0.05, paced_at=(4, 7)))

    assert ended(ground, experiment_id, seconds=90).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    # How many brackets there are is known when the first trial has shown how far one gets.
    assert (found[0].state, found[0].units) == ("COMPLETED", 9.0)
    stopped = [one for one in found if one.state == "STOPPED"]
    assert 0 < len(stopped) < len(found)
    assert all("stops after" in ground.output(one.job_id) for one in stopped)
    pruned = [event["trial"] for event in events_of(ground.home, experiment_id) if event["do"] == "prune"]
    assert pruned == [one.trial for one in stopped]
    # The median stops none of the first five.
    assert stopped[0].number <= 5


def test_a_class_stops_a_trial_by_what_it_reports(ground: Ground, tmp_path: Path) -> None:
    text = """
class Searcher:
    def __init__(self, search):
        self.states = []
    def ask(self):
        return None if self.states else {"x": 5, "part": {"kind": "a"}}
    def report(self, trial):
        return len(trial.values) == 2
    def tell(self, trial):
        print(trial.number, trial.state, trial.hparams["x"], flush=True)
        self.states.append(trial.state)
"""
    experiment_id = searched(ground, tmp_path, text, command=train(seconds=0.5))

    assert ended(ground, experiment_id).state == "COMPLETED"
    (only,) = trials(ground.store, experiment_id)
    assert only.state == "STOPPED" and "stops after" in ground.output(only.job_id)
    assert ground.home.experiment(experiment_id).searcher_log.read_text() == "1 stopped 5\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "class Searcher:\n    def __init__(self, search):\n        raise ValueError('too few')\n",
            "the searcher failed: ValueError: too few (search.py:3)",
        ),
        (
            "class Searcher:\n    def __init__(self, search): pass\n    def ask(self):\n        return {}['x']\n",
            "the searcher failed: KeyError: 'x' (search.py:4)",
        ),
        ("class Searcher\n", "SyntaxError: expected ':' (search.py:1)"),
        (
            "import nowhere_to_be_found\n",
            "ModuleNotFoundError: No module named 'nowhere_to_be_found' (search.py:1)",
        ),
        ("x = 1\n", "ImportError: there is no class Searcher in search.py"),
        ("class Searcher:\n    def __init__(self, search): pass\n", "search.py:Searcher has no method ask()"),
        ("raise SystemExit(3)\n", "the searcher failed: SystemExit: 3 (search.py:1)"),
    ],
)
def test_a_class_that_raises_ends_the_search_by_its_name(
    ground: Ground, tmp_path: Path, text: str, reason: str
) -> None:
    assert reason in failure(ground, tmp_path, text)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("7", "ask() returned 7 where a dict is needed"),
        ("{'x': 7}", "ask() returned no value for part.kind"),
        ("{'x': 7, 'part': {'kind': 'c'}}", "part.kind='c', which may not be tried"),
        ("{'x': 7.5, 'part': {'kind': 'a'}}", 'x=7.5, which may not be tried: {"int": [1, 1000]}'),
        ("{'x': float('nan'), 'part': {'kind': 'a'}}", "x=nan, which may not be tried"),
        ("{'x': '7', 'part': {'kind': 'a'}}", "x='7', which may not be tried"),
        ("{'x': 7, 'y': 1, 'part': {'kind': 'a'}}", "ask() returned y, which is not below search.params"),
    ],
)
def test_a_sample_that_may_not_be_tried_ends_the_search(
    ground: Ground, tmp_path: Path, returned: str, reason: str
) -> None:
    text = f"class Searcher:\n    def __init__(self, search): pass\n    def ask(self): return {returned}\n"

    assert reason in failure(ground, tmp_path, text)


def test_a_class_that_raises_later_ends_the_trials_under_way(ground: Ground, tmp_path: Path) -> None:
    text = CLIMBING.replace("self.seen.append(trial.value)", "1 / 0")

    reason = failure(ground, tmp_path, text, command=train(seconds=5.0))

    assert reason == "the searcher failed: ZeroDivisionError: division by zero (search.py:16)"


def test_a_process_that_dies_is_started_again_and_knows_the_same(ground: Ground, tmp_path: Path) -> None:
    experiment_id = searched(ground, tmp_path, CLIMBING, command=train(seconds=0.03))
    undisturbed = searched(ground, tmp_path, CLIMBING, max_concurrent=1)
    killed: list[int] = []
    while row_of(ground, experiment_id).is_open and len(killed) < 4:
        before = len(trials(ground.store, experiment_id))
        for process in searchers(ground):
            process.kill()
            killed.append(process.pid)
        until(
            lambda before=before: (  # type: ignore[misc]
                len(trials(ground.store, experiment_id)) > before or not row_of(ground, experiment_id).is_open
            ),
            lambda: log_of(ground.home),
        )

    assert killed
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert ended(ground, undisturbed).state == "COMPLETED"
    both = [trials(ground.store, each) for each in (experiment_id, undisturbed)]
    assert [one.hparams for one in both[0]] == [one.hparams for one in both[1]]


def test_a_process_that_always_dies_ends_the_search(ground: Ground, tmp_path: Path) -> None:
    reason = failure(ground, tmp_path, "import os\nos._exit(7)\n")

    assert reason == "the searcher has ended 3 times, at last with exit code 7"


def test_a_class_that_never_answers_holds_nothing_else_up(ground: Ground, tmp_path: Path) -> None:
    text = "class Searcher:\n    def __init__(self, search):\n        while True: pass\n    def ask(self): pass\n"
    stuck = searched(ground, tmp_path, text)
    other = search(ground, {**OWN, "method": "random", "params": {"x": 3}, "max_trials": 2}, QUICK)

    assert ended(ground, other).state == "COMPLETED"
    # That of a search before it may live for a moment longer.
    (process,) = until(lambda: found if len(found := searchers(ground)) == 1 else [])
    end_all(ground.home)
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    ensure_controller(ground.home)
    steers(ground, stuck, "kill", "STOPPING")
    assert ended(ground, stuck).state == "KILLED"


def test_a_trial_that_reports_nothing_counts_as_failed(ground: Ground, tmp_path: Path) -> None:
    text = CLIMBING.replace('assert trial.value in self.seen and trial.state == "completed"', "return")
    experiment_id = searched(ground, tmp_path, text, command=train("accuracy=x", 0.0), max_trials=2)

    row = ended(ground, experiment_id)

    assert (row.state, states(ground, experiment_id)) == ("FAILED", ["FAILED"] * 2)
    assert row.reason == "the metric 'loss' has not been reported; there are accuracy"


def test_a_lost_database_is_made_again_with_what_was_asked(own_ground: Ground, tmp_path: Path) -> None:
    ground = own_ground
    experiment_id = searched(ground, tmp_path, CLIMBING, max_trials=2)
    before = ended(ground, experiment_id), trials(ground.store, experiment_id)
    end_all(ground.home)

    rebuild(ground.home, ingest=ingest)

    with Store.open(ground.home) as store:
        assert (experiment(store, experiment_id), trials(store, experiment_id)) == before
    assert [each["do"] for each in events_of(ground.home, experiment_id)].count("ask") == 2
    ground.store.close()
    ground.store = Store.open(ground.home)
