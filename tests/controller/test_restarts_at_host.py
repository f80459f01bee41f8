"""The next attempt of a job whose command has failed is begun by its host, whether a controller is there or not."""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.controller.test_gates_at_host import (
    ALL,
    OlderWaiter,
    first,
    kill_controller,
    noting,
    state_of,
    swept,
    waits_there,
)
from tests.support.controllers import alive, log_of
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller, status
from workbench.data.code.snapshot import take_snapshot
from workbench.job import State
from workbench.learner.journal.state import ask_to_stop
from workbench.learner.platform.system import read_bytes
from workbench.spec import BindMount
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import transitions


def fails_until(order: Path, attempt: int) -> str:
    """Return a command that notes its attempt, and fails in each one before this."""
    return f"n=${{FABRIC_LEARNER%/1}}; n=${{n##*/}}; echo $n | tee -a {order}; [ $n -ge {attempt} ]"


def recorded(ground: Ground, job_id: str, attempt: int, learner: int = 1) -> dict[str, object]:
    """Return the state of a learner of an attempt; empty before there is one."""
    file = ground.learner(job_id, attempt, learner).state
    found: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    return found


def ran(ground: Ground, job_id: str, attempt: int, learner: int = 1) -> None:
    """Wait until a learner of an attempt is over, by what its agent recorded: no controller says so."""
    until(
        lambda: recorded(ground, job_id, attempt, learner).get("phase") == "exited",
        lambda: (
            f"attempt {attempt}: {recorded(ground, job_id, attempt, learner)},"
            f" 1: {recorded(ground, job_id, 1, learner)}"
        ),
    )


def stopped(ground: Ground, job_id: str, kind: str) -> JobRow | None:
    """Stop a job in its second attempt; return its row, None once it is deleted."""
    ground.ask(job_id, kind)
    if kind == "delete":
        until(lambda: not ground.home.job(job_id).path.exists(), lambda: log_of(ground.home))
        return None
    return ground.ends(job_id, 2)


def states(ground: Ground, job_id: str) -> list[str]:
    return [f"{one.attempt} {one.state}" for one in transitions(ground.store, job_id) if one.kind == "state"]


def test_a_job_is_tried_again_and_again_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    job_id = first(ground, end, fails_until(order, 3), max_restarts=3)
    kill_controller(ground)
    end.touch()

    ran(ground, job_id, 3)
    assert status(ground.home) is None
    assert order.read_text().split() == ["1", "2", "3"]
    ended, started = recorded(ground, job_id, 1)["ended_us"], recorded(ground, job_id, 2)["started_us"]
    assert isinstance(ended, int) and isinstance(started, int) and started - ended >= 700_000

    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 2, 0)
    assert row.started_us == recorded(ground, job_id, 3)["started_us"]
    assert row.ended_us == recorded(ground, job_id, 3)["ended_us"]
    assert [ground.output(job_id, attempt).split()[-1] for attempt in (1, 2, 3)] == ["1", "2", "3"]
    texts = [one.text for one in transitions(ground.store, job_id) if one.state == State.QUEUED]
    assert texts[1].startswith("restart 1 of 3 in 1 s, since the command failed with exit code 1")
    assert texts[2].startswith("restart 2 of 3 in ")


def test_the_controller_that_is_there_shows_each_attempt(ground: Ground, order: Path) -> None:
    job_id = ground.submit(fails_until(order, 2), max_restarts=1)

    row = ground.ends(job_id, 2)

    assert (row.state, row.restarts) == (State.COMPLETED, 1)
    assert order.read_text().split() == ["1", "2"]
    found = states(ground, job_id)
    assert found[found.index("1 FAILED") + 1] == "2 QUEUED"
    assert "attempt 2 is not begun" not in (ground.learner(job_id).path / "guard.log").read_text()


