"""A job that may be preempted makes room for one of a higher priority and goes on after it, with the laptop off too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.test_handed_over import kill_controller, noting, waits_there
from tests.controller.test_restarts_at_host import ran, recorded, states
from tests.stubs import Gpus, pretend
from tests.support.controllers import log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import State
from workbench.learner.queue.entries import read_entries
from workbench.paths import leases_folder
from workbench.store.queries.home_queue import QueuePosition, ask_for_position
from workbench.store.queries.jobs import transitions


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch, ("GPU-1", "GPU-2"))


@pytest.fixture
def ground(grounds: tuple[Ground, Ground]) -> Ground:
    return grounds[0]


def goes_on(order: Path, name: str, end: Path) -> str:
    """Return a command that notes each attempt, and runs until a file is there."""
    notes = f"n=${{FABRIC_LEARNER%/*}}; echo {name}-${{n##*/}} | tee -a {order}"
    return f"{NAP}{notes}; until [ -e {end} ]; do nap 0.05; done"


def test_a_job_makes_room_and_goes_on_while_no_controller_is_there(
    grounds: tuple[Ground, Ground], order: Path, end: Path
) -> None:
    mine, theirs = grounds
    low = mine.submit(goes_on(order, "low", end), gpus=2, preemptible=True)
    mine.prints(low, "low-1")
    kill_controller(mine)
    urgent = theirs.submit(noting(order, "urgent"), gpus=1, priority=70)
    until(lambda: recorded(theirs, urgent, 1), lambda: log_of(theirs.home))
    kill_controller(theirs)

    ran(mine, low, 1)
    ran(theirs, urgent, 1)
    until(lambda: "low-2" in order.read_text(), lambda: str(recorded(mine, low, 2)))
    assert (status(mine.home), status(theirs.home)) == (None, None)
    assert order.read_text().split() == ["low-1", "urgent", "low-2"]
    end.touch()

    for one in grounds:
        ensure_controller(one.home)
    assert theirs.ends(urgent).state is State.COMPLETED
    row = mine.ends(low, 2)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 0, 0)
    found = [one for one in transitions(mine.store, low) if one.kind == "state"]
    failed = next(one for one in found if one.state == State.FAILED)
    assert failed.text.startswith("preempted: ")
    assert failed.text.endswith(f"'s job {urgent}, of priority 70, needs its GPUs")
    queued = found[found.index(failed) + 1]
    assert queued.state == State.QUEUED
    assert queued.text.startswith("begins again when its turn comes, since preempted: ")


def test_the_controllers_that_are_there_tell_why_each_waits(
    grounds: tuple[Ground, Ground], order: Path, end: Path, tmp_path: Path
) -> None:
    mine, theirs = grounds
    done = tmp_path / "done"
    keeps = f"{NAP}trap '' TERM; echo low; until [ -e {end} ]; do nap 0.05; done; exit 0"
    low = mine.submit(keeps, gpus=1, preemptible=True)
    mine.prints(low, "low")
    urgent = theirs.submit(f"{NAP}echo urgent; until [ -e {done} ]; do nap 0.05; done", gpus=2, priority=60)

    def is_shown() -> bool:
        text = theirs.row(urgent).reason.text
        return text.startswith("waits: needs 2 GPUs, 1 free") and text.endswith(
            "; 1 job of a lower priority ends for it"
        )

    until(is_shown, lambda: f"{theirs.row(urgent)}\n{log_of(theirs.home)}")
    until(lambda: recorded(mine, low, 1).get("stopped") == "preempt", lambda: str(recorded(mine, low, 1)))
    end.touch()
    theirs.prints(urgent, "urgent")
    until(
        lambda: mine.row(low).attempt == 2 and mine.row(low).state is State.QUEUED, lambda: str(mine.row(low))
    )
    done.touch()

    assert theirs.ends(urgent).state is State.COMPLETED
    row = mine.ends(low, 2)
    assert (row.state, row.restarts) == (State.COMPLETED, 0)
    names = states(mine, low)
    assert names[names.index("1 FAILED") + 1] == "2 QUEUED"


def test_what_is_preempted_again_and_again_keeps_its_restarts(ground: Ground, order: Path, end: Path) -> None:
    fails_once = f"{goes_on(order, 'low', end)}; [ -e {end}.failed ] || {{ touch {end}.failed; exit 3; }}"
    low = ground.submit(fails_once, gpus=2, preemptible=True, max_restarts=1)
    for attempt in (1, 2):
        ground.prints(low, f"low-{attempt}", attempt=attempt)
        assert ground.ends(ground.submit("true", gpus=1, priority=90)).state is State.COMPLETED
    ground.prints(low, "low-3", attempt=3)
    end.touch()

    row = ground.ends(low, 4)

    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 1, 0)
    assert order.read_text().split() == ["low-1", "low-2", "low-3", "low-4"]


def test_a_job_of_several_learners_goes_on_with_all_of_them(ground: Ground, order: Path, end: Path) -> None:
    low = ground.submit(goes_on(order, "low", end), gpus=1, learners=2, preemptible=True)
    for learner in (1, 2):
        ground.prints(low, "low-1", learner=learner)

    assert ground.ends(ground.submit(noting(order, "urgent"), gpus=2, priority=70)).state is State.COMPLETED
    for learner in (1, 2):
        ground.prints(low, "low-2", attempt=2, learner=learner)
    end.touch()

    row = ground.ends(low, 2)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 0, 0)
    assert order.read_text().split() == ["low-1", "low-1", "urgent", "low-2", "low-2"]
    assert sum("followed_by" in recorded(ground, low, 1, learner) for learner in (1, 2)) == 1


@pytest.mark.parametrize(
    "kind",
    [
        "halt",
        pytest.param(
            "kill",
            marks=pytest.mark.soak(
                "the gate halts it; a kill goes before it in tests/learner/test_preemption.py"
            ),
        ),
    ],
)
def test_a_job_that_is_stopped_while_it_makes_room_is_not_begun_again(
    ground: Ground, tmp_path: Path, kind: str
) -> None:
    stubborn = NAP + "trap '' TERM; echo ready; while :; do nap 0.1; done"
    low = ground.submit(stubborn, gpus=2, preemptible=True, grace_seconds=0.5)
    ground.prints(low, "ready")
    urgent = ground.submit("true", gpus=1, priority=70)
    until(lambda: recorded(ground, low, 1).get("stopped") == "preempt", lambda: str(recorded(ground, low, 1)))

    ground.ask(low, kind)

    assert ground.ends(low).state is State.HALTED
    assert ground.ends(urgent).state is State.COMPLETED
    assert not ground.learner(low, 2).path.exists()


@pytest.mark.parametrize(
    "when",
    [
        pytest.param(
            "completed", marks=pytest.mark.soak("the gate has what the end of an attempt would fulfil")
        ),
        "ended",
    ],
)
def test_what_comes_after_it_waits_for_its_last_attempt(
    ground: Ground, order: Path, end: Path, when: str
) -> None:
    low = ground.submit(goes_on(order, "low", end), gpus=2, preemptible=True)
    ground.prints(low, "low-1")
    after = ground.submit(noting(order, "after"), after=(f"{low}:{when}",))
    waits_there(ground, after)
    kill_controller(ground)
    ensure_controller(ground.home)
    assert ground.ends(ground.submit(noting(order, "urgent"), gpus=1, priority=70)).state is State.COMPLETED
    until(lambda: "low-2" in order.read_text(), lambda: str(recorded(ground, low, 2)))
    kill_controller(ground)
    end.touch()

    ran(ground, after, 1)
    assert order.read_text().split() == ["low-1", "urgent", "low-2", "after"]
    ensure_controller(ground.home)
    assert ground.ends(after).state is State.COMPLETED


def test_a_job_that_is_not_preemptible_or_of_no_lower_priority_is_waited_for(
    ground: Ground, order: Path, end: Path
) -> None:
    plain = ground.submit(goes_on(order, "plain", end), gpus=1)
    equal = ground.submit(goes_on(order, "equal", end), gpus=1, preemptible=True, priority=70)
    for job_id, name in ((plain, "plain-1"), (equal, "equal-1")):
        ground.prints(job_id, name)
    urgent = ground.submit(noting(order, "urgent"), gpus=1, priority=70)
    waits_there(ground, urgent)

    assert "lower priority" not in ground.row(urgent).reason.text
    end.touch()

    assert {ground.ends(one).attempt for one in (plain, equal, urgent)} == {1}


def test_a_priority_that_was_raised_while_the_job_waited_keeps_it_from_being_preempted(
    ground: Ground, order: Path, end: Path
) -> None:
    first = ground.submit(goes_on(order, "first", end), gpus=2, priority=90)
    ground.prints(first, "first-1")
    later = end.with_name("later")
    low = ground.submit(goes_on(order, "low", later), gpus=2, preemptible=True)
    ask_for_position(
        ground.store, waits_there(ground, low), QueuePosition(80, 1.0), "priority 80", "me", "test"
    )
    ensure_controller(ground.home)
    until(lambda: [one.priority for one in read_entries(str(leases_folder()))] == [80])
    end.touch()
    ground.prints(low, "low-1")
    urgent = ground.submit(noting(order, "urgent"), gpus=1, priority=75)
    waits_there(ground, urgent)
    later.touch()

    assert ground.ends(low).attempt == 1
    assert ground.ends(urgent).state is State.COMPLETED
