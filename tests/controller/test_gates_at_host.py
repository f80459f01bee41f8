"""Jobs that wait for others, for a time or for CPUs alone are given to this machine, which starts them by itself."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path

import pytest

from tests.support.controllers import alive, answers, kill, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.job import State
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.system import now_us
from workbench.learner.queue import channel
from workbench.store.db.rows import JobRow
from workbench.store.queries.home_queue import QueuePosition, ask_for_position
from workbench.store.queries.jobs import transitions

ALL = 1000.0
"""More CPUs than any machine has: a job that asks for them gets all, alone."""


def first(ground: Ground, end: Path, then: str = "true", **keys: object) -> str:
    """Start a job that runs until its end is asked for."""
    job_id = ground.submit(f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done; {then}", **keys)
    ground.prints(job_id, "ready")
    return job_id


def noting(order: Path, name: str) -> str:
    return f"echo {name} >> {order}"


def state_of(ground: Ground, job_id: str, attempt: int = 1) -> dict[str, object]:
    file = ground.learner(job_id, attempt).state
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def waits_there(ground: Ground, job_id: str, reason: str = "") -> JobRow:
    """Wait until a job waits at its machine, and says why."""

    def there() -> bool:
        # Read in this order: a job is QUEUED before it is prepared for its host, too.
        is_there = bool(state_of(ground, job_id).get("waiting"))
        row = ground.row(job_id)
        return is_there and row.state is State.QUEUED and row.reason.text.startswith(reason)

    until(there, lambda: f"{ground.row(job_id)}\n{log_of(ground.home)}")
    return ground.row(job_id)


class OlderWaiter:
    """Has the name of a home's waiter, and knows the requests of the first format alone."""

    def __init__(self, home: str, *, holds: bool = False) -> None:
        """Take its name; one that ``holds`` answers nobody before it is to go on."""
        self._socket = channel.WaiterSocket(home)
        self._is_over = threading.Event()
        self._goes_on = threading.Event()
        if not holds:
            self.go_on()
        self._thread = threading.Thread(target=self._serve)
        self.refused = 0

    def __enter__(self) -> OlderWaiter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._is_over.set()
        self._thread.join()
        self._socket.close()

    def go_on(self) -> None:
        """Answer from now on."""
        self._goes_on.set()

    def _serve(self) -> None:
        self._goes_on.wait()
        while not self._is_over.is_set():
            poll = select.poll()
            self._socket.register(poll)
            poll.poll(50)
            for conversation, request in self._socket.requests():
                if int(request.get("format") or 1) > 1:
                    self.refused += 1
                    text = "The waiter at the host is older than who hands a job over."
                    conversation.fail(Failure("not_supported", text))
                else:
                    conversation.answer({"ok": True, "pid": os.getpid(), "waiting": []})


def kill_controller(ground: Ground) -> None:
    kill(answers(ground.home).pid)


def ran(ground: Ground, *jobs: str) -> None:
    """Wait until jobs are over, by what their agents recorded: no controller says so."""
    until(lambda: all(state_of(ground, one).get("phase") == "exited" for one in jobs), "the jobs to end")


def test_a_chain_runs_to_its_end_in_order_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    a = first(ground, end, noting(order, "a"))
    b = ground.submit(noting(order, "b"), after=(f"{a}:completed",))
    waits_there(ground, b, f"waits for {a.removeprefix('training-')} test to complete")
    c = ground.submit(noting(order, "c"), after=(f"{b}:completed",))
    waits_there(ground, c, f"waits for {b.removeprefix('training-')} test to complete")
    kill_controller(ground)
    end.touch()

    ran(ground, a, b, c)
    assert status(ground.home) is None
    assert order.read_text().split() == ["a", "b", "c"]

    ensure_controller(ground.home)
    rows = [ground.ends(job_id) for job_id in (a, b, c)]
    assert [row.state for row in rows] == [State.COMPLETED] * 3
    assert [row.started_us for row in rows] == [state_of(ground, one)["started_us"] for one in (a, b, c)]
    assert [row.ended_us for row in rows] == [state_of(ground, one)["ended_us"] for one in (a, b, c)]


