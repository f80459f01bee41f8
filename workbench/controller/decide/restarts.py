"""Whether a failed attempt is followed by another, and when. Pure.

The delays grow, with jitter; faults of the user's (C) and of the platform's (S) are counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from workbench.controller.decide.outcome import Outcome
from workbench.job import FaultOwner, State

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 60.0
RETRY_LONGEST_SECONDS: Final = 4.0
"""How long a place that does not answer is left alone: when it is back, that is to be seen at once."""

JITTER: Final = 0.25
"""A delay is drawn from this share below to this share above: what fell together must not rise together."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The next attempt of a job that failed."""

    delay_seconds: float
    restarts: int
    """How many restarts after faults of the user's there will have been, this one included."""
    platform_restarts: int
    text: str
    """Why there is one, in words."""


def backoff_seconds(tries: int, draw: float) -> float:
    """Return how long to wait before try number ``tries`` + 1; ``draw`` is random in [0, 1)."""
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(tries, 16), LONGEST_DELAY_SECONDS)
    return delay * (1.0 - JITTER + 2.0 * JITTER * draw)


def next_attempt(
    outcome: Outcome,
    *,
    restarts: int,
    platform_restarts: int,
    max_restarts: int,
    max_platform_restarts: int,
    draw: float,
) -> Restart | None:
    """Say whether and when an attempt that ended so is tried again; ``draw`` is random in [0, 1).

    A reason without a code counts as the user's: nothing is tried again for free that nobody has called the
    platform's fault.
    """
    if outcome.state is not State.FAILED or outcome.final:
        return None
    if outcome.reason.fault is FaultOwner.PLATFORM:
        done, allowed, kind = platform_restarts, max_platform_restarts, "platform restart"
        counts = (restarts, platform_restarts + 1)
    else:
        done, allowed, kind = restarts, max_restarts, "restart"
        counts = (restarts + 1, platform_restarts)
    if done >= allowed:
        return None
    delay = backoff_seconds(done, draw)
    text = f"{kind} {done + 1} of {allowed} in {delay:.0f} s, since {outcome.reason.text}"
    return Restart(delay, *counts, text)
