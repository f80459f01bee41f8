"""What opens a gate at a host: the states that a predecessor's agents recorded; in doubt it stays closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.learner.platform.errors import Failure
from workbench.learner.queue import channel
from workbench.learner.waiter.attempts import Ticket
from workbench.learner.waiter.gates import (
    AwaitedAttempt,
    GateReader,
    OpenGates,
    SweepCounts,
    TicketGates,
    TicketLimit,
    is_over,
    lets_go,
    remaining_us,
)

FAILURE = {"text": "the command ended with exit code 3", "code": "C201", "hint": ""}
PLATFORM = {"text": "the agent was killed", "code": "S202", "hint": ""}
UNSTORED = {"text": "the results could not be stored", "code": "S303", "hint": ""}


def before(*folders: str, **facts: Any) -> AwaitedAttempt:
    """An attempt that has to complete and has no restarts left after a fault of the user's."""
    predecessor = AwaitedAttempt("training-a", 1, False, 0, 3, folders or ("/l1",))
    return predecessor._replace(**facts)


def over(exit_code: int | None = 0, **fields: Any) -> dict[str, Any]:
    """The state of a learner that has ended."""
    return {
        "job": "training-a",
        "attempt": 1,
        "phase": "exited",
        "exit_code": exit_code,
        "signal": None,
        "stopped": "",
        "reason": None,
        **fields,
    }


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([over()], id="one"),
        pytest.param([over(), over()], id="all of two"),
    ],
)
def test_commands_that_ended_with_0_let_go(states: list[dict[str, Any]]) -> None:
    assert lets_go(before(), states)
    assert lets_go(before(may_fail=True, restarts_left=2), states)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param([], id="no learners"),
        pytest.param([{}], id="no state"),
        pytest.param([over(), {}], id="one of two"),
        pytest.param([over(phase="running", exit_code=None)], id="it runs"),
        pytest.param([over(phase="storing")], id="its results are being stored"),
        pytest.param([over(phase="stopping")], id="its output is being saved"),
        pytest.param([over(phase="starting", waiting=True)], id="it waits there itself"),
        pytest.param([over(3, reason=FAILURE)], id="it failed"),
        pytest.param([over(None, signal=9)], id="a signal"),
        pytest.param([over(stopped="halt")], id="it was halted, and ended with 0"),
        pytest.param([over(), over(143, stopped="settle")], id="the others were stopped"),
        pytest.param([over(reason=UNSTORED)], id="its results are not stored"),
        pytest.param([over(reason=PLATFORM)], id="its last output may be missing"),
        pytest.param([over(attempt=2)], id="another attempt"),
        pytest.param([over(job="training-b")], id="another job"),
    ],
)
def test_what_has_not_completed_for_certain_holds(states: list[dict[str, Any]]) -> None:
    assert not lets_go(before(), states)


@pytest.mark.parametrize(
    ("state", "restarts", "platform_restarts", "expected"),
    [
        pytest.param(over(3, reason=FAILURE), 0, 3, True, id="it failed for good"),
        pytest.param(over(3, reason=FAILURE), 1, 3, False, id="another attempt may follow"),
        pytest.param(over(None, signal=11), 0, 3, True, id="a signal is the user's fault"),
        pytest.param(
            over(None, reason=PLATFORM), 0, 3, False, id="the platform's fault has restarts of its own"
        ),
        pytest.param(
            over(reason=UNSTORED), 0, 3, False, id="results that are not stored are the platform's fault"
        ),
        pytest.param(over(None), 0, 3, False, id="nobody knows how it ended"),
        pytest.param(over(143, stopped="halt"), 0, 3, False, id="who halted it may start it again"),
        pytest.param(over(143, stopped="kill"), 0, 0, True, id="nothing can follow"),
        pytest.param(over(None, reason=PLATFORM), 0, 0, True, id="nothing can follow the platform's fault"),
    ],
)
def test_what_need_only_end_is_over_where_no_attempt_can_follow(
    state: dict[str, Any], restarts: int, platform_restarts: int, expected: bool
) -> None:
    predecessor = before(may_fail=True, restarts_left=restarts, platform_restarts_left=platform_restarts)

    assert lets_go(predecessor, [state]) is expected
    assert not lets_go(predecessor._replace(may_fail=False), [state])


