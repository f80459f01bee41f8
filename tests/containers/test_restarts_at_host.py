"""The next attempt of a container job whose command has failed is begun by its host, with no controller there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.test_handed_over import (
    CANARY,
    CONTAINER,
    at_the_engine,
    await_given,
    first,
    let_end,
)
from tests.learner.waiting_jobs import take
from tests.stubs import pretend
from tests.support.controllers import alive, answers, kill, log_of
from tests.support.images import BUSYBOX, DEBIAN, USER
from tests.support.real_jobs import PROCESS, Ground
from tests.support.registry import docker_config, registry_of
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.data.code.snapshot import take_snapshot
from workbench.job import State
from workbench.learner.host.machine import secret_folder
from workbench.learner.platform.system import read_bytes
from workbench.paths import Home
from workbench.spec import BindMount
from workbench.store.db.rows import TargetRef

pytestmark = pytest.mark.usefixtures("engine")

GPUS = [f"GPU-{uuid.uuid4().hex[:8]}-{number}" for number in (1, 2)]
"""Other tests at the same time pretend other GPUs on the same engine."""
FAILS_ONCE = "test -e $RESULT_DIR/once || { touch $RESULT_DIR/once; exit 3; }"


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


def recorded(ground: Ground, job_id: str, attempt: int, learner: int = 1) -> dict[str, object]:
    """Return the state of a learner of an attempt; empty before there is one."""
    file = ground.learner(job_id, attempt, learner).state
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def await_end(ground: Ground, job_id: str, attempt: int, learner: int = 1) -> None:
    """Wait until a learner of an attempt is over, by what its agent recorded: no controller says so."""

    def why() -> str:
        log = ground.learner(job_id, learner=learner).path / "guard.log"
        found = [recorded(ground, job_id, number, learner) for number in (1, attempt)]
        return f"{found} {log.read_text() if log.exists() else ''}"

    until(lambda: recorded(ground, job_id, attempt, learner).get("phase") == "exited", why)


def alone(ground: Ground, job_id: str) -> None:
    """Let the first attempt of a job end while no controller is there."""
    kill(answers(ground.home).pid)
    let_end(ground, job_id)


def own_files(folder: Path) -> bool:
    """Say whether everything in a folder is this user's."""
    return all(one.lstat().st_uid == os.getuid() for one in (folder, *folder.rglob("*")))


def test_a_container_is_tried_again_and_again_with_its_own_names_while_no_controller_is_there(
    ground: Ground,
) -> None:
    command = "hostname; echo $LEARNER_NAME_PREFIX $FABRIC_LEARNER; nslookup $MASTER_ADDR >/dev/null 2>&1;"
    resolves = "grep -c $MASTER_ADDR /etc/hosts; case $HOSTNAME$(hostname) in *-a3-0) ;; *) exit 3;; esac"
    job_id = first(ground, CONTAINER, f"{command} {resolves}", max_restarts=3)
    alone(ground, job_id)

    await_end(ground, job_id, 3)
    assert status(ground.home) is None
    name = json.loads((ground.learner(job_id).path / "container.json").read_text())["name"].removesuffix(
        "-a1-0"
    )
    for attempt in (1, 2, 3):
        assert ground.output(job_id, attempt).splitlines()[1:] == [
            f"{name}-a{attempt}-0",
            f"{name}-a{attempt} {ground.uuid}/{job_id}/{attempt}/1/inside",
            "1",
        ]
    ended, started = recorded(ground, job_id, 1)["ended_us"], recorded(ground, job_id, 2)["started_us"]
    assert isinstance(ended, int) and isinstance(started, int) and started - ended >= 700_000

    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 2, 0)
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")


