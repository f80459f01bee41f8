"""Jobs at a host over SSH, by real controllers: what is printed, recorded and made there is here, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.box import Box
from tests.support.images import DEBIAN
from tests.support.kept_ground import KeptGround
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.job import TERMINAL, State
from workbench.metrics import points, series
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


@pytest.fixture
def ground(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A home whose jobs run at the host, both of which other tests here have used."""
    with kept_ground.entered(monkeypatch) as entered:
        yield entered


@pytest.fixture
def own_ground(home: Home, box: Box) -> Iterator[Ground]:
    """A home whose jobs run at a host, both of them the test's own; nothing is left of them."""
    target = TargetRef("box", "ssh", "process", address=box.address)
    made = Ground(home, target)
    yield made
    made.clean_up()


def there(box: Box) -> Path:
    """Return what is kept at the host of our home."""
    machine = Path("/etc/machine-id").read_text().strip()
    (found,) = (box.user.home / ".fabric" / machine).iterdir()
    return found


def test_a_job_runs_there_and_everything_comes_home(ground: Ground, kept_box: Box) -> None:
    job_id = ground.submit(
        "id -un; echo made > $RESULT_DIR/made; mkdir -p $CHECKPOINT_DIR/a; echo c > $CHECKPOINT_DIR/a/c; exit 3"
    )
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)
    assert ground.output(job_id) == f"{kept_box.user.name}\n"
    job = ground.home.job(job_id)
    assert (job.results / "made").read_text() == "made\n"
    assert (job.checkpoints / "a" / "c").read_text() == "c\n"


def test_ten_megabytes_with_every_byte_are_exact(ground: Ground) -> None:
    program = "import random,sys; sys.stdout.buffer.write(random.Random(7).randbytes(10_000_000))"
    job_id = ground.submit(f'python3 -c "{program}"')
    ground.ends(job_id)
    import random

    wanted = random.Random(7).randbytes(10_000_000)
    got = ground.learner(job_id).output.read_bytes()
    assert hashlib.sha256(got).hexdigest() == hashlib.sha256(wanted).hexdigest()
    assert int.from_bytes(ground.learner(job_id).index.read_bytes()[-24:-16], "little") == len(wanted)


def test_a_halt_keeps_what_was_saved_and_a_resume_goes_on_from_it(ground: Ground) -> None:
    job_id = ground.submit(
        "trap 'echo saved >> $CHECKPOINT_DIR/state; exit 0' TERM; cat $CHECKPOINT_DIR/state 2>/dev/null; "
        "echo ready; while :; do sleep 0.05; done"
    )
    ground.prints(job_id, "ready")
    ground.ask(job_id, "halt")
    row = ground.ends(job_id)
    assert (row.state, row.exit_code) == (State.HALTED, 143)

    ground.ask(job_id, "resume")
    ground.prints(job_id, "ready", attempt=2)
    ground.ask(job_id, "kill")
    ground.ends(job_id, attempt=2)

    assert ground.output(job_id, attempt=2).startswith("saved\nready\n")


def test_a_deleted_job_leaves_only_what_others_share(ground: Ground, kept_box: Box) -> None:
    ground.ends(ground.submit("true"))
    before = sorted((there(kept_box) / "jobs").iterdir())
    job_id = ground.submit("echo made > $RESULT_DIR/made; echo ready; while :; do sleep 0.05; done")
    ground.prints(job_id, "ready")
    ground.ask(job_id, "delete")
    until(lambda: ground.row(job_id).deleted_us is not None)
    until(lambda: not ground.home.job(job_id).path.exists())

    assert sorted(path.name for path in there(kept_box).iterdir()) == ["agents", "bin", "jobs"]
    assert sorted((there(kept_box) / "jobs").iterdir()) == before


CPUS_ALONE = pytest.mark.parametrize(
    "cpus",
    [
        pytest.param(
            None, marks=pytest.mark.soak("a job that asks for no CPUs; the gate has one that asks for some")
        ),
        1.0,
    ],
)
NONE_ALONE = pytest.mark.parametrize(
    "cpus",
    [
        None,
        pytest.param(
            1.0, marks=pytest.mark.soak("a job that asks for CPUs; the gate has one that asks for none")
        ),
    ],
)


