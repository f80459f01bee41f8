"""Container jobs that wait are given to this machine, which starts them with no controller there."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.runner import ContainerRunner
from tests.controller.test_experiments import is_whole, search_ahead
from tests.learner.waiting_jobs import take
from tests.stubs import pretend
from tests.support.controllers import alive, answers, kill, log_of
from tests.support.engine import containers_of
from tests.support.images import BUSYBOX, BUSYBOX_PROGRAM, DEBIAN, applets, tree
from tests.support.real_jobs import PROCESS, Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.errors import BackendUnreachable
from workbench.job import State
from workbench.learner.host.machine import secret_folder
from workbench.learner.platform import leases
from workbench.learner.queue.entries import read_entries
from workbench.paths import Home, leases_folder
from workbench.store.db.rows import TargetRef
from workbench.store.queries.jobs import transitions

UNIQUE = uuid.uuid4().hex[:8]
"""Other tests at the same time pretend other GPUs on the same engine."""

GPUS = [f"GPU-{UNIQUE}-{number}" for number in (1, 2)]
ALL = 1000.0
"""More CPUs than any machine has: a job that asks for them gets all, alone."""

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
    # What ended by itself the engine removes by itself.
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")
    assert not list(Path(secret_folder()).glob(f"{ground.uuid}*"))


def test_learners_get_a_gpu_each_and_begin_once_all_have_a_container(
    ground: Ground, busy: leases.Lease, tmp_path: Path
) -> None:
    resolves = "for n in 0 1; do nslookup $LEARNER_NAME_PREFIX-$n >/dev/null || exit 9; done"
    # Without a standard input that stays open it would say at once that it has nothing to send, and the other one ends.
    listens = "mkfifo /tmp/open && nc -l -p $MASTER_PORT <>/tmp/open"
    first = f"[ $LEARNER_ID = 1 ] && {{ echo $NVIDIA_VISIBLE_DEVICES; {listens}; exit; }}"
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


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("halt", marks=pytest.mark.soak("a halt; the gate has a kill, and a halt below")),
        "kill",
        "delete",
    ],
)
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


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(
            "the waiter", marks=pytest.mark.soak("the waiter alone; the gate has the controller killed too")
        ),
        "both",
    ],
)
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
    request = request_of("echo ran", home=ground.uuid, image=BUSYBOX, gpus=1, learners=2, ends_when="all")
    job = LaunchedAttempt.planned(runner, request)
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


CONTAINER = TargetRef("local", "local", "container")
UNTIL_ASKED = "echo ready; until [ -e $RESULT_DIR/end ]; do sleep 0.05; done"


def first(ground: Ground, target: TargetRef, then: str = "true", **keys: object) -> str:
    """Start a job that runs until its end is asked for."""
    job_id = ground.submit(f"{UNTIL_ASKED}; {then}", target=target, **{"image": BUSYBOX, **keys})
    ground.prints(job_id, "ready")
    return job_id


def let_end(ground: Ground, job_id: str) -> None:
    (ground.home.job(job_id).results / "end").touch()


def behind(ground: Ground, before: str, command: str = "echo ran", **keys: object) -> str:
    """Submit a container job that comes after another one, and wait until it waits at the machine."""
    return give(ground, command, gpus=0, after=(f"{before}:completed",), **keys)


def times_of(ground: Ground, *jobs: str) -> list[int]:
    """Return when each of these jobs began and ended, by their agents."""
    return [int(str(state_of(ground, one)[name])) for one in jobs for name in ("started_us", "ended_us")]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(
            PROCESS,
            marks=pytest.mark.soak(
                "behind a process; the gate has it behind a container, and CPUs behind a process"
            ),
        ),
        CONTAINER,
    ],
    ids=["process", "container"],
)
def test_a_chain_with_containers_runs_to_its_end_while_no_controller_is_there(
    ground: Ground, target: TargetRef
) -> None:
    a = first(ground, target)
    b = behind(ground, a, learners=2, ends_when="all")
    c = ground.submit("echo ran", target=PROCESS, after=(f"{b}:completed",))
    await_given(ground, c)
    assert at_the_engine(b) == []
    kill(answers(ground.home).pid)

    let_end(ground, a)
    for one in (a, b, c):
        await_phase(ground, one, "exited")
    assert status(ground.home) is None
    times = times_of(ground, a, b, c)
    assert times == sorted(times)

    ensure_controller(ground.home)
    rows = [ground.ends(one) for one in (a, b, c)]
    assert [(row.state, row.attempt) for row in rows] == [(State.COMPLETED, 1)] * 3
    assert [ground.output(one) for one in (b, c)] == ["ran\n"] * 2
    until(lambda: at_the_engine(b) == [], lambda: f"{at_the_engine(b)}")


def test_a_container_begins_at_its_time_while_no_controller_is_there(ground: Ground) -> None:
    begin = datetime.now().astimezone() + timedelta(seconds=12)
    job_id = give(ground, "true", gpus=0, begin=begin.isoformat())
    assert at_the_engine(job_id) == []
    kill(answers(ground.home).pid)

    await_phase(ground, job_id, "exited")

    assert times_of(ground, job_id)[0] >= begin.timestamp() * 1e6
    ensure_controller(ground.home)
    assert ground.ends(job_id).state is State.COMPLETED


@pytest.mark.parametrize(
    "target",
    [
        PROCESS,
        pytest.param(
            CONTAINER, marks=pytest.mark.soak("behind a container; the gate has it behind a process")
        ),
    ],
    ids=["process", "container"],
)
def test_containers_and_processes_take_the_same_cpus_one_after_the_other_while_no_controller_is_there(
    ground: Ground, target: TargetRef
) -> None:
    a = first(ground, target, cpus=ALL)
    b = give(ground, "true", gpus=0, cpus=ALL)
    c = ground.submit("true", target=PROCESS, cpus=ALL)
    await_given(ground, c)
    assert at_the_engine(b) == []
    kill(answers(ground.home).pid)
    let_end(ground, a)

    for one in (b, c):
        await_phase(ground, one, "exited")

    began_or_ended = times_of(ground, b, c)
    assert began_or_ended == sorted(began_or_ended)
    assert json.loads(ground.learner(b).launch.read_text())["reserved_cpus"] == ALL


@pytest.mark.parametrize(
    ("waits", "starts"), [(PROCESS, CONTAINER), (CONTAINER, PROCESS)], ids=["a process", "a container"]
)
def test_what_could_start_is_started_by_its_host_where_another_waits_there_for_the_same_cpus(
    ground: Ground, waits: TargetRef, starts: TargetRef
) -> None:
    b = give(ground, "true", gpus=0, target=waits, begin="2090-01-01T00:00:00+00:00", cpus=ALL)

    c = ground.submit("true", image=BUSYBOX, target=starts, cpus=ALL)

    assert ground.ends(c).state is State.COMPLETED
    texts = [one.text for one in transitions(ground.store, c) if one.state == State.PENDING]
    assert texts[0] == "waits at its host, which starts it"
    assert ground.row(b).state is State.QUEUED


@pytest.mark.parametrize(
    "kind",
    ["halt", pytest.param("delete", marks=pytest.mark.soak("a removal; the gate has a halt, and one above"))],
)
def test_a_container_behind_a_gate_is_stopped_at_its_host_and_leaves_nothing(
    ground: Ground, kind: str
) -> None:
    a = first(ground, PROCESS)
    b = behind(ground, a, learners=2, secret_values={"TOKEN": CANARY})

    ground.ask(b, kind)

    if kind == "delete":
        until(lambda: not ground.home.job(b).path.exists(), lambda: log_of(ground.home))
    else:
        row = ground.ends(b)
        assert (row.state, row.started_us, state_of(ground, b)["phase"]) == (State.HALTED, None, "exited")
    let_end(ground, a)
    ground.ends(a)
    assert at_the_engine(b) == []
    assert not list(Path(secret_folder()).glob(f"{ground.uuid}*"))


def test_a_container_after_a_job_that_failed_alone_never_runs_and_fails_when_the_controller_is_back(
    ground: Ground,
) -> None:
    a = first(ground, CONTAINER, "exit 3")
    b = behind(ground, a)
    kill(answers(ground.home).pid)
    let_end(ground, a)
    await_phase(ground, a, "exited")
    assert state_of(ground, b)["waiting"]

    ensure_controller(ground.home)

    row = ground.ends(b)
    assert (row.state, row.reason.code, row.started_us) == (State.FAILED, "C105", None)
    assert "which failed" in row.reason.text
    assert at_the_engine(b) == []


@pytest.fixture
def own_image() -> Iterator[str]:
    """The name of an image that there is not yet."""
    name = f"fabric-test/made-{UNIQUE}-{uuid.uuid4().hex[:8]}:1"
    yield name
    subprocess.run(["docker", "rmi", name], capture_output=True)


def name_image(image: str, name: str) -> None:
    subprocess.run(["docker", "tag", image, name], check=True, capture_output=True)


@pytest.mark.parametrize(
    "image_pull",
    [
        "never",
        pytest.param(
            "missing", marks=pytest.mark.soak("an image that may be pulled; the gate has one that may not")
        ),
    ],
)
def test_an_image_that_the_job_before_it_makes_is_the_one_it_runs_in(
    ground: Ground, own_image: str, image_pull: str
) -> None:
    a = first(ground, PROCESS)
    b = ground.submit("echo ran", image=own_image, image_pull=image_pull, after=(f"{a}:completed",))
    until(
        lambda: any("it waits here, not there" in one.text for one in transitions(ground.store, b)),
        lambda: log_of(ground.home),
    )
    name_image(BUSYBOX, own_image)
    let_end(ground, a)

    row = ground.ends(b)
    assert (row.state, row.attempt, ground.output(b)) == (State.COMPLETED, 1, "ran\n")


def test_an_image_that_the_job_before_it_makes_anew_is_run_by_the_next_attempt(
    ground: Ground, own_image: str
) -> None:
    name_image(BUSYBOX, own_image)
    a = first(ground, PROCESS)
    which = "[ -e /bin/bash ] && echo new || echo old"
    b = behind(ground, a, which, image=own_image, max_platform_restarts=1)
    name_image(DEBIAN, own_image)
    let_end(ground, a)

    assert ground.ends(b, attempt=2).state is State.COMPLETED
    assert (ground.output(b), ground.output(b, attempt=2)) == ("", "new\n")
    reasons = [one.text for one in transitions(ground.store, b)]
    assert any(f"The image {own_image} became another one" in text for text in reasons), reasons


def test_an_image_that_is_removed_while_the_job_before_it_runs_is_its_reason(
    ground: Ground, own_image: str
) -> None:
    name_image(BUSYBOX, own_image)
    a = first(ground, PROCESS)
    b = behind(ground, a, image=own_image)
    subprocess.run(["docker", "rmi", own_image], check=True, capture_output=True)
    let_end(ground, a)

    row = ground.ends(b)
    assert (row.state, row.reason.text) == (
        State.FAILED,
        f"The image {own_image} was removed in the meantime.",
    )


@pytest.mark.soak(
    "a sweep of containers; the gate has one of processes at a host, and containers that wait here"
)
def test_containers_of_a_sweep_go_on_within_its_limit_while_no_controller_is_there(
    ground: Ground, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    keys = {"image": BUSYBOX, "at_most": 1, "labels": {"sweep": "s"}}
    wait = f"echo ready; while [ ! -e {end} ]; do sleep 0.1; done"
    begun = ground.submit(wait, target=PROCESS, at_most=1, labels={"sweep": "s"})
    ground.prints(begun, "ready")
    jobs = [ground.submit(f"sleep 0.2; {then}", **keys) for then in ("exit 3", "true", "true")]
    for job_id in jobs:
        await_given(ground, job_id)
    kill(answers(ground.home).pid)
    assert [job_id for job_id in jobs if at_the_engine(job_id)] == []
    end.touch()

    for job_id in jobs:
        await_phase(ground, job_id, "exited")
    assert status(ground.home) is None
    ends = [int(str(state_of(ground, one)["ended_us"])) for one in (begun, *jobs)]
    starts = [int(str(state_of(ground, one)["started_us"])) for one in jobs]
    assert all(before <= after for before, after in zip(ends, starts, strict=False)), (
        "one at a time, in their order"
    )

    ensure_controller(ground.home)
    assert [ground.ends(job_id).exit_code for job_id in jobs] == [3, 0, 0]


@pytest.mark.soak(
    "a search in containers; the gate has one of processes at a host, and containers that wait here"
)
def test_a_search_tries_all_its_trials_while_no_controller_is_there(ground: Ground) -> None:
    wait = "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done"
    experiment_id, jobs = search_ahead(ground, wait, image=BUSYBOX)
    for job_id in jobs[1:]:
        await_given(ground, job_id)
    kill(answers(ground.home).pid)
    for job_id in jobs:
        (ground.learner(job_id).path.parent / "job/end").touch()

    for job_id in jobs:
        await_phase(ground, job_id, "exited")
    assert status(ground.home) is None

    ensure_controller(ground.home)
    is_whole(ground, experiment_id)