def test_containers_of_several_learners_are_tried_again_together_while_no_controller_is_there(
    ground: Ground,
) -> None:
    numbers = "l=${FABRIC_LEARNER%/inside}; n=${l%/*}; l=${l##*/}; n=${n##*/}"
    resolves = "for p in 0 1; do nslookup $LEARNER_NAME_PREFIX-$p >/dev/null || exit 9; done"
    ends = "[ $n = 3 ] && exit 0; [ $l = 2 ] && exit 3; exec sleep 600"
    # The end of one ends the other, too: neither ends before both have noted that they ran.
    notes = (
        "echo $LEARNER_NAME_PREFIX >> $RESULT_DIR/$n.$l;"
        " until [ -e $RESULT_DIR/$n.1 ] && [ -e $RESULT_DIR/$n.2 ]; do sleep 0.1; done"
    )
    command = f"{numbers}; {resolves}; {notes}; {ends}"
    job_id = first(ground, CONTAINER, command, max_restarts=3, learners=2)
    ground.prints(job_id, "ready", learner=2)
    alone(ground, job_id)

    for learner in (1, 2):
        await_end(ground, job_id, 3, learner)
    assert status(ground.home) is None
    assert [one for one in at_the_engine(job_id) if "-a3" not in one] == [], "an engine has few addresses"
    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 2, 0)
    results = ground.home.job(job_id).results
    noted = {one.name: one.read_text().strip()[-3:] for one in results.glob("?.?")}
    assert noted == {f"{attempt}.{learner}": f"-a{attempt}" for attempt in (1, 2, 3) for learner in (1, 2)}
    assert own_files(results)
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")


def test_a_container_is_tried_again_that_somebody_removes_or_whose_agent_is_killed(ground: Ground) -> None:
    attempt = "n=${FABRIC_LEARNER%/1/inside}; n=${n##*/}"
    command = f"{attempt}; echo attempt $n; [ $n = 3 ] || exec sleep 600"
    job_id = ground.submit(command, image=BUSYBOX, max_platform_restarts=2)
    ground.prints(job_id, "attempt 1")
    kill(answers(ground.home).pid)
    (name,) = at_the_engine(job_id)
    subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)
    ground.prints(job_id, "attempt 2", attempt=2)
    pid = recorded(ground, job_id, 2)["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)

    await_end(ground, job_id, 3)
    assert status(ground.home) is None
    codes = [recorded(ground, job_id, number)["reason"] for number in (1, 2)]
    assert [one["code"] for one in codes if isinstance(one, dict)] == ["S104", "S202"]
    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 0, 2)
    assert ground.output(job_id, 3).split() == ["attempt", "3"]
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")


@pytest.mark.parametrize(
    "looks",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.soak(
                "a command that a signal ends; the gate has one that looks and ends by itself"
            ),
        ),
    ],
    ids=["code that looks", "a signal"],
)
def test_a_container_makes_room_and_goes_on_while_no_controller_is_there(
    ground: Ground, tmp_path: Path, looks: bool
) -> None:
    waits = "trap '' TERM; until [ -e $FABRIC_STOP_FILE ]; do sleep 0.1; done" if looks else "sleep 600"
    runs = f"echo $NVIDIA_VISIBLE_DEVICES; case $FABRIC_LEARNER in */1/1/*) {waits};; esac"
    low = ground.submit(runs, image=BUSYBOX, gpus=2, preemptible=True)
    ground.prints(low, "GPU")
    order = tmp_path / "order"
    urgent = ground.submit(f"cat {ground.learner(low).state} > {order}", gpus=1, priority=70, target=PROCESS)
    until(lambda: bool(recorded(ground, urgent, 1)), lambda: log_of(ground.home))
    kill(answers(ground.home).pid)

    await_end(ground, low, 2)
    assert status(ground.home) is None
    found = recorded(ground, low, 1)
    assert (found["stopped"], found["exit_code"]) == ("preempt", 0 if looks else 143)
    assert json.loads(order.read_text())["phase"] == "exited"
    assert ground.output(low, 2) == f"{','.join(GPUS)}\n"

    ensure_controller(ground.home)
    assert ground.ends(urgent).state is State.COMPLETED
    row = ground.ends(low, 2)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 0, 0)
    until(lambda: at_the_engine(low) == [], lambda: f"{at_the_engine(low)}")


