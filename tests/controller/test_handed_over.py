"""Jobs that wait for GPUs are given to this machine, which starts them in their order with no controller there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stubs import Gpus, pretend
from tests.support.controllers import alive, answers, end_all, kill, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import PREPARING, State
from workbench.learner.queue.entries import read_entries
from workbench.paths import Home, leases_folder
from workbench.store.db.rows import JobRow
from workbench.store.queries.home_queue import QueuePosition, ask_for_position
from workbench.store.queries.jobs import transitions
from workbench.store.queries.requests import request


@pytest.fixture
def ground(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A home on a machine with one GPU."""
    gpus: Gpus = pretend(tmp_path / "gpus", monkeypatch)
    gpus.add("GPU-1")
    made = Ground(home)
    yield made
    made.clean_up()


@pytest.fixture
def end(tmp_path: Path) -> Path:
    """Once this file is there, the job ends that holds the GPU."""
    return tmp_path / "end"


@pytest.fixture
def holder(ground: Ground, end: Path) -> str:
    """A job that holds the GPU."""
    job_id = ground.submit(f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", gpus=1)
    ground.prints(job_id, "ready")
    return job_id


def state_of(ground: Ground, job_id: str, attempt: int = 1) -> dict[str, object]:
    file = ground.learner(job_id, attempt).state
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def waits_there(ground: Ground, job_id: str) -> JobRow:
    """Wait until a job waits at its machine."""

    def there() -> bool:
        # Read in this order: a job is QUEUED before it is prepared for its host, too.
        return bool(state_of(ground, job_id).get("waiting")) and ground.row(job_id).state is State.QUEUED

    until(there, lambda: f"{ground.row(job_id)}\n{log_of(ground.home)}")
    return ground.row(job_id)


def waiter_of(ground: Ground, job_id: str) -> int:
    pid = state_of(ground, job_id)["pid"]
    assert isinstance(pid, int)
    return pid


def kill_controller(ground: Ground) -> None:
    kill(answers(ground.home).pid)


def outcome_of(ground: Ground, request_id: int) -> str:
    found = request(ground.store, request_id)
    assert found is not None
    return found.outcome


def noting(file: Path, name: str) -> str:
    return f"echo {name} >> {file}"


def test_jobs_that_wait_run_to_their_end_in_order_while_no_controller_is_there(
    ground: Ground, holder: str, end: Path, tmp_path: Path
) -> None:
    order = tmp_path / "order"
    jobs = {
        name: ground.submit(noting(order, name), gpus=1, priority=priority)
        for name, priority in (("third", 50), ("last", 40), ("fourth", 50), ("first", 70), ("second", 60))
    }
    for job_id in jobs.values():
        waits_there(ground, job_id)
    kill_controller(ground)
    end.touch()

    until(lambda: all(state_of(ground, job_id).get("phase") == "exited" for job_id in jobs.values()))
    assert status(ground.home) is None
    assert order.read_text().split() == ["first", "second", "third", "fourth", "last"]

    ensure_controller(ground.home)
    rows = {name: ground.ends(job_id) for name, job_id in jobs.items()}
    assert {row.state for row in rows.values()} == {State.COMPLETED}
    assert ground.ends(holder).state is State.COMPLETED
    for name, row in rows.items():
        assert row.started_us == state_of(ground, jobs[name])["started_us"]


def test_a_small_job_that_is_over_soon_passes_a_large_one_while_no_controller_is_there(
    ground: Ground, end: Path, tmp_path: Path
) -> None:
    Gpus(tmp_path / "gpus").add("GPU-1").add("GPU-2")
    wait, order = f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", tmp_path / "order"
    holders = [ground.submit(wait, gpus=1, max_runtime_seconds=seconds) for seconds in (3600.0, 7200.0)]
    for holder in holders:
        ground.prints(holder, "ready")
    command = f"{noting(order, '$NAME')}; cp {order} $RESULT_DIR"
    large = ground.submit(command, gpus=2, env={"NAME": "large"})
    endless = ground.submit(command, gpus=1, env={"NAME": "endless"})
    small = ground.submit(command, gpus=1, env={"NAME": "small"}, max_runtime_seconds=60.0)
    for job_id in (large, endless, small):
        waits_there(ground, job_id)
    ground.ask(holders[0], "kill")
    ground.ends(holders[0])
    kill_controller(ground)

    until(lambda: state_of(ground, small).get("phase") == "exited", lambda: f"{state_of(ground, small)}")
    assert order.read_text().split() == ["small"]
    assert [state_of(ground, one).get("waiting") for one in (large, endless)] == [True, True]
    end.touch()
    until(lambda: state_of(ground, endless).get("phase") == "exited", lambda: f"{state_of(ground, endless)}")

    assert order.read_text().split() == ["small", "large", "endless"]
    ensure_controller(ground.home)
    assert {ground.ends(one).state for one in (large, endless, small)} == {State.COMPLETED}


def test_what_happened_to_a_job_that_waited_is_in_its_history(ground: Ground, holder: str, end: Path) -> None:
    job_id = ground.submit("true", gpus=1)
    waits_there(ground, job_id)
    end.touch()
    ground.ends(job_id)

    states = [one.state for one in transitions(ground.store, job_id) if one.kind == "state"]
    states = [state for state in states if state != State.DOWNLOADING]
    assert [state for index, state in enumerate(states) if index == 0 or state != states[index - 1]] == [
        State.QUEUED, State.PENDING, State.QUEUED, State.PENDING, State.PROCESSING, State.STORING, State.COMPLETED,
    ]  # fmt: skip


def test_a_job_that_waits_stays_queued_while_the_next_controller_finds_it(
    ground: Ground, holder: str
) -> None:
    job_id = ground.submit("true", gpus=1)
    waits_there(ground, job_id)
    before = transitions(ground.store, job_id)
    kill_controller(ground)

    # Whoever takes in the next one has looked at all that was there.
    waits_there(ground, ground.submit("true", gpus=1))

    assert transitions(ground.store, job_id) == before


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param(
            "halt", 143, marks=pytest.mark.soak("the gate kills it, and halts one without a waiter")
        ),
        ("kill", 137),
    ],
)
def test_a_job_that_is_stopped_while_it_waits_never_runs(
    ground: Ground, holder: str, end: Path, tmp_path: Path, kind: str, code: int
) -> None:
    job_id = ground.submit(noting(tmp_path / "ran", "it"), gpus=1)
    waits_there(ground, job_id)

    ground.ask(job_id, kind)

    row = ground.ends(job_id)
    assert (row.state, row.exit_code) == (State.HALTED, code)
    # Its end is recorded first, so that nobody takes it for one that waits.
    until(lambda: read_entries(str(leases_folder())) == [], "its entry to be gone")
    end.touch()
    ground.ends(holder)
    assert not (tmp_path / "ran").exists()


