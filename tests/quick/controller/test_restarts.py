"""When a failed attempt is tried again, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quick.controller.values import spec
from workbench.controller.decide.outcome import Outcome
from workbench.controller.decide.restarts import (
    LONGEST_DELAY_SECONDS,
    Restart,
    at_host,
    backoff_seconds,
    next_attempt,
)
from workbench.job import Reason, State

USER = Outcome(State.FAILED, Reason("the command ended with exit code 1", "C201"), 1, "job")
PLATFORM = Outcome(State.FAILED, Reason("the machine was restarted", "S203"), 75, "lost")


def after(
    outcome: Outcome,
    *,
    restarts: int = 0,
    platform_restarts: int = 0,
    max_restarts: int = 0,
    is_preemptible: bool = False,
) -> Restart | None:
    return next_attempt(
        outcome,
        restarts=restarts,
        platform_restarts=platform_restarts,
        max_restarts=max_restarts,
        max_platform_restarts=3,
        draw=0.5,
        is_preemptible=is_preemptible,
    )


def test_a_users_fault_is_tried_again_only_as_often_as_asked_for() -> None:
    assert after(USER) is None
    again = after(USER, restarts=1, max_restarts=2)

    assert again is not None
    assert (again.restarts, again.platform_restarts) == (2, 0)
    assert again.text == "restart 2 of 2 in 2 s, since the command ended with exit code 1"
    assert after(USER, restarts=2, max_restarts=2) is None


def test_a_fault_of_the_platform_is_tried_three_times_and_counted_apart() -> None:
    first = after(PLATFORM, restarts=2, max_restarts=2)

    assert first is not None
    assert (first.restarts, first.platform_restarts) == (2, 1)
    assert after(PLATFORM, platform_restarts=3, max_restarts=9) is None


def test_who_was_preempted_begins_again_at_once_and_is_not_counted() -> None:
    preempted = Outcome(State.FAILED, Reason("preempted: bob's job needs its GPUs", "S106"), 75, "preempt")

    again = after(preempted, restarts=1, platform_restarts=3, is_preemptible=True)
    assert again is not None
    assert (again.delay_seconds, again.restarts, again.platform_restarts) == (0.0, 1, 3)
    assert again.text == "begins again when its turn comes, since preempted: bob's job needs its GPUs"

    assert after(preempted, platform_restarts=3) is None, "a cluster preempts what did not agree, too"
    counted = after(preempted)
    assert counted is not None and counted.platform_restarts == 1


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({"max_platform_restarts": 0}, None, id="without restarts"),
        pytest.param({}, (0, 0), id="its agent may be killed"),
        pytest.param({"max_restarts": 1}, (0, 1), id="with restarts"),
        pytest.param({"gpus": 1, "max_platform_restarts": 0}, (0, 0), id="a policy may preempt it"),
        pytest.param(
            {"gpus": 1, "ports": (80,), "max_platform_restarts": 0}, None, id="no policy preempts what serves"
        ),
        pytest.param({"gpus": 1, "ports": (80,), "preemptible": True}, (0, 0), id="it agrees"),
        pytest.param({"max_restarts": 1, "learners": 2}, (0, 1), id="several learners"),
    ],
)
def test_a_host_begins_the_next_attempt_of_what_may_fail_or_be_preempted(
    keys: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    found = at_host(spec(**keys), restarts=0, platform_restarts=0, draw=0.5)
    assert (None if found is None else (found.done, found.allowed)) == expected


def test_a_host_begins_none_after_an_output_in_which_a_policy_with_an_action_matches() -> None:
    oom = {"pattern": "out of memory", "action": "cancel_retries"}
    ecc = {"pattern": "ECC", "action": "exclude_node"}
    found = at_host(
        spec(max_restarts=1, log_policies=(oom, {"pattern": "named"}, ecc)),
        restarts=0,
        platform_restarts=0,
        draw=0.5,
    )

    assert found is not None and found.barred_by == ("out of memory", "ECC")


def test_a_host_begins_none_of_several_learners_after_a_fault_of_the_platform() -> None:
    found = at_host(spec(learners=2, max_restarts=1), restarts=0, platform_restarts=0, draw=0.5)

    assert found is not None and found.platform_allowed == 0


def test_a_host_counts_faults_of_the_platform_apart() -> None:
    found = at_host(spec(max_restarts=2, max_platform_restarts=3), restarts=2, platform_restarts=1, draw=0.5)

    assert found is not None
    assert (found.done, found.allowed, found.delay_seconds) == (2, 2, 4.0)
    assert (found.platform_done, found.platform_allowed, found.platform_delay_seconds) == (1, 3, 2.0)


def test_what_trying_again_cannot_mend_is_not_tried() -> None:
    no_image = Outcome(State.FAILED, Reason("the image was not found", "S103"), 75, "lost", final=True)

    assert after(no_image, max_restarts=5) is None


def test_only_failures_are_tried_again() -> None:
    for state in (State.COMPLETED, State.HALTED):
        assert after(Outcome(state, Reason(""), 0, "job"), max_restarts=5) is None


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_delays_grow_within_their_jitter_and_stay_bounded(tries: int, draw: float) -> None:
    delay = backoff_seconds(tries, draw)

    assert 0.75 <= delay <= 1.25 * LONGEST_DELAY_SECONDS
    assert backoff_seconds(tries + 1, draw) >= delay
