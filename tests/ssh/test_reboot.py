"""A host that was restarted: its learners are lost with that reason, and begin again where the job allows it."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.ssh.harms import Scene, reboot
from tests.ssh.relay import Relay
from tests.support.box import Box
from tests.support.images import DEBIAN
from tests.support.real_jobs import Ground
from tests.support.sshd import cut_power
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef
from workbench.store.queries.learners import learners

RUN = "echo x >> $RESULT_DIR/starts; echo ready; until [ -e $RESULT_DIR/end ]; do sleep 0.1; done; echo end"


@pytest.fixture
def ground(home: Home, box: Box) -> Iterator[Ground]:
    """A home whose jobs run there."""
    made = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
    yield made
    made.clean_up()


def docker(*args: str) -> list[str]:
    """Run docker, and return the lines that it says."""
    ran = subprocess.run(["docker", *args], capture_output=True, text=True, check=True)
    return ran.stdout.split()


@contextmanager
def restarted(box: Box) -> Iterator[None]:
    """Restart the host; what is done within is done before its sshd answers again."""
    box.daemon.stop()
    cut_power(box.user)
    for file in box.user.home.glob(".fabric/*/*/jobs/*/attempt-*/learner-*/state.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot_id": "0-before"}))
    yield
    box.daemon.start()


def test_learners_that_are_gone_are_lost_and_the_reason_is_the_restart(
    ground: Ground, box: Box, home: Home
) -> None:
    job_id = ground.submit(RUN)
    ground.prints(job_id, "ready")
    relay = Relay(box.daemon)
    reboot(Scene(box, ground, relay, random.Random(1)))
    relay.end()
    row = ground.ends(job_id)

    assert row.state is State.FAILED
    assert "the machine was restarted" in row.reason.text
    assert row.reason.code == "S203"
    (learner,) = learners(ground.store, job_id)
    assert learner.reason is not None
    assert learner.reason.text == "the machine was restarted"
    assert ground.output(job_id) == "ready\n"


def test_a_container_that_the_user_starts_again_by_hand_does_nothing_beside_the_next_attempt(
    ground: Ground, engine_box: Box
) -> None:
    target = TargetRef(
        "box",
        "ssh",
        "container",
        address=engine_box.address,
        options={"engine": "/var/run/docker.sock"},
    )
    job_id = ground.submit(RUN, target=target, image=DEBIAN, max_platform_restarts=1)
    ground.prints(job_id, "ready")
    mine = ("--filter", f"label=fabric.job={job_id}")
    (before,) = docker("ps", "-q", *mine)
    with restarted(engine_box):
        until(lambda: docker("ps", "-q", *mine) == [], "the container to end")
        subprocess.run(["docker", "start", before], capture_output=True, check=False)
    until(lambda: "ready" in ground.output(job_id, attempt=2), lambda: str(ground.row(job_id)))

    (results,) = engine_box.user.home.glob(f".fabric/*/*/jobs/{job_id}/results")
    assert (results / "starts").read_text() == "x\nx\n", "a learner ran twice under one number"
    assert len(docker("ps", "-q", *mine)) == 1
    assert ground.output(job_id) == "ready\n"
    (results / "end").touch()
    assert ground.ends(job_id, attempt=2).state is State.COMPLETED
    ground.ask(job_id, "delete")
    until(lambda: docker("ps", "-aq", *mine) == [], lambda: str(docker("ps", "-a", *mine)))
