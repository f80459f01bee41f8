"""A host on which jobs of that day ran: the present code sees what runs there, reads it on and halts it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.frozen.sandbox import Sandbox, end_processes, sandbox
from tests.frozen.unpacking import HOST_HOME, HOST_USER, MACHINE_ID, start_guard, unpack
from tests.support.box import Box
from tests.support.waiting import patience, until

TEXT = "".join(f"step {i} loss 0.{i}\n" for i in range(1, 6)) + "ready\n"


@dataclass(frozen=True, slots=True)
class Far:
    """A laptop of that day, and a host on which its learner runs."""

    laptop: Sandbox
    learner: Path
    agent: int
    """The pid of the agent that keeps it."""


@pytest.fixture
def far(box: Box) -> Iterator[Far]:
    """The laptop and the host, where the agent of that day keeps the learner that runs."""
    with sandbox() as laptop:
        (laptop.root / ".ssh").symlink_to(box.folder / ".ssh")
        words = {HOST_HOME: str(box.user.home), HOST_USER: box.user.name, MACHINE_ID: machine_id(laptop, box)}
        end_processes(laptop.root)
        shutil.rmtree(laptop.home)
        unpack("far", laptop.root, words)
        shutil.copytree(laptop.root / "host", box.user.home / ".fabric", symlinks=True, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", box.user.name, str(box.user.home)], check=True)
        (job,) = (file.parent.name for file in laptop.home.glob("jobs/*/job.json") if _name(file) == "far")
        (learner,) = box.user.home.glob(f".fabric/*/*/jobs/{job}/attempt-1/learner-1")
        user = pwd.getpwnam(box.user.name)
        environment = {"PATH": os.defpath, "HOME": user.pw_dir, "FABRIC_LEASES": os.environ["FABRIC_LEASES"]}
        guard = start_guard(learner, user=user.pw_uid, group=user.pw_gid, extra_groups=[], env=environment)
        until(lambda: _phase(learner) == "running", "the learner to run")
        yield Far(laptop, learner, guard.pid)
        end_processes(laptop.root)
        guard.kill()
        guard.wait(patience())


def machine_id(laptop: Sandbox, box: Box) -> str:
    """Return the host's id, as a job that runs there finds it out."""
    laptop("run", "-q", "--backend", "ssh://box", "--", "true")
    laptop("controller", "stop")
    (folder,) = (path for path in (box.user.home / ".fabric").iterdir() if path.is_dir())
    return folder.name


def _name(file: Path) -> str:
    return str(json.loads(file.read_bytes())["name"])


def _phase(learner: Path) -> str:
    try:
        return str(json.loads((learner / "state.json").read_bytes())["phase"])
    except (OSError, ValueError):
        return ""


def test_a_learner_at_a_host_is_seen_read_on_and_halted(far: Far) -> None:
    laptop, job = far.laptop, far.laptop.job("far")
    begins = f"attempt of {job} begins\n{TEXT}"
    assert laptop("logs", "far").stdout == begins
    laptop("wait", "far", "--timeout", "1", expect=124)

    # Once it was printed while the home was frozen, and once again by the command that was started there now.
    until(
        lambda: laptop("logs", "far").stdout == 2 * begins, lambda: laptop("logs", "far").stdout, seconds=60
    )
    assert laptop.json("show", "far", "--json")["state"] == "PROCESSING"
    assert laptop("exec", "far", "--", "sh", "-c", "echo $TRAINING_ID").stdout.strip() == job
    laptop("halt", "far")
    until(lambda: laptop.json("show", "far", "--json")["state"] == "HALTED", "it to be halted")
    halted = laptop.json("show", "far", "--json")

    assert (halted["exit_code"], halted["exit_by"], halted["attempt"]) == (143, "halt", 1)
    assert laptop("logs", "far").stdout.endswith("saved\n")
    assert json.loads((far.learner / "state.json").read_bytes())["pid"] == far.agent, (
        "another agent was started"
    )


def test_a_learner_at_a_host_ends_and_what_it_made_comes_home(far: Far) -> None:
    laptop = far.laptop
    laptop("exec", "far", "--", "sh", "-c", "echo made > $RESULT_DIR/made.txt; touch $RESULT_DIR/go")
    laptop("wait", "far", "--timeout", "60")
    done = laptop.json("show", "far", "--json")

    assert (done["state"], done["exit_code"]) == ("COMPLETED", 0)
    assert laptop("logs", "far").stdout.endswith("went on\n")
    assert (Path(done["results"]) / "made.txt").read_text() == "made\n"
    series = {one["name"]: one["points"] for one in laptop.json("metrics", "far", "--json")["series"]}
    assert {name: series[name] for name in ("accuracy", "train/loss")} == {"accuracy": 1, "train/loss": 10}
    assert {each["name"]: each["state"] for each in laptop.json("list", "--json")} == {
        "far": "COMPLETED",
        "far-done": "COMPLETED",
    }


def test_jobs_at_a_host_are_found_by_another_laptop_and_deleted_with_all_that_they_left_there(
    far: Far,
) -> None:
    listed = {each["name"]: each for each in _second(far, "adopt", "ssh://box", "--json")}
    job = far.laptop.job("far")

    assert (listed["far"]["id"], listed["far"]["alive"], listed["far"]["adopted"]) == (job, True, False)
    assert listed["far-done"]["alive"] is False

    folder = far.learner.parents[2] / far.laptop.job("far-done")
    assert folder.exists()
    far.laptop("delete", "far-done", "--yes")

    until(lambda: not folder.exists(), "its folder there to be gone")
    assert far.learner.exists()


def _second(far: Far, *args: str) -> list[dict[str, object]]:
    return list(far.laptop.json(*args, FABRIC_HOME=str(far.laptop.root / "second")))
