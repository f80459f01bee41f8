"""Searches whose trials are created ahead, by real controllers: their host starts the next trial within the limit."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from runners.process.runner import ProcessRunner
from tests.controller.bench import Bench
from tests.controller.test_experiments import (
    ASHA,
    RANDOM,
    continues,
    decided,
    delete,
    ended,
    failing_once,
    killed_at_random,
    python,
    search,
    states,
    steers,
    train,
    until_gone,
)
from tests.controller.test_gates_at_host import at_once, kill_controller, ran, state_of, waits_there
from tests.support.controllers import log_of
from tests.support.real_jobs import Ground
from tests.support.waiting import patience, until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import State, new_job_id
from workbench.paths import Home
from workbench.search.config import SearchConfig
from workbench.search.method import Create
from workbench.search.searcher import Searcher
from workbench.services.submit.experiments import experiment_document
from workbench.services.submit.trials_ahead import AHEAD, continued_search
from workbench.spec import Framework, JobSpec
from workbench.store.queries.experiments import (
    events_of,
    experiment,
    newest_search,
    read_experiment_file,
    trials,
)
from workbench.store.queries.jobs import detail, job, list_jobs
from workbench.store.queries.requests import requests
from workbench.store.updates.experiments import catch_up_experiment, record_event

ONE_AT_ONCE: dict[str, Any] = {**RANDOM, "max_concurrent": 1}
FAILS_ONCE = """
if os.environ["FABRIC_LEARNER"].endswith("/1/1"):
    raise SystemExit(3)
"""
Decided = tuple[list[Any], list[Any]]
"""What a search has compared, and the trials that it began."""
WAITS = "waits: 1 of its search may run at once"
UNTIL = """
import os, time
from fabric_learner import hparams, report
print("ready", flush=True)
while not os.path.exists({GO}):
    time.sleep(0.01)
report(loss=hparams()["x"])
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """Once this file is there, trials report and end."""
    return tmp_path / "go"


def ahead(ground: Ground, config: dict[str, Any], command: str, **how: Any) -> str:
    return search(ground, config, command, is_ahead=True, **how)


def held(go: Path) -> str:
    """Return a command that reports once it is let go on."""
    return python(UNTIL.replace("{GO}", repr(str(go))))


def jobs_of(ground: Ground, experiment_id: str) -> list[str]:
    return [one.job_id for one in trials(ground.store, experiment_id)]


def all_wait(ground: Ground, experiment_id: str, count: int) -> list[str]:
    """Wait until so many trials are there, of which the first runs and all others wait at their host."""

    def are_made() -> bool:
        jobs = jobs_of(ground, experiment_id)
        return len(jobs) == count and all(job(ground.store, one) for one in jobs)

    until(are_made, lambda: log_of(ground.home))
    first, *others = jobs_of(ground, experiment_id)
    ground.prints(first, "ready")
    for one in others:
        waits_there(ground, one, WAITS)
    return [first, *others]


def most_at_once(ground: Ground, jobs: Sequence[str]) -> int:
    """Return how many attempts ran at once, at most, of all that these jobs ever had."""
    spans = [
        state_of(ground, one, attempt) for one in jobs for attempt in range(1, ground.row(one).attempt + 1)
    ]
    began = [one for one in spans if one.get("started_us") and one.get("ended_us")]
    steps = [(int(str(one["started_us"])), 1) for one in began]
    steps += [(int(str(one["ended_us"])), -1) for one in began]
    return max(accumulate(step for _, step in sorted(steps)))


def is_asked_last(ground: Ground, kind: str, first: str, *others: str) -> bool:
    """Say whether a job was asked to end once the others had ended: none of them could begin in its place."""
    (asked,) = (one for one in requests(ground.store, first) if one.kind == kind)
    ends = [ground.row(one).ended_us for one in others]
    return all(end is not None and end <= asked.time_us for end in ends)


def drawn(ground: Ground, experiment_id: str) -> list[Any]:
    return [(one.trial, one.hparams, one.seed, one.state) for one in trials(ground.store, experiment_id)]


