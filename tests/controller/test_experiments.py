"""Searches by real controllers: trials are real jobs, and a controller that is killed changes nothing."""

from __future__ import annotations

import functools
import random
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import add_job
from tests.controller.bench import MEMORY, Bench
from tests.quick.metrics.writing import Records
from tests.support.controllers import end_all, forked_controller, kill, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import patience, until
from workbench.controller.client.connect import ensure_controller, status
from workbench.controller.loop.experiments import BY
from workbench.controller.runtime.secrets import read_secrets, write_secrets
from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.job import BEFORE_THE_COMMAND, State, new_job_id
from workbench.learner.journal.launch_document import AUTO
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.control.requests import QueueChange, change
from workbench.services.follow.wait import wait_for_answers
from workbench.services.submit.experiments import kill_experiment
from workbench.services.submit.trials_ahead import with_trials_ahead
from workbench.spec import EvaluationMetrics, Framework, JobSpec, spec_to_json
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.history.journal import append_line
from workbench.store.queries.experiments import (
    ExperimentRow,
    archived_experiments,
    events_of,
    experiment,
    experiments,
    trials,
)
from workbench.store.queries.home_queue import waiting_jobs
from workbench.store.queries.jobs import detail, job, list_jobs, transitions
from workbench.store.queries.metric_values import metric_names
from workbench.store.queries.requests import requests
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import (
    catch_up_experiment,
    insert_experiment,
    new_experiment_id,
    record_event,
    remove_experiment,
)
from workbench.store.updates.rebuild import rebuild

GOES_ON = "goes-on"
"""The file that says up to which epoch a paced trial may train: in its results, since copies begin with checkpoints."""
PACE = """
import os, time
from fabric_learner import should_stop

def rest(epoch):
    file = os.path.join(os.environ["RESULT_DIR"], "{GOES_ON}")
    if epoch in {PACED_AT}:
        while not should_stop() and (not os.path.exists(file) or float(open(file).read()) < epoch):
            time.sleep(0.005)
    end = time.monotonic() + {SECONDS}
    while time.monotonic() < end and not should_stop():
        time.sleep(0.01)
"""
TRAIN = """
from fabric_learner import hparams, report
x = hparams()["x"]
for epoch in range(1, 10):
    report({VALUES})
    rest(epoch)
    if should_stop():
        print("stops after", epoch, flush=True)
        break
"""
GOING_ON = """
import os, time
from fabric_learner import hparams, report
file = os.path.join(os.environ["CHECKPOINT_DIR"], "step")
done = int(open(file).read()) if os.path.exists(file) else 0
print("starts after", done, flush=True)
for step in range(done + 1, 41):
    report(loss=hparams()["x"] / step, step=step)
    open(file + ".new", "w").write(str(step))
    os.replace(file + ".new", file)
    while step >= 5 and not os.path.exists({GO}):
        time.sleep(0.01)
"""
STAGED = """
from fabric_learner import hparams, report
file = os.path.join(os.environ["CHECKPOINT_DIR"], "state")
done, before = open(file).read().split() if os.path.exists(file) else ("0", "")
x = hparams()["x"]
print("starts after", done, "as", x, "before", before, flush=True)
for epoch in range(int(done) + 1, {EPOCHS} + 1):
    report(loss=x, epoch=epoch)
    with open(file + ".new", "w") as stream:
        stream.write(str(epoch) + " " + before + "," + str(x))
    os.replace(file + ".new", file)
    rest(epoch)
    if should_stop():
        break
"""
FAILING_ONCE = """
import os, sys, time
from fabric_learner import hparams, report
flag = os.path.join(os.environ["CHECKPOINT_DIR"], "flag")
if hparams()["x"] > {FROM} and not os.path.exists(flag):
    open(flag, "w").close()
    sys.exit(3)
print(time.time(), flush=True)
for epoch in range(1, 6):
    report(loss=hparams()["x"] / epoch, epoch=epoch)
    time.sleep({SECONDS})
print(time.time(), flush=True)
"""
ONE_REPORTS = """
import os, time
from fabric_learner import hparams, report
try:
    os.close(os.open({FLAG}, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    while not os.path.exists({GO}):
        time.sleep(0.01)
for epoch in range(1, 10):
    report(loss=hparams()["x"], epoch=epoch)
    while epoch == 3 and not os.path.exists({GO}):
        time.sleep(0.01)
"""
SAYS_BEST = """
import os, sys
from fabric_learner import hparams, report
print(os.environ.get("DET_SEARCHER_BEST"), flush=True)
file = os.path.join(os.environ["CHECKPOINT_DIR"], "begun")
is_first = not os.path.exists(file)
open(file, "w").close()
report({"loss": hparams()["x"]}, group="validation", step=1 if is_first else 2)
sys.exit({CODE} if is_first else 0)
"""
BEFORE_VALIDATION = """
import os, time
from fabric_learner import report
for step in range(1, 6):
    report({FIRST}, step=step)
while not os.path.exists({GO}):
    time.sleep(0.01)
"""
ASHA: dict[str, Any] = {
    "method": "asha",
    "metric": "loss",
    "time_metric": "epoch",
    "max_time": 9,
    "divisor": 3,
    "max_trials": 6,
    "max_concurrent": 1,
    "params": {"x": {"int": [1, 1000]}},
}
FEW: dict[str, Any] = {**ASHA, "max_trials": 4}
PROMOTION: dict[str, Any] = {**ASHA, "variant": "promotion"}
PBT: dict[str, Any] = {
    "method": "pbt",
    "metric": "loss",
    "time_metric": "epoch",
    "population": 3,
    "rounds": 3,
    "round_time": 3,
    "truncate": 0.34,
    "resample": 0.0,
    "params": {"x": {"int": [1, 1000]}},
}
RANDOM: dict[str, Any] = {
    "method": "random",
    "metric": "loss",
    "max_trials": 4,
    "max_concurrent": 2,
    "params": {"x": {"uniform": [0, 1]}},
}


def train(
    values: str = "loss=x / epoch, epoch=epoch", seconds: float = 0.0, *, paced_at: Sequence[int] = ()
) -> str:
    """Return a command that trains for nine epochs of so many seconds.

    After those in which it is paced it waits until :func:`ended` lets it go on, so that no search is too slow for it.
    """
    return python(pace(seconds, paced_at) + TRAIN.replace("{VALUES}", values))


def staged(epochs: int, seconds: float = 0.0, *, paced_at: Sequence[int] = ()) -> str:
    """Return a command that trains for so many epochs, and goes on from its checkpoint."""
    return python(pace(seconds, paced_at) + STAGED.replace("{EPOCHS}", str(epochs)))


def pace(seconds: float, paced_at: Sequence[int] = ()) -> str:
    values = {"GOES_ON": GOES_ON, "SECONDS": str(seconds), "PACED_AT": str(list(paced_at))}
    return functools.reduce(lambda text, name: text.replace(f"{{{name}}}", values[name]), values, PACE)


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -S -c {shlex.quote(code)}"


DELETION = {"do": "delete", "who": "me@here", "state": "STOPPING", "reason": "is being deleted by me@here"}

UNTIL_HALTED = train(seconds=3600.0).replace("should_stop()", "False")
"""Looks at no request: whoever ends by himself before the agent has read it has completed, and was not halted."""


