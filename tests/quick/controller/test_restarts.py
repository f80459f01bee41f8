"""When a failed attempt is tried again, and how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.controller.decide.outcome import Outcome
from workbench.controller.decide.restarts import LONGEST_DELAY_SECONDS, Restart, backoff_seconds, next_attempt
from workbench.job import Reason, State

USER = Outcome(State.FAILED, Reason("the command ended with exit code 1", "C201"), 1, "job")
PLATFORM = Outcome(State.FAILED, Reason("the machine was restarted", "S203"), 75, "lost")


def after(
    outcome: Outcome, *, restarts: int = 0, platform_restarts: int = 0, max_restarts: int = 0
) -> Restart | None:
    return next_attempt(
        outcome,
        restarts=restarts,
        platform_restarts=platform_restarts,
        max_restarts=max_restarts,
        max_platform_restarts=3,
        draw=0.5,
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