def test_what_comes_after_a_job_that_failed_alone_never_runs_and_fails_when_the_controller_is_back(
    ground: Ground, end: Path, order: Path
) -> None:
    a = first(ground, end)
    b = ground.submit("exit 3", after=(f"{a}:completed",))
    waits_there(ground, b)
    c = ground.submit(noting(order, "c"), after=(f"{b}:completed",))
    waits_there(ground, c)
    kill_controller(ground)
    end.touch()
    ran(ground, a, b)
    assert state_of(ground, c)["waiting"]

    ensure_controller(ground.home)

    row = ground.ends(c)
    assert (row.state, row.reason.code, row.started_us) == (State.FAILED, "C105", None)
    assert "which failed" in row.reason.text
    assert not order.exists()


def test_what_need_only_end_is_over_where_it_failed_for_good(ground: Ground, end: Path, order: Path) -> None:
    a = first(ground, end, "exit 3")
    b = ground.submit(noting(order, "b"), after=(f"{a}:ended",))
    waits_there(ground, b, f"waits for {a.removeprefix('training-')} test to end")
    kill_controller(ground)
    end.touch()

    ran(ground, a, b)
    assert order.read_text() == "b\n"


def test_a_failure_that_another_attempt_may_follow_opens_nothing_until_that_has_ended(
    ground: Ground, end: Path, order: Path, tmp_path: Path
) -> None:
    """Its agents are killed, which is the platform's fault: only the controller restarts such a job."""
    again = f"[ -e {tmp_path}/again ] && exec {noting(order, 'a')}; touch {tmp_path}/again; kill -9 $PPID"
    a = first(ground, end, again, max_platform_restarts=1)
    b = ground.submit(noting(order, "b"), after=(f"{a}:ended",))
    waits_there(ground, b)
    kill_controller(ground)
    end.touch()
    until((tmp_path / "again").exists)
    assert state_of(ground, b)["waiting"]

    ensure_controller(ground.home)

    assert ground.ends(b).state is State.COMPLETED
    assert (ground.row(a).state, ground.row(a).attempt) == (State.COMPLETED, 2)
    assert order.read_text().split() == ["a", "b"]


def test_a_job_begins_at_its_time_while_no_controller_is_there(ground: Ground) -> None:
    begin = datetime.now().astimezone() + timedelta(seconds=12)
    job_id = ground.submit("true", begin=begin.isoformat())
    waits_there(ground, job_id, "waits until ")
    kill_controller(ground)

    ran(ground, job_id)

    started_us = state_of(ground, job_id)["started_us"]
    assert isinstance(started_us, int)
    assert begin.timestamp() * 1e6 <= started_us <= now_us()
    ensure_controller(ground.home)
    assert ground.ends(job_id).state is State.COMPLETED


def test_another_time_reaches_the_host(ground: Ground, order: Path) -> None:
    job_id = ground.submit(noting(order, "it"), begin="2090-01-01T00:00:00+00:00")
    row = waits_there(ground, job_id, "waits until ")

    ask_for_position(ground.store, row, QueuePosition(50, 1.0, ""), "begin now", "me", "test")
    ensure_controller(ground.home)

    assert ground.ends(job_id).state is State.COMPLETED


def test_jobs_that_want_all_cpus_run_one_after_the_other_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    a = first(ground, end, cpus=ALL)
    command = f"echo begin >> {order}; sleep 0.3; echo end >> {order}"
    jobs = [ground.submit(command, cpus=ALL) for _ in range(2)]
    waits_there(ground, jobs[0], "waits for ")
    waits_there(ground, jobs[1], "waits behind ")
    kill_controller(ground)
    assert all(state_of(ground, one)["waiting"] for one in jobs)
    end.touch()

    ran(ground, a, *jobs)
    assert order.read_text().split() == ["begin", "end"] * 2
    started = [state_of(ground, one)["started_us"] for one in jobs]
    assert started == sorted(started, key=str)


def test_jobs_that_wait_for_cpus_go_by_priority_at_their_host(ground: Ground, end: Path, order: Path) -> None:
    a = first(ground, end, cpus=ALL)
    names = {"late": 40, "first": 90, "second": 60}
    jobs = {
        name: ground.submit(noting(order, name), cpus=ALL, priority=priority)
        for name, priority in names.items()
    }
    for job_id in jobs.values():
        waits_there(ground, job_id)
    kill_controller(ground)
    end.touch()

    ran(ground, a, *jobs.values())
    assert order.read_text().split() == ["first", "second", "late"]


def swept(ground: Ground, command: str, at_most: int, **keys: object) -> str:
    return ground.submit(command, at_most=at_most, labels={"sweep": "s"}, **keys)