def going_on(go: Path) -> str:
    """Return a command that trains on from its checkpoint; from step 5 on it waits for a file after each one."""
    return python(GOING_ON.replace("{GO}", repr(str(go))))


def let_go_on(ground: Ground, experiment_id: str) -> None:
    """Let each trial train on whose last report the search has taken, and neither stops it nor has it wait."""
    jobs = {one.trial: one.job_id for one in trials(ground.store, experiment_id)}
    for event in events_of(ground.home, experiment_id):
        if event["do"] != "report" or event.get("waits") or event["units"] is None:
            continue
        if any(each["do"] == "stop" and each["trial"] == event["trial"] for each in event["operations"]):
            continue
        file = ground.home.job(jobs[event["trial"]]).results / GOES_ON
        if file.parent.is_dir() and not (file.exists() and float(file.read_text()) >= event["units"]):
            new = file.with_name(f"{GOES_ON}.new")
            new.write_text(str(event["units"]))
            new.rename(file)


def search(
    ground: Ground | Bench,
    config: dict[str, Any],
    command: str,
    *,
    seed: int = 7,
    code_hash: str = "",
    wakes: bool = True,
    targets: Sequence[TargetRef] = (),
    is_ahead: bool = False,
    image: str = "",
    **keys: Any,
) -> str:
    """Begin a search, on several backends where they are named, with its trials created ahead where that is said."""
    framework = Framework(version=image, command=command)
    spec = JobSpec(name="searched", framework=framework, search=config, max_platform_restarts=0, **keys)
    target = ground.target if isinstance(ground, Ground) else MEMORY
    spec, ahead = with_trials_ahead(spec, [target]) if is_ahead else (spec, {})
    assert bool(ahead) is is_ahead
    document = {
        **ahead,
        "seed": seed,
        "who": "test@here",
        "place": asdict(target),
        "places": [{"target": asdict(each), "recorded": {}} for each in targets],
        "spec": spec_to_json(spec),
        "manifest_text": "",
        "origins": {},
        "code_hash": code_hash,
        "recorded": {"python": sys.executable, "environment": {}},
    }
    experiment_id = new_experiment_id()
    insert_experiment(ground.store, experiment_id, document)
    if wakes:
        ensure_controller(ground.home)
    return experiment_id


def search_ahead(ground: Ground, command: str, *, image: str = "") -> tuple[str, list[str]]:
    """Begin a search of four trials, one at a time, which print their value last; return it and their jobs.

    The first one has begun when it returns, the others are made.
    """
    auto = EvaluationMetrics(AUTO)
    experiment_id = search(
        ground,
        {**RANDOM, "max_concurrent": 1},
        f"echo ready; {command}; echo loss=${{params.x}}",
        image=image,
        is_ahead=True,
        evaluation_metrics=auto,
    )
    until(lambda: len(trials(ground.store, experiment_id)) == 4, lambda: log_of(ground.home))
    jobs = [one.job_id for one in trials(ground.store, experiment_id)]
    until(lambda: all(job(ground.store, one) for one in jobs), lambda: log_of(ground.home))
    ground.prints(jobs[0], "ready")
    return experiment_id, jobs


def is_whole(ground: Ground, experiment_id: str) -> None:
    """See that a search has completed, and each trial with the value that it printed."""
    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert [(one.state, one.best) for one in found] == [("COMPLETED", one.hparams["x"]) for one in found]


def row_of(ground: Ground, experiment_id: str) -> ExperimentRow:
    found = experiment(ground.store, experiment_id)
    assert found is not None
    return found


def ended(ground: Ground, experiment_id: str, *, seconds: float = 60.0) -> ExperimentRow:
    """Wait for the end of a search; trials that are paced go on as soon as it has taken what they reported."""

    def is_over() -> bool:
        let_go_on(ground, experiment_id)
        return not row_of(ground, experiment_id).is_open

    until(
        is_over,
        lambda: (
            f"{row_of(ground, experiment_id)}\n{trials(ground.store, experiment_id)}\n{log_of(ground.home)}"
        ),
        seconds=seconds,
        every=0.03,
    )
    return row_of(ground, experiment_id)


def story(ground: Ground, experiment_id: str) -> list[Any]:
    """Return what a search was given and decided, without what differs from run to run: jobs, times, ends."""
    found: list[Any] = []
    for event in events_of(ground.home, experiment_id):
        operations = [
            {key: value for key, value in each.items() if key != "job"}
            for each in event.get("operations") or ()
        ]
        if event["do"] == "report":
            found.append((event["trial"], event["metrics"], operations))
        elif operations:
            found.append((event["do"], operations))
    return found


def decided(ground: Ground, experiment_id: str) -> tuple[list[Any], list[Any]]:
    """Return what a search has compared, and the trials that it began."""
    decisions = story(ground, experiment_id)
    compared = [(each[0], each[1]) for each in decisions if len(each) == 3 and each[1]]
    return compared, [one for each in decisions for one in each[-1] if one["do"] == "create"]


def kill_later(pid: int, seconds: float) -> None:
    """Kill a controller after a time that was drawn: the instant itself is what is tried."""
    time.sleep(seconds)
    kill(pid)


def killed_at_random(home: Home, kills: int, draw: random.Random) -> None:
    """Kill a home's controller so many times, each time at a random instant, and leave one running."""
    for _ in range(kills):
        there = status(home)
        kill_later(forked_controller(home) if there is None else there.pid, draw.uniform(0.1, 0.7))
    ensure_controller(home)


def searched_twice(
    home: Home, config: dict[str, Any], command: str, *, seed: int, most: int, is_long: bool = False
) -> Iterator[tuple[Ground, str]]:
    """Yield a search that nobody disturbs, then the same one whose controller is killed again and again.

    A long one is not over before the last kill.
    """
    draw = random.Random(seed)
    for kills in (0, most):
        ground = Ground(home)
        experiment_id = search(ground, config, command, wakes=False)
        killed_at_random(home, kills, draw)
        assert row_of(ground, experiment_id).is_open or not is_long
        assert ended(ground, experiment_id, seconds=900.0 if is_long else 60.0).state == "COMPLETED"
        yield ground, experiment_id
        ground.clean_up()


def test_a_search_runs_its_trials_and_stops_the_bad_ones(ground: Ground) -> None:
    experiment_id = search(ground, {**ASHA, "max_concurrent": 2}, train(paced_at=(3,)))

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert [one.number for one in found] == [1, 2, 3, 4, 5, 6]
    rows = [ground.row(one.job_id) for one in found]
    assert {row.state for row in rows} == {State.COMPLETED}
    assert [(row.parent, row.trial) for row in rows] == [(experiment_id, each) for each in range(1, 7)]
    assert {row.labels["sweep"] for row in rows} == {experiment_id.removeprefix("experiment-")}
    stopped = [one for one in found if one.units == 3.0]
    assert stopped and all("stops after" in ground.output(one.job_id) for one in stopped)


