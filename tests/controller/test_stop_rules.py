"""Rules of ``stop_when``: what holds when, and real jobs that are stopped by them."""

from __future__ import annotations

import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.controller.test_experiments import RANDOM, ended, search
from tests.support.controllers import answers, kill
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller
from workbench.controller.loop.stop_rules import rule_of
from workbench.job import State
from workbench.learner.journal import state
from workbench.store.queries.experiments import trials
from workbench.store.queries.jobs import transitions
from workbench.store.queries.learners import learners
from workbench.store.queries.requests import requests

REPORTS = """
import time
from fabric_learner import report
for step, value in enumerate({VALUES}, 1):
    report(loss=value, step=step)
    time.sleep(0.02)
print("all reported", flush=True)
while {WAITS}:
    time.sleep(0.1)
"""


def reporting(values: str, *, waits: bool = True) -> str:
    code = REPORTS.replace("{VALUES}", values).replace("{WAITS}", str(waits))
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def notes(ground: Ground, job_id: str) -> list[str]:
    return [one.text for one in transitions(ground.store, job_id) if one.kind == "note"]


def asked(ground: Ground, job_id: str) -> list[str]:
    """Return what a controller has asked for by a rule, as it does for agents that know none."""
    return [one.kind for one in requests(ground.store, job_id) if one.who.startswith("stop_when: ")]


def holds(rule: dict[str, Any], *values: float | None) -> str:
    """Return the sentence of a rule after some values, and that it holds at the last one only."""
    judged = rule_of({"metric": "loss", **rule})
    taken = [judged.take(value, step) for step, value in enumerate(values, 1)]
    assert True not in taken[:-1]
    assert taken[-1] == bool(judged.sentence)
    return judged.sentence


@pytest.mark.parametrize(
    ("rule", "values", "sentence"),
    [
        ({"is": "nan"}, (1.0, None), "loss is nan at step 2"),
        ({"is": "nan"}, (1.0, math.inf), ""),
        ({"above": 10.0}, (10.0, 10.5), "loss is 10.5, above 10 at step 2"),
        ({"above": 10.0}, (None, math.inf), "loss is inf, above 10 at step 2"),
        ({"above": 10.0, "after": 2}, (50.0, 50.0, 11.0), "loss is 11, above 10 at step 3"),
        ({"below": 0.5}, (0.5, 0.25), "loss is 0.25, below 0.5 at step 2"),
        ({"no_better_for": 2}, (3.0, 2.0, 2.0, 2.5), "loss was no better than 2 for 2 values at step 4"),
        ({"no_better_for": 2}, (3.0, 4.0, 2.0, 2.5), ""),
        ({"no_better_for": 2}, (None, -math.inf), "loss was no number for 2 values at step 2"),
        ({"no_better_for": 1, "goal": "maximize"}, (1.0, 2.0, 1.5), "loss was no better than 2 for 1 value at step 3"),
        ({"no_better_for": 1, "metric": "val_accuracy"}, (0.1, 0.2, 0.3), ""),
    ],
)  # fmt: skip
def test_a_rule_holds(rule: dict[str, Any], values: tuple[float | None, ...], sentence: str) -> None:
    assert holds(rule, *values) == sentence


def test_a_job_is_halted_and_says_why(ground: Ground) -> None:
    rules = ({"metric": "loss", "is": "nan"}, {"metric": "loss", "above": 0.5, "then": "tell"})

    job_id = ground.submit(reporting("[1.0, float('nan')]"), stop_when=rules)

    assert ground.ends(job_id).reason.text == "halted by stop_when: loss is nan at step 2"
    assert notes(ground, job_id) == ["stop_when: loss is 1, above 0.5 at step 1"]
    assert not asked(ground, job_id)


def test_a_rule_may_kill(ground: Ground) -> None:
    job_id = ground.submit(
        reporting("[1.0, 7.0]"), stop_when=({"metric": "loss", "above": 5.0, "then": "kill"},)
    )

    assert ground.ends(job_id).reason.text == "killed by stop_when: loss is 7, above 5 at step 2"


def test_a_job_that_has_ended_stays_as_it_ended(ground: Ground) -> None:
    rules = ({"metric": "loss", "below": 0.0, "then": "tell"}, {"metric": "lss", "is": "nan"})

    job_id = ground.submit(reporting("[1.0, -1.0]", waits=False), stop_when=rules)

    assert ground.ends(job_id).state is State.COMPLETED
    assert sorted(notes(ground, job_id)) == [
        "stop_when: loss is -1, below 0 at step 2",
        "stop_when: lss has not been reported; there are loss",
    ]


