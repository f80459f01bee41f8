"""Decides whether and when a failed attempt is followed by another. Pure.

Delays grow exponentially, with jitter. Faults of the user (codes C...) and of the platform (S...) are counted
separately.
"""

from __future__ import annotations

from typing import Final

from runners.interface import Followed, HostRestarts
from workbench.controller.decide.outcome import Outcome
from workbench.job import PREEMPTED, FaultOwner, State
from workbench.manifest.builder.scripts_run import may_be_preempted
from workbench.spec import JobSpec
from workbench.values import dataclass

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 60.0
RETRY_LONGEST_SECONDS: Final = 4.0
"""The longest delay between tries of a backend that does not answer: its return is to be noticed soon."""

JITTER: Final = 0.25
"""A delay varies by this share up and down, so that what failed at once is not tried again at once."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The next attempt of a job that failed."""

    delay_seconds: float
    restarts: int
    """The number of restarts after faults of the user, including this one."""
    platform_restarts: int
    text: str
    """The sentence that explains it."""


def backoff_seconds(tries: int, draw: float) -> float:
    """Return the delay after ``tries`` failed tries; ``draw`` is random in [0, 1), for the jitter."""
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(tries, 16), LONGEST_DELAY_SECONDS)
    return delay * (1.0 - JITTER + 2.0 * JITTER * draw)


def at_host(spec: JobSpec, *, restarts: int, platform_restarts: int, draw: float) -> HostRestarts | None:
    """Return how the host of a job begins its next attempt, should the command fail; None where it does not.

    Where no restart is left one still follows an attempt that was preempted.

    Where a line of its output may bar a restart the host leaves that to the controller, which says why.
    """
    # Of several learners whose agents were killed the controller compares the ends.
    platform_allowed = spec.max_platform_restarts if spec.learners == 1 else 0
    is_left = restarts < spec.max_restarts or platform_restarts < platform_allowed
    if not is_left and not may_be_preempted(spec):
        return None
    return HostRestarts(
        restarts,
        spec.max_restarts,
        backoff_seconds(restarts, draw),
        # No host has another machine, which one that is excluded would leave.
        tuple(policy["pattern"] for policy in spec.log_policies if policy.get("action")),
        platform_restarts,
        platform_allowed,
        backoff_seconds(platform_restarts, draw),
    )


def begun_at_host(
    followed: Followed,
    outcome: Outcome,
    *,
    restarts: int,
    platform_restarts: int,
    max_restarts: int,
    max_platform_restarts: int,
) -> Restart:
    """Return the restart after an attempt that its host has followed by another.

    It is counted as the controller's own are; one that was preempted is not.
    """
    if outcome.reason.code == PREEMPTED:
        return _after_preemption(outcome, restarts, platform_restarts, followed.delay_seconds)
    delay = followed.delay_seconds
    if outcome.reason.fault is FaultOwner.PLATFORM:
        allowed = max(max_platform_restarts, platform_restarts + 1)
        text = _text("platform restart", platform_restarts + 1, allowed, delay, outcome)
        return Restart(delay, restarts, platform_restarts + 1, text)
    allowed = max(max_restarts, restarts + 1)
    text = _text("restart", restarts + 1, allowed, delay, outcome)
    return Restart(delay, restarts + 1, platform_restarts, text)


def next_attempt(
    outcome: Outcome,
    *,
    restarts: int,
    platform_restarts: int,
    max_restarts: int,
    max_platform_restarts: int,
    draw: float,
    is_preemptible: bool = False,
) -> Restart | None:
    """Return the restart after an attempt with this outcome, or None; ``draw`` is random in [0, 1).

    A reason without a code counts as a fault of the user: only known faults of the platform use its larger allowance.
    One that was preempted counts as none of both where it ``is_preemptible``; a cluster preempts others, too.
    """
    if outcome.state is not State.FAILED or outcome.final:
        return None
    if outcome.reason.code == PREEMPTED and is_preemptible:
        return _after_preemption(outcome, restarts, platform_restarts)
    if outcome.reason.fault is FaultOwner.PLATFORM:
        done, allowed, kind = platform_restarts, max_platform_restarts, "platform restart"
        counts = (restarts, platform_restarts + 1)
    else:
        done, allowed, kind = restarts, max_restarts, "restart"
        counts = (restarts + 1, platform_restarts)
    if done >= allowed:
        return None
    delay = backoff_seconds(done, draw)
    return Restart(delay, *counts, _text(kind, done + 1, allowed, delay, outcome))


def _after_preemption(
    outcome: Outcome, restarts: int, platform_restarts: int, delay_seconds: float = 0.0
) -> Restart:
    text = f"begins again when its turn comes, since {outcome.reason.text}"
    return Restart(delay_seconds, restarts, platform_restarts, text)


def _text(kind: str, number: int, allowed: int, delay_seconds: float, outcome: Outcome) -> str:
    return f"{kind} {number} of {allowed} in {delay_seconds:.0f} s, since {outcome.reason.text}"