def test_a_trial_that_has_reported_is_asked_to_stop_though_nobody_has_seen_that_it_runs(
    bench: Bench, tmp_path: Path
) -> None:
    is_seen = threading.Event()

    def observe() -> None:
        is_seen.wait(patience())

    bench.backend.on_observe = observe
    experiment_id = search(bench, {**ASHA, "max_concurrent": 2}, "train", wakes=False)
    bench.wake()
    until(lambda: len(bench.backend.starts) == 2, bench.log)
    jobs = [one.job_id for one in trials(bench.store, experiment_id)]
    for job_id, loss in zip(jobs, (1.0, 2.0), strict=True):
        records = Records(tmp_path / job_id)
        records.points({"loss": [loss], "epoch": [3]}, steps=[3], group="")
        ingest(bench.store, job_id, 1, 1, records.file)
    bench.wake()

    try:
        until(lambda: bench.backend.stops, lambda: f"{events_of(bench.home, experiment_id)}\n{bench.log()}")
        assert [(attempt.job_id, request.by) for attempt, request in bench.backend.stops] == [(jobs[1], BY)]
        assert bench.row(jobs[1]).state in BEFORE_THE_COMMAND and requests(bench.store, jobs[1]) == []
    finally:
        is_seen.set()


def test_a_search_tries_no_more_at_once_than_it_may(ground: Ground) -> None:
    experiment_id = search(ground, RANDOM, train(seconds=0.02))

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert len(found) == 4 and all(one.state == "COMPLETED" and one.best is not None for one in found)
    rows = sorted((ground.row(one.job_id) for one in found), key=lambda row: row.submitted_us)
    assert rows[2].submitted_us >= min(row.ended_us or 0 for row in rows[:2])


def test_a_backend_that_is_cut_off_keeps_its_own_trials_only(ground: Ground) -> None:
    gone = TargetRef("gone", "ssh", "process", "ssh://nobody@127.0.0.1:1", {})
    config = {**RANDOM, "max_trials": 6, "max_concurrent": 4}
    experiment_id = search(ground, config, train(seconds=0.05), targets=[ground.target, gone])

    def have_ended() -> list[str]:
        return [str(one.backend) for one in trials(ground.store, experiment_id) if one.state == "COMPLETED"]

    until(lambda: len(have_ended()) == 4, lambda: f"{trials(ground.store, experiment_id)}", seconds=60)
    assert set(have_ended()) == {ground.target.backend}
    open_ones = [one for one in trials(ground.store, experiment_id) if one.state == "QUEUED"]
    assert [one.backend for one in open_ones] == ["gone", "gone"]
    steers(ground, experiment_id, "kill", "STOPPING")
    assert ended(ground, experiment_id).state == "KILLED"


@pytest.mark.chaos
def test_a_controller_that_is_killed_changes_nothing_of_a_search(home: Home, kills: int) -> None:
    decisions = []
    for ground, experiment_id in searched_twice(home, FEW, train(seconds=0.03), seed=3, most=kills):
        found = trials(ground.store, experiment_id)
        jobs = [row.id for row in list_jobs(ground.store) if row.parent == experiment_id]
        assert sorted(jobs) == sorted(one.job_id for one in found)
        decisions.append(story(ground, experiment_id))

    assert decisions[0] == decisions[1]


@pytest.mark.soak("some minutes; the gate kills the controller of a search a few times")
def test_a_search_whose_controller_is_killed_200_times_decides_what_an_undisturbed_one_does(
    home: Home,
) -> None:
    config = {**ASHA, "max_trials": 500}
    decisions = []
    for ground, experiment_id in searched_twice(
        home, config, train(seconds=0.03), seed=17, most=200, is_long=True
    ):
        decisions.append(story(ground, experiment_id))

    assert decisions[0] == decisions[1]


def test_a_trial_that_is_promoted_goes_on_from_its_checkpoint(ground: Ground) -> None:
    experiment_id = search(ground, {**PROMOTION, "max_concurrent": 2}, staged(9, paced_at=(3, 9)))

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert [one.state for one in found] == ["STOPPED"] * 6
    compared = [event for event in events_of(ground.home, experiment_id) if event.get("metrics")]
    assert sorted(event["units"] for event in compared) == [3.0] * 6 + [9.0] * 2
    promoted = [one for one in found if one.units == 9.0]
    assert len(promoted) == 2
    resumed = [one for one in promoted if ground.row(one.job_id).attempt == 2]
    assert all("starts after 0" not in ground.output(one.job_id, attempt=2) for one in resumed)
    held = [one for one in found if one not in promoted]
    rows = [ground.row(one.job_id) for one in held]
    assert any("halted by its search, to be compared with others" in row.reason.text for row in rows)
    assert all(row.attempt == 1 for row in rows)


@pytest.mark.chaos
@pytest.mark.soak(
    "promotions; the gate has the same kills in a search that stops trials, in a population, and later"
)
def test_a_controller_that_is_killed_changes_nothing_of_promotions(home: Home, kills: int) -> None:
    decisions = []
    for ground, experiment_id in searched_twice(
        home, {**FEW, "variant": "promotion"}, staged(9, 0.03), seed=11, most=kills
    ):
        assert states(ground, experiment_id) == ["STOPPED"] * 4
        decisions.append(decided(ground, experiment_id))

    assert decisions[0] == decisions[1]


def test_a_promoted_trial_that_has_run_to_its_end_counts_by_what_it_has_reported(ground: Ground) -> None:
    command = train(seconds=0.0).replace("should_stop()", "False")
    experiment_id = search(ground, {**PROMOTION, "max_trials": 3}, command)

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    assert [one.units for one in found].count(9.0) == 1
    assert {ground.row(one.job_id).attempt for one in found} == {1}


def test_the_job_of_a_trial_that_waits_to_be_compared_can_be_deleted(
    own_ground: Ground, tmp_path: Path
) -> None:
    ground, go = own_ground, tmp_path / "go"
    one_alone = ONE_REPORTS.replace("{FLAG}", repr(str(tmp_path / "flag"))).replace("{GO}", repr(str(go)))
    experiment_id = search(ground, {**PROMOTION, "max_trials": 3}, python(one_alone))
    until(
        lambda: [one.state for one in trials(ground.store, experiment_id)] == ["WAITING", "RUNNING"],
        lambda: f"{trials(ground.store, experiment_id)}\n{log_of(ground.home)}",
    )
    held = trials(ground.store, experiment_id)[0].job_id
    assert ground.ends(held).state is State.HALTED

    ground.ask(held, "delete")

    until(lambda: (row := job(ground.store, held)) is None or row.deleted_us, lambda: log_of(ground.home))
    go.touch()
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert trials(ground.store, experiment_id)[0].state == "CANCELLED"


def test_a_population_is_replaced_by_copies_that_begin_with_checkpoints(ground: Ground) -> None:
    experiment_id = search(ground, PBT, staged(99, paced_at=(3, 6, 9, 12)))

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = {one.trial: one for one in trials(ground.store, experiment_id)}
    created = [
        each
        for event in events_of(ground.home, experiment_id)
        for each in event.get("operations") or ()
        if each["do"] == "create"
    ]
    assert [each.get("begins_at") for each in created] == [None, None, None, 3, 6]
    for each in created[3:]:
        first = ground.output(found[each["trial"]].job_id).splitlines()[0]
        parent = found[each["parent"]].hparams["x"]
        assert int(first.split()[2]) >= each["begins_at"]
        assert first.endswith(f",{parent}")
        assert 0.79 * parent - 1 <= each["hparams"]["x"] <= 1.21 * parent + 1
    assert sum((one.units or 0) >= 9 for one in found.values()) == 3