def test_a_predecessor_that_has_let_go_does_not_count_again(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(over()))
    gates, opened = TicketGates(after=(before(str(tmp_path)),)), OpenGates()
    assert opened.closed_by(gates, GateReader()) == []

    (tmp_path / "state.json").unlink()

    assert opened.closed_by(gates, GateReader()) == []
    again = TicketGates(after=(before(str(tmp_path), attempt=2),))
    assert opened.closed_by(again, GateReader()) == list(again.after)


def test_a_state_is_read_once_a_look_for_all_that_come_after(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(over()))
    reader = GateReader()
    reader.closed([before(str(tmp_path))])
    (tmp_path / "state.json").unlink()

    assert reader.closed([before(str(tmp_path))]) == []


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([over()], True, id="it succeeded"),
        pytest.param([over(3, reason=FAILURE), over(None, reason=PLATFORM)], True, id="however they ended"),
        pytest.param([over(stopped="kill")], True, id="it was stopped"),
        pytest.param([over(), over(phase="storing")], False, id="one stores its results"),
        pytest.param([over(), {}], False, id="one has no state"),
        pytest.param([over(attempt=2)], False, id="another attempt"),
        pytest.param([], False, id="no learners"),
    ],
)
def test_an_attempt_is_under_way_until_all_of_its_learners_have_ended(
    states: list[dict[str, Any]], expected: bool
) -> None:
    assert is_over(before(), states) is expected


def counted(sweeps: SweepCounts, limit: TicketLimit, waiting: set[tuple[str, int]] | None = None) -> int:
    return sweeps.count([limit], {}, waiting or set(), GateReader())[limit.sweep]


def test_what_others_have_started_counts_until_it_is_over_once(tmp_path: Path) -> None:
    limit = TicketLimit("s", 2, (before(str(tmp_path)), before("/not-there-yet", job="training-b")))
    sweeps = SweepCounts()
    assert counted(sweeps, limit) == 2
    assert sweeps.folders(limit) == {str(tmp_path), "/not-there-yet"}

    (tmp_path / "state.json").write_text(json.dumps(over()))
    assert counted(sweeps, limit) == 1
    (tmp_path / "state.json").unlink()

    assert counted(sweeps, limit) == 1
    assert sweeps.folders(limit) == {"/not-there-yet"}


def test_an_attempt_that_waits_here_itself_is_not_under_way() -> None:
    limit = TicketLimit("s", 2, (before(), before(job="training-b")))

    assert counted(SweepCounts(), limit, {("training-b", 1)}) == 1


