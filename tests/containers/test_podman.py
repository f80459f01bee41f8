"""The same promises on podman's socket, as on Docker's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from backends.contract.host import Host
from backends.local.host import LocalHost
from runners.conformance.harness import OVER, LaunchedAttempt, request_of
from runners.container.limits import FILE
from runners.container.runner import ContainerRunner
from runners.interface import AttemptRef
from runners.shared.staged_launch import Rendezvous
from tests.containers.core import ON_PODMAN
from tests.containers.people import environment_of, person, run_as
from tests.containers.podman import SETTINGS, Podman, roots_podman, served, why_no_podman
from tests.containers.test_container_conformance import ContainerContract
from tests.stubs import pretend
from tests.support.command import Fabric
from tests.support.engine import own_home
from tests.support.folders import make_folder
from tests.support.images import BUSYBOX, DEBIAN, SMALL_USER, USER, ensure_images, ensure_small_user
from tests.support.kept_agents import lend_agents
from tests.support.sshd import why_not as why_no_users
from tests.support.waiting import until
from workbench.job import new_job_id
from workbench.paths import Home, make_private_folder

FABRIC = str(Path(sys.executable).with_name("fabric"))


@pytest.fixture(scope="module")
def podman() -> Iterator[str]:
    """Root's podman, with the images."""
    if reason := why_no_podman():
        pytest.skip(reason)
    ensure_images()
    engine = roots_podman()
    engine.load(DEBIAN, USER)
    with served(engine) as address:
        yield address


@pytest.fixture(scope="module")
def known_limits() -> Iterator[Home]:
    """A home that keeps what was found out of podman's limits."""
    folder = make_folder()
    yield Home(folder)
    shutil.rmtree(folder)


def copy_limits(source: Home, target: Home) -> None:
    """Tell one home what another knows of an engine's limits."""
    if (known := source.path / FILE).exists():
        make_private_folder(target.path)
        (target.path / FILE).write_bytes(known.read_bytes())


