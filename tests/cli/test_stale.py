"""What commands that only read say of open jobs that no controller looks after, and that they start one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

import fabric_workbench
from tests.cli.jobs import add_job
from tests.support.command import EXECUTABLE, Fabric
from tests.support.waiting import patience, until
from workbench.clock import now_us
from workbench.controller.client.connect import status
from workbench.formats import iso
from workbench.job import JobId, State, short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job

MINUTE_US = timedelta(minutes=1) // timedelta(microseconds=1)
DEAD_PID = 2**22 + 1
"""More than a process id can be."""

READS = (
    "list",
    "list --json",
    "status",
    "status @last",
    "show @last",
    "metrics @last",
    "logs @last",
    "events",
    "compare @last @last",
    "files @last",
    "diff @last @last",
    "grep nothing",
    "gpus",
    "sql SELECT+1",
)


def looked(home: Home, ago_us: int, pid: int = DEAD_PID, ended: str = "") -> int:
    """Leave a lock file as a controller does that was killed so long ago; return when it last looked."""
    at = now_us() - ago_us
    text = {
        "pid": pid,
        "version": "0.1.0",
        "socket": str(home.path / "none.sock"),
        "host": os.uname().nodename,
    }
    home.controller_lock.write_text(json.dumps({**text, "looked_us": at, "ended": ended}))
    return at


@pytest.fixture
def running(home: Home) -> JobRow:
    """A job that was submitted ten minutes ago and began five minutes ago, as far as the store knows."""
    with Store.open(home) as store:
        row = add_job(store, "digits", State.PROCESSING)
        began = now_us() - 5 * MINUTE_US
        store.execute("UPDATE jobs SET submitted_us = ?, started_us = ?", (began - 5 * MINUTE_US, began))
        found = job(store, row.id)
    assert found is not None
    return found


def test_a_running_jobs_time_ends_where_the_last_controller_looked(
    fabric: Fabric, home: Home, running: JobRow
) -> None:
    at = looked(home, 3 * MINUTE_US)
    ran = fabric("list", COLUMNS="200")

    assert "  2 min 00 s  " in ran.stdout
    assert "last seen 3 min " in ran.stdout
    assert re.search(
        r"as of (\d\d:\d\d:\d\d|\S+ \d\d:\d\d), 3 min \d\d s ago: no controller ran since", ran.stderr
    )
    document = fabric.json("list", "--json")[0]
    assert document["as_of"] == iso(at)
    assert fabric.json("show", "@last", "--json")["as_of"] == iso(at)
    assert "last seen" in fabric("show", "@last").stdout


def test_a_job_that_waits_is_dated_too_and_never_before_its_submission(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "waits")
    looked(home, 60 * MINUTE_US)

    assert fabric.json("list", "--json")[0]["as_of"] == iso(row.submitted_us)


def test_a_home_that_a_controller_looks_after_is_not_dated(
    fabric: Fabric, home: Home, running: JobRow
) -> None:
    looked(home, 0, pid=os.getpid())
    ran = fabric("list", "--json")

    assert json.loads(ran.stdout)[0]["as_of"] is None
    assert ran.stderr == ""


def test_a_controller_that_has_not_looked_for_long_counts_as_none(
    fabric: Fabric, home: Home, running: JobRow
) -> None:
    """The machine slept, or the controller hangs: its process is there all the same."""
    at = looked(home, 2 * MINUTE_US, pid=os.getpid())

    assert fabric.json("list", "--json")[0]["as_of"] == iso(at)


def test_a_job_that_has_ended_is_not_dated(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "over", State.COMPLETED)
    looked(home, 60 * MINUTE_US)
    ran = fabric("list", "--json", FABRIC_NO_CONTROLLER="")

    assert json.loads(ran.stdout)[0]["as_of"] is None
    assert ran.stderr == ""
    assert status(home) is None


@pytest.mark.parametrize("words", READS)
def test_reading_starts_the_controller_for_an_open_job(fabric: Fabric, home: Home, words: str) -> None:
    with Store.open(home) as store:
        row = add_job(store, "waits")
    looked(home, 60 * MINUTE_US)
    fabric(*(word.replace("+", " ") for word in words.split()), expect=None, FABRIC_NO_CONTROLLER="")

    _ends(home, row.id)


def test_the_python_interface_starts_it_too(
    fabric: Fabric, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FABRIC_NO_CONTROLLER")
    with Store.open(home) as store:
        row = add_job(store, "waits")

    assert [each.id for each in fabric_workbench.jobs()] == [row.id]
    _ends(home, row.id)


def test_nothing_is_started_where_that_is_switched_off_and_the_age_is_shown(
    fabric: Fabric, home: Home, running: JobRow
) -> None:
    looked(home, 3 * MINUTE_US)
    ran = fabric("status")

    assert "no controller ran since" in ran.stderr
    assert "is started" not in ran.stderr
    assert not home.controller_log.exists()


def test_why_the_last_controller_ended_is_shown(fabric: Fabric, home: Home, running: JobRow) -> None:
    looked(home, 3 * MINUTE_US, ended="MemoryError")

    assert "no controller ran since; the last one ended: MemoryError" in fabric("list").stderr


def test_a_learner_has_the_limit_of_who_started_the_controller(fabric: Fabric, home: Home) -> None:
    """The controller raises its own."""
    command = f"ulimit -Sn 77; exec {EXECUTABLE} run -q -- sh -c 'ulimit -Sn'"
    ran = subprocess.run(
        ["sh", "-c", command], cwd=fabric.folder, capture_output=True, text=True, timeout=patience()
    )

    assert ran.stdout == "77\n", ran.stderr


def test_nothing_is_started_in_a_copy_of_a_home(
    fabric: Fabric, home: Home, running: JobRow, clean_environment: Path
) -> None:
    looked(home, 3 * MINUTE_US)
    copy = Home(clean_environment / "copy")
    shutil.copytree(home.path, copy.path)
    ran = fabric("list", FABRIC_HOME=str(copy.path), FABRIC_NO_CONTROLLER="")

    assert short_id(running.id) in ran.stdout
    assert "last seen 3" in ran.stdout
    assert not copy.controller_log.exists()


def _ends(home: Home, job_id: JobId) -> None:
    """Wait until a controller has seen the job to its end."""

    def ended() -> bool:
        with Store.open(home) as store:
            found = job(store, job_id)
        return found is not None and found.state is State.COMPLETED

    until(ended, lambda: f"{job_id} to end: {home.controller_log.read_text()}")
