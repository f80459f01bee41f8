"""A job that waits at a host is taken over by another laptop, or known to a copied home, too: it starts once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.seen import printed, row
from tests.ssh.test_handed_over import HOLD, UUID
from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.controllers import log_of
from tests.support.processes import end_everything
from tests.support.sshd import processes_of
from tests.support.waiting import until
from workbench.controller.client.connect import status
from workbench.job import State
from workbench.paths import Home


@pytest.fixture
def box_environment(clean_environment: Path) -> list[str]:
    """One pretended GPU."""
    return Gpus(clean_environment / "gpus").add(UUID).session_variables()


@pytest.fixture
def elsewhere(home: Home) -> Iterator[Home]:
    """The home of another laptop, or where this one is copied to."""
    made = Home(home.path.with_name(f"{home.path.name}-elsewhere"))
    yield made
    end_everything(made)


@pytest.fixture
def waiting(fabric: Fabric, box: Box, home: Home) -> str:
    """A job that waits at the host for the GPU, which another one holds; it notes each start."""
    holder = give(fabric, box, HOLD, "holder")
    until(lambda: "ready" in printed(home, holder), "the first job to run")
    job = give(fabric, box, f"echo started >> {box.user.home}/starts; sleep 0.2; exit 3", "waits")
    until(
        lambda: state_of(box, job).get("waiting") and row(home, job).state is State.QUEUED,
        lambda: f"{row(home, job)}\n{log_of(home)}",
    )
    return job


def give(fabric: Fabric, box: Box, command: str, name: str, *options: str, SESAME: str = "") -> str:
    flags = ("--backend", box.address, "--runner", "process", "--gpus", "1", "--name", name, *options)
    return fabric("run", "-d", "-q", *flags, "--", "sh", "-c", command, SESAME=SESAME).stdout.strip()


def folder_of(box: Box, job: str) -> Path:
    (found,) = box.user.home.glob(f".fabric/*/*/jobs/{job}")
    return found / "attempt-1"


def state_of(box: Box, job: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads((folder_of(box, job) / "learner-1" / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def let_go(fabric: Fabric, box: Box) -> None:
    (holder,) = (one for one in fabric.json("list", "-a", "--json") if one["name"] == "holder")
    (folder_of(box, holder["id"]) / "job" / "end").touch()


def has_run_once(box: Box, job: str, *homes: Home) -> None:
    """See that it was started once, and that all of these homes tell its end as the host has it."""
    there = state_of(box, job)
    assert (box.user.home / "starts").read_text() == "started\n"
    assert [path.name for path in folder_of(box, job).parent.glob("attempt-*")] == ["attempt-1"]
    for home in homes:
        known = row(home, job)
        assert (known.state, known.attempt, known.exit_code) == (State.FAILED, 1, 3)
        assert (known.started_us, known.ended_us) == (there["started_us"], there["ended_us"])


def test_a_job_that_waits_is_taken_over_by_a_second_laptop_when_the_first_is_gone(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home, waiting: str
) -> None:
    fabric("controller", "stop")
    there = str(elsewhere.path)
    (found,) = (
        one for one in fabric.json("adopt", box.address, "--json", FABRIC_HOME=there) if one["id"] == waiting
    )
    assert (found["alive"], found["adopted"]) == (True, False)

    fabric("adopt", box.address, waiting, FABRIC_HOME=there)
    until(lambda: row(elsewhere, waiting).state is State.QUEUED, lambda: f"{row(elsewhere, waiting)}")
    let_go(fabric, box)

    assert fabric("wait", waiting, FABRIC_HOME=there, expect=3).returncode == 3
    assert fabric("wait", waiting, expect=3).returncode == 3
    has_run_once(box, waiting, home, elsewhere)


def test_a_job_that_both_laptops_know_starts_once_though_its_waiter_is_killed(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home, waiting: str
) -> None:
    """Both controllers see then that nobody has it any more, and give it to the host again."""
    there = str(elsewhere.path)
    fabric("adopt", box.address, waiting, FABRIC_HOME=there)
    until(lambda: row(elsewhere, waiting).state is State.QUEUED, lambda: f"{row(elsewhere, waiting)}")
    (waiter,) = pids(box, b"waiter")

    os.kill(waiter, signal.SIGKILL)
    until(lambda: pids(box, b"waiter") not in ([], [waiter]), "another waiter")
    let_go(fabric, box)

    for laptop in (home, elsewhere):
        fabric("wait", waiting, FABRIC_HOME=str(laptop.path), expect=3)
    has_run_once(box, waiting, home, elsewhere)


@pytest.mark.parametrize(
    "is_up",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.soak("no controller at all; the gate has it with one, which sees both homes"),
        ),
    ],
    ids=["controller up", "controller stopped"],
)
def test_a_copied_home_starts_nothing_that_waits_for_its_original(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home, waiting: str, is_up: bool
) -> None:
    if not is_up:
        fabric("controller", "stop")
    there = copy(home, elsewhere)

    steering = (
        ("wait", waiting),
        ("halt", waiting),
        ("resume", waiting),
        ("queue", "set", waiting, "begin=now"),
    )
    for args in steering:
        assert f"a copy of the home {home.path}" in fabric(*args, expect=78, FABRIC_HOME=there).stderr
    listed = fabric("list", FABRIC_HOME=there)
    assert "waits" in listed.stdout
    assert f"a copy of the home {home.path}" in listed.stderr
    let_go(fabric, box)
    until(lambda: state_of(box, waiting).get("phase") == "exited", lambda: f"{state_of(box, waiting)}")

    assert status(elsewhere) is None
    fabric("wait", waiting, expect=3)
    has_run_once(box, waiting, home)
    assert row(elsewhere, waiting).state is State.QUEUED, "what it was when it was copied"


def test_a_copied_home_whose_original_is_gone_takes_over_what_waits_once_it_is_bound(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric("controller", "stop")
    copy(home, elsewhere)
    shutil.rmtree(home.path)
    monkeypatch.setenv("FABRIC_HOME", str(elsewhere.path))
    fabric("wait", waiting, expect=78)

    document = fabric.json("doctor", "--bind-home", "--json")
    assert (document["was"], document["open_jobs"]) == ("copy", 2)
    let_go(fabric, box)

    fabric("wait", waiting, expect=3)
    has_run_once(box, waiting, elsewhere)


def test_a_job_whose_waiter_was_killed_names_the_laptop_that_starts_it_until_another_takes_it_over(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home, waiting: str
) -> None:
    watching, third = str(elsewhere.path), home.path.with_name(f"{home.path.name}-third")
    fabric("adopt", box.address, waiting, "--watch", FABRIC_HOME=watching)
    until(lambda: row(elsewhere, waiting).reason.text.startswith("waits for 1 GPU"), "its place in the queue")
    fabric("controller", "stop")
    assert now_of(fabric, box, waiting) == "waits"
    (waiter,) = pids(box, b"waiter")

    os.kill(waiter, signal.SIGKILL)
    why = f"waits until fabric runs on {socket.gethostname()} again: what starts it at "
    until(lambda: row(elsewhere, waiting).reason.text.startswith(why), lambda: f"{row(elsewhere, waiting)}")
    assert now_of(fabric, box, waiting).startswith(why)
    assert pids(box, b"waiter") == []

    try:
        fabric("adopt", box.address, waiting, FABRIC_HOME=str(third))
        until(lambda: pids(box, b"waiter"), "another waiter")
        until(lambda: row(elsewhere, waiting).reason.text.startswith("waits for 1 GPU"), "its place again")
        let_go(fabric, box)
        for laptop in (elsewhere.path, third):
            fabric("wait", waiting, FABRIC_HOME=str(laptop), expect=3)
    finally:
        end_everything(Home(third))
    has_run_once(box, waiting, elsewhere, Home(third))


def test_a_laptop_without_its_secrets_leaves_a_job_whose_waiter_was_killed_to_the_one_that_has_them(
    fabric: Fabric, box: Box, home: Home, elsewhere: Home
) -> None:
    holder = give(fabric, box, HOLD, "holder")
    until(lambda: "ready" in printed(home, holder), "the first job to run")
    command = f"echo started >> {box.user.home}/starts; test ${{#SESAME}} = 4 && sleep 0.2; exit 3"
    job = give(fabric, box, command, "waits", "-e", "SESAME", SESAME="nopq")
    until(lambda: state_of(box, job).get("waiting") and row(home, job).state is State.QUEUED)
    fabric("controller", "stop")
    fabric("adopt", box.address, job, FABRIC_HOME=str(elsewhere.path))
    until(lambda: row(elsewhere, job).state is State.QUEUED, lambda: f"{row(elsewhere, job)}")
    (waiter,) = pids(box, b"waiter")

    os.kill(waiter, signal.SIGKILL)
    until(lambda: "SESAME" in row(elsewhere, job).reason.text, lambda: f"{row(elsewhere, job)}")
    left = row(elsewhere, job)
    assert (left.state, left.reason.text.partition(" again: ")[0]) == (
        State.QUEUED,
        f"waits until fabric runs on {socket.gethostname()}",
    )
    assert state_of(box, job)["waiting"] is True, "nobody has ended it"

    fabric("controller", "restart")
    until(lambda: pids(box, b"waiter"), "another waiter")
    until(lambda: "SESAME" not in row(elsewhere, job).reason.text, lambda: f"{row(elsewhere, job)}")
    let_go(fabric, box)
    for laptop in (home, elsewhere):
        fabric("wait", job, FABRIC_HOME=str(laptop.path), expect=3)
    has_run_once(box, job, home, elsewhere)


def now_of(fabric: Fabric, box: Box, job: str) -> str:
    """Return what a laptop that has none of the jobs lists of one."""
    folder = box.folder / "looks"
    found = fabric.json("adopt", box.address, "--json", FABRIC_HOME=str(folder))
    (now,) = (one["now"] for one in found if one["id"] == job)
    return str(now)


def copy(home: Home, to: Home) -> str:
    subprocess.run(["cp", "-a", home.path, to.path], check=True)
    return str(to.path)


def pids(box: Box, word: bytes) -> list[int]:
    """List what the host's user runs with this word among its own."""
    found = []
    for pid in processes_of(box.user):
        with contextlib.suppress(OSError):  # it has just ended
            if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found
