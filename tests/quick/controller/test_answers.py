"""What requests come to: the obvious thing in every state, and the same when asked twice."""

from __future__ import annotations

import itertools

import pytest

from tests.quick.controller.values import row
from workbench.controller.decide.requests import Answer, Intend, Keep, Resume, Settle, StartNow, answer
from workbench.job import TERMINAL, Intent, State

OPEN = [state for state in State if state not in TERMINAL]


@pytest.mark.parametrize("state", OPEN)
def test_halt_and_kill_become_intents_and_stay_open(state: State) -> None:
    assert answer("halt", row(state), ()) == Intend(Intent.HALT)
    assert answer("kill", row(state), ()) == Intend(Intent.KILL)
    assert answer("halt", row(state, Intent.HALT), ()) == Keep()
    assert answer("kill", row(state, Intent.KILL), ()) == Keep()


def test_kill_overrides_halt_and_never_the_other_way_round() -> None:
    assert answer("kill", row(intent=Intent.HALT), ()) == Intend(Intent.KILL)
    assert answer("halt", row(intent=Intent.KILL), ()) == Keep()
    assert answer("kill", row(intent=Intent.DELETE), ()) == Keep()


@pytest.mark.parametrize(("state", "outcome"), [
    (State.HALTED, "done"),
    (State.COMPLETED, "it had ended already: COMPLETED"),
    (State.FAILED, "it had ended already: FAILED"),
])  # fmt: skip
def test_stopping_what_has_ended_says_how_it_ended(state: State, outcome: str) -> None:
    assert answer("halt", row(state), ()) == Settle(outcome)
    assert answer("kill", row(state), ()) == Settle(outcome)


@pytest.mark.parametrize("state", list(State))
def test_delete_is_an_intent_in_every_state(state: State) -> None:
    assert answer("delete", row(state), ()) == Intend(Intent.DELETE)
    assert answer("delete", row(state, Intent.DELETE), ()) == Keep()


def test_what_is_deleted_is_gone_for_every_request() -> None:
    gone = row(State.HALTED, deleted_us=5)

    assert answer("delete", gone, ()) == Settle("done")
    assert answer("resume", gone, ()) == Settle("the job is gone")
    assert answer("halt", None, ()) == Settle("the job is gone")


def test_resume_begins_the_next_attempt_of_what_failed_or_was_halted() -> None:
    assert answer("resume", row(State.HALTED), ()) == Resume()
    assert answer("resume", row(State.FAILED), ()) == Resume()
    assert isinstance(answer("resume", row(State.COMPLETED), ()), Settle)


def test_resume_waits_for_a_halt_that_is_under_way_unless_another_follows() -> None:
    assert answer("resume", row(intent=Intent.HALT), ()) == Keep()
    assert answer("resume", row(intent=Intent.HALT), ("halt",)) == Settle("taken back by a later halt")


def test_resume_of_what_waits_for_its_restart_hurries_it() -> None:
    assert answer("resume", row(State.QUEUED, next_try_us=5), ()) == StartNow()


def test_resume_of_what_runs_or_is_being_deleted_says_so() -> None:
    assert answer("resume", row(State.PROCESSING), ()) == Settle("nothing to do: it is PROCESSING")
    assert answer("resume", row(State.HALTED, Intent.DELETE), ()) == Settle("it is being deleted")


def test_no_request_is_left_unanswered_and_intents_only_grow() -> None:
    strength = {Intent.NONE: 0, Intent.HALT: 1, Intent.KILL: 2, Intent.DELETE: 3}
    kinds = ("submit", "halt", "kill", "delete", "resume", "dance")
    for kind, state, intent in itertools.product(kinds, State, Intent):
        found: Answer = answer(kind, row(state, intent), ())
        if isinstance(found, Intend):
            assert strength[found.intent] > strength[intent]
        if isinstance(found, Keep):
            assert intent is not Intent.NONE
