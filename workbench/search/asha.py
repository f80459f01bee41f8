"""Asynchronous successive halving: bad trials end at low rungs, the best go on. Also many brackets of it at once.

Two variants: *stopping* trains on and stops a trial whose report is not among the best of its rung; *promotion*
pauses every trial at its rung, and gives the best of a rung more when there are enough to compare.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final

from workbench.search.method import (
    WORST,
    Create,
    Measure,
    Operation,
    RunTo,
    SearchContext,
    SearchMethod,
    StopTrial,
    TrialEnd,
)
from workbench.values import dataclass

MODES: Final = ("aggressive", "standard", "conservative")

_OVERHEAD: Final = 1.2
"""The progress of the lowest rung counts as if there were this much more to do."""


def rung_units(count: int, divisor: float, max_time: int) -> list[int]:
    """Return the units at which trials are compared, rung by rung."""
    return [max(int(max_time / float(divisor) ** (count - 1 - index)), 1) for index in range(count)]


@dataclass(slots=True)
class Rung:
    """The trials that were compared at one length, the best first."""

    units: int
    values: list[float] = field(default_factory=list)
    trials: list[str] = field(default_factory=list)
    promoted: set[str] = field(default_factory=set)
    outstanding: int = 0
    """Trials on their way to this rung, in the variant of promotions."""

    def insert_before(self, trial: str, value: float) -> int:
        """Insert a value before its equals; return its index."""
        return self._insert(bisect_left(self.values, value), trial, value)

    def insert_behind(self, trial: str, value: float) -> int:
        """Insert a value behind its equals; return its index."""
        return self._insert(bisect_right(self.values, value), trial, value)

    def _insert(self, index: int, trial: str, value: float) -> int:
        self.values.insert(index, value)
        self.trials.insert(index, trial)
        return index

    def forget(self, trial: str) -> None:
        """Take a trial out again."""
        if trial in self.trials:
            index = self.trials.index(trial)
            del self.values[index], self.trials[index]


class _Halving(SearchMethod):
    """What both variants share."""

    def __init__(
        self,
        *,
        rungs: Sequence[int],
        divisor: float,
        max_trials: int,
        max_concurrent: int,
        measure: Measure,
    ) -> None:
        self._rungs = [Rung(units) for units in rungs]
        self._divisor = float(divisor)
        self._max_trials = max_trials
        if max_concurrent:
            self._at_once = min(max_concurrent, max_trials)
        else:
            # So many that one of them can reach the top.
            self._at_once = max(min(int(self._divisor ** (len(rungs) - 1)), max_trials), 1)
        self._measure = measure
        self._rung_of: dict[str, int] = {}
        self._invalid = 0
        self._completed = 0

    @property
    def _may_create(self) -> bool:
        return len(self._rung_of) - self._invalid < self._max_trials

    def _create(self, context: SearchContext) -> Create:
        created = context.create()
        self._rung_of[created.trial] = 0
        return created

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Count it."""
        self._completed += 1
        return []

    def _forget(self, trial: str) -> None:
        self._invalid += 1
        for rung in self._rungs[: self._rung_of[trial] + 1]:
            rung.forget(trial)

    def progress(self) -> float:
        """Go by the lowest rung until all are through it, then by the trials that have ended."""
        seen = len(self._rungs[0].values)
        progress = seen / (_OVERHEAD * self._max_trials)
        if seen == self._max_trials:
            progress = max((self._completed - self._invalid) / self._max_trials, progress)
        return min(progress, 1.0)

    def outlook(self, seed: int) -> dict[int, int]:
        """One of so many goes on at each rung, and one at least."""
        units = [max(1, each) for each in self._told_units()]
        found: dict[int, int] = dict.fromkeys(units, 0)
        left = self._max_trials
        for each in units[:-1]:
            on = max(int(left / self._divisor), 1)
            found[each] += left - on
            left = on
        found[units[-1]] += left
        return found

    def rungs(self) -> list[int]:
        """Return how far a trial that has come to each rung was sent."""
        return self._told_units()

    def _told_units(self) -> list[int]:
        return [rung.units for rung in self._rungs]