def at_once(ground: Ground, jobs: list[str]) -> int:
    """Return how many jobs ran at once, at most, by what their agents recorded."""
    states = [state_of(ground, job_id) for job_id in jobs]
    steps = [(int(str(one["started_us"])), 1) for one in states]
    steps += [(int(str(one["ended_us"])), -1) for one in states]
    return max(accumulate(step for _, step in sorted(steps)))


def test_a_sweep_goes_on_within_its_limit_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    wait = f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done"
    begun = [swept(ground, wait, 2) for _ in range(2)]
    for job_id in begun:
        ground.prints(job_id, "ready")
    ends = ["exit 3", "true", "kill -9 $$", "true"]
    jobs = [swept(ground, f"{noting(order, str(n))}; sleep 0.2; {then}", 2) for n, then in enumerate(ends)]
    for job_id in jobs:
        waits_there(ground, job_id, "waits: 2 of its sweep may run at once")
    kill_controller(ground)
    assert not order.exists()
    end.touch()

    ran(ground, *begun, *jobs)
    assert status(ground.home) is None
    for job_id in (*begun, *jobs):
        assert json.loads(ground.learner(job_id).launch.read_text())["sweep"] == "s"
    assert sorted(order.read_text().split()) == ["0", "1", "2", "3"]
    assert at_once(ground, [*begun, *jobs]) == 2

    ensure_controller(ground.home)
    rows = [ground.ends(job_id) for job_id in jobs]
    assert [row.exit_code for row in rows] == [3, 0, 137, 0]
    assert [row.started_us for row in rows] == [state_of(ground, one)["started_us"] for one in jobs]


def test_jobs_of_a_sweep_that_run_one_by_one_begin_in_their_order(ground: Ground) -> None:
    """Several are prepared at once, and one that is ready first is not to begin before the one before it."""
    jobs = [ground.write("true", at_most=1, labels={"sweep": "s"}) for _ in range(8)]
    ensure_controller(ground.home)

    assert {ground.ends(job_id).state for job_id in jobs} == {State.COMPLETED}
    started = [int(str(state_of(ground, job_id)["started_us"])) for job_id in jobs]
    assert started == sorted(started)
    assert at_once(ground, jobs) == 1


