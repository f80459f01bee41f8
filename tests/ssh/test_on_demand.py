"""A machine is started when a job waits for it, by the user's own command, and stopped when it idles, never before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from backends.registry import load_backend
from tests.support.box import Box
from tests.support.controllers import answers, kill
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller
from workbench.errors import UsageError
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

IDLE_SECONDS = 1.0


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Where the commands say that they ran."""
    return tmp_path / "commands"


@pytest.fixture
def ground(home: Home, box: Box, commands: Path) -> Iterator[Ground]:
    """A home whose jobs run at a machine that sleeps."""
    demand = {
        "start": f"echo start >> {commands}",
        "stop": f"echo stop >> {commands}",
        "idle_minutes": IDLE_SECONDS / 60,
    }
    box.daemon.stop()
    made = Ground(
        home, TargetRef("cloud", "ssh", "process", address=box.address, options={"on_demand": demand})
    )
    yield made
    made.clean_up()


@pytest.fixture
def used(ground: Ground, box: Box, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Have the machine idle, but for a job of another home; the call ends that."""
    box.daemon.start()
    other = Ground(Home(tmp_path / "other"), TargetRef("box", "ssh", "process", address=box.address))
    theirs = other.submit("echo ready; while :; do sleep 0.1; done")

    def end() -> None:
        other.ask(theirs, "kill")
        other.ends(theirs)

    try:
        other.prints(theirs, "ready")
        ground.ends(ground.submit("true"))
        log = ground.home.controller_log
        until(lambda: "is not stopped: a learner runs there" in log.read_text())
        yield end
    finally:
        other.clean_up()


def ran(commands: Path) -> list[str]:
    return commands.read_text().split() if commands.exists() else []


def test_a_job_starts_its_machine_once_and_an_idle_machine_is_stopped(
    ground: Ground, box: Box, commands: Path
) -> None:
    job_id = ground.submit("echo ready; while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.1; done")
    until(lambda: ran(commands) == ["start"])
    until(lambda: "its start command has run" in ground.row(job_id).reason.text)
    assert ground.row(job_id).state is State.QUEUED
    box.daemon.start()
    ground.prints(job_id, "ready")
    assert ran(commands) == ["start"]

    ground.ask(job_id, "kill")
    ground.ends(job_id)
    until(lambda: ran(commands) == ["start", "stop"])


@pytest.mark.usefixtures("used")
def test_a_machine_on_which_something_of_another_home_runs_is_not_stopped(commands: Path) -> None:
    assert ran(commands) == []


def test_the_next_controller_stops_a_machine_that_one_before_it_has_left_up(
    ground: Ground, used: Callable[[], None], commands: Path
) -> None:
    kill(answers(ground.home).pid)
    used()
    assert ran(commands) == []

    ensure_controller(ground.home)
    until(lambda: ran(commands) == ["stop"])
    until(lambda: not list(ground.home.machines_on_demand.iterdir()))


def test_what_a_machine_that_was_never_started_can_do_besides_processes_is_not_known(
    ground: Ground, box: Box, commands: Path
) -> None:
    options = {"on_demand": {"start": f"echo start >> {commands}"}}
    backend = load_backend(BackendOptions("cloud", "ssh", box.address, options))
    refusal = backend.why_not("container")

    assert isinstance(refusal, UsageError)
    assert "is known once it was started" in refusal.message
    assert ran(commands) == []


def test_a_start_command_that_fails_is_the_jobs_reason(home: Home, box: Box) -> None:
    box.daemon.stop()
    options = {"on_demand": {"start": "echo no credits left >&2; exit 3"}}
    ground = Ground(home, TargetRef("cloud", "ssh", "process", address=box.address, options=options))
    try:
        job_id = ground.submit("true")
        until(lambda: "its start command failed: no credits left" in ground.row(job_id).reason.text)
        ground.ask(job_id, "kill")
        ground.ends(job_id)
    finally:
        ground.clean_up()