def test_the_next_controller_knows_what_waits_and_stops_it(
    ground: Ground, holder: str, tmp_path: Path
) -> None:
    job_id = ground.submit(noting(tmp_path / "ran", "it"), gpus=1)
    waits_there(ground, job_id)
    kill_controller(ground)

    ground.ask(job_id, "halt")

    assert ground.ends(job_id).state is State.HALTED
    assert not (tmp_path / "ran").exists()


def test_a_job_that_is_deleted_while_it_waits_leaves_nothing(
    ground: Ground, holder: str, tmp_path: Path
) -> None:
    job_id = ground.submit(noting(tmp_path / "ran", "it"), gpus=1)
    waits_there(ground, job_id)

    ground.ask(job_id, "delete")

    until(lambda: not ground.home.job(job_id).path.exists())
    until(lambda: read_entries(str(leases_folder())) == [])
    assert not (tmp_path / "ran").exists()


def test_what_a_killed_waiter_had_is_given_to_another_one_with_its_secrets(
    ground: Ground, holder: str, end: Path
) -> None:
    job_id = ground.submit('test "$TOKEN" = canary && echo known', gpus=1, secret_values={"TOKEN": "canary"})
    waits_there(ground, job_id)
    before = waiter_of(ground, job_id)
    os.kill(before, signal.SIGKILL)

    until(lambda: not alive(before))
    until(lambda: waiter_of(ground, job_id) != before)
    waits_there(ground, job_id)
    end.touch()
    assert ground.ends(job_id).state is State.COMPLETED
    assert ground.output(job_id) == "known\n"
    assert ground.row(job_id).attempt == 1


