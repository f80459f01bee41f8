"""Launching where there is no room, or where the home is not a folder: refused in a sentence, and later it works."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner
from runners.shared.environment import marker
from tests.runners.jobs import HOME
from tests.support.disks import fill, small_disk
from tests.support.waiting import until
from workbench.errors import CannotWrite, InputMissing
from workbench.job import LearnerPhase
from workbench.learner.host.learners import markers
from workbench.learner.platform import process_table
from workbench.paths import Home


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", size="3m") as mounted:
        yield mounted


def test_a_full_disk_is_reported_and_the_launch_works_when_there_is_room(disk: Path) -> None:
    host = LocalHost(Home(disk / "fabric"))
    runner = ProcessRunner(host, home_uuid=HOME)
    job = LaunchedAttempt.planned(runner, request_of("echo room", home=HOME))
    fill(disk)

    with pytest.raises(CannotWrite, match="No space left"):
        job.launch()
    assert runner.observe([job.request.attempt], timeout_seconds=0).seen == ()
    (disk / "filling").unlink()
    job.launch().until_over()

    assert job.output() == b"room\n"
    assert not list(disk.rglob("*.part"))
    runner.remove(job.request.attempt)
    runner.close()
    host.close()


def test_a_stop_reaches_its_learner_though_the_disk_is_full(disk: Path) -> None:
    host = LocalHost(Home(disk / "fabric"))
    runner = ProcessRunner(host, home_uuid=HOME)
    job = LaunchedAttempt.planned(runner, request_of("exec sleep 1000", home=HOME)).launch()
    job.until_running()
    fill(disk)

    job.stop("kill")
    until(lambda: marker(job.ref()) not in host.call("markers"))
    (disk / "filling").unlink()
    seen = job.until_over()

    assert (seen[1].stopped, seen[1].signal) == ("kill", 9)
    runner.remove(job.request.attempt)
    runner.close()
    host.close()


def test_a_home_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    runner = ProcessRunner(LocalHost(Home(tmp_path / "home")), home_uuid=HOME)

    with pytest.raises(InputMissing, match="Not a directory"):
        runner.plan(request_of("true", home=HOME))


def test_what_a_job_locked_away_is_removed(tmp_path: Path) -> None:
    host = LocalHost(Home(tmp_path / "home"))
    folder = tmp_path / "locked" / "inner"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    folder.chmod(0)
    folder.parent.chmod(0o500)
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "outside")

    host.call("remove", paths=[str(tmp_path / "locked"), str(tmp_path / "link"), str(tmp_path / "never")])
    host.close()

    assert list(tmp_path.iterdir()) == [tmp_path / "outside"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LaunchedAttempt]:
    """A learner that ends when it is asked to; nothing is left of it."""
    host = LocalHost(Home(tmp_path / "home"))
    runner = ProcessRunner(host, home_uuid=HOME)
    job = LaunchedAttempt.planned(runner, request_of("exec sleep 1000", home=HOME)).launch()
    job.until_running()
    # A process has its command's environment only once it has become that command, which no stop waits for.
    until(lambda: [_command_of(pid) for pid in markers().get(marker(job.ref()), ())] == ["sleep"])
    yield job
    runner.remove(job.request.attempt)
    runner.close()
    host.close()


def _command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def stop_agents(job: LaunchedAttempt) -> set[int]:
    """Stop what keeps a learner by a signal; return its pids."""
    pids = process_table.carriers("FABRIC_GUARD", marker(job.ref()), process_table.read())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(found.stopped for pid in pids if (found := process_table.lookup(pid))))
    return pids


@pytest.mark.parametrize("kind", ["halt", "kill"])
def test_a_stop_that_is_repeated_wakes_an_agent_that_a_signal_has_stopped(
    running: LaunchedAttempt, kind: Literal["halt", "kill"]
) -> None:
    assert stop_agents(running)

    running.stop(kind)
    assert marker(running.ref()) in markers()
    running.stop(kind)

    assert running.until_over()[1].stopped == kind


def test_an_agent_that_stays_stopped_is_killed_with_its_learner(
    running: LaunchedAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = stop_agents(running)

    running.stop("kill")
    monkeypatch.setattr("workbench.learner.host.learners.STOPPED_SECONDS", 0.0)
    running.stop("kill")

    until(lambda: not any(map(process_table.lookup, agents)))
    until(lambda: marker(running.ref()) not in markers())
    assert running.until_over()[1].phase in (LearnerPhase.EXITED, LearnerPhase.LOST)