def test_a_sweep_goes_by_priority_at_its_host(ground: Ground, end: Path, order: Path) -> None:
    begun = swept(ground, f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", 1)
    ground.prints(begun, "ready")
    names = {"late": 40, "first": 90, "second": 60}
    jobs = {name: swept(ground, noting(order, name), 1, priority=number) for name, number in names.items()}
    for job_id in jobs.values():
        waits_there(ground, job_id)
    kill_controller(ground)
    end.touch()

    ran(ground, begun, *jobs.values())
    assert order.read_text().split() == ["first", "second", "late"]


@pytest.mark.parametrize("kind", ["halt", "delete"])
def test_a_job_of_a_sweep_is_stopped_at_its_host_and_the_others_go_on(
    ground: Ground, end: Path, order: Path, kind: str
) -> None:
    begun = swept(ground, f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", 1)
    ground.prints(begun, "ready")
    jobs = [swept(ground, noting(order, name), 1) for name in ("stopped", "other")]
    for job_id in jobs:
        waits_there(ground, job_id)

    ground.ask(jobs[0], kind)
    if kind == "delete":
        until(lambda: not ground.home.job(jobs[0]).path.exists(), lambda: log_of(ground.home))
    else:
        assert ground.ends(jobs[0]).state is State.HALTED
    kill_controller(ground)
    end.touch()

    ran(ground, begun, jobs[1])
    assert order.read_text() == "other\n"


def test_a_killed_waiter_keeps_the_limit_of_a_sweep(ground: Ground, end: Path, tmp_path: Path) -> None:
    begun = swept(ground, f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", 1)
    ground.prints(begun, "ready")
    go = tmp_path / "go"
    jobs = [swept(ground, f"{NAP}echo ready; while [ ! -e {go} ]; do nap 0.05; done", 1) for _ in range(3)]
    for job_id in jobs:
        waits_there(ground, job_id)
    end.touch()
    ground.prints(jobs[0], "ready")  # the waiter has started it
    before = state_of(ground, jobs[1])["pid"]
    assert isinstance(before, int)
    os.kill(before, signal.SIGKILL)
    until(lambda: all(state_of(ground, one).get("pid") != before for one in jobs[1:]), "another waiter")
    for job_id in jobs[1:]:
        waits_there(ground, job_id)
    kill_controller(ground)
    go.touch()

    ran(ground, begun, *jobs)
    assert at_once(ground, [begun, *jobs]) == 1


def test_a_sweep_that_needs_cpus_waits_for_its_limit_first(ground: Ground, end: Path, order: Path) -> None:
    begun = swept(ground, f"{NAP}echo ready; while [ ! -e {end} ]; do nap 0.05; done", 1)
    ground.prints(begun, "ready")
    job_id = swept(ground, noting(order, "it"), 1, cpus=ALL)
    waits_there(ground, job_id, "waits: 1 of its sweep may run at once")
    kill_controller(ground)
    end.touch()

    ran(ground, begun, job_id)
    assert at_once(ground, [begun, job_id]) == 1


def test_a_job_that_could_start_is_started_by_its_host_where_what_waits_there_wants_the_same_cpus(
    ground: Ground,
) -> None:
    b = ground.submit("true", begin="2090-01-01T00:00:00+00:00", cpus=ALL)
    waits_there(ground, b)

    c = ground.submit("true", cpus=ALL)

    assert ground.ends(c).state is State.COMPLETED
    texts = [one.text for one in transitions(ground.store, c) if one.state == State.PENDING]
    assert texts[0] == "waits at its host, which starts it"
    assert ground.row(b).state is State.QUEUED


def test_a_job_that_waits_for_nothing_meets_no_waiter(own_ground: Ground) -> None:
    ground = own_ground  # a waiter is known by the name of its home
    job_id = ground.submit("true", cpus=1)
    ground.ends(job_id)

    states = [one.state for one in transitions(ground.store, job_id) if one.kind == "state"]
    assert states.count(State.QUEUED) == 1
    with pytest.raises(channel.NoWaiter):
        channel.ask(ground.uuid, {"act": "list"}, channel.REACH_SECONDS)


@pytest.mark.parametrize(
    "kind",
    ["halt", pytest.param("kill", marks=pytest.mark.soak("the gate halts it and deletes it")), "delete"],
)
def test_a_job_behind_a_gate_is_stopped_at_its_host(
    ground: Ground, end: Path, order: Path, kind: str
) -> None:
    a = first(ground, end)
    b = ground.submit(noting(order, "b"), after=(f"{a}:ended",))
    waits_there(ground, b)

    ground.ask(b, kind)

    if kind == "delete":
        until(lambda: not ground.home.job(b).path.exists(), lambda: log_of(ground.home))
    else:
        assert ground.ends(b).state is State.HALTED
        assert state_of(ground, b)["phase"] == "exited"
    end.touch()
    ground.ends(a)
    assert not order.exists()


@pytest.mark.parametrize("kind", ["halt", "delete"])
def test_a_job_before_it_that_is_stopped_fails_it(ground: Ground, end: Path, order: Path, kind: str) -> None:
    a = first(ground, end)
    b = ground.submit(noting(order, "b"), after=(f"{a}:completed",))
    waits_there(ground, b)

    ground.ask(a, kind)

    row = ground.ends(b)
    assert (row.state, row.reason.code) == (State.FAILED, "C105")
    assert not order.exists()


def test_a_killed_waiter_loses_no_gate(ground: Ground, end: Path, order: Path) -> None:
    a = first(ground, end, noting(order, "a"))
    b = ground.submit(noting(order, "b"), after=(f"{a}:completed",))
    waits_there(ground, b)
    before = state_of(ground, b)["pid"]
    assert isinstance(before, int)
    os.kill(before, signal.SIGKILL)
    until(lambda: not alive(before))

    until(lambda: state_of(ground, b).get("pid") != before)
    waits_there(ground, b)
    kill_controller(ground)
    end.touch()

    ran(ground, a, b)
    assert order.read_text().split() == ["a", "b"]


def test_an_older_waiter_leaves_such_a_job_with_the_controller(own_ground: Ground, end: Path) -> None:
    ground = own_ground  # a waiter is known by the name of its home
    a = first(ground, end)
    with OlderWaiter(ground.uuid) as older:
        b = ground.submit("echo ran", after=(f"{a}:completed",))
        until(lambda: older.refused)
        reason = f"waits for {a.removeprefix('training-')} test to complete"
        until(lambda: ground.row(b).state is State.QUEUED and ground.row(b).reason.text == reason)
        # Whoever takes in the next one has looked at the queue again.
        ground.ends(ground.submit("true"))
        end.touch()

        assert ground.ends(b).state is State.COMPLETED
        assert (ground.output(b), ground.row(b).attempt, older.refused) == ("ran\n", 1, 1)
    texts = [one.text for one in transitions(ground.store, b)]
    assert any("it waits here, not there" in text for text in texts)