def test_a_search_runs_to_its_end_while_no_controller_is_there(ground: Ground, go: Path) -> None:
    experiment_id = ahead(ground, ONE_AT_ONCE, held(go))
    jobs = all_wait(ground, experiment_id, 4)
    assert states(ground, experiment_id) == ["RUNNING", *["QUEUED"] * 3]
    kill_controller(ground)
    go.touch()

    ran(ground, *jobs)
    assert status(ground.home) is None
    assert at_once(ground, jobs) == 1
    begun = [int(str(state_of(ground, one)["started_us"])) for one in jobs]
    assert begun == sorted(begun)

    ensure_controller(ground.home)
    row = ended(ground, experiment_id)
    assert (row.state, row.reason) == ("COMPLETED", "")
    found = trials(ground.store, experiment_id)
    assert [one.state for one in found] == ["COMPLETED"] * 4
    assert [one.last for one in found] == [one.hparams["x"] for one in found]
    assert [ground.row(one).started_us for one in jobs] == begun


def test_trials_are_those_of_a_search_that_creates_them_one_by_one(ground: Ground) -> None:
    config = {**ONE_AT_ONCE, "max_trials": 6, "params": {"x": {"int": [1, 4]}}}
    invalid = "if x < 3:\n    report({'invalid_hp': 1}, group='searcher')\n    raise SystemExit\n"
    failed = "if x == 3:\n    raise SystemExit(3)\nreport(loss=x)\n"
    code = 'from fabric_learner import hparams, report\nx = hparams()["x"]\n' + invalid + failed
    both = [search(ground, config, python(code), is_ahead=is_ahead) for is_ahead in (False, True)]
    for experiment_id in both:
        assert ended(ground, experiment_id).state == "COMPLETED"

    one_by_one, at_begin = (drawn(ground, experiment_id) for experiment_id in both)
    assert at_begin == one_by_one
    assert {state for *_, state in at_begin} == {"INVALID", "FAILED", "COMPLETED"}


@pytest.fixture(scope="module")
def one_by_one() -> Iterator[Callable[[Ground], Decided]]:
    """What a search that creates its trials one by one has compared and begun; the first test that asks runs it."""
    found: list[Decided] = []

    def ask(ground: Ground) -> Decided:
        if not found:
            experiment_id = search(ground, ASHA, train(paced_at=range(1, 10)))
            assert ended(ground, experiment_id).state == "COMPLETED"
            found.append(decided(ground, experiment_id))
        return found[0]

    yield ask


def test_a_search_that_compares_its_trials_decides_as_one_that_creates_them_one_by_one(
    ground: Ground, one_by_one: Callable[[Ground], Decided]
) -> None:
    experiment_id = ahead(ground, ASHA, train(paced_at=range(1, 10)))
    assert ended(ground, experiment_id).state == "COMPLETED"

    at_begin = decided(ground, experiment_id)
    assert at_begin == one_by_one(ground)
    assert len(at_begin[1]) == 6
    jobs = jobs_of(ground, experiment_id)
    assert most_at_once(ground, jobs) == 1
    stops = [
        each for event in events_of(ground.home, experiment_id) for each in event.get("operations") or ()
    ]
    assert sum(each["do"] == "stop" for each in stops) == 6


def test_its_host_begins_no_more_trials_than_may_run_at_once_while_nobody_compares_them(
    ground: Ground, go: Path, one_by_one: Callable[[Ground], Decided]
) -> None:
    watched = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n"
    code = (
        'print("ready", flush=True)\n' + watched + "from fabric_learner import hparams, report\n"
        'for epoch in range(1, 10):\n    report(loss=hparams()["x"] / epoch, epoch=epoch)\n'
    )
    experiment_id = ahead(ground, ASHA, python(code))
    jobs = all_wait(ground, experiment_id, 2)
    kill_controller(ground)
    go.touch()

    ran(ground, *jobs)
    assert status(ground.home) is None
    assert jobs_of(ground, experiment_id) == jobs

    ensure_controller(ground.home)
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert decided(ground, experiment_id) == one_by_one(ground)


def test_trials_that_fail_are_tried_again_within_the_limit_while_no_controller_is_there(
    ground: Ground, go: Path
) -> None:
    code = UNTIL.replace("{GO}", repr(str(go))).replace("report(", FAILS_ONCE + "report(")
    experiment_id = ahead(ground, ONE_AT_ONCE, python(code), max_restarts=1)
    jobs = all_wait(ground, experiment_id, 4)
    kill_controller(ground)
    go.touch()

    until(lambda: all(state_of(ground, one, 2).get("phase") == "exited" for one in jobs))
    assert status(ground.home) is None

    ensure_controller(ground.home)
    row = ended(ground, experiment_id)
    assert (row.state, row.reason) == ("COMPLETED", "")
    found = trials(ground.store, experiment_id)
    assert [(one.state, one.last) for one in found] == [("COMPLETED", one.hparams["x"]) for one in found]
    rows = [ground.row(one) for one in jobs]
    assert [(one.attempt, one.restarts, one.platform_restarts) for one in rows] == [(2, 1, 0)] * 4
    assert most_at_once(ground, jobs) == 1