def test_the_next_container_has_code_setup_secrets_and_mounts_of_the_first(
    ground: Ground, tmp_path: Path
) -> None:
    source, mounted = tmp_path / "source", tmp_path / "mounted"
    source.mkdir()
    mounted.mkdir()
    (source / "code.txt").write_text("as submitted\n")
    (mounted / "data").write_text("mounted\n")
    snapshot = take_snapshot(source, ground.home)
    command = (
        f"cat code.txt in/data; echo changed > code.txt; test ${{#TOKEN}} = 10 && echo $TOKEN; {FAILS_ONCE}"
    )
    job_id = first(
        ground,
        CONTAINER,
        command,
        max_restarts=1,
        code_hash=snapshot.code_hash,
        bind_mounts=(BindMount(str(mounted), "in"),),
        setup="echo set up",
        secret_values={"TOKEN": CANARY},
    )
    alone(ground, job_id)

    await_end(ground, job_id, 2)
    assert recorded(ground, job_id, 2)["exit_code"] == 0, ground.output(job_id, 2)
    lines = ground.output(job_id, 2).splitlines()
    assert lines[1:3] == ["as submitted", "mounted"] and "canary" not in lines[3]
    for file in (one for one in ground.home.jobs.rglob("*") if one.is_file()):
        assert CANARY.encode() not in read_bytes(str(file)), file
    environments = [ground.home.job(job_id).attempt(number).environment for number in (1, 2)]
    first_image, image = [json.loads(file.read_text())["image"] for file in environments]
    assert image == first_image
    ensure_controller(ground.home)
    assert ground.ends(job_id, 2).state is State.COMPLETED
    until(lambda: not list(Path(secret_folder()).glob(f"{ground.uuid}*")))


def test_a_container_that_waited_and_failed_gets_its_gpu_again(ground: Ground) -> None:
    command = f"echo $NVIDIA_VISIBLE_DEVICES; {FAILS_ONCE}"
    before = first(ground, PROCESS)
    job_id = ground.submit(command, image=BUSYBOX, gpus=1, max_restarts=1, after=(f"{before}:completed",))
    await_given(ground, job_id)
    kill(answers(ground.home).pid)
    let_end(ground, before)

    await_end(ground, job_id, 2)
    assert recorded(ground, job_id, 2)["exit_code"] == 0
    shown = [ground.output(job_id, attempt).strip() for attempt in (1, 2)]
    assert set(shown) <= set(GPUS) and len(shown) == 2
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")
    assert status(ground.home) is None
    ensure_controller(ground.home)
    assert (ground.ends(job_id, 2).state, ground.ends(before).state) == (State.COMPLETED, State.COMPLETED)


@pytest.mark.parametrize(
    "learners",
    [1, pytest.param(2, marks=pytest.mark.soak("the last of two says it; the gate has one alone"))],
)
def test_files_of_an_images_user_stay_writable_for_the_next_attempt_and_are_ours_at_the_end(
    ground: Ground, learners: int
) -> None:
    """The controller, which is there, gives nothing back that the next attempt writes."""
    keeps = "umask 077; echo $LEARNER_NAME_PREFIX >> $CHECKPOINT_DIR/last; cat $CHECKPOINT_DIR/last"
    again = "test -e $RESULT_DIR/go || { touch $RESULT_DIR/go; exit 3; }; echo again"
    goes = "until [ -e $RESULT_DIR/let ]; do sleep 0.05; done; echo more >> $CHECKPOINT_DIR/last"
    other = "[ $LEARNER_ID = 1 ] || exec sleep 600"
    keys = {"learners": learners, "settle_seconds": 0.0}
    job_id = ground.submit(f"{other}; {keeps}; {again}; {goes}", image=USER, max_restarts=1, **keys)
    ground.prints(job_id, "again", attempt=2)
    until(
        lambda: ground.row(job_id).attempt == 2 and ground.row(job_id).state is State.PROCESSING,
        lambda: f"{ground.row(job_id)}",
    )
    folder = ground.home.job(job_id)
    (folder.results / "let").touch()

    row = ground.ends(job_id, 2)

    assert (row.state, row.exit_code) == (State.COMPLETED, 0), ground.output(job_id, 2)
    assert (folder.checkpoints / "last").read_text().split()[2:] == ["more"]
    until(lambda: own_files(folder.path), lambda: f"{folder.path}")


