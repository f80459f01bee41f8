"""Container jobs that wait for GPUs are given to this machine, which starts them with no controller there."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.runner import ContainerRunner
from tests.learner.waiting_jobs import take
from tests.stubs import pretend
from tests.support.controllers import alive, answers, kill, log_of
from tests.support.engine import containers_of
from tests.support.images import BUSYBOX, BUSYBOX_PROGRAM, DEBIAN, applets, tree
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.errors import BackendUnreachable
from workbench.job import State
from workbench.learner.host.machine import secret_folder
from workbench.learner.platform import leases
from workbench.learner.queue.entries import read_entries
from workbench.paths import Home, leases_folder
from workbench.store.db.rows import TargetRef

UNIQUE = uuid.uuid4().hex[:8]
"""Other tests at the same time pretend other GPUs on the same engine."""

GPUS = [f"GPU-{UNIQUE}-{number}" for number in (1, 2)]
CANARY = "canary-5e1"


@pytest.fixture
def ground(engine: None, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A home on a machine with two GPUs; the engine has no way to give them, so it is not asked to."""
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    gpus = pretend(tmp_path / "gpus", monkeypatch)
    for name in GPUS:
        gpus.add(name)
    made = Ground(home, TargetRef("local", "local", "container"))
    yield made
    made.clean_up()


@pytest.fixture
def busy(ground: Ground) -> Iterator[leases.Lease]:
    """Both GPUs, held by somebody else."""
    lease = take(*GPUS)
    yield lease
    lease.release()


def state_of(ground: Ground, job_id: str, learner: int = 1) -> dict[str, object]:
    file = ground.learner(job_id, learner=learner).state
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def give(ground: Ground, command: str, **keys: object) -> str:
    """Submit a job and wait until it waits at the machine."""
    job_id = ground.submit(command, **{"image": BUSYBOX, "gpus": 2, **keys})
    await_given(ground, job_id)
    return job_id


def await_given(ground: Ground, job_id: str) -> None:
    # Read in this order: a job is QUEUED before it is prepared for its host, too.
    until(
        lambda: bool(state_of(ground, job_id).get("waiting")) and ground.row(job_id).state is State.QUEUED,
        lambda: f"{ground.row(job_id)}\n{log_of(ground.home)}",
    )


def await_phase(ground: Ground, job_id: str, phase: str, learner: int = 1) -> None:
    until(
        lambda: state_of(ground, job_id, learner).get("phase") == phase,
        lambda: f"{state_of(ground, job_id, learner)}",
    )


def waiter_of(ground: Ground, job_id: str) -> int:
    pid = state_of(ground, job_id)["pid"]
    assert isinstance(pid, int)
    return pid


def at_the_engine(job_id: str) -> list[str]:
    """Return the containers and networks of a job."""
    networks = ["docker", "network", "ls", "--format", "{{.Name}}", "--filter", f"label=fabric.job={job_id}"]
    found = subprocess.run(networks, check=True, capture_output=True, text=True).stdout.split()
    return [*containers_of(job_id), *found]


def without_engine(ground: Ground, job_id: str, folder: Path, learner: int = 1) -> Callable[[], None]:
    """Have a learner that waits find no engine; return what brings it back."""
    path = ground.learner(job_id, learner=learner).path / "container.json"
    document = json.loads(path.read_text())
    socket = folder / "engine"
    path.write_text(json.dumps({**document, "engine": str(socket)}))
    return lambda: socket.symlink_to(document["engine"])


def test_a_container_starts_with_its_gpus_and_secrets_while_no_controller_is_there(
    ground: Ground, busy: leases.Lease
) -> None:
    command = "[ ${#TOKEN} = 10 ] && id -u > $RESULT_DIR/user && echo $NVIDIA_VISIBLE_DEVICES $MASTER_PORT"
    job_id = give(ground, command, image=DEBIAN, secret_values={"TOKEN": CANARY}, setup="echo ready")

    assert at_the_engine(job_id) == []
    folders = [ground.home.job(job_id).path, ground.home.path / "waiter.log", Path(secret_folder())]
    for file in [file for folder in folders for file in (folder, *folder.rglob("*")) if file.is_file()]:
        assert CANARY.encode() not in file.read_bytes(), file
    container = ground.learner(job_id).path / "container.json"
    assert stat.S_IMODE(container.stat().st_mode) == 0o600

    kill(answers(ground.home).pid)
    busy.release()
    await_phase(ground, job_id, "exited")
    assert status(ground.home) is None

    ensure_controller(ground.home)
    row = ground.ends(job_id)
    assert (row.state, row.exit_code, row.attempt) == (State.COMPLETED, 0, 1)
    assert (row.started_us, row.ended_us) == tuple(
        state_of(ground, job_id)[name] for name in ("started_us", "ended_us")
    )
    assert ground.output(job_id) == f"{','.join(GPUS)} 29500\n"
    assert (ground.home.job(job_id).results / "user").read_text() == "0\n"
    assert at_the_engine(job_id) == []
    assert not list(Path(secret_folder()).glob(f"{ground.uuid}*"))


