"""Whoever uses the engine: an ordinary user of its group, two of them at once, one who may not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.core import CORE
from tests.containers.people import person, run_as
from tests.support.images import BUSYBOX, DEBIAN, USER
from tests.support.sshd import User
from tests.support.sshd import why_not as why_no_users
from tests.support.waiting import until
from workbench.paths import Home

FABRIC = str(Path(sys.executable).with_name("fabric"))


@pytest.fixture(autouse=True)
def users(engine: None) -> None:
    """Only root can make any."""
    if reason := why_no_users():
        pytest.skip(reason)


@pytest.fixture
def someone() -> Iterator[User]:
    """A user of the engine's group."""
    with person() as user:
        yield user
        run_as(user, FABRIC, "controller", "stop")


@pytest.mark.soak("the suite as another user; the gate has it as root, and jobs of such users below")
def test_the_core_of_the_suite_passes_for_an_ordinary_user_of_the_engines_group(someone: User) -> None:
    suite = "tests/containers/test_container_conformance.py::TestOverLocalHost"
    root = Path(__file__).parents[2]
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-n0",
        "-k",
        " or ".join(CORE),
    ]

    where = (f"--rootdir={root}", "-c", f"{root}/pyproject.toml", f"{root}/{suite}")
    ran = run_as(someone, *argv, *where, FABRIC_TEST_CACHE=str(someone.home / "cache"))

    assert ran.returncode == 0, ran.stdout[-4000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout


@pytest.mark.parametrize(
    "image",
    [pytest.param(DEBIAN, marks=pytest.mark.soak("an image that runs as root; the gate has a user's")), USER],
)
def test_files_belong_to_the_person_whoever_wrote_them_also_after_a_kill(someone: User, image: str) -> None:
    """Root in there may not write into a folder of somebody else's that nobody else may: it is opened first."""
    work = (
        "umask 077; mkdir -p $RESULT_DIR/deep; echo 1 > $RESULT_DIR/deep/x; echo 2 > own; echo up; sleep 300"
    )
    job = started(someone, "--image", image, "--", "sh", "-c", work)
    home = Home(someone.home / ".local" / "share" / "fabric")
    until_printed(someone, job, "up")
    run_as(someone, FABRIC, "kill", job)
    run_as(someone, FABRIC, "wait", job)
    folder = home.job(job)

    owners = {path.lstat().st_uid for path in folder.path.rglob("*")}
    deleted = run_as(someone, FABRIC, "delete", job, "--yes")

    assert owners == {someone.uid}
    assert deleted.returncode == 0, deleted.stderr
    assert not folder.path.exists()


def test_whoever_may_not_use_the_engine_gets_a_hint_how_to() -> None:
    with person(in_group=False) as user:
        ran = run_as(user, FABRIC, "run", "--runner", "container", "--image", DEBIAN, "--", "true")
        as_process = run_as(user, FABRIC, "run", "--image", DEBIAN, "--", "echo", "ran")
        run_as(user, FABRIC, "controller", "stop")

    assert ran.returncode == 77
    assert "You may not use the container engine at /var/run/docker.sock" in ran.stderr
    assert "usermod -aG docker" in ran.stderr
    assert (as_process.returncode, as_process.stdout) == (0, "ran\n")
    assert "you may not use the container engine" in as_process.stderr


def test_two_people_on_one_engine_see_and_touch_only_their_own(someone: User) -> None:
    forever = ("--image", BUSYBOX, "--", "sh", "-c", "echo up; sleep 300")
    with person() as other:
        jobs = {user.name: started(user, *forever) for user in (someone, other)}
        for user in (someone, other):
            until_printed(user, jobs[user.name], "up")
        collected = run_as(someone, FABRIC, "gc", "--yes")
        run_as(someone, FABRIC, "kill", jobs[someone.name])
        run_as(someone, FABRIC, "wait", jobs[someone.name])
        run_as(someone, FABRIC, "delete", jobs[someone.name], "--yes")
        left = json.loads(run_as(other, FABRIC, "show", jobs[other.name], "--json").stdout)
        run_as(other, FABRIC, "kill", jobs[other.name])
        run_as(other, FABRIC, "wait", jobs[other.name])
        run_as(other, FABRIC, "controller", "stop")

    assert "of another home" in collected.stdout + collected.stderr
    assert left["state"] == "PROCESSING"
    assert containers_of(jobs[other.name]) == []


def started(user: User, *args: str) -> str:
    """Start a job of a user's and return its id."""
    ran = run_as(user, FABRIC, "run", "-d", *args)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def until_printed(user: User, job: str, text: str) -> None:
    """Wait until a job has printed something."""
    output = Home(user.home / ".local" / "share" / "fabric").job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and text in output.read_text(), f"{job} to print {text}", seconds=60)


def containers_of(job: str) -> list[str]:
    """Return the names of a job's containers, running or not."""
    argv = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
