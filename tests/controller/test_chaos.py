"""Controllers killed at random instants, seeded: no learner twice, none orphaned, the right end every time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.support.controllers import controller, kill, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status, wake
from workbench.job import State
from workbench.store.queries.jobs import attempts
from workbench.store.queries.learners import learners

pytestmark = pytest.mark.chaos

ROUNDS = 1
"""How many rounds a seed has in the gate: it shows that what the simulation kills is what is killed."""

seeds = pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(seed, marks=pytest.mark.soak("one seed more; the gate has one round"))
            for seed in (1, 2)
        ),
    ],
)


def kill_controller_after(ground: Ground, seconds: float) -> None:
    """Let a controller begin, or go on, and kill it a random moment later, wherever it is then."""
    there = status(ground.home)
    if there is None:
        pid = controller(ground.home).pid
    else:
        pid = there.pid
        wake(ground.home)
    time.sleep(seconds)  # the random instant itself
    kill(pid)


@seeds
def test_killed_while_it_launches(
    ground: Ground, seed: int, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    draw = random.Random(seed)
    for _ in range(chaos_rounds or ROUNDS):
        note_harm("controller killed as it launches")
        count = draw.choice([1, 1, 2])
        job_id = ground.write(
            "echo $LEARNER_ID >> $RESULT_DIR/starts; sleep 0.1", learners=count, ends_when="all"
        )
        for _ in range(draw.choice([1, 1, 2, 3])):
            kill_controller_after(ground, draw.uniform(0.0, 0.25))
        ensure_controller(ground.home)
        row = ground.ends(job_id)

        assert (row.state, row.exit_code, row.attempt) == (State.COMPLETED, 0, 1), log_of(ground.home)
        starts = (ground.home.job(job_id).results / "starts").read_text().split()
        assert sorted(starts) == [str(n) for n in range(1, count + 1)], (
            "a learner was started twice, or never"
        )
        until(lambda: ground.processes() == [])


@seeds
def test_killed_while_it_stops_removes_or_restarts(
    ground: Ground, seed: int, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    draw = random.Random(100 + seed)
    for _ in range(chaos_rounds or ROUNDS):
        what = draw.choice(["halt", "kill", "delete", "resume"])
        note_harm(
            "controller killed as it " + ("restarts a job" if what == "resume" else f"does what {what} asks")
        )
        job_id = ground.submit(NAP + "echo x >> $RESULT_DIR/starts; echo ready; while :; do nap 0.05; done")
        ground.prints(job_id, "ready")
        ground.ask(job_id, "halt" if what == "resume" else what)
        if what == "resume":
            ground.ask(job_id, "resume")
        for _ in range(draw.choice([1, 2])):
            kill_controller_after(ground, draw.uniform(0.0, 0.25))
        ensure_controller(ground.home)
        if what == "delete":
            until(lambda job_id=job_id: ground.row(job_id).deleted_us is not None)  # type: ignore[misc] # of a test
            until(lambda job_id=job_id: not ground.home.job(job_id).path.exists())  # type: ignore[misc] # of a test
        elif what == "resume":
            ground.prints(job_id, "ready", attempt=2)
            assert attempts(ground.store, job_id)[0].state is State.HALTED
            assert (ground.home.job(job_id).results / "starts").read_text() == "x\nx\n"
            ground.ask(job_id, "kill")
            ground.ends(job_id, attempt=2)
        else:
            row = ground.ends(job_id)
            assert (row.state, row.exit_code) == (State.HALTED, 143 if what == "halt" else 137)
            assert len(learners(ground.store, job_id)) == 1
        until(lambda: ground.processes() == [])
