"""A home whose database is lost says so, instead of seeming to have no jobs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fabric_workbench
from tests.cli.jobs import add_job
from tests.support.command import Fabric
from tests.support.waiting import patience
from workbench.errors import InputMissing
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store


@pytest.fixture
def lost(home: Home) -> Home:
    with Store.open(home) as store:
        add_job(store, "digits", State.COMPLETED)
    for file in home.path.glob(f"{home.database.name}*"):
        file.unlink()
    return home


@pytest.mark.parametrize(
    "words",
    [
        "list",
        "list --json",
        "status",
        "show digits",
        "grep x",
        "events",
        "sql",
        "gc",
        "run -- true",
        "run -d -- true",
        "rerun digits",
        "halt digits",
        "wait digits",
        "delete digits --yes",
    ],
)
def test_what_has_to_do_with_jobs_says_that_the_database_is_lost(
    fabric: Fabric, lost: Home, words: str
) -> None:
    ran = fabric(*words.split(), expect=66)

    assert ran.stderr.splitlines() == [
        f"error: the database of {lost.path} is lost; 1 job folder is left",
        "hint: `fabric doctor --rebuild` restores it from them",
    ]
    assert not lost.database.exists()


def test_python_says_that_the_database_is_lost(lost: Home) -> None:
    with pytest.raises(InputMissing, match="is lost; 1 job folder is left"):
        fabric_workbench.run("true")
    with pytest.raises(InputMissing, match="is lost"):
        fabric_workbench.jobs()

    assert not lost.database.exists()


def test_no_controller_makes_another_database(fabric: Fabric, lost: Home) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "workbench.controller", "--home", str(lost.path)],
        capture_output=True,
        text=True,
        timeout=patience(),
    )

    assert ran.returncode == InputMissing.exit_code
    assert "is lost; 1 job folder is left" in lost.controller_log.read_text()
    assert not lost.database.exists()


def test_the_remedy_restores_the_jobs(fabric: Fabric, lost: Home) -> None:
    fabric("doctor", "--rebuild", "--yes", expect=None)

    assert [job["name"] for job in fabric.json("list", "--json")] == ["digits"]
