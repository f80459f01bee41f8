"""What commands say and do where the controller is there and does not answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.command import Fabric, until_runs
from tests.support.waiting import patience, until
from workbench.clock import now_us
from workbench.controller.client.connect import status
from workbench.job import short_id
from workbench.learner.platform.system import state_letter
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import open_jobs

STUBBORN = 'trap "" TERM; echo started; while :; do sleep 0.2; done'


@pytest.fixture
def hanging(fabric: Fabric, home: Home) -> Iterator[int]:
    """The controller of a job that runs; it is stopped."""
    fabric("run", "-d", "--name", "job", "--", STUBBORN)
    until(lambda: "started" in fabric("logs", "job").stdout, "the job to print")
    until_runs(fabric, "job")
    yield stopped(home)


def stopped(home: Home) -> int:
    """Stop the controller, as SIGSTOP does; return its process."""
    pid = running(home)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_letter(pid) == "T", "the controller to stop")
    return pid


def running(home: Home) -> int:
    """Wait until a controller answers; return its process."""
    return until(lambda: found.pid if (found := status(home)) else 0, "the controller")


def test_a_job_is_killed_and_why_it_took_so_long_is_shown(fabric: Fabric, hanging: int) -> None:
    ran = fabric("kill", "job")

    assert (
        f"controller {hanging} does not answer (stopped): it is ended, and another one is started"
        in ran.stderr
    )
    assert "job: HALTED" in ran.stderr


def test_what_looks_at_it_says_the_truth(fabric: Fabric, home: Home, hanging: int) -> None:
    lock = json.loads(home.controller_lock.read_text())
    home.controller_lock.write_text(json.dumps({**lock, "looked_us": now_us() - 60_000_000}))

    shown = fabric("controller").stdout
    document = fabric.json("controller", "--json")
    listed = fabric("status", FABRIC_NO_CONTROLLER="").stderr
    checked = fabric("doctor", expect=None).stdout

    silent = f"controller {hanging} does not answer (stopped)"
    assert shown == f"{silent}, 1 open job; `fabric controller restart` ends it and starts another\n"
    assert (document["running"], document["answers"], document["pid"]) == (True, False, hanging)
    assert document["trouble"] == silent
    assert f"ago: controller {hanging} is stopped; `fabric controller restart`" in listed
    assert "no controller ran" not in listed and "is started now" not in listed
    assert silent in checked


def test_the_controller_is_started_anew(fabric: Fabric, home: Home) -> None:
    with_none = fabric("controller", "restart", expect=66)
    fabric("run", "--", "true")
    first = running(home)

    document = fabric.json("controller", "restart", "--json")

    assert "has no jobs" in with_none.stderr
    assert document["answers"] and document["pid"] != first


def test_a_third_signal_ends_a_command_whose_controller_hangs(fabric: Fabric, home: Home) -> None:
    process = fabric.start("run", "--", STUBBORN)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    stopped(home)

    with Store.open(home) as store:
        [row] = open_jobs(store)

    def leaves() -> bool:
        process.send_signal(signal.SIGTERM)  # the process may take two that come at once for one
        return process.poll() is not None

    until(leaves, "the command to end", every=0.05)
    stderr = process.communicate(timeout=patience())[1]

    assert process.returncode == 143
    assert f"which has not ended yet. `fabric attach {short_id(row.id)}` follows it again".encode() in stderr