def by_trial(compared: Any) -> str:
    return str(compared[0])


def test_trials_that_their_host_tries_again_are_compared_as_those_that_never_failed(
    ground: Ground, go: Path, one_by_one: Callable[[Ground], Decided]
) -> None:
    back = go.with_name("back")
    code = (
        UNTIL.replace('report(loss=hparams()["x"])\n', "").replace("{GO}", repr(str(go)))
        + "file = os.path.join(os.environ['CHECKPOINT_DIR'], 'epoch')\n"
        "done = int(open(file).read()) if os.path.exists(file) else 0\n"
        "for epoch in range(done + 1, 10):\n"
        "    report(loss=hparams()['x'] / epoch, epoch=epoch)\n"
        "    open(file, 'w').write(str(epoch))\n"
        f"    if epoch == 4 and not os.path.exists({str(back)!r}):\n"
        "        raise SystemExit(3)\n"
    )
    experiment_id = ahead(ground, ASHA, python(code), max_restarts=1)
    jobs = all_wait(ground, experiment_id, 2)
    kill_controller(ground)
    go.touch()

    until(lambda: all(state_of(ground, one, 2).get("phase") == "exited" for one in jobs))
    assert status(ground.home) is None
    back.touch()
    ensure_controller(ground.home)

    assert ended(ground, experiment_id).state == "COMPLETED"
    (compared, begun), (expected, begun_one_by_one) = decided(ground, experiment_id), one_by_one(ground)
    assert begun == begun_one_by_one
    # The two that ran side by side are read side by side.
    assert sorted(compared, key=by_trial) == sorted(expected, key=by_trial)


def test_a_trial_that_failed_before_the_pause_of_its_search_goes_on_after_it(
    ground: Ground, go: Path
) -> None:
    """Its host has begun the next attempt, and the search has never heard of that."""
    fail = go.with_name("fail")
    fails = f"while not os.path.exists({str(fail)!r}):\n    time.sleep(0.01)\n{FAILS_ONCE}"
    code = UNTIL.replace("while", f"{fails}while", 1).replace("{GO}", repr(str(go)))
    experiment_id = ahead(ground, {**ONE_AT_ONCE, "max_trials": 2}, python(code), max_restarts=1)
    jobs = all_wait(ground, experiment_id, 2)
    kill_controller(ground)
    fail.touch()
    # Both fail, and whose pause before the next attempt is over first goes on.
    tried = until(lambda: [one for one in jobs if "ready" in ground.output(one, attempt=2)], "an attempt 2")

    steers(ground, experiment_id, "pause", "PAUSED")
    for one in jobs:
        assert ground.reaches(one, State.HALTED).reason.text == "halted by the pause of its search"
    assert states(ground, experiment_id) == ["PAUSED"] * 2
    steers(ground, experiment_id, "resume", "RUNNING")
    go.touch()

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"] * 2
    assert [ground.row(one).attempt for one in tried] == [3]


def test_nothing_begins_while_a_search_is_paused_and_all_goes_on_within_the_limit(
    ground: Ground, go: Path
) -> None:
    experiment_id = ahead(ground, ONE_AT_ONCE, held(go))
    jobs = all_wait(ground, experiment_id, 4)

    steers(ground, experiment_id, "pause", "PAUSED")
    for one in jobs:
        assert ground.reaches(one, State.HALTED).reason.text == "halted by the pause of its search"
    assert [state_of(ground, one).get("started_us") for one in jobs[1:]] == [None] * 3
    assert is_asked_last(ground, "halt", *jobs)
    assert states(ground, experiment_id) == ["PAUSED"] * 4
    row = experiment(ground.store, experiment_id)
    assert row is not None
    document = experiment_document(ground.store, row)
    assert (document["trials"], document["running"]) == (1, 0)
    go.touch()
    steers(ground, experiment_id, "resume", "RUNNING")

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED"] * 4
    assert [ground.row(one).attempt for one in jobs] == [2] * 4
    assert most_at_once(ground, jobs) == 1


