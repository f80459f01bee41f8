"""Jobs that wait at a host start there with the laptop off; afterwards the laptop has what really happened."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from tests.controller.test_experiments import is_whole, search_ahead
from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.controllers import answers, kill, log_of
from tests.support.images import BUSYBOX
from tests.support.kept_agents import lend_agents_to
from tests.support.real_jobs import Ground
from tests.support.registry import USER as REGISTRY_USER
from tests.support.registry import registry_of
from tests.support.sshd import User, a_user, cut_power, processes_of
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import State
from workbench.learner.platform.system import read_bytes
from workbench.learner.queue.entries import read_entries
from workbench.paths import Home, leases_folder
from workbench.services.backends.linger import keep_jobs
from workbench.store.db.rows import TargetRef
from workbench.store.queries.jobs import transitions

UUID = "GPU-11111111-0000-0000-0000-000000000001"
HOLD = "echo ready; while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done"


@pytest.fixture
def box_environment(clean_environment: Path) -> list[str]:
    """One pretended GPU."""
    return Gpus(clean_environment / "gpus").add(UUID).session_variables()


@pytest.fixture
def ground(home: Home, box: Box) -> Iterator[Ground]:
    """A laptop whose jobs go to the host."""
    made = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
    yield made
    if not box.daemon.listens():
        box.daemon.start()
    made.clean_up()


@contextmanager
def another_laptop(box: Box, folder: Path) -> Iterator[tuple[User, Ground]]:
    """Have another person, with an account at the host, and a laptop of the own."""
    with a_user() as other:
        box.daemon.authorize(other, Path(f"{box.key}.pub"))
        address = box.address.replace(box.user.name, other.name)
        theirs = Ground(Home(folder / "theirs"), TargetRef("box", "ssh", "process", address=address))
        lend_agents_to(other, theirs.home)
        try:
            yield other, theirs
        finally:
            theirs.clean_up()


def there(user: User, ground: Ground, job_id: str) -> Path:
    """Return a learner's folder at the host."""
    (machine,) = (Path(user.home) / ".fabric").iterdir()
    return machine / ground.uuid / "jobs" / job_id / "attempt-1" / "learner-1"