@pytest.mark.chaos
def test_a_controller_that_is_killed_changes_nothing_of_a_population(home: Home, kills: int) -> None:
    decisions = []
    # No trial comes to its last epoch while no controller is there.
    command = staged(99, 0.025 * kills)
    for ground, experiment_id in searched_twice(home, PBT, command, seed=13, most=kills):
        compared, created = decided(ground, experiment_id)
        # Those of a round arrive in any order, and train on while no controller halts them.
        decisions.append((sorted((trial, values["loss"]) for trial, values in compared), created))

    assert decisions[0] == decisions[1]


def test_a_population_that_stores_no_checkpoints_says_so(ground: Ground) -> None:
    config = {**PBT, "population": 2, "truncate": 0.5, "rounds": 2}
    experiment_id = search(ground, config, train(paced_at=(3, 6)))

    assert ended(ground, experiment_id).state == "COMPLETED"
    copy = trials(ground.store, experiment_id)[2]
    texts = [one.text for one in transitions(ground.store, copy.job_id)]
    assert any("begins without the checkpoint of the trial that it copies" in text for text in texts)


def test_a_metric_that_is_never_reported_is_named_with_those_that_are(ground: Ground) -> None:
    experiment_id = search(ground, {**ASHA, "max_trials": 1}, train("accuracy=x, epoch=epoch", 0.01))

    row = ended(ground, experiment_id)

    assert row.state == "FAILED"
    assert row.reason == "the metric 'loss' has not been reported; there are accuracy, epoch"


def before_validation(go: Path, first: str, rest: str) -> str:
    """Return a command that reports something, waits for a file, and does the rest."""
    return python(BEFORE_VALIDATION.replace("{GO}", repr(str(go))).replace("{FIRST}", first) + rest)


def reports(ground: Ground, experiment_id: str, name: str) -> None:
    """Wait until the controller has what the first trial reports under a name."""

    def has_come() -> bool:
        return any(
            name in metric_names(ground.store, one.job_id) for one in trials(ground.store, experiment_id)
        )

    until(has_come, lambda: log_of(ground.home))


def notes(ground: Ground, experiment_id: str) -> list[str]:
    return [event["reason"] for event in events_of(ground.home, experiment_id) if event["do"] == "note"]


def noted(ground: Ground, experiment_id: str, text: str) -> None:
    """Wait until a search says this beside its state."""
    until(
        lambda: row_of(ground, experiment_id).reason == text,
        lambda: f"{row_of(ground, experiment_id)}\n{log_of(ground.home)}",
    )


def test_a_metric_is_not_missed_while_a_trial_has_not_validated(ground: Ground, tmp_path: Path) -> None:
    config = {**RANDOM, "metric": "val_loss", "max_trials": 1}
    command = before_validation(tmp_path / "go", "train_loss=1, lr=2", "report(val_loss=3)")
    experiment_id = search(ground, config, command)
    reports(ground, experiment_id, "train_loss")
    (tmp_path / "go").touch()

    row = ended(ground, experiment_id)

    assert (row.state, row.reason, notes(ground, experiment_id)) == ("COMPLETED", "", [])


@pytest.mark.parametrize("name", ["val_accuracy", "validation/accuracy", "evalAccuracy"])
def test_a_metric_that_a_validation_lacks_is_missed_until_it_comes(
    own_ground: Ground, tmp_path: Path, name: str
) -> None:
    ground, config = own_ground, {**RANDOM, "max_trials": 1}
    command = before_validation(tmp_path / "go", f"{{'{name}': 1}}", "report(loss=3); raise SystemExit(3)")
    experiment_id = search(ground, config, command)
    missed = f"the metric 'loss' has not been reported; there are {name}"
    noted(ground, experiment_id, missed)
    end_all(ground.home)  # the next controller withdraws what this one has noted
    ensure_controller(ground.home)
    (tmp_path / "go").touch()

    row = ended(ground, experiment_id)

    assert notes(ground, experiment_id) == [missed, ""]
    assert row.state == "FAILED"
    assert row.reason == "every trial has failed; of the last: the command failed with exit code 3"


def test_a_metric_that_a_trial_has_ended_without_is_missed_and_comes_with_another_trial(
    ground: Ground,
) -> None:
    config = {**RANDOM, "method": "grid", "max_concurrent": 1, "params": {"x": {"choice": [2, 1]}}}
    experiment_id = search(ground, config, train("**({'loss': 1} if x == 2 else {'train_loss': 1})"))

    row = ended(ground, experiment_id)

    missed = "the metric 'loss' has not been reported; there are train_loss"
    assert (row.state, row.reason) == ("COMPLETED", "")
    assert notes(ground, experiment_id) == [missed, ""]


def test_a_search_that_completes_without_its_metric_says_so(ground: Ground) -> None:
    named = search(ground, RANDOM, train("accuracy=x, epoch=epoch"))
    silent = search(ground, RANDOM, "true")

    missed = "the metric 'loss' has not been reported"
    row = ended(ground, named)
    assert (row.state, row.reason) == ("COMPLETED", f"{missed}; there are accuracy, epoch")
    row = ended(ground, silent)
    assert (row.state, row.reason) == ("COMPLETED", f"{missed}, nor any other")


def test_a_pause_covers_what_is_noted_and_a_resumed_search_says_it_again(
    ground: Ground, tmp_path: Path
) -> None:
    command = before_validation(tmp_path / "go", "val_accuracy=1", "report(loss=3)")
    experiment_id = search(ground, {**RANDOM, "max_trials": 1}, command)
    missed = "the metric 'loss' has not been reported; there are val_accuracy"
    noted(ground, experiment_id, missed)

    record_event(
        ground.store, experiment_id, {"do": "pause", "state": "PAUSED", "reason": "was paused by me"}
    )
    record_event(ground.store, experiment_id, {"do": "note", "reason": "covered"})
    assert row_of(ground, experiment_id).reason == "was paused by me"
    steers(ground, experiment_id, "resume", "RUNNING")
    noted(ground, experiment_id, missed)

    (tmp_path / "go").touch()
    assert ended(ground, experiment_id).reason == ""


def test_a_time_metric_that_a_random_search_does_without_is_missed_until_it_comes(
    ground: Ground, tmp_path: Path
) -> None:
    command = before_validation(tmp_path / "go", "loss=1", "report(loss=1, epoch=6)")
    experiment_id = search(ground, {**RANDOM, "time_metric": "epoch", "max_trials": 1}, command)
    missed = "the time metric 'epoch' is not reported with 'loss'; there are loss"
    noted(ground, experiment_id, missed)
    (tmp_path / "go").touch()

    assert ended(ground, experiment_id).reason == ""
    assert notes(ground, experiment_id) == [missed, ""]


def test_a_time_metric_that_is_not_reported_ends_the_search(ground: Ground) -> None:
    experiment_id = search(ground, ASHA, train("loss=x, accuracy=1", 0.3))

    row = ended(ground, experiment_id)

    assert row.state == "FAILED"
    assert "the time metric 'epoch' is not reported with 'loss'; there are accuracy, loss" in row.reason


def test_steps_of_reports_are_a_time_metric_of_their_own(ground: Ground) -> None:
    command = train("loss=x / epoch, step=epoch", paced_at=(3,))
    experiment_id = search(ground, {**ASHA, "time_metric": "step", "max_trials": 4}, command)

    assert ended(ground, experiment_id).state == "COMPLETED"
    reported = [event for event in events_of(ground.home, experiment_id) if event["do"] == "report"]
    assert reported and all(event["metrics"]["step"] == event["units"] >= 1 for event in reported)