def test_no_trial_begins_as_those_that_run_are_killed_with_their_search(ground: Ground, go: Path) -> None:
    experiment_id = ahead(ground, {**ONE_AT_ONCE, "max_trials": 8}, held(go))
    jobs = all_wait(ground, experiment_id, 8)

    steers(ground, experiment_id, "kill", "STOPPING")

    assert ended(ground, experiment_id).state == "KILLED"
    assert states(ground, experiment_id) == ["CANCELLED"] * 8
    assert [ground.row(one).started_us for one in jobs[1:]] == [None] * 7
    assert is_asked_last(ground, "kill", *jobs)


def test_a_search_is_deleted_with_its_trials_that_wait(ground: Ground, go: Path) -> None:
    experiment_id = ahead(ground, ONE_AT_ONCE, held(go))
    jobs = all_wait(ground, experiment_id, 4)

    delete(ground, experiment_id)

    until_gone(ground, experiment_id, jobs)


def test_a_trial_that_a_person_stops_while_it_waits_is_over_and_the_next_one_comes(
    ground: Ground, go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.services.submit.trials_ahead.AHEAD", 2)
    experiment_id = ahead(ground, {**ONE_AT_ONCE, "max_trials": 5}, held(go))
    _, second, third = all_wait(ground, experiment_id, 3)

    ground.ask(second, "halt")
    ground.ask(third, "delete")
    until(lambda: len(jobs_of(ground, experiment_id)) == 5, lambda: log_of(ground.home))
    go.touch()

    assert ended(ground, experiment_id).state == "COMPLETED"
    assert states(ground, experiment_id) == ["COMPLETED", "CANCELLED", "CANCELLED", "COMPLETED", "COMPLETED"]


def test_trials_that_go_on_keep_the_limit_that_their_search_is_continued_with(ground: Ground) -> None:
    config = {**RANDOM, "max_concurrent": 2}
    experiment_id = ahead(ground, config, failing_once(0.0, 0.02))
    assert ended(ground, experiment_id).state == "FAILED"
    document = read_experiment_file(ground.home, experiment_id)

    now = JobSpec(name="now", framework=Framework(), search={**config, "max_trials": 5, "max_concurrent": 1})
    continues(ground, experiment_id, **continued_search(document, now))

    assert ended(ground, experiment_id).state == "COMPLETED"
    jobs = jobs_of(ground, experiment_id)
    assert [ground.row(one).attempt for one in jobs] == [2, 2, 2, 2, 1]
    assert {detail(ground.store, one).spec.at_most for one in jobs} == {1}
    spans = [tuple(map(float, ground.output(one, attempt=2).split())) for one in jobs[:4]]
    assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) == 1
    assert newest_search(ground.home, experiment_id)["max_concurrent"] == 1
    assert document["spec"]["search"]["max_concurrent"] == 2 + AHEAD


def test_a_controller_that_is_killed_before_all_jobs_are_made_makes_the_others(ground: Ground) -> None:
    experiment_id = ahead(ground, ONE_AT_ONCE, train("loss=x"), wakes=False)
    document = read_experiment_file(ground.home, experiment_id)
    config = SearchConfig.from_json(document["spec"]["search"])
    begun = Searcher(config.make_method(), config.space(), document["seed"]).begin()
    created = [
        {
            "do": "create",
            "trial": each.trial,
            "number": number,
            "job": str(new_job_id()),
            "hparams": dict(each.hparams),
            "seed": each.seed,
        }
        for number, each in enumerate(begun, 1)
        if isinstance(each, Create)
    ]
    record_event(ground.store, experiment_id, {"do": "begin", "operations": created})
    assert states(ground, experiment_id) == ["QUEUED"] * 4
    ensure_controller(ground.home)

    assert ended(ground, experiment_id).state == "COMPLETED"
    jobs = jobs_of(ground, experiment_id)
    assert jobs == [each["job"] for each in created]
    assert most_at_once(ground, jobs) == 1


