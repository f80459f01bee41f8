"""A copy of a home steers no learner of the original, and a home that was moved goes on, with real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.command import Fabric, until_runs
from tests.support.controllers import answers, controller
from tests.support.processes import end_everything
from tests.support.waiting import patience, until
from workbench.controller.client.connect import status
from workbench.paths import Home

TRAINING = 'while [ ! -e "$RESULT_DIR/go" ]; do sleep 0.2; done; echo over'

STEERING = (
    ("run", "-d", "--", "true"),
    ("wait", "long"),
    ("attach", "long"),
    ("logs", "--follow", "long"),
    ("halt", "long"),
    ("kill", "long"),
    ("kill", "long", "--no-wait"),
    ("resume", "over"),
    ("rerun", "over"),
    ("delete", "long", "--yes"),
    ("exec", "long", "--", "true"),
    ("tag", "over", "best"),
    ("tag", "--where", "tag:none OR name:over", "best"),
    ("note", "over", "mine"),
    ("gc", "--yes"),
    ("prune", "--older-than", "0", "--yes"),
    ("data", "prune", "--yes"),
    ("store", "retry", "over"),
    ("checkpoint", "delete", "over", "--all", "--yes"),
    ("doctor", "--bind-home"),
)


@pytest.fixture
def pid(fabric: Fabric, home: Home) -> int:
    """The command of a job that goes on until it is let go; a job that is over is there, too."""
    fabric("run", "-q", "--name", "over", "--", "true")
    fabric("run", "-d", "-q", "--name", "long", "--", TRAINING)
    until_runs(fabric, "long")
    folder = home.job(fabric.json("show", "long", "--json")["id"]).attempt(1).learner(1)
    found = int(json.loads(folder.state.read_bytes())["command_pid"])
    until(lambda: is_alive(found), "its shell to be executed")
    return found


@pytest.fixture
def elsewhere(fabric: Fabric, home: Home) -> Iterator[Home]:
    """Where a home is copied or moved to; the name begins with the home's, so that all processes are found."""
    yield Home(home.path.with_name(f"{home.path.name}-elsewhere"))
    end_everything(home)


def copy(home: Home, to: Home) -> str:
    subprocess.run(["cp", "-a", home.path, to.path], check=True)
    return str(to.path)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).cmdline()[-1:] == [TRAINING]
    except psutil.Error:
        return False


def state(fabric: Fabric, home: Path, name: str = "long") -> str:
    return str(fabric.json("show", name, "--json", FABRIC_HOME=str(home))["state"])


def stop_controller(fabric: Fabric, home: Home) -> None:
    found = status(home)
    assert found is not None
    fabric("controller", "stop")
    until(lambda: not psutil.pid_exists(found.pid), "the controller to end")


OTHER_STATE = pytest.mark.soak("the other state of the controller; the gate copies and moves a home with one")


@pytest.mark.parametrize(
    "is_up",
    [pytest.param(True, id="controller up"), pytest.param(False, id="controller stopped", marks=OTHER_STATE)],
)
def test_a_copy_ends_nothing_of_the_original(
    fabric: Fabric, home: Home, pid: int, elsewhere: Home, is_up: bool
) -> None:
    if not is_up:
        stop_controller(fabric, home)
    there = copy(home, elsewhere)

    for args in STEERING:
        refused = fabric(*args, expect=78, FABRIC_HOME=there)
        assert f"a copy of {'the home ' * (args[0] != 'doctor')}{home.path}" in refused.stderr
        assert "hint: " in refused.stderr

    assert is_alive(pid)
    assert status(elsewhere) is None
    assert (status(home) is not None) == is_up
    (home.job(fabric.json("show", "long", "--json")["id"]).results / "go").write_text("")
    assert fabric("wait", "long").returncode == 0
    assert state(fabric, elsewhere.path) == "PROCESSING"


