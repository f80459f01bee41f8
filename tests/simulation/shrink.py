"""Makes a history that failed as short as it can be: fewer jobs, and only the faults without which it does not fail."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

from tests.simulation.chance import FAULTS, FAULTS_AT_FIRST, Chance, Fault

SHRINK_SECONDS: Final = 60.0

_DETAILS: Final = re.compile(r"\b[a-z]{9}(\.\d+)*\b|[0-9.]+|/\S+|b'[^']*'")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a history."""

    seed: int
    violation: str
    """What does not hold; empty where all held."""
    faults: tuple[Fault, ...]
    story: tuple[str, ...]
    """Its lines, where they were kept."""
    turns: int
    """How many turns its threads took."""
    jobs: int
    seconds: float
    """How much time passed in it."""
    visited: Counter[Any] = field(default_factory=Counter)
    """How often what happened in it, beside faults."""


class LivingGround(Protocol):
    """Where histories of one kind are lived."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The kinds of faults that there are."""

    def live(self, chance: Chance, *, jobs: int, keeps_story: bool, turns_max: int | None) -> Result:
        """Live one; after more turns than these it runs in circles."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a history is made from."""

    seed: int
    jobs: int = 3
    kinds: tuple[str, ...] = tuple(FAULTS)
    only: tuple[str, ...] | None = None

    def live(
        self, ground: LivingGround, *, keeps_story: bool = False, turns_max: int | None = None
    ) -> Result:
        """Live it, for so many turns at most, or as many as a history may take."""
        chance = Chance(self.seed, self.kinds, self.only, known=ground.faults)
        return ground.live(chance, jobs=self.jobs, keeps_story=keeps_story, turns_max=turns_max)

    def to_json(self) -> dict[str, Any]:
        """Return it as a line of the list of regressions holds it."""
        document: dict[str, Any] = {"seed": self.seed, "jobs": self.jobs}
        if self.only is not None:
            document["only"] = list(self.only)
        if self.kinds != FAULTS_AT_FIRST:
            document["kinds"] = list(self.kinds)
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Scenario:
        """Read what :meth:`to_json` returned; other keys are for people."""
        only = document.get("only")
        return cls(
            document["seed"],
            document.get("jobs", 3),
            tuple(document.get("kinds", FAULTS_AT_FIRST)),
            None if only is None else tuple(only),
        )


def kind_of(violation: str) -> str:
    """Return a violation without its names and numbers, by which two are the same."""
    return _DETAILS.sub("*", violation)[:60]


def shrink(
    ground: LivingGround, scenario: Scenario, failed: Result, seconds: float = SHRINK_SECONDS
) -> Scenario:
    """Return the shortest scenario found in this time that fails as this one did."""
    until = monotonic() + seconds
    wanted = kind_of(failed.violation)
    turns_max = 2 * failed.turns

    def fails(tried: Scenario) -> bool:
        if monotonic() >= until:
            return False
        # With fewer faults it fails as soon, or is another story: one that does not end would take all the time.
        return kind_of(tried.live(ground, turns_max=turns_max).violation) == wanted

    best = Scenario(
        scenario.seed, scenario.jobs, scenario.kinds, tuple(fault.name for fault in failed.faults)
    )
    if not fails(best):
        return scenario
    names = _fewest(
        best.only or (), lambda some: fails(Scenario(best.seed, best.jobs, best.kinds, tuple(some)))
    )
    best = Scenario(best.seed, best.jobs, best.kinds, tuple(names))
    for jobs in range(1, best.jobs):
        fewer = Scenario(best.seed, jobs, best.kinds, best.only)
        if fails(fewer):
            return fewer
    return best


def _fewest(names: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    """Leave out ever smaller parts as long as it fails without them (Zeller's ddmin, by complements)."""
    left, size = list(names), max(1, len(names) // 2)
    while True:
        at, before = 0, len(left)
        while at < len(left):
            rest = left[:at] + left[at + size :]
            if len(rest) < len(left) and fails(rest):
                left = rest
            else:
                at += size
        if size == 1 and len(left) == before:
            return left
        size = max(1, size // 2)
