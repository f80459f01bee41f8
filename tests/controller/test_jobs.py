"""Whole jobs for real: a controller's process, the process runner, agents and commands of this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.controllers import answers, kill, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import PROCESS, Ground, RenewableGround, marked
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import State
from workbench.metrics import points, series
from workbench.paths import Home
from workbench.spec import EvaluationMetrics, MetricGroup, TypedValue
from workbench.store.queries.jobs import attempts, transitions
from workbench.store.queries.learners import learners

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="needs /proc to count processes"
)

PYTHON = shlex.quote(sys.executable)
FOREVER = NAP + "echo ready; while :; do nap 0.05; done"


@pytest.fixture(scope="module", params=["python", "sh"])
def kept_ground(request: pytest.FixtureRequest) -> Iterator[RenewableGround]:
    """The ground of the tests of either agent."""
    made = RenewableGround(FABRIC_AGENT=request.param)
    yield made
    made.close()


only_python = pytest.mark.parametrize("kept_ground", ["python"], indirect=True)
"""For what does not concern the agent, or what the ``sh`` agent does not promise."""


def test_a_job_runs_and_completes_with_all_that_it_printed(ground: Ground) -> None:
    job_id = ground.submit("echo hello; echo world >&2")
    row = ground.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by) == (State.COMPLETED, 0, "job")
    assert ground.output(job_id) == "hello\nworld\n"
    states = [one.state for one in transitions(ground.store, job_id) if one.kind == "state"]
    # On a machine that is busy bringing the code may take long enough to be shown.
    assert [one for one in states if one != "DOWNLOADING"] == [
        *("QUEUED", "PENDING", "PROCESSING", "STORING", "COMPLETED")
    ]
    assert row.started_us is not None and row.ended_us is not None and row.started_us <= row.ended_us
    until(lambda: ground.processes() == [])


@pytest.mark.parametrize(("command", "code", "reason"), [
    ("exit 3", 3, "C201"),
    ("kill -SEGV $$", 139, "C201"),
    ("no-such-command-anywhere", 127, "C202"),
])  # fmt: skip
def test_a_failing_job_ends_with_its_own_code(ground: Ground, command: str, code: int, reason: str) -> None:
    row = ground.ends(ground.submit(command))

    assert (row.state, row.exit_code, row.exit_by, row.reason.code) == (State.FAILED, code, "job", reason)


def test_halting_lets_the_command_save_and_end(ground: Ground) -> None:
    job_id = ground.submit("trap 'echo saved > $CHECKPOINT_DIR/saved; exit 0' TERM; " + FOREVER)
    ground.prints(job_id, "ready")
    ground.ask(job_id, "halt")
    row = ground.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by) == (State.HALTED, 143, "halt")
    assert (ground.home.job(job_id).checkpoints / "saved").read_text() == "saved\n"


def test_killing_ends_all_processes_also_those_that_ran_away(ground: Ground) -> None:
    away = f"{PYTHON} -c 'import os,time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)'"
    job_id = ground.submit(f"trap '' TERM; {away}; " + FOREVER)
    ground.prints(job_id, "ready")
    ground.ask(job_id, "kill")
    row = ground.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by) == (State.HALTED, 137, "kill")
    until(lambda: ground.processes() == [])


def test_a_resumed_job_finds_its_results_and_checkpoints_again(ground: Ground) -> None:
    job_id = ground.submit(
        "if [ -e $CHECKPOINT_DIR/step ]; then echo resumed >> $RESULT_DIR/log; exit 0; fi; "
        "touch $CHECKPOINT_DIR/step; " + FOREVER
    )
    ground.prints(job_id, "ready")
    ground.ask(job_id, "halt")
    ground.ends(job_id)
    ground.ask(job_id, "resume")
    row = ground.ends(job_id, attempt=2)

    assert (row.state, row.exit_code) == (State.COMPLETED, 0)
    assert (ground.home.job(job_id).results / "log").read_text() == "resumed\n"
    assert [one.state for one in attempts(ground.store, job_id)] == [State.HALTED, State.COMPLETED]


def test_a_running_job_that_is_deleted_leaves_nothing(ground: Ground) -> None:
    job_id = ground.submit(FOREVER, secret_values={"TOKEN": "hunter2-hunter2"})
    ground.prints(job_id, "ready")
    ground.ask(job_id, "delete")
    until(lambda: ground.row(job_id).deleted_us is not None, lambda: log_of(ground.home))
    until(lambda: not ground.home.job(job_id).path.exists())

    assert ground.processes() == []
    assert [path for path in ground.home.secrets.iterdir() if job_id in path.name] == []


def test_a_job_that_fails_once_is_restarted_and_completes(ground: Ground) -> None:
    job_id = ground.submit("test -e $RESULT_DIR/once || { touch $RESULT_DIR/once; exit 1; }", max_restarts=2)
    row = ground.ends(job_id, attempt=2)

    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 1, 0)


def test_a_setup_that_takes_long_is_shown_and_one_that_fails_fails_the_job(ground: Ground) -> None:
    waits = NAP + "while [ ! -e $RESULT_DIR/go ]; do nap 0.02; done"
    job_id = ground.submit("echo ran", setup=waits)
    row = ground.reaches(job_id, State.DOWNLOADING)
    until(lambda: ground.row(job_id).reason.text == "the setup command runs", lambda: str(row))
    (ground.home.job(job_id).results / "go").touch()
    assert ground.ends(job_id).state is State.COMPLETED
    failing = ground.ends(ground.submit("echo ran", setup="echo no compiler; exit 9"))

    assert (failing.state, failing.exit_code, failing.reason.code) == (State.FAILED, 9, "C206")


@only_python
def test_memory_that_the_machine_does_not_have_is_refused_at_once(ground: Ground) -> None:
    row = ground.ends(ground.submit("true", memory_bytes=1 << 50, max_restarts=5))

    assert (row.state, row.reason.code, row.exit_code, row.attempt) == (State.FAILED, "C104", 69, 1)


def test_max_runtime_ends_a_job_with_124(ground: Ground) -> None:
    row = ground.ends(ground.submit(FOREVER, max_runtime_seconds=0.3, grace_seconds=1.0))

    assert (row.state, row.exit_code, row.exit_by, row.reason.code) == (State.FAILED, 124, "timeout", "C204")


@only_python
def test_jobs_that_ask_for_all_cpus_run_one_after_the_other(ground: Ground) -> None:
    first = ground.submit(FOREVER, cpus=4096.0)
    assert "asks for 4096 CPUs and gets the" in ground.reaches(first, State.PROCESSING).reason.text
    second = ground.submit("true", cpus=1.0)
    until(lambda: f"waits for 1 CPU: {first} holds" in ground.row(second).reason.text)
    ground.ask(first, "kill")

    assert ground.ends(second).state is State.COMPLETED


def test_the_first_learner_to_end_decides_and_the_others_are_settled_without_blame(ground: Ground) -> None:
    job_id = ground.submit(
        f"if [ $LEARNER_ID = 2 ]; then exit 0; fi; {FOREVER}",
        learners=3,
        settle_seconds=0.2,
        grace_seconds=1.0,
    )
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.COMPLETED, 0)
    found = {one.learner: one for one in learners(ground.store, job_id)}
    assert (found[2].decided, found[2].exit_code) == (True, 0)
    assert {found[1].stopped, found[3].stopped} == {"settle"}


def test_the_first_failure_stops_the_others(ground: Ground) -> None:
    job_id = ground.submit(
        f"if [ $LEARNER_ID = 2 ]; then exit 5; fi; {FOREVER}", learners=2, ends_when="all", grace_seconds=1.0
    )
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 5)
    assert row.reason.text.startswith("learner 2: ")


def test_when_a_job_has_ended_all_its_metrics_are_in_the_store(ground: Ground) -> None:
    metrics = EvaluationMetrics(
        type="regex_extractor",
        groups={
            "train": MetricGroup(
                regex=r"step (?P<step>\d+) loss (?P<loss>[\d.]+)",
                scalars={"loss": TypedValue("FLOAT", "$loss")},
                etimes={"iteration": TypedValue("INT", "$step")},
            )
        },
    )
    command = "i=0; while [ $i -lt 2000 ]; do echo step $i loss 0.$i; i=$((i+1)); done"
    job_id = ground.submit(command, evaluation_metrics=metrics)
    row = ground.ends(job_id)

    assert row.state is State.COMPLETED, row
    [loss] = [one for one in series(ground.store, job_id) if one.name == "train/loss" and one.kind == "value"]
    assert [point.value for point in points(ground.store, loss.id)] == [float(f"0.{i}") for i in range(2000)]


def test_what_the_secrets_of_an_experiments_data_hold_is_overwritten_in_output(ground: Ground) -> None:
    job_id = ground.submit(
        'echo "${DET_DATA_SECRETS#*: }"', secret_values={"DET_DATA_SECRETS": '{"key": "hunter2-hunter2"}'}
    )
    assert ground.ends(job_id).state is State.COMPLETED

    assert ground.output(job_id) == '"***************"}\n'


def test_secrets_reach_the_command_and_nothing_else(ground: Ground) -> None:
    job_id = ground.submit(
        "test ${#TOKEN} = 15 && echo got $TOKEN", secret_values={"TOKEN": "hunter2-hunter2"}
    )
    assert ground.ends(job_id).state is State.COMPLETED

    assert ground.output(job_id) == "got ***************\n"
    for file in ground.home.path.rglob("*"):
        if file.is_file() and file.parent != ground.home.secrets:
            assert b"hunter2" not in file.read_bytes(), file


def test_a_job_outlives_its_controller_and_the_next_one_tells_its_true_end(ground: Ground) -> None:
    job_id = ground.submit(NAP + "echo ready; while [ ! -e $RESULT_DIR/go ]; do nap 0.02; done; exit 4")
    ground.prints(job_id, "ready")
    ground.reaches(job_id, State.PROCESSING)
    kill(answers(ground.home).pid)
    (ground.home.job(job_id).results / "go").touch()
    until(lambda: ground.processes() == [])
    recorded = json.loads(ground.learner(job_id).state.read_text())
    ensure_controller(ground.home)
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 4)
    assert row.ended_us == recorded["ended_us"]


@only_python
def test_a_learner_whose_agent_and_scribe_were_killed_is_ended_and_blamed_on_the_platform(
    ground: Ground,
) -> None:
    job_id = ground.submit(FOREVER)
    ground.prints(job_id, "ready")
    state = json.loads(ground.learner(job_id).state.read_text())
    for name in ("scribe_pid", "pid"):
        os.kill(state[name], signal.SIGKILL)
    row = ground.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by) == (State.FAILED, 75, "lost")
    assert row.reason.code.startswith("S")
    until(lambda: ground.processes() == [])


@only_python
def test_a_way_that_is_not_installed_fails_the_job_at_once_and_it_can_be_deleted(ground: Ground) -> None:
    job_id = ground.submit("true", target=replace(PROCESS, runner="carrier-pigeon"), max_restarts=5)
    row = ground.ends(job_id)
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert "carrier-pigeon" in row.reason.text and "process" in row.reason.hint

    ground.ask(job_id, "delete")
    until(lambda: ground.row(job_id).deleted_us is not None, lambda: log_of(ground.home))


@only_python
def test_two_homes_never_touch_each_others_learners(ground: Ground, tmp_path: Path) -> None:
    other = Ground(Home(tmp_path / "other"))
    mine, theirs = ground.submit(FOREVER), other.submit(FOREVER)
    ground.prints(mine, "ready")
    other.prints(theirs, "ready")
    ground.ask(mine, "delete")
    until(lambda: not ground.processes())

    assert marked(other.uuid)
    until(lambda: other.row(theirs).state is State.PROCESSING, lambda: log_of(other.home))
    other.clean_up()


def test_the_controller_ends_when_its_last_job_has(
    own_ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_LINGER_SECONDS", "0.1")
    job_id = own_ground.submit("true")
    own_ground.ends(job_id)

    until(lambda: status(own_ground.home) is None)
    until(lambda: "nothing was left to do" in log_of(own_ground.home))

    assert own_ground.row(job_id).state is State.COMPLETED
    assert log_of(own_ground.home).count("ends: ") == 1
