"""``fabric cp`` and ``fabric files``: a job's files come out and go in, running and ended, by process and container."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Fabric
from tests.support.images import BUSYBOX, DEBIAN, USER
from tests.support.waiting import until
from workbench.paths import Home

WORK = (
    "mkdir -p $RESULT_DIR/deep; echo kept > $RESULT_DIR/deep/file; ln -s deep/file $RESULT_DIR/link;"
    " ln -s /etc/passwd $RESULT_DIR/out; echo 1 > $CHECKPOINT_DIR/step-1; echo mine > own.txt; echo up;"
    " while [ ! -e go ]; do sleep 0.1; done; cat go"
)


IN_PROCESS = pytest.mark.parametrize(
    "running",
    [
        "process",
        pytest.param(
            "container", marks=pytest.mark.soak("files of a container; the gate copies a process's")
        ),
    ],
    indirect=True,
)
IN_CONTAINER = pytest.mark.parametrize(
    "running",
    [
        pytest.param("process", marks=pytest.mark.soak("files of a process; the gate copies a container's")),
        "container",
    ],
    indirect=True,
)


@pytest.fixture(params=["process", "container"])
def running(request: pytest.FixtureRequest, fabric: Fabric, home: Home) -> Iterator[str]:
    """A job that has written some files and waits for another."""
    if request.param == "container":
        request.getfixturevalue("engine")
    args = ("run", "-d", "--runner", request.param, "--image", DEBIAN, "--", "sh", "-c", WORK)
    job = fabric(*args).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up")
    yield job
    fabric("kill", job, expect=None)
    fabric("wait", job, expect=None)


def test_files_come_out_of_a_running_job_and_go_into_it(fabric: Fabric, running: str) -> None:
    listed = fabric.json("files", running, "--json")
    table = fabric("files", running).stdout
    own = fabric("cp", f"{running}:own.txt", "-").stdout
    copied = fabric.json("cp", f"{running}:results", "got", "--json")
    (fabric.folder / "message").write_text("from here\n")
    fabric("cp", "message", f"{running}:code/go")
    ended = fabric("wait", running)

    paths = {each["path"]: each["kind"] for each in listed["files"]}
    assert paths["results/deep/file"] == "file"
    assert paths["results/link"] == "link"
    assert paths["checkpoints/step-1"] == "file"
    assert "results/deep/file" in table
    assert own == "mine\n"
    assert copied["files"] == 1
    assert (fabric.folder / "got" / "link").read_text() == "kept\n"
    assert not os.path.lexists(fabric.folder / "got" / "out")
    assert ended.returncode == 0
    assert fabric("logs", running).stdout == "up\nfrom here\n"


@IN_CONTAINER
def test_files_of_a_job_that_has_ended_come_out_too(fabric: Fabric, running: str) -> None:
    (fabric.folder / "folder" / "inner").mkdir(parents=True)
    (fabric.folder / "folder" / "inner" / "tool").write_text("#!/bin/sh\n")
    (fabric.folder / "folder" / "inner" / "tool").chmod(0o755)
    fabric("kill", running)
    fabric("wait", running, expect=None)

    fabric("cp", f"{running}:checkpoints/step-1", ".")
    fabric("cp", f"{running}:own.txt", "renamed.txt")
    fabric("cp", "folder", f"{running}:results/")
    fabric("cp", f"{running}:results/folder", "back")

    assert (fabric.folder / "step-1").read_text() == "1\n"
    assert (fabric.folder / "renamed.txt").read_text() == "mine\n"
    assert os.access(fabric.folder / "back" / "inner" / "tool", os.X_OK)


@IN_PROCESS
def test_what_cannot_be_copied_is_reported(fabric: Fabric, running: str) -> None:
    (fabric.folder / "there").write_text("x")

    missing = fabric("cp", f"{running}:nothing", ".", expect=66)
    kept = fabric("cp", f"{running}:own.txt", "there", expect=73)
    way_out = fabric("cp", f"{running}:results/out", ".", expect=66)
    dots = fabric("cp", f"{running}:results/../../x", ".", expect=64)
    both = fabric("cp", f"{running}:a", f"{running}:b", expect=64)
    neither = fabric("cp", "a", "b", expect=64)
    folder = fabric("cp", f"{running}:results", "-", expect=64)
    shared = fabric("cp", "there", f"{running}:data/there", expect=77)
    attempt = fabric("files", running, "--attempt", "7", expect=64)
    path = fabric("files", running, "nothing", expect=66)

    assert f"has no nothing\nhint: fabric files {running.removeprefix('training-')}" in missing.stderr
    assert "there already exists" in kept.stderr
    assert "leads out of the job's folder" in way_out.stderr
    assert ".. in it" in dots.stderr
    assert "are both files of jobs" in both.stderr
    assert "neither SOURCE nor DEST is a file of a job" in neither.stderr
    assert "is a folder; - prints one file" in folder.stderr
    assert "other jobs may share it" in shared.stderr
    assert "there is no attempt 7" in attempt.stderr
    assert "has no nothing" in path.stderr
    assert (fabric.folder / "there").read_text() == "x"


def test_any_path_of_a_running_container_is_reached_and_goes_with_it(
    engine: None, fabric: Fabric, home: Home
) -> None:
    work = "mkdir /tmp/own; echo inside > /tmp/own/file; echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done"
    job = fabric("run", "-d", "--image", BUSYBOX, "--", "sh", "-c", work).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up")
    (fabric.folder / "go").write_text("")

    fabric("cp", f"{job}:/tmp/own", "own")
    fabric("cp", f"{job}:/mnt/results", "results")
    listed = fabric.json("files", job, "/tmp/own", "--json")["files"]
    missing = fabric("cp", f"{job}:/tmp/other", ".", expect=66)
    fabric("cp", "go", f"{job}:/tmp/go")
    fabric("wait", job)
    _wait_until_gone(fabric, f"{job}:/tmp/own/file")
    gone = fabric("cp", f"{job}:/tmp/own", "again", expect=70)

    assert (fabric.folder / "own" / "file").read_text() == "inside\n"
    assert [each["path"] for each in listed] == ["/tmp/own", "/tmp/own/file"]
    assert "has no /tmp/other" in missing.stderr
    assert "was removed with the container" in gone.stderr


def test_what_goes_with_a_container_is_never_reported_as_missing(
    engine: None, fabric: Fabric, home: Home
) -> None:
    many = "mkdir /tmp/own; for a in 0 1 2 3 4 5 6 7; do for b in $(seq 1000); do echo > /tmp/own/$a-$b; done; done"
    work = f"{many}; echo inside > /tmp/own/file; echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done"
    job = fabric("run", "-d", "--image", BUSYBOX, "--", "sh", "-c", work).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up")
    (fabric.folder / "go").write_text("")
    fabric("cp", "go", f"{job}:/tmp/go")
    fabric("wait", job)

    *copied, gone = _wait_until_gone(fabric, f"{job}:/tmp/own/file")

    assert all((each.returncode, each.stdout) == (0, "inside\n") for each in copied)
    assert gone.returncode == 70
    assert "was removed with the container" in gone.stderr


def test_what_is_put_into_a_container_may_be_used_by_its_user(
    engine: None, fabric: Fabric, home: Home, tmp_path: Path
) -> None:
    work = "echo up; while [ ! -e new/go ]; do sleep 0.1; done; cat new/go; echo more >> new/go; cat new/go"
    job = fabric("run", "-d", "--image", USER, "--", "sh", "-c", work).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up")
    (fabric.folder / "go").write_text("sent\n")

    fabric("cp", "go", f"{job}:new/go")
    fabric("wait", job)

    assert fabric("logs", job).stdout == "up\nsent\nsent\nmore\n"


def _wait_until_gone(fabric: Fabric, path: str) -> list[subprocess.CompletedProcess[str]]:
    """Copy a file until that is refused: a container may be there for a moment after its job."""
    answers: list[subprocess.CompletedProcess[str]] = []

    def refused() -> bool:
        answers.append(fabric("cp", path, "-", expect=None))
        return answers[-1].returncode != 0

    until(refused, f"{path} to be gone")
    return answers