@CPUS_ALONE
def test_a_job_for_a_host_that_is_away_waits_says_why_and_starts_when_it_is_back(
    ground: Ground, kept_box: Box, cpus: float | None
) -> None:
    kept_box.daemon.stop()
    try:
        job_id = ground.submit("echo ready", cpus=cpus)
        until(lambda: "refuses the connection" in ground.row(job_id).reason.text)
        assert ground.row(job_id).state in (State.QUEUED, State.PENDING)
    finally:
        kept_box.daemon.start()
    row = ground.ends(job_id)

    assert (row.state, row.exit_code, ground.output(job_id)) == (State.COMPLETED, 0, "ready\n")


@NONE_ALONE
def test_a_job_for_a_host_that_lets_nobody_in_fails_and_says_so(
    own_ground: Ground, box: Box, cpus: float | None
) -> None:
    (box.daemon.folder / "keys" / box.user.name).write_text("")
    row = own_ground.ends(own_ground.submit("true", cpus=cpus))

    assert (row.state, row.reason.code) == (State.FAILED, "C103")
    assert "takes none of our keys" in row.reason.text


def test_secrets_reach_the_job_and_nothing_that_is_kept(ground: Ground, kept_box: Box) -> None:
    job_id = ground.submit("test ${#TOKEN} = 8 && echo $TOKEN", secret_values={"TOKEN": "pa55word"})
    row = ground.ends(job_id)

    assert (row.exit_code, ground.output(job_id)) == (0, "********\n")
    kept = [
        path for path in there(kept_box).rglob("*") if path.is_file() and b"pa55word" in path.read_bytes()
    ]
    assert kept == []
    assert not list(Path("/dev/shm").glob(f"fabric-{kept_box.user.uid}/*"))


def test_metrics_and_usage_come_home_into_the_store(ground: Ground) -> None:
    program = "from fabric_learner import report\nfor step in range(50): report(loss=1/(step+1), step=step)"
    job_id = ground.submit(f"python3 -c '{program}'")
    ground.ends(job_id)
    found = series(ground.store, job_id)

    assert [one.name for one in found] == ["loss"]
    assert [(point.step, point.value) for point in points(ground.store, found[0].id)] == [
        (step, 1 / (step + 1)) for step in range(50)
    ]


def test_processes_and_containers_on_one_host_share_one_connection_and_one_session(
    home: Home, engine_box: Box
) -> None:
    process = TargetRef("box", "ssh", "process", address=engine_box.address)
    engine = {"engine": "/var/run/docker.sock"}
    container = TargetRef("box", "ssh", "container", address=engine_box.address, options=engine)
    ground = Ground(home, process)
    try:
        hold = "echo ready; while :; do sleep 0.1; done"
        jobs = [ground.submit(hold), ground.submit(hold, target=container, image=DEBIAN)]
        for job_id in jobs:
            ground.prints(job_id, "ready")
        assert engine_box.daemon.log().count("Accepted publickey") == 1
        assert engine_box.daemon.log().count("Starting session: command") == 1
        engine_box.daemon.kill_sessions()
        for job_id in jobs:
            ground.ask(job_id, "kill")
            ground.ends(job_id)
        assert engine_box.daemon.log().count("Accepted publickey") == 2
    finally:
        ground.clean_up()


def test_a_job_runs_by_way_of_the_systems_ssh_and_goes_on_when_that_is_killed(
    ground: Ground, kept_box: Box
) -> None:
    options = {"transport": "openssh", "config": str(kept_box.config)}
    target = TargetRef("box", "ssh", "process", address="ssh://box", options=options)
    job_id = ground.submit(
        "echo one; until [ -e $RESULT_DIR/go ]; do sleep 0.1; done; echo two", target=target
    )
    ground.prints(job_id, "one")
    assert kept_box.daemon.kill_sessions()
    (results,) = kept_box.user.home.glob(f".fabric/*/*/jobs/{job_id}/results")
    (results / "go").touch()
    row = ground.reaches(job_id, *TERMINAL)

    assert (row.state, ground.output(job_id)) == (State.COMPLETED, "one\ntwo\n"), row.reason