def test_a_metric_whose_name_is_only_alike_is_not_taken(ground: Ground) -> None:
    config = {**RANDOM, "metric": "val_loss", "max_trials": 1}
    experiment_id = search(ground, config, train("**{'a/valxloss': 1.0, 'b/c/val_loss': 2.0}", 0.01))

    ended(ground, experiment_id)

    assert [one.best for one in trials(ground.store, experiment_id)] == [2.0]


def test_a_search_whose_trials_all_fail_has_failed(ground: Ground) -> None:
    experiment_id = search(ground, RANDOM, "exit 3")

    row = ended(ground, experiment_id)

    why = "every trial has failed; of the last: the command failed with exit code 3"
    assert (row.state, row.reason) == ("FAILED", why)
    assert [one.state for one in trials(ground.store, experiment_id)] == ["FAILED"] * 4


def test_what_is_no_number_is_the_worst(ground: Ground) -> None:
    values = "loss=float('nan') if x > 200 else x, epoch=epoch"
    config = {**ASHA, "max_concurrent": 2, "max_trials": 4}
    experiment_id = search(ground, config, train(values, paced_at=(3,)))

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert any(one.last is None for one in trials(ground.store, experiment_id))


def test_a_search_that_is_killed_ends_with_its_trials(ground: Ground) -> None:
    experiment_id = search(ground, RANDOM, "echo ready; sleep 60")
    until(lambda: len(trials(ground.store, experiment_id)) == 2, lambda: log_of(ground.home))
    for one in trials(ground.store, experiment_id):
        ground.prints(one.job_id, "ready")

    record_event(
        ground.store, experiment_id, {"do": "kill", "state": "STOPPING", "reason": "was killed by me"}
    )
    ensure_controller(ground.home)

    row = ended(ground, experiment_id)
    assert (row.state, row.reason) == ("KILLED", "was killed by me")
    assert [one.state for one in trials(ground.store, experiment_id)] == ["CANCELLED"] * 2


def steers(ground: Ground, experiment_id: str, do: str, state: str) -> None:
    """Have a search paused or resumed, as a client does."""
    record_event(ground.store, experiment_id, {"do": do, "state": state, "reason": ""})
    ensure_controller(ground.home)


def delete(ground: Ground, experiment_id: str) -> None:
    """Write down that a search is to be deleted, as a client does, and wake nobody."""
    record_event(ground.store, experiment_id, {**DELETION})


def is_gone(ground: Ground, experiment_id: str, jobs: Sequence[str]) -> bool:
    """Say whether nothing is left of a search but the tombstones of its jobs."""
    home = ground.home
    leftovers = [home.experiment(experiment_id).path, home.deleted_experiments / experiment_id]
    leftovers += [home.job(each).path for each in jobs]
    rows = [job(ground.store, each) for each in jobs]
    return (
        experiment(ground.store, experiment_id) is None
        and trials(ground.store, experiment_id) == []
        and all(row is not None and row.deleted_us is not None for row in rows)
        and not any(each.exists() for each in leftovers)
    )


def until_gone(ground: Ground, experiment_id: str, jobs: Sequence[str]) -> None:
    until(lambda: is_gone(ground, experiment_id, jobs), lambda: log_of(ground.home), seconds=60.0)


def only_the_line_is_written(ground: Ground, experiment_id: str) -> None:
    file = ground.home.experiment(experiment_id).events
    append_line(ground.home, file, {**DELETION, "time": 1}, durable=True)


def one_job_is_deleted(ground: Ground, experiment_id: str) -> None:
    delete(ground, experiment_id)
    mark_deleted(ground.store, trials(ground.store, experiment_id)[0].job_id)


def all_jobs_are_deleted(ground: Ground, experiment_id: str) -> None:
    delete(ground, experiment_id)
    for one in trials(ground.store, experiment_id):
        mark_deleted(ground.store, one.job_id)


def the_folder_is_away(ground: Ground, experiment_id: str) -> None:
    all_jobs_are_deleted(ground, experiment_id)
    ground.home.deleted_experiments.mkdir(exist_ok=True)
    ground.home.experiment(experiment_id).path.rename(ground.home.deleted_experiments / experiment_id)


def the_rows_are_away(ground: Ground, experiment_id: str) -> None:
    all_jobs_are_deleted(ground, experiment_id)
    remove_experiment(ground.store, experiment_id)


def the_folder_is_back(ground: Ground, experiment_id: str) -> None:
    """A power failure may undo what was not on the disk yet."""
    all_jobs_are_deleted(ground, experiment_id)
    remove_experiment(ground.store, experiment_id).rename(ground.home.experiment(experiment_id).path)


CUTS = [
    delete,
    only_the_line_is_written,
    one_job_is_deleted,
    all_jobs_are_deleted,
    the_folder_is_away,
    the_rows_are_away,
    the_folder_is_back,
]


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_deletion_that_is_cut_off_goes_on(own_ground: Ground, is_rebuilt: bool) -> None:
    ground = own_ground
    cuts = {search(ground, {**RANDOM, "max_trials": 2}, "true"): cut for cut in CUTS}
    for experiment_id in cuts:
        assert ended(ground, experiment_id).state == "COMPLETED"
    jobs = {each: [one.job_id for one in trials(ground.store, each)] for each in cuts}
    assert all(len(each) == 2 for each in jobs.values())
    end_all(ground.home)

    for experiment_id, cut in cuts.items():
        cut(ground, experiment_id)
    if is_rebuilt:
        rebuild(ground.home, ingest=ingest)
        ground.store.close()
        ground.store = Store.open(ground.home)
    ensure_controller(ground.home)

    for experiment_id, of_it in jobs.items():
        until_gone(ground, experiment_id, of_it)
    end_all(ground.home)
    rebuild(ground.home, ingest=ingest)
    ground.store.close()
    ground.store = Store.open(ground.home)
    there = [cut.__name__ for each, cut in cuts.items() if not is_gone(ground, each, jobs[each])]
    assert not there


def test_a_search_whose_file_is_damaged_holds_up_no_other_one(own_ground: Ground) -> None:
    ground = own_ground
    damaged = search(ground, RANDOM, train(), wakes=False)
    deleted = search(ground, RANDOM, train(), wakes=False)
    delete(ground, deleted)
    ground.home.deleted_experiments.write_text("its folder cannot be moved")
    ground.home.experiment(damaged).experiment_file.write_text("{")
    other = search(ground, {**RANDOM, "max_trials": 2}, train())

    assert ended(ground, other).state == "COMPLETED"
    assert f"{damaged}/experiment.json cannot be read" in log_of(ground.home)
    assert row_of(ground, deleted).state == "STOPPING"
    with pytest.raises(InputMissing) as raised:
        kill_experiment(ground.store, row_of(ground, damaged))
    assert "fabric experiment delete" in raised.value.hint
    ground.home.deleted_experiments.unlink()
    delete(ground, damaged)
    until_gone(ground, deleted, [])
    until_gone(ground, damaged, [])


def with_a_trial_that_has_not_begun(ground: Ground) -> tuple[str, str]:
    """Return a search and the job that its trial is to have, as a controller leaves them that is killed then."""
    experiment_id = search(ground, RANDOM, train(), wakes=False)
    job_id = new_job_id()
    created = {"do": "create", "trial": "t", "number": 1, "job": job_id, "hparams": {}, "seed": 1}
    record_event(ground.store, experiment_id, {"do": "begin", "operations": [created]})
    write_secrets(ground.home, job_id, {"TOKEN": "canary"})
    return experiment_id, job_id