def test_learners_get_a_gpu_each_and_begin_once_all_have_a_container(
    ground: Ground, busy: leases.Lease, tmp_path: Path
) -> None:
    resolves = "for n in 0 1; do nslookup $LEARNER_NAME_PREFIX-$n >/dev/null || exit 9; done"
    first = "[ $LEARNER_ID = 1 ] && { echo $NVIDIA_VISIBLE_DEVICES; nc -l -p $MASTER_PORT; exit; }"
    other = "until echo hello from $NVIDIA_VISIBLE_DEVICES | nc $MASTER_ADDR $MASTER_PORT; do sleep 0.1; done"
    job_id = give(ground, f"{resolves}; {first}; {other}", gpus=1, learners=2, ends_when="all")
    assert at_the_engine(job_id) == []
    kill(answers(ground.home).pid)
    bring_engine = without_engine(ground, job_id, tmp_path, learner=2)

    busy.release()
    until(lambda: containers_of(job_id, "--filter", "status=running"), "the first learner's container")
    bring_engine()
    for number in (1, 2):
        await_phase(ground, job_id, "exited", number)

    ensure_controller(ground.home)
    assert ground.ends(job_id).state is State.COMPLETED
    assert ground.output(job_id) == f"{GPUS[0]}\nhello from {GPUS[1]}\n"
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")


@pytest.mark.parametrize("kind", ["halt", "kill", "delete"])
def test_a_container_job_that_is_stopped_while_it_waits_never_runs_and_leaves_nothing(
    ground: Ground, busy: leases.Lease, kind: str
) -> None:
    job_id = give(ground, "echo ran", gpus=1, learners=2, secret_values={"TOKEN": CANARY})

    ground.ask(job_id, kind)

    if kind == "delete":
        until(lambda: not ground.home.job(job_id).path.exists(), lambda: log_of(ground.home))
    else:
        row = ground.ends(job_id)
        assert (row.state, row.exit_code) == (State.HALTED, {"halt": 143, "kill": 137}[kind])
        assert row.started_us is None
    until(lambda: read_entries(str(leases_folder())) == [])
    busy.release()
    assert at_the_engine(job_id) == []
    assert not list(Path(secret_folder()).glob(f"{ground.uuid}*"))


@pytest.mark.parametrize("who", ["the waiter", "both"])
def test_a_container_job_whose_waiter_is_killed_is_given_to_another_one(
    ground: Ground, busy: leases.Lease, who: str
) -> None:
    job_id = give(ground, f'[ "$TOKEN" = {CANARY} ] && echo known', secret_values={"TOKEN": CANARY})
    before = waiter_of(ground, job_id)
    if who == "both":
        kill(answers(ground.home).pid)
    os.kill(before, signal.SIGKILL)
    until(lambda: not alive(before))
    ensure_controller(ground.home)

    until(lambda: waiter_of(ground, job_id) != before)
    await_given(ground, job_id)
    busy.release()

    row = ground.ends(job_id)
    assert (row.state, row.attempt, ground.output(job_id)) == (State.COMPLETED, 1, "known\n")


def test_an_image_that_is_removed_while_the_job_waits_is_its_reason(
    ground: Ground, busy: leases.Lease
) -> None:
    image = f"fabric-test/removed-{UNIQUE}"
    files = {"bin/busybox": BUSYBOX_PROGRAM.read_bytes()}
    tar = tree(files, links=applets())
    subprocess.run(["docker", "import", "-", image], input=tar, check=True, capture_output=True)
    job_id = give(ground, "true", image=image)
    subprocess.run(["docker", "rmi", image], check=True, capture_output=True)

    busy.release()

    row = ground.ends(job_id)
    assert (row.state, row.reason.code) == (State.FAILED, "S101")
    assert row.reason.text == f"The image {image} was removed in the meantime."
    assert at_the_engine(job_id) == []


def test_a_container_of_another_home_is_left_alone_and_named(ground: Ground, busy: leases.Lease) -> None:
    job_id = give(ground, "true")
    name = json.loads((ground.learner(job_id).path / "container.json").read_text())["name"]
    create = ["docker", "create", "--name", name, "--label", "fabric.home=another", BUSYBOX, "true"]
    subprocess.run(create, check=True, capture_output=True)
    try:
        busy.release()
        row = ground.ends(job_id)
        assert (row.state, row.reason.code) == (State.FAILED, "C104")
        assert row.reason.text == f"There is a container {name} already, and it is not of this home."
        assert f"docker rm -f {name}" in row.reason.hint
    finally:
        removed = subprocess.run(["docker", "rm", name], capture_output=True, text=True)
    assert removed.stdout.strip() == name


def test_an_engine_that_is_away_when_the_job_starts_is_waited_for(
    ground: Ground, busy: leases.Lease, tmp_path: Path
) -> None:
    job_id = give(ground, "echo ran")
    bring_engine = without_engine(ground, job_id, tmp_path)

    busy.release()
    await_phase(ground, job_id, "running")
    assert at_the_engine(job_id) == []
    bring_engine()

    assert ground.ends(job_id).state is State.COMPLETED
    assert ground.output(job_id) == "ran\n"


def test_a_launch_that_is_cut_off_before_the_hand_over_is_repeated(
    ground: Ground, busy: leases.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost(ground.home)
    runner = ContainerRunner(host, home_uuid=ground.uuid)
    job = LaunchedAttempt.planned(
        runner, request_of("echo ran", home=ground.uuid, image=BUSYBOX, gpus=1, learners=2)
    )
    name = job.request.attempt.job_id
    call = host.call

    def cut_off(operation: str, /, **arguments: object) -> object:
        if operation == stops_at:
            raise BackendUnreachable("cut off")
        return call(operation, **arguments)

    try:
        monkeypatch.setattr(host, "call", cut_off)
        stops_at = "hand_over"
        with pytest.raises(BackendUnreachable):
            job.launch()
        assert at_the_engine(name) == []
        stops_at = ""
        job.launch()
        assert all(one.waits for one in job.until(lambda found: len(found) == 2, "both wait").values())

        busy.release()

        assert {one.exit_code for one in job.until_over().values()} == {0}
        assert job.until_printed(b"ran\n", 2) == b"ran\n"
    finally:
        runner.remove(job.request.attempt)
        runner.close()
        host.close()
    assert at_the_engine(name) == []
