"""Containers that are killed, stopped or removed from outside, and engines that are not there."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import replace

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.engine import Engine
from runners.container.exec import EngineStream
from runners.container.runner import ContainerRunner
from runners.interface import AttemptRef, LaunchRequest
from tests.support.engine import MakeJob, own_home
from tests.support.images import BUSYBOX, DEBIAN
from workbench.errors import BackendUnreachable, ConfigError, FabricError, LaunchRefused, NotRunning
from workbench.paths import Home
from workbench.spec import Framework

FOREVER = "echo ready; while :; do sleep 1; done"


@pytest.mark.parametrize("how", [["kill"], ["rm", "-f"]])
def test_a_container_that_is_killed_from_outside_ends_with_a_reason(
    make_job: MakeJob, how: list[str]
) -> None:
    job = make_job(FOREVER).launch()
    job.until_printed(b"ready")
    docker(*how, job.plan.learners[0].name)

    seen = job.until_over()[1]

    assert seen.reason is not None
    assert seen.reason.code == "S104"
    assert "killed or removed from outside" in seen.reason.text
    assert job.output() == b"ready\n"


def test_a_container_that_is_stopped_from_outside_ends_by_itself_and_says_so(make_job: MakeJob) -> None:
    job = make_job("trap 'echo saved; exit 5' TERM; " + FOREVER).launch()
    job.until_printed(b"ready")
    docker("stop", "-t", "20", job.plan.learners[0].name)

    seen = job.until_over()[1]

    assert seen.reason is not None
    assert (seen.exit_code, seen.reason.code) == (5, "S200")
    assert "stopped from outside" in seen.reason.text
    # The shell tells of its child, too.
    assert job.output().startswith(b"ready\n")
    assert job.output().endswith(b"saved\n")


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_the_shells_of_a_container_say_nothing_of_a_command_that_a_signal_ended(
    make_job: MakeJob, image: str
) -> None:
    job = make_job("echo ready; exec sleep 1000", image=image).launch()
    job.until_printed(b"ready")

    seen = job.stop("halt", 20.0).until_over()[1]

    assert seen.stopped == "halt"
    assert job.output() == b"ready\n"


def test_a_command_whose_container_is_gone_is_not_taken_for_a_bug(make_job: MakeJob) -> None:
    job = make_job(FOREVER).launch()
    job.until_printed(b"ready")
    name = job.plan.learners[0].name
    engine = Engine(LocalHost(), "/var/run/docker.sock")
    with contextlib.closing(EngineStream(engine, name, ["sleep", "1000"], terminal=False)) as stream:
        docker("rm", "-f", name)
        while stream.read() is not None:
            pass

        with pytest.raises(NotRunning, match="ended while the command ran"):
            stream.wait()
    job.until_over()


def test_a_container_that_waited_for_its_start_is_taken_or_replaced(make_job: MakeJob) -> None:
    job = make_job("echo ran")
    docker(
        "create", "--label", f"fabric.home={own_home()}", "--name", job.plan.learners[0].name, DEBIAN, "true"
    )

    job.launch().until_over()

    assert job.output() == b"ran\n"


def test_a_container_of_another_home_with_a_learners_name_is_left_alone(
    runner: ContainerRunner, make_job: MakeJob
) -> None:
    job = make_job("true", learners=2)
    name, stem = job.plan.learners[0].name, job.plan.learners[0].native["network"]
    docker("create", "--label", "fabric.home=another", "--name", name, DEBIAN, "true")
    docker("network", "create", "--label", "fabric.home=another", stem)
    try:
        with pytest.raises(LaunchRefused, match="not of this home"):
            job.launch()
        runner.remove(job.request.attempt)

        assert "another" in docker("inspect", "-f", "{{json .Config.Labels}}", name)
        assert "another" in docker("network", "inspect", "-f", "{{json .Labels}}", stem)
    finally:
        docker("rm", "-f", name)
        docker("network", "rm", stem)


def test_a_resumed_job_may_write_to_what_the_attempt_before_has_left(make_job: MakeJob, home: Home) -> None:

    first = make_job("echo one >> $RESULT_DIR/log; true", image="fabric-test/user").launch()
    first.until_over()
    old = first.request
    again = replace(old, attempt=AttemptRef(own_home(), old.attempt.job_id, 2, 1))
    second = LaunchedAttempt.planned(first.runner, again)
    try:
        assert second.launch().until_over()[1].exit_code == 0
    finally:
        first.runner.remove(again.attempt)

    assert (home.job(old.attempt.job_id).results / "log").read_text() == "one\none\n"


def test_an_engine_that_is_not_there_is_named(home: Home) -> None:
    with pytest.raises(BackendUnreachable, match="No container engine answers at /nowhere"):
        launched(home, "unix:///nowhere")


def test_an_engine_on_another_machine_is_refused_with_the_way_out(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://gpubox:2375")

    with pytest.raises(ConfigError, match="not on this machine") as caught:
        launched(home, "")

    assert "fabric backend add NAME ssh://gpubox" in caught.value.hint


def test_plans_need_no_engine(home: Home) -> None:
    host = LocalHost(home, engine="unix:///nowhere")
    runner = ContainerRunner(host, home_uuid=own_home())

    plan = runner.plan(request(home))

    container = plan.learners[0].native["container"]
    assert container["Image"] == DEBIAN
    assert container["HostConfig"]["ShmSize"] == 4 << 30


def launched(home: Home, engine: str) -> FabricError | None:
    """Launch a job on an engine."""
    host = LocalHost(home, engine=engine)
    runner = ContainerRunner(host, home_uuid=own_home())
    job = LaunchedAttempt.planned(runner, request(home))
    job.launch()
    return None


def request(home: Home) -> LaunchRequest:
    """Describe a job of the Debian image."""

    made = request_of("true", home=own_home())
    return replace(made, spec=replace(made.spec, framework=Framework(command="true", version=DEBIAN)))


def docker(*args: str) -> str:
    """Run docker's own command; return what it prints."""
    return subprocess.run(["docker", *args], check=True, capture_output=True, text=True).stdout