def test_what_was_started_here_counts_until_it_is_over_or_removed(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    limit, sweeps = TicketLimit("s", 2), SweepCounts()
    for folder in folders:
        sweeps.begin(limit, before(str(folder), job=folder.name))
    assert counted(sweeps, limit) == 2
    # Whoever hands others over names it, too.
    assert counted(sweeps, limit._replace(others=(before(str(folders[0]), job="a"),))) == 2

    (folders[0] / "state.json").write_text(json.dumps(over(job="a")))
    folders[1].rmdir()

    assert counted(sweeps, limit) == 0


def test_who_has_a_living_agent_is_under_way_whoever_started_it() -> None:
    limit = TicketLimit("s", 2, (before(),))
    living = {"s": {("training-a", 1), ("training-b", 1), ("training-c", 1)}, "t": {("training-d", 1)}}

    found = SweepCounts().count([limit], living, {("training-c", 1)}, GateReader())

    assert found == {"s": 2}


def test_each_sweep_counts_its_own() -> None:
    sweeps = SweepCounts()
    sweeps.begin(TicketLimit("s", 2), before("/"))

    found = sweeps.count([TicketLimit("s", 2), TicketLimit("t", 2)], {}, set(), GateReader())

    assert found == {"s": 1, "t": 0}


def test_a_time_of_day_is_waited_for() -> None:
    assert [remaining_us(TicketGates(100), now, 1.0) for now in (40, 100, 200)] == [60, 0, 0]
    assert remaining_us(TicketGates(), 40, 1.0) == 0


def test_a_back_off_is_over_after_its_length_however_the_clock_was_set() -> None:
    gates = TicketGates(begin_us=86_400_000_000, longest_seconds=2.0)

    assert [remaining_us(gates, 40, waited) for waited in (0.5, 2.0, 9.0)] == [1_500_000, 0, 0]
    unchanged = gates.changed({"begin_us": 86_400_000_000, "after": []})
    assert unchanged.longest_seconds == 2.0
    assert gates.changed({"begin_us": 5, "after": []}).longest_seconds is None, "a person's time is meant"


def ticket(**facts: Any) -> dict[str, Any]:
    return {
        "home": "h",
        "job": "training-b",
        "attempt": 1,
        "leases_folder": "/leases",
        "each": 0,
        "priority": 50,
        "lease": {},
        "environment": {},
        "learners": [{"learner": 1, "folder": "/l", "secrets_stem_name": "s"}],
        **facts,
    }


AFTER = {"job": "training-a", "attempt": 2, "ended": True, "learners": ["/a/1", "/a/2"]}


def test_a_ticket_says_its_gates() -> None:
    found = Ticket.parse(ticket(begin_us=7, after=[AFTER]))

    assert found.gates == TicketGates(7, (AwaitedAttempt("training-a", 2, True, 1, 1, ("/a/1", "/a/2")),))
    assert found.changed({"begin_us": None, "after": []}).gates == TicketGates()
    assert found.changed({"priority": 70}).gates == found.gates


LIMIT = {"sweep": "s", "at_most": 4, "others": [AFTER]}


def test_a_ticket_says_the_limit_of_its_sweep() -> None:
    found = Ticket.parse(ticket(begin_us=7, limit=LIMIT))

    other = AwaitedAttempt("training-a", 2, True, 1, 1, ("/a/1", "/a/2"))
    assert found.gates == TicketGates(7, (), TicketLimit("s", 4, (other,)))
    changed: dict[str, Any] = {"begin_us": None, "after": []}
    assert found.changed({**changed, "limit": {"sweep": "s", "at_most": 2}}).gates.limit == TicketLimit(
        "s", 2
    )
    assert found.changed({**changed, "limit": None}).gates == TicketGates()


def test_who_knows_no_limits_lifts_none() -> None:
    found = Ticket.parse(ticket(limit=LIMIT))

    assert found.changed({"begin_us": 7, "after": []}).gates == found.gates._replace(begin_us=7)


@pytest.mark.parametrize(
    "facts",
    [
        {"limit": 4},
        {"limit": {"sweep": "s"}},
        {"limit": {**LIMIT, "at_most": "many"}},
        {"limit": {**LIMIT, "others": [{**AFTER, "learners": ["a/1"]}]}},
        {"each": -1},
        {"begin_us": "soon"},
        {"after": [7]},
        {"after": [{}]},
        {"after": [{**AFTER, "learners": ["a/1"]}]},
    ],
)
def test_nonsense_is_no_ticket(facts: dict[str, Any]) -> None:
    with pytest.raises(Failure):
        Ticket.parse(ticket(**facts))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"each": 2}, 1),
        ({"each": 2, "begin_us": None, "after": []}, 1),
        ({"each": 0}, 2),
        ({"each": 2, "begin_us": 7}, 2),
        ({"each": 2, "after": [AFTER]}, 2),
        ({"each": 2, "limit": None}, 1),
        ({"each": 2, "limit": LIMIT}, 3),
    ],
)
def test_only_what_an_older_waiter_does_not_know_has_the_new_format(
    facts: dict[str, Any], expected: int
) -> None:
    assert channel.format_of(ticket(**facts)) == expected