def state_of(user: User, ground: Ground, job_id: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads((there(user, ground, job_id) / "state.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def give(ground: Ground, user: User, command: str, *, gpus: int = 1, **keys: object) -> str:
    """Submit a job and wait until it waits at the host."""
    job_id = ground.submit(command, gpus=gpus, **keys)

    def waits() -> bool:
        # Read in this order: a job is QUEUED before it is prepared for its host, too.
        is_there = bool(state_of(user, ground, job_id).get("waiting"))
        return is_there and ground.row(job_id).state is State.QUEUED

    until(waits, lambda: f"{ground.row(job_id)}\n{log_of(ground.home)}")
    return job_id


def container_waits(ground: Ground, box: Box, **options: str) -> tuple[str, str]:
    """Return a job that holds the GPU, and a container behind it that notes its GPU and needs its secret."""
    options = {"engine": "/var/run/docker.sock", **options}
    target = TargetRef("box", "ssh", "container", address=box.address, options=options)
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    command = "test ${#TOKEN} = 10 && echo $NVIDIA_VISIBLE_DEVICES > $RESULT_DIR/gpu"
    secrets = {"TOKEN": "canary-7f3"}
    return holder, give(ground, box.user, command, target=target, image=BUSYBOX, secret_values=secrets)


def close_the_lid(box: Box, *grounds: Ground) -> None:
    """End the controllers, and let nobody in at the host any more."""
    for ground in grounds:
        kill(answers(ground.home).pid)
    box.daemon.stop()


def open_the_lid(box: Box, ground: Ground) -> None:
    box.daemon.start()
    ensure_controller(ground.home)


def let_go(user: User, ground: Ground, job_id: str) -> None:
    (there(user, ground, job_id).parent / "job" / "end").touch()


def test_jobs_that_wait_run_to_their_end_in_order_with_the_laptop_off(box: Box, ground: Ground) -> None:
    user = box.user
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    order = Path(user.home) / "order"
    priorities = {"second": 50, "last": 40, "third": 50, "first": 70}
    jobs = {
        name: give(ground, user, f"echo {name} >> {order}", priority=priority)
        for name, priority in priorities.items()
    }
    close_the_lid(box, ground)
    let_go(user, ground, holder)

    until(lambda: all(state_of(user, ground, one).get("phase") == "exited" for one in jobs.values()))
    assert status(ground.home) is None and not box.daemon.listens()
    assert order.read_text().split() == ["first", "second", "third", "last"]
    assert {ground.row(job_id).state for job_id in jobs.values()} == {State.QUEUED}
    until(lambda: processes_of(user) == [], lambda: f"{processes_of(user)}", seconds=30)

    open_the_lid(box, ground)
    for job_id in (holder, *jobs.values()):
        row = ground.ends(job_id)
        assert (row.state, row.attempt) == (State.COMPLETED, 1)
        assert row.started_us == state_of(user, ground, job_id)["started_us"]
        assert row.ended_us == state_of(user, ground, job_id)["ended_us"]


def test_a_chain_goes_on_with_the_laptop_off_and_stops_where_a_job_fails(box: Box, ground: Ground) -> None:
    user = box.user
    order = Path(user.home) / "order"
    a = ground.submit(HOLD, gpus=1)
    ground.prints(a, "ready")
    b = give(ground, user, f"echo b $CUDA_VISIBLE_DEVICES >> {order}", after=(f"{a}:completed",))
    c = give(ground, user, f"echo c >> {order}; exit 3", gpus=0, after=(f"{b}:completed",))
    d = give(ground, user, f"echo d >> {order}", gpus=0, after=(f"{c}:completed",))
    e = give(ground, user, f"echo e >> {order}", gpus=0, after=(f"{c}:ended",))
    close_the_lid(box, ground)
    let_go(user, ground, a)

    until(lambda: state_of(user, ground, e).get("phase") == "exited", lambda: f"{state_of(user, ground, c)}")
    assert status(ground.home) is None and not box.daemon.listens()
    assert order.read_text().split() == ["b", UUID, "c", "e"]

    open_the_lid(box, ground)
    rows = {name: ground.ends(job_id) for name, job_id in {"b": b, "c": c, "d": d, "e": e}.items()}
    states = {name: row.state for name, row in rows.items()}
    assert states == {"b": State.COMPLETED, "c": State.FAILED, "d": State.FAILED, "e": State.COMPLETED}
    assert (rows["d"].reason.code, rows["d"].started_us) == ("C105", None)
    assert rows["b"].started_us == state_of(user, ground, b)["started_us"]


def test_a_halt_while_the_host_is_away_is_no_end_before_the_host_has_confirmed_it(
    box: Box, ground: Ground
) -> None:
    user = box.user
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    job_id = give(ground, user, "sleep 600")
    box.daemon.stop()
    until(lambda: "cannot be reached" in ground.row(job_id).reason.text, lambda: str(ground.row(job_id)))

    ground.ask(job_id, "halt")
    until(lambda: "is being halted" in ground.row(job_id).reason.text, lambda: str(ground.row(job_id)))
    assert ground.row(job_id).state is State.QUEUED

    let_go(user, ground, holder)
    until(
        lambda: state_of(user, ground, job_id).get("phase") == "running",
        lambda: f"{state_of(user, ground, job_id)}",
    )
    box.daemon.start()
    row = ground.ends(job_id)
    assert (row.state, row.exit_by) == (State.HALTED, "halt")
    assert row.started_us is not None


def test_secrets_of_a_job_that_waits_are_in_no_file_of_the_host(box: Box, ground: Ground) -> None:
    user = box.user
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    job_id = give(ground, user, "test ${#TOKEN} = 10 && echo known", secret_values={"TOKEN": "canary-7f3"})

    own = [path for path in Path("/dev/shm").glob("fabric-*") if path.owner() == user.name]
    for folder in (Path(user.home), *own):
        for file in (one for one in folder.rglob("*") if one.is_file()):
            assert b"canary-7f3" not in read_bytes(str(file)), file
    for pid in processes_of(user):
        assert b"canary-7f3" not in read_bytes(f"/proc/{pid}/environ")
        assert b"canary-7f3" not in read_bytes(f"/proc/{pid}/cmdline")

    close_the_lid(box, ground)
    let_go(user, ground, holder)
    until(lambda: state_of(user, ground, job_id).get("phase") == "exited")
    open_the_lid(box, ground)
    assert ground.ends(job_id).state is State.COMPLETED
    assert ground.output(job_id) == "known\n"


def test_a_container_that_waits_starts_with_its_gpu_and_secrets_with_the_laptop_off(
    ground: Ground, engine_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    box, user = engine_box, engine_box.user
    holder, job_id = container_waits(ground, box)
    close_the_lid(box, ground)
    let_go(user, ground, holder)

    until(lambda: state_of(user, ground, job_id).get("phase") == "exited")
    until(lambda: processes_of(user) == [], lambda: f"{processes_of(user)}", seconds=30)
    assert status(ground.home) is None and not box.daemon.listens()

    open_the_lid(box, ground)
    row = ground.ends(job_id)
    assert (row.state, row.attempt) == (State.COMPLETED, 1)
    assert row.started_us == state_of(user, ground, job_id)["started_us"]
    assert row.ended_us == state_of(user, ground, job_id)["ended_us"]
    assert (ground.home.job(job_id).results / "gpu").read_text() == f"{UUID}\n"


@pytest.mark.soak(
    "a second container that waits; the gate has one here, and a login of one that waits in containers"
)
def test_an_image_of_a_container_that_waits_is_there_and_its_login_is_not(
    ground: Ground, engine_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    box, user = engine_box, engine_box.user
    options = {"engine": "/var/run/docker.sock"}
    target = TargetRef("box", "ssh", "container", address=box.address, options=options)
    login = {"username": REGISTRY_USER, "password": "canary-login-9c4"}
    once = "test -e $CHECKPOINT_DIR/once || { touch $CHECKPOINT_DIR/once; exit 3; }"
    with registry_of(BUSYBOX, password=login["password"]) as registry:
        holder = ground.submit(HOLD, gpus=1)
        ground.prints(holder, "ready")
        image = registry.image
        job_id = give(ground, user, once, target=target, image=image, location=login, max_restarts=1)
        asked = len(registry.asked)
        own = [path for path in Path("/dev/shm").glob("fabric-*") if path.owner() == user.name]
        for folder in (Path(user.home), *own):
            for file in (one for one in folder.rglob("*") if one.is_file()):
                assert b"canary-login-9c4" not in read_bytes(str(file)), file
        for pid in processes_of(user):
            assert b"canary-login-9c4" not in read_bytes(f"/proc/{pid}/environ")
        close_the_lid(box, ground)
        let_go(user, ground, holder)
        second = there(user, ground, job_id).parents[1] / "attempt-2" / "learner-1" / "state.json"
        until(lambda: b'"exited"' in read_bytes(str(second)), lambda: f"{state_of(user, ground, job_id)}")

        open_the_lid(box, ground)
        row = ground.ends(job_id, 2)

        assert (row.state, row.attempt) == (State.COMPLETED, 2)
        assert asked and len(registry.asked) == asked


@pytest.mark.soak(
    "a container at a host; the gate has one on this machine (tests/containers/test_restarts_at_host.py), and here a"
    " process, and a container whose next attempt its host lost"
)
def test_a_container_that_fails_is_tried_again_by_the_host_with_the_laptop_off(
    ground: Ground, engine_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    box, user = engine_box, engine_box.user
    engine = {"engine": "/var/run/docker.sock"}
    target = TargetRef("box", "ssh", "container", address=box.address, options=engine)
    notes = "echo ${#TOKEN} $NVIDIA_VISIBLE_DEVICES >> $CHECKPOINT_DIR/notes; cat $CHECKPOINT_DIR/notes"
    job_id = ground.submit(
        f"{HOLD}; umask 077; {notes}; [ $(wc -l < $CHECKPOINT_DIR/notes) = 3 ] || exit 3",
        target=target,
        image=BUSYBOX,
        gpus=1,
        max_restarts=2,
        secret_values={"TOKEN": "canary-7f3"},
    )
    ground.prints(job_id, "ready")
    close_the_lid(box, ground)

    for number in (1, 2, 3):
        folder = there(user, ground, job_id).parents[1] / f"attempt-{number}"
        until(lambda folder=folder: (folder / "learner-1" / "output.log").exists())  # type: ignore[misc]
        (folder / "job" / "end").touch()
    last = folder / "learner-1" / "state.json"
    until(lambda: json.loads(last.read_text())["phase"] == "exited", lambda: last.read_text())
    assert status(ground.home) is None and not box.daemon.listens()
    until(lambda: processes_of(user) == [], lambda: f"{processes_of(user)}", seconds=30)

    open_the_lid(box, ground)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts) == (State.COMPLETED, 2)
    job = ground.home.job(job_id)
    assert (job.checkpoints / "notes").read_text().splitlines() == [f"10 {UUID}"] * 3
    assert [len(ground.output(job_id, number).splitlines()) for number in (1, 2, 3)] == [2, 3, 4]
    own = {path.lstat().st_uid for path in there(user, ground, job_id).parents[1].rglob("*")}
    assert own == {user.uid}


def test_a_container_that_its_host_lost_before_its_next_attempt_is_launched_again_with_its_files(
    ground: Ground, engine_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the image's user wrote is not the person's yet, who alone is here."""
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    user = engine_box.user
    engine = {"engine": "/var/run/docker.sock"}
    target = TargetRef("box", "ssh", "container", address=engine_box.address, options=engine)
    notes = "mkdir -p $CHECKPOINT_DIR/deep; echo x >> $CHECKPOINT_DIR/deep/notes"
    job_id = ground.submit(
        f"{HOLD}; umask 077; {notes}; [ $(wc -l < $CHECKPOINT_DIR/deep/notes) = 2 ] || exit 3",
        target=target, image=BUSYBOX, gpus=1, max_restarts=1,
    )  # fmt: skip
    ground.prints(job_id, "ready")
    urgent = give(ground, user, HOLD, priority=60)
    let_go(user, ground, job_id)
    ground.prints(urgent, "ready")
    second = there(user, ground, job_id).parents[1] / "attempt-2" / "learner-1" / "state.json"
    until(second.exists)
    os.kill(json.loads(second.read_text())["pid"], signal.SIGKILL)

    let_go(user, ground, urgent)
    until(lambda: (second.parents[1] / "learner-1" / "output.log").exists())
    (second.parents[1] / "job" / "end").touch()

    assert ground.ends(job_id, 2).state is State.COMPLETED
    assert (ground.home.job(job_id).checkpoints / "deep" / "notes").read_text() == "x\nx\n"


def test_two_laptops_whose_lids_are_closed_share_the_host_by_priority(
    box: Box, ground: Ground, tmp_path: Path
) -> None:
    with another_laptop(box, tmp_path) as (other, theirs):
        holder = ground.submit(HOLD, gpus=1)
        ground.prints(holder, "ready")
        mine = give(ground, box.user, "true", priority=40)
        urgent = give(theirs, other, "true", priority=60)
        assert {entry.job for entry in read_entries(str(leases_folder()))} == {mine, urgent}
        close_the_lid(box, ground, theirs)
        let_go(box.user, ground, holder)

        until(lambda: state_of(box.user, ground, mine).get("phase") == "exited")
        first, second = (
            state_of(*at)["started_us"] for at in ((other, theirs, urgent), (box.user, ground, mine))
        )
        assert isinstance(first, int) and isinstance(second, int) and first < second

        box.daemon.start()
        ensure_controller(theirs.home)
        assert theirs.ends(urgent).state is State.COMPLETED
    ensure_controller(ground.home)
    assert ground.ends(mine).state is State.COMPLETED


def test_a_job_makes_room_for_another_persons_and_goes_on_with_both_laptops_off(
    box: Box, ground: Ground, tmp_path: Path
) -> None:
    with another_laptop(box, tmp_path) as (other, theirs):
        low = ground.submit(f"trap '' TERM; {HOLD}; echo saved", gpus=1, preemptible=True)
        ground.prints(low, "ready")
        urgent = give(theirs, other, "true", priority=60)
        close_the_lid(box, ground, theirs)
        until(lambda: state_of(box.user, ground, low).get("stopped") == "preempt")
        let_go(box.user, ground, low)

        until(lambda: state_of(other, theirs, urgent).get("phase") == "exited")
        again = there(box.user, ground, low).parents[1] / "attempt-2"
        until((again / "learner-1" / "output.log").exists, "its next attempt")
        (again / "job" / "end").touch()
        last = again / "learner-1" / "state.json"
        until(lambda: json.loads(last.read_text())["phase"] == "exited", last.read_text)

        box.daemon.start()
        ensure_controller(theirs.home)
        assert theirs.ends(urgent).state is State.COMPLETED
    ensure_controller(ground.home)
    row = ground.ends(low, 2)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 0, 0)
    assert [ground.output(low, number) for number in (1, 2)] == ["ready\nsaved\n"] * 2
    texts = [one.text for one in transitions(ground.store, low) if one.state == State.FAILED]
    assert texts == [f"preempted: {other.name}'s job {urgent}, of priority 60, needs its GPUs"]


def test_a_job_that_fails_is_tried_again_with_its_gpu_and_secrets_with_the_laptop_off(
    box: Box, ground: Ground
) -> None:
    user = box.user
    attempts = Path(user.home) / "attempts"
    command = (
        f"{HOLD}; test ${{#TOKEN}} = 10 && echo $FABRIC_LEARNER $CUDA_VISIBLE_DEVICES >> {attempts};"
        f" [ $(wc -l < {attempts}) = 3 ] || exit 3"
    )
    job_id = ground.submit(command, gpus=1, max_restarts=2, secret_values={"TOKEN": "canary-7f3"})
    ground.prints(job_id, "ready")
    close_the_lid(box, ground)

    for number in (1, 2, 3):
        folder = there(user, ground, job_id).parents[1] / f"attempt-{number}"
        until(lambda folder=folder: (folder / "learner-1" / "output.log").exists())  # type: ignore[misc]
        for file in (one for one in Path(user.home).rglob("*") if one.is_file()):
            assert b"canary-7f3" not in read_bytes(str(file)), file
        (folder / "job" / "end").touch()
    last = folder / "learner-1" / "state.json"
    until(lambda: json.loads(last.read_text())["phase"] == "exited", lambda: last.read_text())
    assert status(ground.home) is None and not box.daemon.listens()
    markers = [f"{ground.uuid}/{job_id}/{number}/1 {UUID}" for number in (1, 2, 3)]
    assert attempts.read_text().splitlines() == markers
    until(lambda: processes_of(user) == [], lambda: f"{processes_of(user)}", seconds=30)

    open_the_lid(box, ground)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts) == (State.COMPLETED, 2)
    assert row.started_us == json.loads(last.read_text())["started_us"]
    assert [ground.output(job_id, number) for number in (1, 2, 3)] == ["ready\n"] * 3


def test_a_sweep_goes_on_within_its_limit_with_the_laptop_off(box: Box, ground: Ground) -> None:
    user = box.user
    order = Path(user.home) / "order"
    keys = {"at_most": 1, "labels": {"sweep": "s"}}
    holder = ground.submit(HOLD, **keys)
    ground.prints(holder, "ready")
    names = {"late": 40, "first": 70, "second": 60}
    jobs = {
        name: give(
            ground, user, f"echo {name} >> {order}; sleep 0.2; exit 3", gpus=0, priority=priority, **keys
        )
        for name, priority in names.items()
    }
    close_the_lid(box, ground)
    assert not order.exists()
    let_go(user, ground, holder)

    until(lambda: all(state_of(user, ground, one).get("phase") == "exited" for one in jobs.values()))
    assert status(ground.home) is None and not box.daemon.listens()
    assert order.read_text().split() == ["first", "second", "late"]
    ends = [state_of(user, ground, one)["ended_us"] for one in (holder, jobs["first"], jobs["second"])]
    starts = [state_of(user, ground, jobs[name])["started_us"] for name in ("first", "second", "late")]
    assert all(int(str(before)) <= int(str(after)) for before, after in zip(ends, starts, strict=True))

    open_the_lid(box, ground)
    assert {ground.ends(one).exit_code for one in jobs.values()} == {3}


def test_a_rule_stops_a_job_with_the_laptop_off_and_the_next_one_begins(box: Box, ground: Ground) -> None:
    user = box.user
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    lines = "import time, fabric_learner; fabric_learner.report(loss=float('nan'), step=7); time.sleep(3600)"
    judged = give(ground, user, f'exec python3 -c "{lines}"', stop_when=({"metric": "loss", "is": "nan"},))
    after = give(ground, user, "echo next")
    close_the_lid(box, ground)
    let_go(user, ground, holder)

    until(
        lambda: state_of(user, ground, after).get("phase") == "exited",
        lambda: f"{state_of(user, ground, judged)}",
    )
    assert status(ground.home) is None and not box.daemon.listens()

    open_the_lid(box, ground)
    row = ground.ends(judged)
    assert (row.state, row.exit_code) == (State.HALTED, 143)
    assert row.reason.text == "halted by stop_when: loss is nan at step 7"
    assert ground.ends(after).state is State.COMPLETED


def test_a_search_tries_all_its_trials_with_the_laptop_off(box: Box, ground: Ground) -> None:
    user = box.user
    experiment_id, jobs = search_ahead(ground, "while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.05; done")
    until(
        lambda: all(state_of(user, ground, one).get("waiting") for one in jobs[1:]),
        lambda: log_of(ground.home),
    )
    close_the_lid(box, ground)
    for job_id in jobs:
        let_go(user, ground, job_id)

    until(lambda: all(state_of(user, ground, one).get("phase") == "exited" for one in jobs))
    assert status(ground.home) is None and not box.daemon.listens()

    open_the_lid(box, ground)
    is_whole(ground, experiment_id)


def switch_on(user: User, address: str) -> list[str]:
    """Have the host start what waits there when it starts; return what was done."""
    done = keep_jobs(BackendOptions("box", "ssh", address)).sentences()
    (script,) = user.home.glob(".fabric/*/*/resume.sh")
    assert f"`@reboot sh {script}`" in done[-1], "what a crontab of a host without systemd has"
    return done


def start_again(user: User) -> None:
    """Do what the crontab of a host does that has just started: as the user, with next to no environment."""
    (script,) = user.home.glob(".fabric/*/*/resume.sh")
    subprocess.run(
        [
            "setpriv",
            f"--reuid={user.uid}",
            "--init-groups",
            "sh",
            "-c",
            'setsid sh "$0" >/dev/null 2>&1 &',
            script,
        ],
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    )


def lose_power(box: Box, ground: Ground) -> None:
    """Close the lid, and have the host lose its power."""
    close_the_lid(box, ground)
    cut_power(box.user)
    for file in box.user.home.glob(".fabric/*/*/jobs/*/attempt-*/learner-*/state.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot_id": "0-before"}))


def test_jobs_that_wait_start_after_a_restart_of_the_host_with_the_laptop_off(
    box: Box, ground: Ground
) -> None:
    user = box.user
    switch_on(user, box.address)
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    order = Path(user.home) / "order"
    jobs = [
        give(ground, user, f"echo {name} >> {order}; [ $CUDA_VISIBLE_DEVICES = {UUID} ]") for name in "ab"
    ]

    lose_power(box, ground)
    start_again(user)

    until(lambda: all(state_of(user, ground, one).get("phase") == "exited" for one in jobs))
    assert status(ground.home) is None and not box.daemon.listens()
    assert order.read_text().split() == ["a", "b"]
    open_the_lid(box, ground)
    for job_id in jobs:
        row = ground.ends(job_id)
        assert (row.state, row.attempt) == (State.COMPLETED, 1)
        assert row.started_us == state_of(user, ground, job_id)["started_us"]
    row = ground.ends(holder)
    assert (row.state, row.reason.code) == (State.FAILED, "S203"), (
        "what ran is lost, and the reason is the restart"
    )
    assert not list(user.home.glob(".fabric/*/*/waiting/*"))


def test_a_container_that_waits_starts_after_a_restart_of_the_host_with_the_laptop_off(
    ground: Ground, engine_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_CONTAINER_GPUS", "environment")
    box, user = engine_box, engine_box.user
    switch_on(user, box.address)
    _, job_id = container_waits(ground, box, secrets_at_host="true")

    lose_power(box, ground)
    start_again(user)

    until(lambda: state_of(user, ground, job_id).get("phase") == "exited")
    open_the_lid(box, ground)
    row = ground.ends(job_id)
    assert (row.state, row.attempt) == (State.COMPLETED, 1)
    assert (ground.home.job(job_id).results / "gpu").read_text() == f"{UUID}\n"


def test_who_comes_back_first_after_a_restart_starts_nothing_twice(box: Box, ground: Ground) -> None:
    user = box.user
    switch_on(user, box.address)
    order = Path(user.home) / "order"
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    jobs = [give(ground, user, f"echo {name} >> {order}") for name in "ab"]

    lose_power(box, ground)
    open_the_lid(box, ground)
    start_again(user)

    for job_id in jobs:
        assert (ground.ends(job_id).state, ground.row(job_id).attempt) == (State.COMPLETED, 1)
    assert sorted(order.read_text().split()) == ["a", "b"]


def test_a_job_that_was_halted_while_its_host_was_down_is_ended_when_both_are_back(
    box: Box, ground: Ground
) -> None:
    user = box.user
    switch_on(user, box.address)
    holder = ground.submit(HOLD, gpus=1)
    ground.prints(holder, "ready")
    job_id = give(ground, user, HOLD, gpus=1)

    lose_power(box, ground)
    ensure_controller(ground.home)
    ground.ask(job_id, "halt")
    start_again(user)
    until(lambda: state_of(user, ground, job_id).get("phase") == "running")
    assert ground.row(job_id).state is State.QUEUED, "its host has not confirmed that"
    box.daemon.start()

    row = ground.ends(job_id)
    assert row.state is State.HALTED
    until(lambda: state_of(user, ground, job_id).get("phase") == "exited")


@pytest.mark.parametrize("are_kept", [False, True], ids=["in memory alone", "secrets_at_host"])
def test_secrets_are_at_a_host_that_restarts_only_where_its_backend_says_so(
    box: Box, ground: Ground, are_kept: bool
) -> None:
    user = box.user
    switch_on(user, box.address)
    options = {"secrets_at_host": "true"} if are_kept else {}
    target = TargetRef("box", "ssh", "process", address=box.address, options=options)
    holder = ground.submit(HOLD, gpus=1, target=target)
    ground.prints(holder, "ready")
    job_id = give(ground, user, "test ${#TOKEN} = 10", target=target, secret_values={"TOKEN": "canary-7f3"})
    files = [path for path in user.home.rglob("*") if path.is_file()]
    found = [path for path in files if b"canary-7f3" in read_bytes(str(path))]
    assert [path.parent.name for path in found] == (["waiting"] if are_kept else [])

    lose_power(box, ground)
    start_again(user)

    if are_kept:
        until(lambda: state_of(user, ground, job_id).get("phase") == "exited")
    else:
        until(lambda: state_of(user, ground, job_id).get("stall"))
        shown = state_of(user, ground, job_id)["stall"]
        assert shown == f"needs its secrets again: run fabric on {socket.gethostname()}"
    open_the_lid(box, ground)
    row = ground.ends(job_id)
    assert (row.state, row.attempt) == (State.COMPLETED, 1)
    files = [path for path in user.home.rglob("*") if path.is_file()]
    assert not [path for path in files if b"canary-7f3" in read_bytes(str(path))]