def test_a_copy_is_read_and_says_that_it_is_one(
    fabric: Fabric, home: Home, pid: int, elsewhere: Home
) -> None:
    there = copy(home, elsewhere)

    listed = fabric("list", FABRIC_HOME=there)
    for args in (("show", "long"), ("logs", "over"), ("metrics", "over"), ("events", "over"), ("du",)):
        assert f"a copy of the home {home.path}" in fabric(*args, FABRIC_HOME=there).stderr

    assert "long" in listed.stdout
    assert f"a copy of the home {home.path}" in listed.stderr
    assert "a copy" not in fabric("list").stderr
    assert "none runs in a copy" in fabric("controller", "status", FABRIC_HOME=there).stdout
    fabric("controller", "stop", FABRIC_HOME=there)
    assert status(home) is not None
    found = fabric.json("doctor", "--json", expect=78, FABRIC_HOME=there)["findings"]
    assert [each["remedy"] for each in found if each["subject"] == "home"] == ["fabric doctor --bind-home"]


def test_the_controller_of_a_copy_ends_at_once(fabric: Fabric, home: Home, pid: int, elsewhere: Home) -> None:
    stop_controller(fabric, home)
    copy(home, elsewhere)

    ended = controller(elsewhere, stderr=subprocess.PIPE)
    message = ended.communicate(timeout=patience())[1].decode()

    assert ended.returncode == 78
    assert "is a copy of the home" in message
    assert is_alive(pid)


@pytest.mark.parametrize(
    "is_up",
    [pytest.param(True, id="controller up"), pytest.param(False, id="controller stopped", marks=OTHER_STATE)],
)
def test_a_moved_home_takes_its_running_job_over_once_it_is_bound(
    fabric: Fabric, home: Home, pid: int, elsewhere: Home, is_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_up:
        stop_controller(fabric, home)
    home.path.rename(elsewhere.path)
    monkeypatch.setenv("FABRIC_HOME", str(elsewhere.path))
    refused = fabric("kill", "long", expect=78).stderr

    document = fabric.json("doctor", "--bind-home", "--json")

    assert f"was moved: it is bound to {home.path}" in refused
    assert "fabric doctor --bind-home" in refused
    assert (document["was"], document["before"], document["open_jobs"]) == ("moved", str(home.path), 1)
    assert document["link"] == str(home.path) and home.path.samefile(elsewhere.path)
    answers(elsewhere)
    assert is_alive(pid)
    (elsewhere.job(fabric.json("show", "long", "--json")["id"]).results / "go").write_text("")
    assert fabric("wait", "long").returncode == 0
    assert fabric("logs", "long").stdout == "over\n"


def test_a_home_that_was_copied_and_removed_is_bound_and_its_job_begins_again(
    fabric: Fabric, home: Home, pid: int, elsewhere: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_controller(fabric, home)
    copy(home, elsewhere)
    shutil.rmtree(home.path)
    monkeypatch.setenv("FABRIC_HOME", str(elsewhere.path))

    document = fabric.json("doctor", "--bind-home", "--json")

    assert (document["was"], document["open_jobs"]) == ("copy", 1)
    # Its files were removed under it, so its agent ended it: an S fault, which is tried again.
    until(lambda: fabric.json("show", "long", "--json")["attempt"] == 2, "the next attempt")
    until(lambda: state(fabric, elsewhere.path) == "PROCESSING", "it to run")
    assert not is_alive(pid)
    fabric("kill", "long")


def test_a_home_of_another_machine_is_bound_only_when_that_is_confirmed(fabric: Fabric, home: Home) -> None:
    fabric("run", "-q", "--name", "over", "--", "true")
    stop_controller(fabric, home)
    bound = json.loads(home.binding.read_bytes())
    home.binding.write_text(json.dumps({**bound, "machine": "another", "boot": "another", "inode": 1}))

    refused = fabric("doctor", "--bind-home", expect=64).stderr
    fabric("run", "-q", "--", "true", expect=78)
    document = fabric.json("doctor", "--bind-home", "--yes", "--json")

    assert "of another machine, which cannot be reached" in refused
    assert "--yes" in refused
    assert (document["was"], document["link"]) == ("copy", None)
    fabric("run", "-q", "--", "true")


def test_binding_a_home_where_it_lies_changes_nothing(fabric: Fabric, home: Home) -> None:
    fabric("run", "-q", "--name", "over", "--", "true")
    before = status(home)

    message = fabric("doctor", "--bind-home").stderr

    assert "was the home already" in message
    assert status(home) == before is not None
