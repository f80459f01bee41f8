"""On this machine agents that are started one soon after the other are forked from one process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner
from tests.support.kept_agents import lend_agents
from tests.support.waiting import until
from workbench.learner.host import agent_forks
from workbench.learner.host.fork_server import NAME
from workbench.learner.host.learners import markers
from workbench.learner.platform import process_table, system
from workbench.paths import Home

HOME = "00000000-0000-0000-0000-0000000000fa"
UNTIL_KILLED = "echo ready; exec sleep 600"

Launch = Callable[[str], LaunchedAttempt]


@pytest.fixture
def host(home: Home) -> Iterator[LocalHost]:
    made = LocalHost(lend_agents(home))
    yield made
    made.close()


@pytest.fixture
def launch(host: LocalHost) -> Iterator[Launch]:
    """Launch jobs on this machine, and remove them afterwards."""
    runner = ProcessRunner(host, home_uuid=HOME)
    made: list[LaunchedAttempt] = []

    def launched(command: str) -> LaunchedAttempt:
        made.append(LaunchedAttempt.planned(runner, request_of(command, home=HOME)).launch())
        return made[-1]

    yield launched
    for job in made:
        runner.remove(job.request.attempt)
    runner.close()


def servers() -> list[int]:
    """List the processes that fork agents for this one, and are ready to."""
    found = [pid for pids in markers("FABRIC_GUARD_ROOM").values() for pid in pids]
    table = process_table.read()  # those of other tests come and go
    return [
        pid
        for pid in found
        if pid in table
        and table[pid].parent == os.getpid()
        and system.read_text(f"/proc/{pid}/comm").strip() == NAME
    ]


def agent_of(job: LaunchedAttempt) -> int:
    """Return the agent of a job, as the kernel shows it: what it has forked itself carries its marker, too."""
    ref = job.ref()
    table = process_table.read()
    carriers = markers("FABRIC_GUARD")[f"{ref.home}/{ref.job_id}/{ref.attempt}/{ref.learner}"]
    (agent,) = [pid for pid in carriers if pid in table and table[pid].parent not in carriers]
    return agent


def test_agents_of_a_burst_are_forked_and_run_as_others_do(launch: Launch) -> None:
    first, second = launch("echo first"), launch("echo second")
    (server,) = until(servers, "a process that forks agents")
    jobs = [launch(f"echo $FABRIC_LEARNER; {UNTIL_KILLED}") for _ in range(3)]

    for job in jobs:
        job.until_printed(b"ready")
        assert process_table.read()[agent_of(job)].parent == server
        assert job.ref().job_id.encode() in job.output()
        job.stop("kill")
    assert [next(iter(job.until_over().values())).exit_code for job in (first, second)] == [0, 0]
    assert {next(iter(job.until_over().values())).signal for job in jobs} == {signal.SIGKILL}


def test_one_job_alone_is_not_forked(launch: Launch) -> None:
    launch("true").until_over()

    assert servers() == []


def test_agents_go_on_when_the_process_that_forked_them_is_killed_and_others_are_started(
    launch: Launch,
) -> None:
    launch("true")
    launch("true")
    (server,) = until(servers, "a process that forks agents")
    before = launch(UNTIL_KILLED)
    before.until_printed(b"ready")
    os.kill(server, signal.SIGKILL)

    after = launch("echo after")
    assert next(iter(after.until_over().values())).exit_code == 0
    assert agent_of(before)


def test_what_forks_ends_where_nothing_is_started_for_a_while(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_forks, "IDLE_SECONDS", 1.0)
    launch("true")
    launch("true")
    until(servers, "a process that forks agents")
    until(lambda: not servers(), "it to end")

    assert next(iter(launch("true").until_over().values())).exit_code == 0


def test_what_forks_ends_with_who_asked(launch: Launch, host: LocalHost) -> None:
    launch("true")
    launch("true")
    until(servers, "a process that forks agents")

    host.close()

    until(lambda: not servers(), "it to end")


def test_the_cached_environment_that_a_forked_agent_needs_is_known_to_be_in_use(
    launch: Launch, host: LocalHost, tmp_path: Path
) -> None:
    first = launch("true")
    launch("true")
    (server,) = until(servers, "a process that forks agents")
    program = json.loads((Path(first.plan.learners[0].native["folder"]) / "launch.json").read_text())["guard"]
    os.mkfifo(tmp_path / "launch.json")  # it waits for what it is to do

    pid = host.spawn(
        [*program[:-1], str(tmp_path)],
        env={"FABRIC_GUARD": "one", "FABRIC_ENVIRONMENT": "key-7"},
        cwd="/",
        output=str(tmp_path / "guard.log"),
    )

    try:
        assert process_table.read()[pid].parent == server
        until(lambda: pid in markers("FABRIC_ENVIRONMENT").get("key-7", []), lambda: f"{markers()}")
        assert pid in markers("FABRIC_GUARD")["one"]
    finally:
        os.kill(pid, signal.SIGKILL)