@pytest.mark.parametrize("kind", ["halt", "delete"])
def test_the_next_container_is_stopped_where_it_waits_and_leaves_nothing(ground: Ground, kind: str) -> None:
    # The second attempt goes on: on a busy machine its wait of a second may be over before the request comes.
    once = "test ! -e $CHECKPOINT_DIR/x || exec sleep 600; echo x > $CHECKPOINT_DIR/x; exit 3"
    job_id = first(ground, CONTAINER, once, max_restarts=3, image=USER)
    alone(ground, job_id)
    await_end(ground, job_id, 1)
    assert recorded(ground, job_id, 1)["followed_by"]
    ensure_controller(ground.home)
    ground.reaches(job_id, State.QUEUED, State.PENDING, State.PROCESSING, attempt=2)

    ground.ask(job_id, kind)

    if kind == "delete":
        until(lambda: not ground.home.job(job_id).path.exists(), lambda: log_of(ground.home))
    else:
        until(lambda: ground.row(job_id).state is State.HALTED, lambda: f"{ground.row(job_id)}")
        until(lambda: own_files(ground.home.job(job_id).path), lambda: f"{job_id}")
    until(lambda: at_the_engine(job_id) == [], lambda: f"{at_the_engine(job_id)}")


def test_an_attempt_whose_mounts_are_gone_is_left_to_the_controller(ground: Ground, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    job_id = first(ground, CONTAINER, "exit 3", max_restarts=1, bind_mounts=(BindMount(str(mounted), "in"),))
    kill(answers(ground.home).pid)
    shutil.rmtree(mounted)
    let_end(ground, job_id)

    await_end(ground, job_id, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    log = (ground.learner(job_id).path / "guard.log").read_text()
    assert f"attempt 2 is not begun from here: {mounted} is not there any more" in log
    ensure_controller(ground.home)
    assert ground.ends(job_id, 2).state is State.FAILED


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(
            False, marks=pytest.mark.soak("launched at once; the gate has one that its host starts")
        ),
        True,
    ],
    ids=["launched at once", "given to its host"],
)
def test_a_job_whose_image_is_pulled_at_each_start_is_left_to_the_controller(
    ground: Ground, clean_environment: Path, waits: bool
) -> None:
    subprocess.run(["docker", "tag", BUSYBOX, "fabric-test/anew"], check=True)
    with registry_of("fabric-test/anew") as registry:
        (clean_environment / ".docker").mkdir(exist_ok=True)
        (clean_environment / ".docker" / "config.json").write_text(docker_config(registry))
        lease = take(*GPUS) if waits else None
        job_id = ground.submit("exit 3", image=registry.image, image_pull="always", gpus=2, max_restarts=1)
        if lease is not None:
            await_given(ground, job_id)
            lease.release()

        assert ground.ends(job_id, 2).state is State.FAILED
    assert "restarts" not in json.loads(ground.learner(job_id).launch.read_text())
    subprocess.run(["docker", "rmi", "fabric-test/anew"], check=True, capture_output=True)


def test_a_killed_waiter_loses_no_container(ground: Ground) -> None:
    job_id = first(ground, CONTAINER, FAILS_ONCE, max_restarts=1, cpus=1000.0)
    other = ground.submit("echo ready; sleep 600", image=DEBIAN, cpus=1000.0, priority=60)
    await_given(ground, other)
    alone(ground, job_id)
    ground.prints(other, "ready")
    until(lambda: bool(recorded(ground, job_id, 2).get("waiting")))
    pid = recorded(ground, job_id, 2)["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))

    ensure_controller(ground.home)
    ground.ask(other, "kill")
    assert ground.ends(job_id, 2).state is State.COMPLETED