def test_a_deleted_search_forgets_the_secrets_of_a_trial_that_had_not_begun(own_ground: Ground) -> None:
    ground = own_ground
    experiment_id, job_id = with_a_trial_that_has_not_begun(ground)
    delete(ground, experiment_id)

    ensure_controller(ground.home)

    until_gone(ground, experiment_id, [])
    assert not read_secrets(ground.home, job_id)


def test_a_killed_search_forgets_the_secrets_of_a_trial_that_had_not_begun(own_ground: Ground) -> None:
    ground = own_ground
    experiment_id, job_id = with_a_trial_that_has_not_begun(ground)

    assert kill_experiment(ground.store, row_of(ground, experiment_id))

    assert ended(ground, experiment_id).state == "KILLED"
    assert not read_secrets(ground.home, job_id)


def test_a_search_that_runs_is_deleted_though_its_controller_is_killed(home: Home) -> None:
    draw = random.Random(5)
    ground = Ground(home)
    experiment_id = search(ground, RANDOM, "echo ready; sleep 600")
    until(lambda: len(trials(ground.store, experiment_id)) == 2, lambda: log_of(home))
    jobs = [one.job_id for one in trials(ground.store, experiment_id)]
    ground.prints(jobs[0], "ready")

    delete(ground, experiment_id)
    killed_at_random(home, 4, draw)

    until_gone(ground, experiment_id, jobs)
    assert len(list_jobs(ground.store)) == 0
    ground.clean_up()


def test_a_search_that_an_older_fabric_has_continued_is_not_deleted(own_ground: Ground) -> None:
    """It knows no such event, and ends the search for the state that stands in it."""
    ground = own_ground
    config = {**RANDOM, "max_trials": 1}
    experiment_id = search(ground, config, failing_once(0.0, 0.0))
    assert ended(ground, experiment_id).state == "FAILED"
    end_all(ground.home)
    delete(ground, experiment_id)
    record_event(ground.store, experiment_id, {"do": "close", "state": "FAILED", "reason": ""})

    continues(ground, experiment_id, config)

    assert ended(ground, experiment_id).state == "COMPLETED"
    end_all(ground.home)
    ensure_controller(ground.home)
    another = search(ground, config, train())
    assert ended(ground, another).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"]


def test_nothing_is_written_to_a_search_that_is_deleted(ground: Ground) -> None:
    experiment_id = search(ground, {**RANDOM, "max_trials": 1}, train())
    ended(ground, experiment_id)
    jobs = [one.job_id for one in trials(ground.store, experiment_id)]
    delete(ground, experiment_id)
    ensure_controller(ground.home)
    until_gone(ground, experiment_id, jobs)

    with pytest.raises(UnknownName, match="there is no experiment"):
        record_event(ground.store, experiment_id, {"do": "archive"})

    assert not ground.home.experiment(experiment_id).path.exists()


def states(ground: Ground, experiment_id: str) -> list[str]:
    return [one.state for one in trials(ground.store, experiment_id)]


def reports_something(ground: Ground, experiment_id: str) -> None:
    until(
        lambda: [one.last is not None for one in trials(ground.store, experiment_id)][:2] == [True, True],
        lambda: log_of(ground.home),
    )


def test_a_search_that_is_paused_goes_on_from_its_checkpoints(ground: Ground, tmp_path: Path) -> None:
    experiment_id = search(ground, {**RANDOM, "max_trials": 3}, going_on(tmp_path / "go"))
    reports_something(ground, experiment_id)

    steers(ground, experiment_id, "pause", "PAUSED")
    jobs = [one.job_id for one in trials(ground.store, experiment_id)]
    assert len(jobs) == 2
    for job_id in jobs:
        assert ground.reaches(job_id, State.HALTED).reason.text == "halted by the pause of its search"
    assert states(ground, experiment_id) == ["PAUSED"] * 2
    end_all(ground.home)  # a paused search outlives its controller, too
    ensure_controller(ground.home)
    assert [ground.row(job_id).state for job_id in jobs] == [State.HALTED] * 2

    (tmp_path / "go").touch()
    steers(ground, experiment_id, "resume", "RUNNING")
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"] * 3
    for job_id in jobs:
        assert ground.row(job_id).attempt == 2
        assert "starts after 0" not in ground.output(job_id, attempt=2)


def test_trials_that_are_made_later_have_the_priority_and_weight_that_a_search_was_given(
    own_ground: Ground, tmp_path: Path
) -> None:
    ground = own_ground
    config = {**RANDOM, "max_trials": 3, "max_concurrent": 1}
    experiment_id = search(ground, config, going_on(tmp_path / "go"), priority=40)
    until(lambda: list_jobs(ground.store))
    ground.reaches(list_jobs(ground.store)[0].id, State.PROCESSING)

    searches = [row_of(ground, experiment_id)]
    asked = change(ground.store, [], QueueChange(70, weight=2), searches=searches, origin="cli")

    assert asked == {}, "none of its trials waits"
    change(ground.store, [], QueueChange(weight=3), searches=searches, origin="cli")
    end_all(ground.home)
    with Store.open(ground.home) as store:  # which has not found the table yet, as a rebuild has not
        store.execute("DROP TABLE reordered_experiments")
        store.execute("DELETE FROM experiments")
        store.execute("DELETE FROM trials")
        catch_up_experiment(store, experiment_id)
    (tmp_path / "go").touch()
    ensure_controller(ground.home)
    assert ended(ground, experiment_id).state == "COMPLETED"
    specs = [detail(ground.store, one.job_id).spec for one in trials(ground.store, experiment_id)]
    assert [(spec.priority, spec.weight) for spec in specs] == [(40, 1.0), (70, 3.0), (70, 3.0)]


def test_trials_that_wait_get_the_priority_that_their_search_is_given(
    own_ground: Ground, tmp_path: Path
) -> None:
    ground = own_ground
    experiment_id, jobs = search_ahead(ground, f"{NAP}until [ -e {tmp_path}/go ]; do nap 0.05; done")

    searches = [row_of(ground, experiment_id)]
    asked = change(ground.store, [], QueueChange(70), searches=searches, origin="cli")

    assert {row.id for row in asked.values()} == set(jobs[1:])
    wait_for_answers(ground.store, asked)
    waiting = {one.row.id: one.stands.priority for one in waiting_jobs(ground.store)}
    assert waiting == dict.fromkeys(jobs[1:], 70)
    (tmp_path / "go").touch()
    is_whole(ground, experiment_id)


def test_a_search_that_is_over_or_has_no_such_setting_is_not_changed(own_ground: Ground) -> None:
    ground = own_ground
    experiment_id = search(ground, {**RANDOM, "max_trials": 1}, "echo loss=1", wakes=False)
    row = row_of(ground, experiment_id)
    with pytest.raises(UsageError, match="only a job has a time"):
        change(ground.store, [], QueueChange(begin=""), searches=[row], origin="cli")
    record_event(ground.store, experiment_id, {"do": "kill", "who": "me", "state": "KILLED", "reason": "x"})

    with pytest.raises(UsageError, match="is over: none of its trials waits"):
        change(ground.store, [], QueueChange(70), searches=[row], origin="cli")