@pytest.mark.parametrize(("config", "made"), [(ASHA, 1), (ONE_AT_ONCE, 4)])
def test_a_trial_that_is_compared_is_made_once_those_before_it_are_at_their_host(
    real_bench: Bench, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], made: int
) -> None:
    """Were the controller killed in the launch of the first one, their host would begin the second one in its place."""
    ground, begun, goes_on = Ground(real_bench.home), threading.Event(), threading.Event()
    launch = ProcessRunner.launch

    def launch_later(runner: ProcessRunner, plan: Any, progress: Any) -> None:
        begun.set()
        assert goes_on.wait(patience())
        launch(runner, plan, progress)

    monkeypatch.setattr(ProcessRunner, "launch", launch_later)
    experiment_id = ahead(ground, config, train("loss=x, epoch=epoch"), wakes=False)
    real_bench.wake()
    assert begun.wait(patience())

    jobs = list_jobs(ground.store)
    goes_on.set()
    assert len(jobs) == made
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert most_at_once(ground, jobs_of(ground, experiment_id)) == 1
    ground.store.close()


@pytest.mark.chaos
def test_a_controller_that_is_killed_compares_as_before_and_keeps_the_limit(
    ground: Ground, kills: int, one_by_one: Callable[[Ground], Decided]
) -> None:
    experiment_id = ahead(ground, ASHA, train(seconds=0.03), wakes=False)
    killed_at_random(ground.home, kills, random.Random(5))
    assert ended(ground, experiment_id).state == "COMPLETED"
    assert most_at_once(ground, jobs_of(ground, experiment_id)) == 1
    assert decided(ground, experiment_id) == one_by_one(ground)


@pytest.mark.chaos
def test_a_controller_that_is_killed_changes_no_trial_and_keeps_the_limit(home: Home, kills: int) -> None:
    draw = random.Random(11)
    found = []
    for most in (0, kills):
        ground = Ground(home)
        config = {**RANDOM, "max_trials": 6}
        experiment_id = ahead(ground, config, train("loss=x", 0.02), wakes=False)
        killed_at_random(home, most, draw)
        assert ended(ground, experiment_id).state == "COMPLETED"
        assert most_at_once(ground, jobs_of(ground, experiment_id)) <= 2
        found.append(drawn(ground, experiment_id))
        ground.clean_up()

    assert found[0] == found[1]


ANOTHER_INSTANT = pytest.mark.soak(
    "another instant; the gate has random with one trial over, and grid with none"
)
BEGUN_BEFORE = Path(__file__).parent / "begun_before"
"""Whole searches of 0.1.0 as it created trials one by one: one with one trial at once, one with two."""


@pytest.mark.parametrize(
    ("method", "at_once", "ends"),
    [
        pytest.param(*each, marks=() if each in (("random", 1, 1), ("grid", 2, 0)) else ANOTHER_INSTANT)
        for each in itertools.product(("random", "grid"), (1, 2), (0, 1, 3))
        if each[:2] in (("random", 1), ("grid", 2))
    ],
)
def test_a_search_that_was_begun_before_goes_on_as_it_would_have(
    own_ground: Ground, method: str, at_once: int, ends: int
) -> None:
    ground = own_ground  # its search has the same name each time
    document = json.loads((BEGUN_BEFORE / method / "experiment.json").read_text())
    history = [json.loads(line) for line in (BEGUN_BEFORE / method / "events.jsonl").read_text().splitlines()]
    document["recorded"]["python"] = sys.executable
    where = [index for index, event in enumerate(history) if event["do"] == "end"]
    known = history[: where[ends - 1] + 1 if ends else 2]
    folder = ground.home.experiment(document["id"])
    folder.path.mkdir(parents=True)
    folder.experiment_file.write_text(json.dumps(document))
    folder.events.write_text("".join(json.dumps(event) + "\n" for event in known))
    with ground.store.atomic():
        catch_up_experiment(ground.store, document["id"])

    ensure_controller(ground.home)

    assert ended(ground, document["id"]).state == "COMPLETED"
    created = [
        [each for each in event.get("operations") or () if each["do"] == "create"]
        for event in events_of(ground.home, document["id"])
    ]
    assert max(map(len, created)) == at_once
    assert [drawn_as(each) for one in created for each in one] == [
        drawn_as(each) for event in history for each in event.get("operations") or ()
    ]
    begun_since = [one for one in trials(ground.store, document["id"]) if job(ground.store, one.job_id)]
    assert len(begun_since) == 5 - ends
    assert {detail(ground.store, one.job_id).spec.at_most for one in begun_since} == {None}


def drawn_as(created: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(created[name] for name in ("trial", "number", "hparams", "seed"))
