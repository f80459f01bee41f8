"""Containers of one job at two hosts: they meet over the hosts' network, all begin or none, and nothing is left."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from backends.contract.host import HostGroup
from runners.conformance.harness import OVER, LaunchedAttempt, request_of
from runners.container.launch import ContainerLaunch
from runners.interface import AttemptRef
from runners.multinode.runner import MultiNodeContainerRunner
from runners.shared.staged_launch import Rendezvous
from tests.stubs import pretend
from tests.support.engine import containers_of, own_home, tell_limits
from tests.support.group_jobs import MEET
from tests.support.images import BUSYBOX, DEBIAN, SMALL_USER, ensure_small_user
from tests.support.kept_agents import agent, lend_agents
from tests.support.pipe_host import PipeHost
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, LaunchRefused, SlotsBusy
from workbench.learner.platform import lease_holders, leases
from workbench.paths import Home

UNIQUE = uuid.uuid4().hex[:8]
"""Other tests at the same time pretend other GPUs on the same engine."""

GPUS = {name: [f"GPU-{UNIQUE}-{name}-{number}" for number in (1, 2)] for name in ("box1", "box2")}

PROGRAM = f"echo > $RESULT_DIR/by-$RANK; exec python3 -c '{MEET}'"
FOREVER = "echo up; while :; do sleep 1; done"

MakeJob = Callable[..., LaunchedAttempt]


@pytest.fixture
def homes() -> tuple[str, str]:
    """The names of the two hosts' home folders; overridden by a test whose hosts share one, as over NFS."""
    return ("box1", "box2")


@pytest.fixture
def runner(
    engine: None, homes: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MultiNodeContainerRunner]:
    """A runner of jobs over two hosts with one engine; each has a home, two GPUs and a folder of leases of its own."""
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    with ExitStack() as stack:
        hosts = {}
        for (name, uuids), home in zip(GPUS.items(), homes, strict=True):
            folder = tmp_path / name
            leases_of(tmp_path, name).mkdir(parents=True)
            gpus = pretend(folder / "gpus", monkeypatch, uuids)
            environment = {**os.environ, **gpus.env(), "FABRIC_LEASES": str(leases_of(tmp_path, name))}
            argv = [sys.executable, "-I", agent(), "host"]
            host = PipeHost(argv, root=str(tmp_path / home / "home"), env=environment)
            hosts[name] = stack.enter_context(closing(host))
            lend_agents(Home(Path(host.folder(own_home()))))
            tell_limits(host, own_home())
        yield stack.enter_context(closing(MultiNodeContainerRunner(HostGroup(hosts), home_uuid=own_home())))


@pytest.fixture
def make_job(runner: MultiNodeContainerRunner) -> Iterator[MakeJob]:
    """Plan jobs of two learners, and remove them afterwards whatever became of them: no container is left."""
    made: list[LaunchedAttempt] = []

    def make(
        command: str, *, image: str = DEBIAN, attempt: AttemptRef | None = None, gpus: int = 0
    ) -> LaunchedAttempt:
        request = request_of(
            command, home=own_home(), image=image, attempt=attempt, gpus=gpus, learners=2, ends_when="all"
        )
        made.append(LaunchedAttempt.planned(runner, request))
        return made[-1]

    yield make
    for job in made:
        runner.remove(job.request.attempt)
        runner.remove_job(job.ref().job_id)
    # Not before all are removed: attempts of one job have containers of its own until then.
    assert [containers_of(job.ref().job_id) for job in made] == [[]] * len(made)


def leases_of(folder: Path, name: str) -> Path:
    """Return a host's folder of leases."""
    return folder / name / "leases"


def results_at(folder: Path, name: str, job: LaunchedAttempt) -> dict[str, int]:
    """Return the results of a job at a host by name, each with its owner."""
    (results,) = (folder / name).glob(f"home/**/{job.ref().job_id}/results")
    return {path.name: path.stat().st_uid for path in results.iterdir()}