class TestOnPodman(ContainerContract):
    in_gate: ClassVar[Collection[str]] = ON_PODMAN
    why_soak: ClassVar[str] = (
        "all of the suite on a second engine; the gate runs all of it on Docker's, and here what engines differ in"
    )

    @pytest.fixture(autouse=True)
    def _engine(self, home: Home, known_limits: Home) -> Iterator[None]:
        """Docker's is not needed; podman's limits are found out once: in a new home that takes three starts."""
        copy_limits(known_limits, home)
        yield
        copy_limits(home, known_limits)

    @pytest.fixture
    def connection(self, home: Home, podman: str) -> Iterator[Host]:
        host = LocalHost(lend_agents(home), engine=podman)
        yield host
        host.close()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two pretended GPUs, written down for CDI as NVIDIA's toolkit would; each is ``/dev/null`` by another name."""
    if os.geteuid() != 0:
        pytest.skip("needs root: devices are written down in /var/run/cdi")
    unique = uuid.uuid4().hex[:8]
    uuids = [f"GPU-{unique}-{number}" for number in range(2)]
    found = pretend(tmp_path / "gpus", monkeypatch)
    devices = []
    for number, one in enumerate(uuids):
        found.add(one)
        node = {"path": f"/dev/nvidia-{unique}-{number}", "type": "c", "major": 1, "minor": 3}
        devices.append({"name": one, "containerEdits": {"deviceNodes": [node]}})
    document = {"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {}}
    folder = Path("/var/run/cdi")
    folder.mkdir(exist_ok=True)
    file = folder / f"fabric-test-{unique}.json"
    file.write_text(json.dumps(document))
    yield uuids
    file.unlink()


def test_gpus_are_asked_for_by_cdi_with_everything_else_as_ever(
    podman: str, home: Home, gpus: list[str]
) -> None:
    host = LocalHost(lend_agents(home), engine=podman)
    runner = ContainerRunner(host, home_uuid=own_home())
    look = (
        "ls /dev | grep nvidia; echo $NVIDIA_VISIBLE_DEVICES; id -u; pwd; hostname; grep NoNewPrivs /proc/self/status;"
        " cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max;"
        # A name is known a moment after its learner was started.
        " for i in $(seq 100); do getent hosts $LEARNER_NAME_PREFIX-0.$LEARNER_NAME_PREFIX && break; sleep 0.1; done"
        " | wc -l;"
        # And no longer than that one runs.
        " touch $JOB_STATE_DIR/looked-$LEARNER_ID;"
        " while [ ! -e $JOB_STATE_DIR/looked-1 ] || [ ! -e $JOB_STATE_DIR/looked-2 ]; do sleep 0.1; done;"
        " df -k /dev/shm | tail -1; echo x > $RESULT_DIR/x"
    )
    request = request_of(
        look, home=own_home(), image=DEBIAN, gpus=1, memory_bytes=256 << 20, learners=2, ends_when="all"
    )
    job = LaunchedAttempt.planned(runner, request)
    try:
        seen = job.launch().until_over()
        lines = {number: job.output(number).decode().split("\n") for number in (1, 2)}
    finally:
        runner.remove(job.request.attempt)
        runner.close()
        host.close()

    assert [one.exit_code for one in seen.values()] == [0, 0], job.output()
    given = [lines[number][1] for number in (1, 2)]
    assert sorted(given) == sorted(gpus)
    for number in (1, 2):
        output = lines[number]
        assert output[0] == f"nvidia-{given[number - 1].removeprefix('GPU-')}"
        assert output[2:4] == ["0", "/job/model-code"]
        assert output[4] == job.plan.learners[number - 1].name
        assert output[5].endswith("1")
        assert output[6] == str(256 << 20)
        assert output[7] == "1"
        assert str(4 << 20) in output[8]


@pytest.mark.parametrize("count", [0, 1], ids=["by Docker's API", "by its own"])
def test_a_learner_whose_job_is_at_several_hosts_is_reached_at_a_port_of_its_host(
    podman: str, home: Home, gpus: list[str], count: int
) -> None:
    host = LocalHost(lend_agents(home), engine=podman)
    runner = ContainerRunner(host, home_uuid=own_home())
    serve = (
        "import os, socket; s = socket.create_server(('', int(os.environ['MASTER_PORT']))); print('up', flush=True);"
        " s.accept()[0].sendall(socket.gethostname().encode())"
    )
    attempt = AttemptRef(own_home(), new_job_id(), 1, 2, (1,))
    request = request_of(
        f'python3 -c "{serve}"', home=own_home(), image=DEBIAN, gpus=count, learners=2, attempt=attempt
    )
    job = LaunchedAttempt.planned(runner, request)
    try:
        launch = runner.staged_launch(job.plan, job.progress)
        launch.prepare([1])
        launch.lease([1])
        met = Rendezvous("127.0.0.1", launch.choose_port())
        launch.start([1], met)
        launch.release()
        launch.await_begun([1])
        job.until_printed(b"up")
        with socket.create_connection((met.address, met.port), 10) as client:
            answer = client.recv(100).decode()
        job.until(lambda found: bool(found) and found[1].phase in OVER, "it had ended")
    finally:
        runner.remove(attempt)
        runner.close()
        host.close()

    assert answer == socket.gethostname()
    assert job.statuses[1].exit_code == 0


def test_the_command_line_uses_the_engine_of_docker_host(podman: str, fabric: Fabric, home: Home) -> None:
    (fabric.folder / "Dockerfile").write_text(f"FROM localhost/{DEBIAN}\nRUN echo built > /built\n")
    text = "name: a\nbuild: Dockerfile\nframework:\n  command: cat /built; echo x > $RESULT_DIR/x; echo up; sleep 300\n"
    (fabric.folder / "manifest.yml").write_text(text)

    plain = fabric(
        "run", "--image", USER, "--", "sh", "-c", "id -u; echo 1 > $RESULT_DIR/1", DOCKER_HOST=podman
    )
    found = fabric("backend", "test", "local", DOCKER_HOST=podman).stdout
    job = fabric("run", "-d", "manifest.yml", DOCKER_HOST=podman).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up", seconds=60)
    ran = fabric("exec", job, "--", "cat", "/proc/1/cmdline")
    fabric("cp", f"{job}:/built", "built")
    fabric("kill", job)
    fabric("wait", job, expect=None)
    made = [path for one in home.jobs.iterdir() for path in (one / "results").iterdir()]

    assert plain.stdout == "1234\n"
    assert podman in found
    assert "inside.sh" in ran.stdout
    assert (fabric.folder / "built").read_text() == "built\n"
    assert {path.stat().st_uid for path in made} == {os.getuid()}


def test_a_user_with_a_podman_of_their_own_needs_no_right_and_owns_what_the_job_writes(
    engine: None, tmp_path: Path
) -> None:
    if reason := why_no_podman() or why_no_users():
        pytest.skip(reason)
    with let_open_tunnels(), person(in_group=False) as user:
        settings = user.home / "containers.conf"
        settings.write_text(SETTINGS + 'cgroup_manager="cgroupfs"\n')
        variables = {**environment_of(user), "CONTAINERS_CONF": str(settings)}
        (user.home / "run").mkdir(mode=0o700)
        user.owns(user.home / "run")
        own = Podman(user.home, variables, user.name)
        ensure_small_user()
        own.load(BUSYBOX, SMALL_USER)
        work = "id -u; umask 077; mkdir $RESULT_DIR/d; echo x > $RESULT_DIR/d/x; echo y > own"
        outputs = {}
        with served(own) as address:
            for image in (BUSYBOX, SMALL_USER):
                args = ("run", "--runner", "container", "--image", image, "--", "sh", "-c", work)
                outputs[image] = run_as(user, FABRIC, *args, DOCKER_HOST=address)
            run_as(user, FABRIC, "controller", "stop")
        home = Home(user.home / ".local" / "share" / "fabric")
        foreign = [path for path in home.path.rglob("*") if path.lstat().st_uid != user.uid]

        assert [ran.returncode for ran in outputs.values()] == [0, 0], outputs
        assert [ran.stdout for ran in outputs.values()] == ["0\n", "1234\n"]
        assert foreign == []


@contextmanager
def let_open_tunnels() -> Iterator[None]:
    """Let everybody open ``/dev/net/tun``, as usual machines do: a network without rights needs it."""
    device = Path("/dev/net/tun")
    before = device.stat().st_mode
    device.chmod(0o666)
    try:
        yield
    finally:
        device.chmod(before & 0o7777)