class AshaStopping(_Halving):
    """Trials train without a pause, and stop at a rung where they are not among the best."""

    def __init__(
        self,
        *,
        rung_count: int,
        divisor: float,
        max_time: int,
        max_trials: int,
        max_concurrent: int,
        measure: Measure,
        replaces_early_ends: bool = True,
    ) -> None:
        """Begin with no trial.

        Args:
            rung_count: how many rungs there are.
            divisor: one of so many trials goes on at each rung.
            max_time: the units of the top rung.
            max_trials: how many trials there are in all.
            max_concurrent: how many of them run at once; 0 for as many as let one of them reach the top.
            measure: what they are compared by.
            replaces_early_ends: whether another trial takes the turn of one that ends by itself below the top rung.
                Determined begins none: a search whose code trains for less than ``max_time`` ends with its first ones.
        """
        super().__init__(
            rungs=rung_units(rung_count, divisor, max_time),
            divisor=divisor,
            max_trials=max_trials,
            max_concurrent=max_concurrent,
            measure=measure,
        )
        self._replaces_early_ends = replaces_early_ends
        self._undecided: set[str] = set()
        """The trials of which each has begun no other one yet: they were not stopped, and have not failed."""

    def _create(self, context: SearchContext) -> Create:
        created = super()._create(context)
        self._undecided.add(created.trial)
        return created

    def begin(self, context: SearchContext) -> list[Operation]:
        """Begin as many as may run at once."""
        return [self._create(context) for _ in range(self._at_once)]

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Compare the trial at each rung that it has reached since; one that stops makes room for another."""
        time, value = self._measure.time(metrics), self._measure.value(metrics)
        if not self._stops(trial, time, value):
            return []
        self._undecided.discard(trial)
        return [StopTrial(trial), *([self._create(context)] if self._may_create else [])]

    def _stops(self, trial: str, time: float, value: float) -> bool:
        for index in range(self._rung_of[trial], len(self._rungs)):
            rung = self._rungs[index]
            self._rung_of[trial] = index
            if time < rung.units:
                return False
            place = rung.insert_before(trial, value)
            is_top = index == len(self._rungs) - 1
            if is_top or place >= max(int(len(rung.values) / self._divisor), 1):
                return True
        return False

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Count a failure as the worst value of its rung, and take an invalid one out of all."""
        self._undecided.discard(trial)
        if how is TrialEnd.INVALID:
            self._forget(trial)
            return [self._create(context)]
        self._rungs[self._rung_of[trial]].insert_before(trial, WORST)
        return [self._create(context)] if self._may_create else []

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Begin another trial in place of one that has ended by itself, unless it has made room already."""
        super().ended(context, trial)
        if trial not in self._undecided:
            return []
        self._undecided.discard(trial)
        return [self._create(context)] if self._replaces_early_ends and self._may_create else []


class AshaPromotion(_Halving):
    """Trials pause at each rung; the best of a rung are trained on, each as far as the next rung is told."""

    def __init__(
        self,
        *,
        rung_count: int,
        divisor: float,
        max_time: int,
        max_trials: int,
        max_concurrent: int,
        measure: Measure,
    ) -> None:
        total, sums = 0, []
        for units in rung_units(rung_count, divisor, max_time):
            total += units
            sums.append(total)
        super().__init__(
            rungs=sums,
            divisor=divisor,
            max_trials=max_trials,
            max_concurrent=max_concurrent,
            measure=measure,
        )
        self._exited: set[str] = set()
        self._closed: set[str] = set()

    def _told_units(self) -> list[int]:
        sums = [rung.units for rung in self._rungs]
        return [sums[0], *(max(after - before, 1) for before, after in itertools.pairwise(sums))]

    def begin(self, context: SearchContext) -> list[Operation]:
        """Begin as many as may run at once."""
        return [each for _ in range(self._at_once) for each in self._begin_one(context)]

    def _begin_one(self, context: SearchContext) -> list[Operation]:
        created = self._create(context)
        self._rungs[0].outstanding += 1
        return [created, RunTo(created.trial, self._rungs[0].units)]

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Compare a trial that has come to its rung."""
        return self._arrived(context, trial, self._measure.value(metrics))

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Count a failure as the worst value of its rung, and take an invalid one out of all."""
        self._exited.add(trial)
        self._closed.add(trial)
        if how is TrialEnd.INVALID:
            self._rungs[self._rung_of[trial]].outstanding -= 1
            self._forget(trial)
            return self._begin_one(context)
        return self._arrived(context, trial, WORST)

    def _arrived(self, context: SearchContext, trial: str, value: float) -> list[Operation]:
        index = self._rung_of[trial]
        rung = self._rungs[index]
        rung.outstanding -= 1
        found: list[Operation] = []
        goes_on = False
        if index == len(self._rungs) - 1:
            rung.values.append(value)
            rung.trials.append(trial)
            found += self._close(trial)
        elif promoted := self._promoted(rung, trial, value):
            self._rung_of[promoted] = index + 1
            self._rungs[index + 1].outstanding += 1
            if promoted in self._exited:
                # As if it had been trained on, and had given the worst value there, too.
                return self._arrived(context, promoted, WORST)
            found.append(RunTo(promoted, self._told_units()[index + 1]))
            goes_on = True
        if not goes_on and self._may_create:
            found += self._begin_one(context)
        if len(self._rungs[0].values) == self._max_trials:
            found += self._close_out()
        return found

    def _promoted(self, rung: Rung, trial: str, value: float) -> str:
        """Insert a value; return the trial that goes on for it, empty for none."""
        before = int(len(rung.values) / self._divisor)
        now = int((len(rung.values) + 1) / self._divisor)
        place = rung.insert_behind(trial, value)
        if place < now:
            chosen = trial
        elif now != before and rung.trials[before] not in rung.promoted:
            chosen = rung.trials[before]
        else:
            return ""
        rung.promoted.add(chosen)
        return chosen

    def _close(self, trial: str) -> list[Operation]:
        if trial in self._closed:
            return []
        self._closed.add(trial)
        return [StopTrial(trial)]

    def _close_out(self) -> list[Operation]:
        """Close what nothing can promote any more: rung by rung, up to the first that trials are on their way to."""
        found: list[Operation] = []
        for rung in self._rungs:
            if rung.outstanding > 0:
                break
            for trial in rung.trials:
                if trial not in rung.promoted:
                    found += self._close(trial)
        return found


def bracket_rungs(mode: str, *, max_rungs: int, divisor: float, max_time: int, max_trials: int) -> list[int]:
    """Return how many rungs each bracket has, the deepest first."""
    deepest = min(
        max_rungs, *(int(math.log(each) / math.log(divisor)) + 1 for each in (max_time, max_trials))
    )
    least = {"aggressive": deepest, "standard": (deepest - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(deepest, least - 1, -1))


def bracket_trials(max_trials: int, divisor: float, rungs: Sequence[int]) -> list[int]:
    """Share trials out so that each bracket costs about the same, the rest to the deepest."""
    weights = [float(divisor) ** (count - 1) / count for count in rungs]
    # Added up one by one: ``sum`` rounds otherwise from Python 3.12 on.
    total = 0.0
    for weight in weights:
        total += weight
    shares = [max(int(weight / total * max_trials), 1) for weight in weights]
    shares[0] += max(max_trials - sum(shares), 0)
    return shares


def bracket_concurrency(max_concurrent: int, divisor: float, trials: Sequence[int]) -> list[int]:
    """Share out how many trials run at once."""
    if not max_concurrent:
        return [max(trials[-1], int(divisor))] * len(trials)
    each, rest = divmod(max(max_concurrent, len(trials)), len(trials))
    return [each + (index < rest) for index in range(len(trials))]


class AdaptiveAsha(SearchMethod):
    """Several brackets of ASHA at once, from one that stops early to one that hardly stops."""

    def __init__(
        self,
        *,
        mode: str,
        divisor: float,
        max_rungs: int,
        max_time: int,
        max_trials: int,
        max_concurrent: int,
        measure: Measure,
        rungs: Sequence[int] = (),
        promotes: bool = False,
        replaces_early_ends: bool = True,
    ) -> None:
        """Make the brackets: of ``mode``, or with the numbers of ``rungs`` where any are given."""
        counts = sorted(rungs, reverse=True) or bracket_rungs(
            mode, max_rungs=max_rungs, divisor=divisor, max_time=max_time, max_trials=max_trials
        )
        trials = bracket_trials(max_trials, divisor, counts)
        at_once = bracket_concurrency(max_concurrent, divisor, trials)
        variant = (
            AshaPromotion if promotes else partial(AshaStopping, replaces_early_ends=replaces_early_ends)
        )
        self._brackets: list[AshaStopping | AshaPromotion] = [
            variant(
                rung_count=count,
                divisor=divisor,
                max_time=max_time,
                max_trials=share,
                max_concurrent=concurrent,
                measure=measure,
            )
            for count, share, concurrent in zip(counts, trials, at_once, strict=True)
        ]
        self._bracket_of: dict[str, AshaStopping | AshaPromotion] = {}

    def begin(self, context: SearchContext) -> list[Operation]:
        """Begin the first trials of each bracket, bracket after bracket."""
        return [each for bracket in self._brackets for each in self._marked(bracket, bracket.begin(context))]

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Ask the trial's bracket."""
        bracket = self._bracket_of[trial]
        return self._marked(bracket, bracket.reported(context, trial, metrics))

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Ask the trial's bracket."""
        bracket = self._bracket_of[trial]
        return self._marked(bracket, bracket.failed(context, trial, how))

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Ask the trial's bracket."""
        bracket = self._bracket_of[trial]
        return self._marked(bracket, bracket.ended(context, trial))

    def _marked(self, bracket: AshaStopping | AshaPromotion, operations: list[Operation]) -> list[Operation]:
        for each in operations:
            if isinstance(each, Create):
                self._bracket_of[each.trial] = bracket
        return operations

    def progress(self) -> float:
        """Return the mean of the brackets."""
        return sum(bracket.progress() for bracket in self._brackets) / len(self._brackets)

    def outlook(self, seed: int) -> dict[int, int]:
        """Add the brackets up."""
        found: dict[int, int] = {}
        for bracket in self._brackets:
            for units, count in bracket.outlook(seed).items():
                found[units] = found.get(units, 0) + count
        return dict(sorted(found.items()))

    def rungs(self) -> list[int]:
        """Return those of all brackets."""
        return sorted({units for bracket in self._brackets for units in bracket.rungs()})