def attempts(folder: Path, *states: dict[str, Any]) -> AwaitedAttempt:
    """Write the states of one job's attempts; return the first of them."""
    for number, state in enumerate(states, start=1):
        learner = folder / f"attempt-{number}" / "learner-1"
        learner.mkdir(parents=True, exist_ok=True)
        (learner / "state.json").write_text(json.dumps({**state, "attempt": number}))
    return before(str(folder / "attempt-1" / "learner-1"), restarts_left=2)


def followed(number: int) -> dict[str, Any]:
    return over(3, reason=FAILURE, followed_by={"attempt": number, "begin_us": 1, "delay_seconds": 1.0})


def test_the_last_attempt_that_a_host_has_begun_by_itself_lets_go(tmp_path: Path) -> None:
    predecessor = attempts(tmp_path, followed(2), followed(3), over(phase="running", exit_code=None))
    ((named, last),) = GateReader().closed([predecessor])
    assert named == predecessor
    assert (last.attempt, last.restarts_left) == (3, 0)
    assert last.folders == (str(tmp_path / "attempt-3" / "learner-1"),)

    attempts(tmp_path, followed(2), followed(3), over())

    assert GateReader().closed([predecessor]) == []
    gates, opened = TicketGates(after=(predecessor,)), OpenGates()
    assert opened.closed_by(gates, GateReader()) == []


def test_one_of_several_learners_says_which_attempt_follows(tmp_path: Path) -> None:
    learners = [tmp_path / "attempt-1" / f"learner-{number}" for number in (1, 2)]
    for folder, state in zip(learners, (over(None, signal=15, stopped="settle"), followed(2)), strict=True):
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps(state))
    predecessor = before(*map(str, learners), restarts_left=2)

    ((_, last),) = GateReader().closed([predecessor])

    assert (last.attempt, last.restarts_left) == (2, 1)
    assert last.folders == tuple(str(tmp_path / "attempt-2" / f"learner-{number}") for number in (1, 2))
    (learners[0] / "state.json").write_text(json.dumps(over(phase="stopping")))
    ((_, last),) = GateReader().closed([predecessor])
    assert last.attempt == 1, "one of its learners has not ended"


def test_an_attempt_that_was_preempted_costs_no_restart(tmp_path: Path) -> None:
    preempted = {**followed(2), "stopped": "preempt"}

    ((_, last),) = GateReader().closed([attempts(tmp_path, preempted)])

    assert (last.attempt, last.restarts_left) == (2, 2)


def test_an_attempt_that_a_fault_of_the_platform_ended_costs_a_restart_of_those(tmp_path: Path) -> None:
    killed = {**followed(2), "exit_code": None, "reason": {"code": "S202"}}
    predecessor = attempts(tmp_path, killed)._replace(platform_restarts_left=1)

    ((_, last),) = GateReader().closed([predecessor])

    assert (last.attempt, last.restarts_left, last.platform_restarts_left) == (2, 2, 0)


def test_who_was_preempted_lets_nobody_go_though_no_restart_is_left() -> None:
    predecessor = before(may_fail=True, restarts_left=0, platform_restarts_left=0)

    assert not lets_go(predecessor, [over(0, stopped="preempt", reason={"code": "S106"})])


@pytest.mark.parametrize(
    ("may_fail", "expected"),
    [pytest.param(True, True, id="ended"), pytest.param(False, False, id="completed")],
)
def test_a_failure_after_the_last_restart_is_the_end(tmp_path: Path, may_fail: bool, expected: bool) -> None:
    predecessor = attempts(tmp_path, followed(2), followed(3), over(3, reason=FAILURE))._replace(
        may_fail=may_fail
    )

    assert (GateReader().closed([predecessor]) == []) is expected


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({**followed(2), "phase": "stopping"}, id="it has not ended"),
        pytest.param(followed(5), id="another number"),
        pytest.param(over(3, reason=FAILURE, followed_by="2"), id="nonsense"),
        pytest.param(over(3, reason=FAILURE), id="nobody followed it"),
    ],
)
def test_what_is_followed_by_nothing_is_the_last_attempt(tmp_path: Path, state: dict[str, Any]) -> None:
    ((_, last),) = GateReader().closed([attempts(tmp_path, state)])

    assert last.attempt == 1
