"""Several people on one host: leases are shared, a busy box queues with the holder's name, foreign use is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.controllers import end_all
from tests.support.kept_agents import lend_agents_to
from tests.support.real_jobs import Ground
from tests.support.sshd import User, a_user, processes_of
from tests.support.waiting import until
from workbench.job import State
from workbench.learner.platform.system import read_bytes
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

UUID = "GPU-11111111-0000-0000-0000-000000000001"
HOLD = "echo ready; while [ ! -e $JOB_STATE_DIR/end ]; do sleep 0.1; done"


@pytest.fixture
def gpus(clean_environment: Path) -> Gpus:
    """One pretended GPU."""
    return Gpus(clean_environment / "gpus").add(UUID)


@pytest.fixture
def box_environment(gpus: Gpus) -> list[str]:
    return gpus.session_variables()


@pytest.fixture
def grounds(home: Home, box: Box, tmp_path: Path) -> Iterator[tuple[Ground, Ground]]:
    """Two people, each with a laptop of their own."""
    with a_user() as other, ExitStack() as after:
        box.daemon.authorize(other, Path(f"{box.key}.pub"))
        address = box.address.replace(box.user.name, other.name)
        mine = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
        after.callback(mine.clean_up)
        theirs = Ground(Home(tmp_path / "theirs"), TargetRef("box", "ssh", "process", address=address))
        lend_agents_to(other, theirs.home)
        after.callback(theirs.clean_up)
        yield mine, theirs


def is_queued_for(ground: Ground, job_id: str, holder: str) -> bool:
    """Say whether a job is QUEUED, and its reason names the GPU and its holder."""
    row = ground.row(job_id)
    return row.state is State.QUEUED and "GPU 0" in row.reason.text and holder in row.reason.text


def test_a_gpu_that_somebody_else_leased_is_waited_for_and_its_holder_is_named(
    grounds: tuple[Ground, Ground],
) -> None:
    mine, theirs = grounds
    first = mine.submit(HOLD, gpus=1)
    mine.prints(first, "ready")
    second = theirs.submit("echo mine now", gpus=1)
    until(lambda: is_queued_for(theirs, second, mine.row(first).owner), lambda: str(theirs.row(second)))

    mine.ask(first, "kill")
    theirs.ends(second)
    assert theirs.output(second) == "mine now\n"


def test_who_holds_a_gpu_is_known_when_the_connection_that_took_it_is_gone(
    grounds: tuple[Ground, Ground], box: Box
) -> None:
    mine, theirs = grounds
    first = mine.submit(HOLD, gpus=1)
    mine.prints(first, "ready")
    end_all(mine.home)
    until(
        lambda: not connections(box.user),
        "my connection to be gone there, as of a laptop whose lid is closed",
    )
    (lease,) = (box.folder / "leases").glob("GPU-*")
    with lease.open("r+") as stream:  # made by somebody else, so it is not opened as one would make it
        stream.truncate()
        stream.write('{"owner": "eve@box", "job": "training-zzzzzzzzz"}')

    second = theirs.submit("echo mine now", gpus=1)

    # In the words of a launch that finds it taken, or of the queue that was asked before.
    held = f"by {box.user.name} ({mine.row(first).owner.partition('@')[0]})"

    def is_named() -> bool:
        text = theirs.row(second).reason.text
        return held in text and first in text

    until(is_named, lambda: str(theirs.row(second)))
    theirs.ask(second, "kill")
    theirs.ends(second)


def connections(user: User) -> list[int]:
    """List the agents of a person's connections to a host."""
    return [pid for pid in processes_of(user) if b"\0host\0" in read_bytes(f"/proc/{pid}/cmdline")]


def test_a_gpu_on_which_a_foreign_process_computes_is_left_alone_and_named(
    grounds: tuple[Ground, Ground], gpus: Gpus
) -> None:
    mine, _ = grounds
    gpus.say(f"process {UUID} {os.getpid()} 1073741824 compute")
    gpus.path.chmod(0o644)
    job_id = mine.submit("true", gpus=1)
    until(lambda: is_queued_for(mine, job_id, f"(pid {os.getpid()})"), lambda: str(mine.row(job_id)))
    mine.ask(job_id, "kill")
    mine.ends(job_id)