def test_a_waiter_that_dies_with_the_controller_loses_nothing(ground: Ground, holder: str, end: Path) -> None:
    job_id = ground.submit("echo ran", gpus=1)
    waits_there(ground, job_id)
    kill_controller(ground)
    os.kill(waiter_of(ground, job_id), signal.SIGKILL)
    end.touch()

    ensure_controller(ground.home)

    assert ground.ends(job_id).state is State.COMPLETED
    assert (ground.output(job_id), ground.row(job_id).attempt) == ("ran\n", 1)


@pytest.mark.parametrize("kind", ["halt", "delete"])
def test_a_job_whose_waiter_is_gone_is_stopped_without_a_start(
    ground: Ground, holder: str, end: Path, tmp_path: Path, kind: str
) -> None:
    job_id = ground.submit(noting(tmp_path / "ran", "it"), gpus=1)
    waits_there(ground, job_id)
    kill_controller(ground)
    os.kill(waiter_of(ground, job_id), signal.SIGKILL)

    ground.ask(job_id, kind)

    if kind == "halt":
        assert ground.ends(job_id).state is State.HALTED
    else:
        until(lambda: not ground.home.job(job_id).path.exists(), lambda: log_of(ground.home))
    end.touch()
    ground.ends(holder)
    assert not (tmp_path / "ran").exists()


def test_several_learners_start_together_or_not_at_all(
    ground: Ground, holder: str, end: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1").add("GPU-2")
    job_id = ground.submit("echo $LEARNER_ID of $MASTER_PORT on $CUDA_VISIBLE_DEVICES", gpus=1, learners=2)
    waits_there(ground, job_id)
    end.touch()
    assert ground.ends(job_id).state is State.COMPLETED

    first, second = (ground.output(job_id, learner=number).split() for number in (1, 2))
    assert {first[-1], second[-1]} == {"GPU-1", "GPU-2"}
    assert first[2] == second[2] != ""


def test_a_job_that_waits_says_how_it_stands_there_and_is_moved(
    ground: Ground, holder: str, end: Path
) -> None:
    jobs = [ground.submit("true", gpus=1) for _ in range(3)]
    for job_id in jobs:
        waits_there(ground, job_id)
    reason = "waits for 1 GPU: "
    until(lambda: ground.row(jobs[0]).reason.text.startswith(reason), lambda: str(ground.row(jobs[0])))
    assert holder in ground.row(jobs[0]).reason.text

    def order() -> list[str]:
        entries = read_entries(str(leases_folder()))
        return [one.job for one in sorted(entries, key=lambda one: (-one.priority, one.position))]

    until(lambda: order() == jobs)
    ask_for_position(ground.store, ground.row(jobs[2]), QueuePosition(80, 1.0), "priority 80", "me", "test")
    ensure_controller(ground.home)
    until(lambda: order() == [jobs[2], *jobs[:2]])


def test_a_job_that_is_moved_while_it_is_given_to_its_host_stands_there_once_it_is_given(
    ground: Ground, holder: str
) -> None:
    first = ground.submit("true", gpus=1)
    waits_there(ground, first)
    waiter = waiter_of(ground, first)
    os.kill(waiter, signal.SIGSTOP)
    try:
        second = ground.submit("true", gpus=1)
        row = ground.reaches(second, *PREPARING)
        asked = ask_for_position(ground.store, row, QueuePosition(80, 1.0), "priority 80", "me", "test")
        # Whoever takes in the next one has looked at what was asked for.
        ground.ends(ground.submit("true"))
        assert outcome_of(ground, asked) == ""
    finally:
        os.kill(waiter, signal.SIGCONT)

    until(lambda: outcome_of(ground, asked), lambda: str(ground.row(second)))
    assert outcome_of(ground, asked) == "done"
    waits_there(ground, second)

    def stands_first() -> bool:
        priorities = {one.job: one.priority for one in read_entries(str(leases_folder()))}
        return priorities[second] > priorities[first]

    until(stands_first, "the host to have the new order")


def test_a_home_that_nobody_needs_any_more_has_no_waiter(ground: Ground, holder: str, end: Path) -> None:
    job_id = ground.submit("true", gpus=1)
    waits_there(ground, job_id)
    waiter = waiter_of(ground, job_id)
    end.touch()
    ground.ends(job_id)
    end_all(ground.home)

    until(lambda: not alive(waiter), seconds=20)
