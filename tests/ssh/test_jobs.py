"""Jobs at a host over SSH, by real controllers: what is printed, recorded and made there is here, byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.real import Ground
from tests.controller.waiting import wait_for
from tests.ssh.conftest import Box
from workbench.job import State
from workbench.paths import Home
from workbench.store.rows import PlaceRef


@pytest.fixture
def ground(home: Home, box: Box) -> Iterator[Ground]:
    """A home whose jobs run at the host; nothing is left of them."""
    place = PlaceRef("box", "ssh", "process", address=box.address)
    made = Ground(home, place)
    yield made
    made.clean_up()


def there(box: Box) -> Path:
    """Return what is kept at the host of our home."""
    machine = Path("/etc/machine-id").read_text().strip()
    (found,) = (box.user.home / ".fabric" / machine).iterdir()
    return found


def test_a_job_runs_there_and_everything_comes_home(ground: Ground, box: Box) -> None:
    job_id = ground.submit(
        "id -un; echo made > $RESULT_DIR/made; mkdir -p $CHECKPOINT_DIR/a; echo c > $CHECKPOINT_DIR/a/c; exit 3"
    )
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)
    assert ground.output(job_id) == f"{box.user.name}\n"
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


def test_a_deleted_job_leaves_only_what_others_share(ground: Ground, box: Box) -> None:
    job_id = ground.submit("echo made > $RESULT_DIR/made; echo ready; while :; do sleep 0.05; done")
    ground.prints(job_id, "ready")
    ground.ask(job_id, "delete")
    wait_for(lambda: ground.row(job_id).deleted_us is not None)
    wait_for(lambda: not ground.home.job(job_id).path.exists())

    assert sorted(path.name for path in there(box).iterdir()) == ["agents", "bin", "jobs"]
    assert list((there(box) / "jobs").iterdir()) == []