def test_a_resumed_job_is_judged_anew(ground: Ground, tmp_path: Path) -> None:
    seen = shlex.quote(str(tmp_path / "seen"))
    again, first = reporting("[2.0, 1.0]", waits=False), reporting("[1.0, 9.0]")
    command = f"if [ -e {seen} ]; then exec {again}; fi; touch {seen}; {first}"
    job_id = ground.submit(command, stop_when=({"metric": "loss", "above": 5.0},))
    assert ground.ends(job_id).state is State.HALTED

    ground.ask(job_id, "resume")

    assert ground.ends(job_id, attempt=2).state is State.COMPLETED


def test_a_job_that_is_worse_than_the_median_of_its_sweep_is_stopped(ground: Ground) -> None:
    keys: dict[str, Any] = {
        "labels": {"sweep": "lr"},
        "stop_when": ({"metric": "loss", "worse_than": "median", "of": "sweep", "after": "50%"},),
    }
    for best in (1.0, 2.0, 3.0):
        job_id = ground.submit(reporting(f"[9.0, {best}, 9.0, 9.0]", waits=False), **keys)
        assert ground.ends(job_id).state is State.COMPLETED
    alone = ground.submit(reporting("[9.0] * 4", waits=False), **{**keys, "labels": {"sweep": "other"}})

    good = ground.submit(reporting("[9.0, 9.0, 1.5, 9.0]", waits=False), **keys)
    assert ground.ends(good).state is State.COMPLETED
    bad = ground.submit(reporting("[9.0, 9.0, 2.5, 2.5]"), **keys)

    assert re.fullmatch(
        r"halted by stop_when: loss was at best 2\.5 in its first [34] values, worse than the median of 4 others of"
        r" its sweep, 1\.75",
        ground.ends(bad).reason.text,
    )
    assert ground.ends(alone).state is State.COMPLETED
    assert notes(ground, alone) == []


def test_a_job_is_stopped_while_no_controller_runs(ground: Ground, tmp_path: Path) -> None:
    rules = ({"metric": "loss", "above": 5.0}, {"metric": "loss", "above": 7.0, "then": "kill"})
    go = tmp_path / "go"
    job_id = ground.submit(
        f"{NAP}until [ -e {go} ]; do nap 0.05; done; {reporting('[1.0, 9.0]')}", stop_when=rules
    )
    ground.reaches(job_id, State.PROCESSING)
    kill(answers(ground.home).pid)
    go.touch()
    folder = str(ground.learner(job_id).path)
    until(lambda: state.read(folder).get("phase") == "exited", lambda: f"its end: {state.read(folder)}")
    ensure_controller(ground.home)

    assert ground.ends(job_id).reason.text == "halted by stop_when: loss is 9, above 5 at step 2"
    assert ground.row(job_id).exit_code == 143
    assert (notes(ground, job_id), asked(ground, job_id)) == ([], [])


def test_all_learners_are_stopped_for_what_the_first_one_reports(ground: Ground) -> None:
    job_id = ground.submit(
        f'if [ "$LEARNER_ID" = 1 ]; then {reporting("[1.0, 9.0]")}; else {reporting("[9.0]")}; fi',
        learners=2,
        stop_when=({"metric": "loss", "above": 5.0},),
    )

    assert ground.ends(job_id).reason.text == "halted by stop_when: loss is 9, above 5 at step 2"
    assert [one.stopped for one in learners(ground.store, job_id, 1)] == ["halt", "halt"]
    assert not asked(ground, job_id)


def test_another_learners_values_count_once_the_first_one_has_ended(ground: Ground, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job_id = ground.submit(
        f'{NAP}[ "$LEARNER_ID" = 1 ] || {{ until [ -e {go} ]; do nap 0.05; done; {reporting("[1.0, 9.0]")}; }}',
        learners=2,
        ends_when="all",
        stop_when=({"metric": "loss", "above": 5.0},),
    )
    until(
        lambda: [one.phase.name for one in learners(ground.store, job_id, 1)] == ["EXITED", "RUNNING"],
        lambda: str(learners(ground.store, job_id, 1)),
    )
    go.touch()

    ground.ends(job_id)
    assert asked(ground, job_id) == ["halt"]
    assert [one.stopped for one in learners(ground.store, job_id, 1)] == ["", "halt"]


def test_a_trial_that_a_rule_ends_is_no_persons_wish(ground: Ground) -> None:
    rules = ({"metric": "loss", "above": 5.0},)
    experiment_id = search(ground, {**RANDOM, "max_trials": 2}, reporting("[1.0, 9.0]"), stop_when=rules)

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert [one.state for one in trials(ground.store, experiment_id)] == ["COMPLETED"] * 2