def test_it_is_tried_no_more_often_than_it_may_be(ground: Ground, end: Path, order: Path) -> None:
    job_id = first(ground, end, fails_until(order, 9), max_restarts=1)
    kill_controller(ground)
    end.touch()
    ran(ground, job_id, 2)
    assert "followed_by" not in recorded(ground, job_id, 2)

    ensure_controller(ground.home)

    row = ground.ends(job_id, 2)
    assert (row.state, row.exit_code, row.restarts) == (State.FAILED, 1, 1)
    assert order.read_text().split() == ["1", "2"]


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("sleep 60", {"max_runtime_seconds": 1.0}),
        ("true", {}),
        ("exit 3", {"max_restarts": 0}),
    ],
    ids=["over its time", "completed", "without restarts"],
)
def test_what_no_attempt_may_follow_is_followed_by_none(
    ground: Ground, command: str, keys: dict[str, float]
) -> None:
    job_id = ground.submit(command, **{"max_restarts": 2, **keys})

    row = ground.ends(job_id)

    assert row.attempt == 1
    assert "followed_by" not in recorded(ground, job_id, 1)
    assert not ground.learner(job_id, 2).path.exists()


def test_what_was_asked_to_finish_and_fails_is_left_to_the_controller(
    ground: Ground, end: Path, order: Path
) -> None:
    """Its search has stopped it: what is tried again would train to its end."""
    job_id = first(ground, end, fails_until(order, 2), max_restarts=1)
    kill_controller(ground)
    ask_to_stop(str(ground.learner(job_id).path), {"kind": "finish", "by": "a test"})
    end.touch()

    ran(ground, job_id, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    ensure_controller(ground.home)
    assert ground.ends(job_id, 2).state is State.COMPLETED


def kill_agent(ground: Ground, job_id: str, attempt: int, *names: str) -> None:
    """Kill a learner's guard, and of ``names`` others of its processes, at one instant."""
    found = recorded(ground, job_id, attempt)
    pids = [int(str(found[name])) for name in ("pid", *names)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # none of them sees another one's death
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)))


def test_a_job_whose_agent_is_killed_is_tried_again_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    begins = f"{NAP}n=${{FABRIC_LEARNER%/1}}; echo ${{n##*/}}-${{#TOKEN}} >> {order}; echo ready"
    command = f"{begins}; while [ ! -e {end} ]; do nap 0.05; done"
    keys: dict[str, Any] = {"secret_values": {"TOKEN": "canary-7f3"}, "max_platform_restarts": 2}
    job_id = ground.submit(command, **keys)
    ground.prints(job_id, "ready")
    kill_controller(ground)

    kill_agent(ground, job_id, 1)
    ground.prints(job_id, "ready", attempt=2)
    ended, started = recorded(ground, job_id, 1)["ended_us"], recorded(ground, job_id, 2)["started_us"]
    assert isinstance(ended, int) and isinstance(started, int) and started - ended >= 700_000
    kill_agent(ground, job_id, 2)
    ground.prints(job_id, "ready", attempt=3)
    kill_agent(ground, job_id, 3)
    ran(ground, job_id, 3)
    assert status(ground.home) is None
    assert "followed_by" not in recorded(ground, job_id, 3), "no restart is left"
    assert order.read_text().split() == ["1-10", "2-10", "3-10"]
    until(lambda: ground.processes() == [])

    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.FAILED, 0, 2)
    texts = [one.text for one in transitions(ground.store, job_id) if one.state == State.QUEUED]
    killed = "since the agent was killed while the command ran"
    assert texts[1] == f"platform restart 1 of 2 in 1 s, {killed}"
    assert texts[2].startswith("platform restart 2 of 2 in ") and texts[2].endswith(killed)


def test_a_command_that_had_failed_when_its_agent_was_killed_is_tried_again(
    ground: Ground, end: Path, order: Path
) -> None:
    stays = f"{NAP}(while [ ! -e {order}.go ]; do nap 0.05; done) & "  # which the agent ends in two seconds
    job_id = first(ground, end, f"{stays}{fails_until(order, 2)}", max_restarts=1, max_platform_restarts=1)
    kill_controller(ground)
    end.touch()
    until(lambda: recorded(ground, job_id, 1).get("exit_code") == 1)
    kill_agent(ground, job_id, 1)
    ran(ground, job_id, 2)

    ensure_controller(ground.home)
    row = ground.ends(job_id, 2)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 1, 0)