def test_learners_in_containers_of_two_hosts_meet_at_a_port_of_the_first(
    make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(PROGRAM).launch()
    seen = job.until_over()

    assert [one.exit_code for one in seen.values()] == [0, 0], job.output(2)
    assert job.output(1) == b"['1']\n"
    assert results_at(tmp_path, "box1", job) == {"by-0": os.getuid()}
    assert results_at(tmp_path, "box2", job) == {"by-1": os.getuid()}


def test_a_stop_ends_both_and_the_next_attempt_has_the_gpus_of_both(make_job: MakeJob) -> None:
    first = make_job(FOREVER, image=BUSYBOX, gpus=2).launch()
    running = first.until_running()
    names = containers_of(first.ref().job_id)
    ended = first.stop("halt", 0.0).until_over()
    second = make_job(
        "echo $NVIDIA_VISIBLE_DEVICES", attempt=replace(first.request.attempt, attempt=2), gpus=2
    )
    again = second.launch().until_over()

    assert sorted(names) == [one.name for one in first.plan.learners]
    assert [set(running[number].slots) for number in (1, 2)] == [set(uuids) for uuids in GPUS.values()]
    assert [one.stopped for one in ended.values()] == ["halt", "halt"]
    assert [one.exit_code for one in again.values()] == [0, 0]
    assert second.output(2).decode().strip() == ",".join(again[2].slots)


def test_gpus_that_are_busy_at_one_host_have_none_taken_at_the_other(
    make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job(FOREVER, image=BUSYBOX, gpus=2)
    lease = leases.take(
        GPUS["box2"][:1], str(leases_of(tmp_path, "box2")), '{"owner": "anna@box", "job": "anna"}'
    )
    assert lease is not None

    with pytest.raises(SlotsBusy, match=r"box2: waits for 2 of 2 GPUs: GPU 0 is held by .*anna"):
        job.launch()
    assert containers_of(job.ref().job_id) == []
    assert lease_holders.holders(str(leases_of(tmp_path, "box1")), GPUS["box1"]) == {}

    lease.release()
    job.launch().until_running()
    job.stop().until_over()


def test_a_launch_that_failed_at_one_host_is_made_good_by_the_next_and_its_learners_meet(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(PROGRAM)
    first, second = (one.name for one in job.plan.learners)
    start = ContainerLaunch.start

    def second_later(launch: ContainerLaunch, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        if 2 in waiting:
            until(lambda: containers_of(job.ref().job_id) == [first], "the first to have a container")
        start(launch, waiting, rendezvous)

    monkeypatch.setattr(ContainerLaunch, "start", second_later)
    subprocess.run(["docker", "create", "--name", second, BUSYBOX, "true"], check=True, capture_output=True)
    try:
        with pytest.raises(LaunchRefused, match=f"box2: There is a container {second} already"):
            job.launch()
        assert containers_of(job.ref().job_id) == [first]
    finally:
        subprocess.run(["docker", "rm", "-f", second], check=True, capture_output=True)
    seen = job.launch().until_over()

    assert [one.exit_code for one in seen.values()] == [0, 0], job.output(2)
    assert job.output(1) == b"['1']\n"


def test_what_a_launch_left_that_was_cut_off_does_not_meet_where_that_one_meant_to(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object, **__: object) -> int:
        raise BackendUnreachable("cut off")

    job = make_job(PROGRAM)
    with monkeypatch.context() as patched:
        patched.setattr(PipeHost, "spawn", cut_off)
        patched.setattr(ContainerLaunch, "_clear", lambda *_: None)
        with pytest.raises(BackendUnreachable, match="cut off"):
            job.launch()
    argv = ["docker", "inspect", "-f", "{{.State.Running}} {{json .Config.Env}}", job.plan.learners[0].name]
    running, _, env = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.partition(" ")
    (port,) = (entry.partition("=")[2] for entry in json.loads(env) if entry.startswith("MASTER_PORT="))
    with socket.create_server(("", int(port))):
        seen = job.launch().until_over()

    assert running == "true"
    assert [one.exit_code for one in seen.values()] == [0, 0], job.output(2)
    assert job.output(1) == b"['1']\n"


@pytest.mark.parametrize("homes", [("box1", "box1")])
def test_the_files_of_hosts_that_share_a_home_are_given_back_once_all_learners_have_ended(
    make_job: MakeJob, tmp_path: Path
) -> None:
    command = (
        "echo a > $RESULT_DIR/by-$RANK; echo up;"
        " [ $RANK = 0 ] || { while [ ! -e /job/end ]; do sleep 0.1; done; echo b >> $RESULT_DIR/by-$RANK; }"
    )
    ensure_small_user()
    job = make_job(command, image=SMALL_USER).launch()
    job.until_printed(b"up", 2)
    job.until(lambda found: 1 in found and found[1].phase in OVER, "the first had ended")
    while_one_runs = results_at(tmp_path, "box1", job)
    job.runner.put(job.ref(2), "job/end", io.BytesIO())
    seen = job.until_over()

    assert while_one_runs == {"by-0": 1234, "by-1": 1234}
    assert [one.exit_code for one in seen.values()] == [0, 0], job.output(2)
    assert results_at(tmp_path, "box1", job) == {"by-0": os.getuid(), "by-1": os.getuid()}