def test_nothing_is_changed_of_a_search_where_a_job_beside_it_does_not_wait(own_ground: Ground) -> None:
    """What its history says is there at once, and would count whatever is refused after that."""
    ground = own_ground
    config = {**RANDOM, "max_trials": 1}
    searches = [row_of(ground, search(ground, config, "echo loss=1", wakes=False)) for _ in range(2)]
    row = add_job(ground.store, "digits", State.COMPLETED)

    with pytest.raises(UsageError, match="does not wait for its turn"):
        change(ground.store, [row], QueueChange(70), searches=searches[:1], origin="cli")
    killed = {"do": "kill", "who": "me", "state": "KILLED", "reason": "x"}
    record_event(ground.store, searches[1].id, dict(killed))
    with pytest.raises(UsageError, match="is over: none of its trials waits"):
        change(ground.store, [], QueueChange(70), searches=searches, origin="cli")
    record_event(ground.store, searches[0].id, dict(killed))

    histories = [ground.home.experiment(one.id).events for one in searches]
    assert "reorder" not in "".join(history.read_text() for history in histories if history.exists())


@pytest.mark.chaos
def test_a_controller_that_is_killed_while_a_search_is_paused_and_resumed_loses_nothing(
    ground: Ground, tmp_path: Path, note_harm: Callable[[str], None]
) -> None:
    draw = random.Random(5)
    experiment_id = search(ground, RANDOM, going_on(tmp_path / "go"))
    reports_something(ground, experiment_id)

    for turn in range(4):
        there = status(ground.home)
        steers(ground, experiment_id, *(("resume", "RUNNING") if turn % 2 else ("pause", "PAUSED")))
        kill_later(forked_controller(ground.home) if there is None else there.pid, draw.uniform(0.0, 0.4))
        note_harm("controller killed as a search is paused or resumed")
    (tmp_path / "go").touch()
    ensure_controller(ground.home)

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"] * 4


def test_a_paused_search_can_be_killed(ground: Ground) -> None:
    experiment_id = search(ground, RANDOM, UNTIL_HALTED)
    reports_something(ground, experiment_id)
    steers(ground, experiment_id, "pause", "PAUSED")
    for one in trials(ground.store, experiment_id):
        ground.reaches(one.job_id, State.HALTED)

    steers(ground, experiment_id, "kill", "STOPPING")

    assert ended(ground, experiment_id).state == "KILLED"
    assert states(ground, experiment_id) == ["CANCELLED"] * 2


def test_a_trial_that_a_person_halts_is_over(ground: Ground) -> None:
    experiment_id = search(ground, {**RANDOM, "max_trials": 2}, UNTIL_HALTED)
    reports_something(ground, experiment_id)
    steers(ground, experiment_id, "pause", "PAUSED")
    jobs = [one.job_id for one in trials(ground.store, experiment_id)]
    for job_id in jobs:
        ground.reaches(job_id, State.HALTED)
    steers(ground, experiment_id, "resume", "RUNNING")
    for job_id in jobs:
        ground.reaches(job_id, State.PROCESSING, attempt=2)

    for job_id in jobs:
        ground.ask(job_id, "halt")

    assert ended(ground, experiment_id).state == "KILLED"
    assert states(ground, experiment_id) == ["CANCELLED"] * 2


def continues(
    ground: Ground, experiment_id: str, search: dict[str, Any], *, wakes: bool = True, **more: Any
) -> None:
    """Have a search that is over go on, as a client does."""
    event = {"do": "continue", "state": "RUNNING", "reason": "", "search": search, **more}
    record_event(ground.store, experiment_id, event)
    if wakes:
        ensure_controller(ground.home)


def failing_once(since: float, seconds: float) -> str:
    """Return a command that fails in its first attempt where x is larger than that."""
    code = FAILING_ONCE.replace("{FROM}", str(since)).replace("{SECONDS}", str(seconds))
    return python(code)


def test_a_search_that_was_killed_goes_on_from_its_checkpoints(own_ground: Ground, tmp_path: Path) -> None:
    ground, config = own_ground, {**RANDOM, "max_trials": 3}
    experiment_id = search(ground, config, going_on(tmp_path / "go"))
    reports_something(ground, experiment_id)
    steers(ground, experiment_id, "kill", "STOPPING")
    assert ended(ground, experiment_id).state == "KILLED"
    begun = [one.job_id for one in trials(ground.store, experiment_id)]
    record_event(ground.store, experiment_id, {"do": "archive"})
    (tmp_path / "go").touch()

    continues(ground, experiment_id, config)

    row = ended(ground, experiment_id)
    assert (row.state, row.reason) == ("COMPLETED", "")
    assert states(ground, experiment_id) == ["COMPLETED"] * 3
    assert archived_experiments(ground.store) == frozenset()
    for job_id in begun:
        assert ground.row(job_id).attempt == 2
        assert "starts after 0" not in ground.output(job_id, attempt=2)
    assert ground.row(trials(ground.store, experiment_id)[2].job_id).attempt == 1
    before = row, trials(ground.store, experiment_id)
    end_all(ground.home)
    rebuild(ground.home, ingest=ingest)
    with Store.open(ground.home) as store:
        assert (experiment(store, experiment_id), trials(store, experiment_id)) == before
    ground.store.close()
    ground.store = Store.open(ground.home)


def test_no_more_trials_go_on_at_once_than_may_and_further_ones_begin(ground: Ground) -> None:
    experiment_id = search(ground, {**RANDOM, "max_trials": 3}, failing_once(0.0, 0.05))
    assert ended(ground, experiment_id).state == "FAILED"

    continues(ground, experiment_id, {**RANDOM, "max_trials": 4})

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    # The fourth fails in its first attempt, as the others did.
    assert [one.state for one in found] == ["COMPLETED"] * 3 + ["FAILED"]
    assert [ground.row(one.job_id).attempt for one in found] == [2] * 3 + [1]
    spans = [tuple(map(float, ground.output(one.job_id, attempt=2).split())) for one in found[:3]]
    at_once = [sum(begin <= at < end for begin, end in spans) for at, _ in spans]
    assert max(at_once) <= 2


@pytest.mark.chaos
def test_a_controller_that_is_killed_changes_nothing_of_a_search_that_goes_on(home: Home, kills: int) -> None:
    draw = random.Random(23)
    config = {**RANDOM, "max_concurrent": 1}
    stories = []
    for most in (0, kills):
        ground = Ground(home)
        experiment_id = search(ground, config, failing_once(0.5, 0.05))
        assert ended(ground, experiment_id).state == "COMPLETED"
        failed = [one for one in trials(ground.store, experiment_id) if one.state == "FAILED"]
        assert 0 < len(failed) < 4
        end_all(home)
        continues(ground, experiment_id, {**config, "max_trials": 5}, wakes=False)
        killed_at_random(home, most, draw)
        assert ended(ground, experiment_id).state == "COMPLETED"
        found = trials(ground.store, experiment_id)
        assert len(found) == 5
        again = {one.trial: ground.row(one.job_id).attempt for one in found}
        assert [trial for trial, attempt in again.items() if attempt == 2] == [one.trial for one in failed]
        went_on = [event["trials"] for event in events_of(home, experiment_id) if event["do"] == "continued"]
        stories.append((went_on, story(ground, experiment_id)))
        ground.clean_up()

    assert stories[0] == stories[1]