def test_a_job_whose_agents_are_all_killed_is_restarted_by_the_controller(
    ground: Ground, end: Path, order: Path
) -> None:
    job_id = first(ground, end, noting(order, "it"), max_platform_restarts=1)
    kill_controller(ground)
    kill_agent(ground, job_id, 1, "scribe_pid")
    end.touch()

    ensure_controller(ground.home)
    row = ground.ends(job_id, 2)
    assert (row.state, row.platform_restarts) == (State.COMPLETED, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)


def test_a_job_whose_agent_is_killed_as_its_machine_shuts_down_is_not_tried_again_there(
    ground: Ground, end: Path
) -> None:
    stays = f"{NAP}trap '' TERM; echo stays; while [ ! -e {end}.2 ]; do nap 0.05; done"
    job_id = first(ground, end, stays, max_platform_restarts=1, max_restarts=1, grace_seconds=1.0)
    end.touch()
    ground.prints(job_id, "stays")
    kill_controller(ground)
    pid = int(str(recorded(ground, job_id, 1)["pid"]))
    os.kill(pid, signal.SIGTERM)
    until(lambda: recorded(ground, job_id, 1)["phase"] == "stopping")
    kill_agent(ground, job_id, 1)

    ran(ground, job_id, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    assert not ground.learner(job_id, 2).path.exists()


def test_a_container_of_which_its_engine_says_nothing_is_left_to_the_controller(
    ground: Ground, end: Path
) -> None:
    """Its agent is killed, and it may run."""
    job_id = first(ground, end, max_platform_restarts=1)
    kill_controller(ground)
    (ground.learner(job_id).path / "container.json").write_text(json.dumps({"engine": "/none", "name": "it"}))
    kill_agent(ground, job_id, 1)

    ran(ground, job_id, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    end.touch()


@pytest.mark.parametrize("kind", ["halt", "kill"])
def test_a_job_that_somebody_stops_is_over_though_its_agent_is_killed(
    ground: Ground, end: Path, kind: str
) -> None:
    stays = f"{NAP}trap '' TERM; echo stays; while [ ! -e {end}.2 ]; do nap 0.05; done"
    job_id = first(ground, end, stays, max_platform_restarts=1, grace_seconds=1.0)
    end.touch()
    ground.prints(job_id, "stays")
    kill_controller(ground)
    pid = int(str(recorded(ground, job_id, 1)["pid"]))
    os.kill(pid, signal.SIGSTOP)
    ask_to_stop(str(ground.learner(job_id).path), {"kind": kind, "by": "a test", "grace_seconds": 1.0})
    os.kill(pid, signal.SIGKILL)

    ran(ground, job_id, 1)
    found = recorded(ground, job_id, 1)
    assert (found["stopped"], found.get("followed_by")) == (kind, None)


def test_the_next_attempt_has_the_code_secrets_and_links_of_the_first(
    ground: Ground, end: Path, tmp_path: Path
) -> None:
    source, mounted = tmp_path / "source", tmp_path / "mounted"
    source.mkdir()
    mounted.mkdir()
    (source / "code.txt").write_text("as submitted\n")
    (mounted / "data").write_text("mounted\n")
    snapshot = take_snapshot(source, ground.home)
    command = (
        "cat code.txt in/data; echo changed > code.txt; test ${#TOKEN} = 10 && echo $TOKEN;"
        " test -e $RESULT_DIR/once || { touch $RESULT_DIR/once; exit 3; }"
    )
    job_id = first(
        ground,
        end,
        command,
        max_restarts=1,
        code_hash=snapshot.code_hash,
        bind_mounts=(BindMount(str(mounted), "in"),),
        secret_values={"TOKEN": "canary-7f3"},
    )
    kill_controller(ground)
    end.touch()
    ran(ground, job_id, 2)

    assert recorded(ground, job_id, 2)["exit_code"] == 0
    lines = ground.output(job_id, 2).splitlines()
    assert lines[1:3] == ["as submitted", "mounted"] and "canary" not in lines[3]
    for file in (one for one in ground.home.jobs.rglob("*") if one.is_file()):
        assert b"canary-7f3" not in read_bytes(str(file)), file
    first_packages = ground.home.job(job_id).attempt(1).environment
    assert ground.home.job(job_id).attempt(2).environment.read_text() == first_packages.read_text()


@pytest.mark.parametrize(
    "kind",
    ["halt", pytest.param("kill", marks=pytest.mark.soak("the gate halts it and deletes it")), "delete"],
)
def test_the_next_attempt_is_stopped_where_it_waits(
    ground: Ground, end: Path, order: Path, kind: str
) -> None:
    job_id = first(ground, end, "exit 3", max_restarts=1, cpus=ALL)
    release = order.with_name("release")
    other = ground.submit(
        f"{NAP}echo ready; while [ ! -e {release} ]; do nap 0.05; done", cpus=ALL, priority=60
    )
    waits_there(ground, other)
    end.touch()
    ground.prints(other, "ready")
    ground.reaches(job_id, State.QUEUED, attempt=2)

    row = stopped(ground, job_id, kind)
    if row is not None:
        assert (row.state, row.started_us) == (State.HALTED, None)
        assert recorded(ground, job_id, 2)["phase"] == "exited"
    release.touch()
    assert ground.ends(other).state is State.COMPLETED


@pytest.mark.parametrize(
    "kind",
    ["halt", pytest.param("kill", marks=pytest.mark.soak("the gate halts it and deletes it")), "delete"],
)
def test_a_stop_that_was_asked_for_in_ignorance_of_the_next_attempt_stops_that(
    ground: Ground, end: Path, order: Path, kind: str
) -> None:
    again = f"[ -e {order} ] && {{ echo again; exec sleep 600; }}; {noting(order, 'it')}; exit 3"
    job_id = first(ground, end, again, max_restarts=1)
    kill_controller(ground)
    end.touch()
    ground.prints(job_id, "again", attempt=2)
    assert ground.row(job_id).attempt == 1

    row = stopped(ground, job_id, kind)
    if row is not None:
        assert (row.state, row.exit_by) == (State.HALTED, kind)
        assert "1 FAILED" in states(ground, job_id)
    until(lambda: ground.processes() == [])


def test_what_comes_after_it_waits_for_its_last_attempt_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    a = first(ground, end, fails_until(order, 3), max_restarts=2)
    b = ground.submit(noting(order, "b"), after=(f"{a}:completed",))
    waits_there(ground, b)
    kill_controller(ground)
    end.touch()

    ran(ground, b, 1)
    assert order.read_text().split() == ["1", "2", "3", "b"]
    ensure_controller(ground.home)
    assert [ground.ends(one).state for one in (a, b)] == [State.COMPLETED] * 2
    assert ground.row(a).attempt == 3


def test_where_the_waiter_does_not_take_it_the_controller_begins_the_next_attempt(
    own_ground: Ground, end: Path, order: Path
) -> None:
    ground = own_ground  # a waiter is known by the name of its home
    job_id = first(ground, end, fails_until(order, 2), max_restarts=1)
    with OlderWaiter(ground.uuid) as older:
        end.touch()
        row = ground.ends(job_id, 2)

        assert (row.state, older.refused) == (State.COMPLETED, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    assert "is older" in (ground.learner(job_id).path / "guard.log").read_text()
    assert order.read_text().split() == ["1", "2"]


def test_a_waiter_that_is_killed_loses_no_attempt(ground: Ground, end: Path, order: Path) -> None:
    job_id = first(ground, end, fails_until(order, 2), max_restarts=1, cpus=ALL)
    other = ground.submit(
        f"{NAP}echo ready; while [ ! -e {order}.go ]; do nap 0.05; done", cpus=ALL, priority=60
    )
    waits_there(ground, other)
    kill_controller(ground)
    end.touch()
    ground.prints(other, "ready")
    until(lambda: bool(recorded(ground, job_id, 2).get("waiting")))
    pid = recorded(ground, job_id, 2)["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    Path(f"{order}.go").touch()

    ensure_controller(ground.home)
    assert (ground.ends(job_id, 2).state, ground.ends(other).state) == (State.COMPLETED, State.COMPLETED)
    assert order.read_text().split() == ["1", "2"]
    assert state_of(ground, job_id)["followed_by"]


def test_a_resume_while_it_waits_for_the_next_attempt_begins_that_at_once(
    ground: Ground, order: Path
) -> None:
    """The sixth restart comes after half a minute."""
    job_id = ground.submit(fails_until(order, 7), max_restarts=6)
    next_try_us = None
    for attempt in range(2, 8):
        ground.reaches(job_id, State.QUEUED, attempt=attempt)
        if attempt > 2:
            next_try_us = ground.row(job_id).next_try_us
            assert next_try_us is not None
            ground.ask(job_id, "resume")

    row = ground.ends(job_id, 7)

    assert row.state is State.COMPLETED
    assert order.read_text().split() == list("1234567")
    started_us = recorded(ground, job_id, 7)["started_us"]
    assert next_try_us is not None and isinstance(started_us, int)
    assert started_us < next_try_us


def test_a_stop_during_the_hand_over_reaches_whatever_is_begun(
    own_ground: Ground, end: Path, order: Path
) -> None:
    """Its host has no controller then that could pass it on."""
    ground = own_ground  # a waiter is known by the name of its home
    again = f"[ -e {order} ] && {{ echo again; exec sleep 600; }}; {noting(order, 'it')}; exit 3"
    job_id = first(ground, end, again, max_restarts=1)
    kill_controller(ground)
    folder = ground.learner(job_id).path
    with OlderWaiter(ground.uuid, holds=True) as waiter:
        end.touch()
        until(lambda: "followed_by" in recorded(ground, job_id, 1), "the next attempt to be named")
        ask_to_stop(str(folder), {"kind": "kill", "by": "a test"})
        waiter.go_on()
        ran(ground, job_id, 1)
        assert waiter.refused == 0, "nothing was given to it"

    assert "followed_by" not in recorded(ground, job_id, 1)
    assert not (ground.learner(job_id, 2).path / "state.json").exists()


def test_what_its_command_has_removed_is_there_for_the_next_attempt(ground: Ground, end: Path) -> None:
    command = (
        "[ -d $RESULT_DIR ] && ls -d $RESULT_DIR $CHECKPOINT_DIR; rmdir $RESULT_DIR $CHECKPOINT_DIR; exit 3"
    )
    job_id = first(ground, end, command, max_restarts=1)
    kill_controller(ground)
    end.touch()

    ran(ground, job_id, 2)
    assert len(ground.output(job_id, 2).splitlines()) == 3


def test_an_attempt_whose_python_is_gone_is_left_to_the_controller(
    ground: Ground, end: Path, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    job_id = first(ground, end, "exit 3", max_restarts=1, recorded={"python": str(python)})
    kill_controller(ground)
    python.unlink()
    end.touch()

    ran(ground, job_id, 1)
    assert "followed_by" not in recorded(ground, job_id, 1)
    assert "is not there any more" in (ground.learner(job_id).path / "guard.log").read_text()


def fails_in(order: Path, learner: int, *, last: int) -> str:
    """Return a command that notes attempt and learner; in each attempt before the last one of them fails at the end."""
    numbers = "l=${FABRIC_LEARNER##*/}; n=${FABRIC_LEARNER%/*}; n=${n##*/}"
    noted = f'{numbers}; echo $n.$l >> {order}; until [ "$(grep -c ^$n {order})" = 3 ]; do nap 0.05; done'
    return f"{noted}; [ $n -lt {last} ] || exit 0; [ $l = {learner} ] && exit 3; exec sleep 600"


def test_several_learners_are_tried_again_together_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path
) -> None:
    job_id = first(ground, end, fails_in(order, 2, last=3), max_restarts=3, learners=3, settle_seconds=5.0)
    for learner in (2, 3):
        ground.prints(job_id, "ready", learner=learner)
    kill_controller(ground)
    end.touch()

    for learner in (1, 2, 3):
        ran(ground, job_id, 3, learner)
    assert status(ground.home) is None
    noted = order.read_text().split()
    assert sorted(noted) == sorted(f"{attempt}.{learner}" for attempt in (1, 2, 3) for learner in (1, 2, 3))
    followed = [
        [recorded(ground, job_id, attempt, learner).get("followed_by") for learner in (1, 2, 3)]
        for attempt in (1, 2)
    ]
    assert [sum(one is not None for one in each) for each in followed] == [1, 1]
    ports = {
        json.loads(ground.learner(job_id, 2, one).launch.read_text())["env"]["MASTER_PORT"]
        for one in (1, 2, 3)
    }
    assert len(ports) == 1

    ensure_controller(ground.home)
    row = ground.ends(job_id, 3)
    assert (row.state, row.restarts, row.platform_restarts) == (State.COMPLETED, 2, 0)
    texts = [one.text for one in transitions(ground.store, job_id) if one.state == State.QUEUED]
    assert texts[1].startswith("restart 1 of 3 in 1 s, since learner 2: the command failed with exit code 3")


def swept_command(order: Path, name: str, attempts: int, start: Path) -> str:
    """Return a command of a sweep that notes its name and attempt, and fails in each one before the last."""
    number = "n=${FABRIC_LEARNER%/1}; n=${n##*/}"
    runs = (
        f"{NAP}{number}; echo begin {name}$n >> {order}; while [ ! -e {start} ]; do nap 0.05; done; sleep 0.2"
    )
    return f"{runs}; echo end {name}$n >> {order}; [ $n -ge {attempts} ]"


def ran_at_once(order: Path) -> int:
    """Return how many attempts ran at once, at most, by what they noted."""
    steps = [1 if line.startswith("begin") else -1 for line in order.read_text().splitlines()]
    return max(accumulate(steps))


@pytest.mark.parametrize(
    "at_most", [pytest.param(1, marks=pytest.mark.soak("another limit; the gate has two at once")), 2]
)
def test_jobs_of_a_sweep_are_tried_again_within_its_limit_while_no_controller_is_there(
    ground: Ground, end: Path, order: Path, at_most: int
) -> None:
    names = "abcd"
    jobs = {}
    for number, name in enumerate(names):
        jobs[name] = swept(ground, swept_command(order, name, 2, end), at_most, max_restarts=2)
        if number < at_most:
            until(lambda name=name: f"begin {name}1" in order.read_text() if order.exists() else False)  # type: ignore[misc]
        else:
            waits_there(ground, jobs[name], f"waits: {at_most} of its sweep may run at once")
    kill_controller(ground)
    end.touch()

    for job_id in jobs.values():
        ran(ground, job_id, 2)
    assert status(ground.home) is None
    noted = [line.partition(" ")[2] for line in order.read_text().splitlines() if line.startswith("end")]
    assert sorted(noted) == [f"{name}{number}" for name in names for number in (1, 2)]
    assert ran_at_once(order) == at_most

    ensure_controller(ground.home)
    rows = [ground.ends(job_id, 2) for job_id in jobs.values()]
    assert [(row.state, row.restarts) for row in rows] == [(State.COMPLETED, 1)] * 4


def test_a_sweep_keeps_its_limit_while_its_host_and_the_controller_both_start_jobs(
    ground: Ground, end: Path, order: Path
) -> None:
    jobs = [
        swept(ground, swept_command(order, name, 2 if name in "ace" else 1, end), 2, max_restarts=1)
        for name in "abcdef"
    ]
    until(lambda: order.exists() and len(order.read_text().splitlines()) == 2)
    end.touch()

    rows = [ground.ends(job_id, 2 if number % 2 == 0 else 1) for number, job_id in enumerate(jobs)]

    assert {row.state for row in rows} == {State.COMPLETED}
    assert ran_at_once(order) == 2
    for job_id in jobs[::2]:
        assert recorded(ground, job_id, 1)["followed_by"]


def test_a_sweep_at_two_backends_is_counted_and_restarted_by_the_controller(
    ground: Ground, end: Path, order: Path
) -> None:
    end.touch()
    targets = [TargetRef(name, "local", "process") for name in ("local", "other")]
    keys = {"at_most": 1, "labels": {"sweep": "s"}, "max_restarts": 1}
    jobs = [
        ground.write(swept_command(order, name, 2, end), target=target, **keys)
        for name, target in zip("abcd", targets * 2, strict=True)
    ]
    ensure_controller(ground.home)

    rows = [ground.ends(job_id, 2) for job_id in jobs]

    assert {row.state for row in rows} == {State.COMPLETED}
    assert ran_at_once(order) == 1
    # The last one is alone of its sweep at the end, and its host sees all of that.
    assert "restarts" not in json.loads(ground.learner(jobs[0]).launch.read_text())