def test_a_search_that_is_killed_before_it_goes_on_can_go_on_later(ground: Ground) -> None:
    config = {**RANDOM, "max_trials": 2}
    experiment_id = search(ground, config, failing_once(0.0, 0.0))
    assert ended(ground, experiment_id).state == "FAILED"
    end_all(ground.home)

    continues(ground, experiment_id, config, wakes=False)
    steers(ground, experiment_id, "kill", "STOPPING")
    assert ended(ground, experiment_id).state == "KILLED"
    assert states(ground, experiment_id) == ["FAILED"] * 2
    continues(ground, experiment_id, config)

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"] * 2


def test_a_trial_whose_job_is_deleted_does_not_go_on(ground: Ground) -> None:
    experiment_id = search(ground, {**RANDOM, "max_trials": 2}, failing_once(0.0, 0.0))
    assert ended(ground, experiment_id).state == "FAILED"
    first, second = (one.job_id for one in trials(ground.store, experiment_id))
    ground.ask(first, "delete")
    until(lambda: job(ground.store, first) is None or ground.row(first).deleted_us is not None)

    continues(ground, experiment_id, {**RANDOM, "max_trials": 2})

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["FAILED", "COMPLETED"]
    assert ground.row(second).attempt == 2


def test_a_lost_database_is_made_again_with_its_searches(own_ground: Ground) -> None:
    ground = own_ground
    experiment_id = search(ground, RANDOM, train(seconds=0.01))
    before = ended(ground, experiment_id), trials(ground.store, experiment_id)
    record_event(ground.store, experiment_id, {"do": "archive"})
    end_all(ground.home)

    rebuild(ground.home, ingest=ingest)

    with Store.open(ground.home) as store:
        assert (experiment(store, experiment_id), trials(store, experiment_id)) == before
        assert archived_experiments(store) == {experiment_id}
    ground.store.close()
    ground.store = Store.open(ground.home)


@pytest.mark.parametrize(
    ("goal", "config", "best"),
    [
        ("minimize", '{"searcher": {"metric": "loss"}}', min),
        ("maximize", '{"searcher": {"metric": "loss", "smaller_is_better": false}}', max),
        ("minimize", '{"searcher": {"metric": "another"}}', None),
        ("minimize", '{"unmanaged": true}', None),
        ("minimize", "", None),
    ],
)
def test_each_trial_of_determined_begins_with_the_best_that_those_before_it_have_reported(
    ground: Ground, goal: str, config: str, best: Callable[[Sequence[float]], float] | None
) -> None:
    keys = {**RANDOM, "metric": "validation/loss", "goal": goal, "max_concurrent": 1, "max_trials": 2}
    command = python(SAYS_BEST.replace("{CODE}", "0"))
    experiment_id = search(ground, keys, command, env={"DET_EXPERIMENT_CONFIG": config})
    assert ended(ground, experiment_id).state == "COMPLETED"

    continues(ground, experiment_id, {**keys, "max_trials": 3})

    assert ended(ground, experiment_id).state == "COMPLETED"
    found = trials(ground.store, experiment_id)
    values = [one.hparams["x"] for one in found]
    known = [best(values[:number]) if best and number else None for number in range(len(found))]
    assert len(found) == 3
    assert [ground.output(one.job_id).strip() for one in found] == [str(each) for each in known]


def test_a_trial_that_begins_again_has_what_the_others_have_reported_by_then(ground: Ground) -> None:
    keys = {**RANDOM, "metric": "validation/loss", "goal": "minimize", "max_concurrent": 1, "max_trials": 2}
    command = python(SAYS_BEST.replace("{CODE}", "3"))
    env = {"DET_EXPERIMENT_CONFIG": '{"searcher": {"metric": "loss"}}'}
    experiment_id = search(ground, keys, command, env=env)
    assert ended(ground, experiment_id).state == "FAILED"

    continues(ground, experiment_id, keys)

    assert ended(ground, experiment_id).state == "COMPLETED"
    first, second = trials(ground.store, experiment_id)
    # What it has reported itself is given up, as it has saved nothing that says so.
    assert ground.output(first.job_id, attempt=2).strip() == str(second.hparams["x"])
    assert [ground.output(second.job_id, attempt=number).strip() for number in (1, 2)] == [
        str(first.hparams["x"])
    ] * 2


@pytest.mark.parametrize("method", ["random", "asha", "promotion", "grid"])
def test_a_trial_whose_hyperparameters_are_invalid_is_replaced(ground: Ground, method: str) -> None:
    config = {"asha": ASHA, "promotion": PROMOTION}.get(method, {**RANDOM, "max_concurrent": 1})
    config = {**config, "max_trials": 3, "params": {"x": {"int": [1, 4], "count": 4}}}
    if method == "grid":
        config = {**config, "method": "grid"}
    code = pace(0.0) + TRAIN.replace("{VALUES}", "loss=x, epoch=epoch").replace(
        "for epoch",
        "if x < 4:\n    report({'invalid_hp': 1}, group='searcher')\n    raise SystemExit\nfor epoch",
    )
    experiment_id = search(ground, config, python(code))

    row = ended(ground, experiment_id)

    assert (row.state, row.reason) == ("COMPLETED", "")
    found = trials(ground.store, experiment_id)
    invalid = [one for one in found if one.state == "INVALID"]
    assert [one.hparams["x"] < 4 for one in found] == [one in invalid for one in found]
    assert len(invalid) == 3 if method == "grid" else invalid
    assert len(found) - len(invalid) == (1 if method == "grid" else 3)


def test_no_trial_begins_once_the_pause_of_its_search_is_written_down(
    real_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller had read that the search runs, and was about to begin a trial."""
    ground = Ground(real_bench.home)
    paused: list[str] = []

    def pause_first(*_: object) -> None:
        if not paused:
            with Store.open(ground.home) as store:
                (row,) = experiments(store)
                record_event(store, row.id, {"do": "pause", "state": "PAUSED", "reason": ""})
            paused.append(row.id)

    # Before there is a search: the loop finds one also without being woken.
    monkeypatch.setattr("workbench.controller.loop.experiments.write_secrets", pause_first)
    experiment_id = search(ground, {**RANDOM, "max_trials": 1}, train(), wakes=False)
    real_bench.wake()
    until(lambda: bool(paused), real_bench.log)
    real_bench.wake()

    assert list_jobs(ground.store) == []
    record_event(ground.store, experiment_id, {"do": "resume", "state": "RUNNING", "reason": ""})
    real_bench.wake()
    assert ended(ground, experiment_id).state == "COMPLETED"
    ground.store.close()


def test_a_search_whose_trials_are_all_invalid_gives_up(
    real_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.loop.experiments.INVALID_IN_A_ROW_MAX", 5)
    ground = Ground(real_bench.home)
    config = {**RANDOM, "max_concurrent": 3, "max_trials": 3}
    code = "from fabric_learner import report\nreport({'invalid_hp': 1}, group='searcher')"
    experiment_id = search(ground, config, python(code), wakes=False)
    real_bench.wake()

    row = ended(ground, experiment_id)

    assert row.state == "FAILED"
    assert row.reason == "5 trials in a row said that their hyper-parameters are invalid"
    until(lambda: ground.processes() == [])
    ground.store.close()
