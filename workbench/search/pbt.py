"""Population based training: after each round the worst trials are replaced by changed copies of the best."""

from __future__ import annotations

from collections.abc import Mapping
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
from workbench.search.space import Hparams, Space
from workbench.search.stream import RandomStream

_DECREASE: Final = 0.5


class PopulationSearch(SearchMethod):
    """Population based training."""

    def __init__(
        self,
        *,
        population: int,
        rounds: int,
        round_time: int,
        truncate: float,
        resample: float,
        perturb: float,
        measure: Measure,
    ) -> None:
        self._population = population
        self._rounds = rounds
        self._round_time = round_time
        self._truncated = int(truncate * population)
        self._resample = resample
        self._perturb = perturb
        self._measure = measure
        self._rounds_done = 0
        self._values: dict[str, float] = {}
        self._rounds_of: dict[str, int] = {}
        self._hparams: dict[str, Hparams] = {}
        self._exited: set[str] = set()

    def begin(self, context: SearchContext) -> list[Operation]:
        """Begin the population."""
        return [each for _ in range(self._population) for each in self._begin_one(context, context.create())]

    def _begin_one(self, context: SearchContext, created: Create) -> list[Operation]:
        self._hparams[created.trial] = created.hparams
        self._rounds_of[created.trial] = 0
        return [created, RunTo(created.trial, self._round_time)]

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Take a trial's value of this round; the last one of them ends the round."""
        self._values[trial] = self._measure.value(metrics)
        return self._arrived(context, trial)

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Count it as the worst of this round and of those to come."""
        self._exited.add(trial)
        self._values[trial] = WORST
        return self._arrived(context, trial)

    def _arrived(self, context: SearchContext, trial: str) -> list[Operation]:
        self._rounds_of[trial] += 1
        if len(self._values) < self._population:
            return []
        self._rounds_done += 1
        if self._rounds_done >= self._rounds:
            return [StopTrial(each) for each in self._values if each not in self._exited]
        ranked = sorted(self._values, key=lambda each: (self._values[each], each))
        self._values = {}
        staying = ranked[: len(ranked) - self._truncated]
        found: list[Operation] = [
            StopTrial(each) for each in ranked[len(staying) :] if each not in self._exited
        ]
        for best in ranked[: self._truncated]:
            if best not in self._exited:
                changed = self.explored(context, self._hparams[best])
                found += self._begin_one(context, context.create(changed, parent=best))
        for each in staying:
            if each in self._exited:
                self._values[each] = WORST
            else:
                found.append(RunTo(each, (self._rounds_of[each] + 1) * self._round_time))
        return found

    def explored(self, context: SearchContext, hparams: Hparams) -> Hparams:
        """Return hyper-parameters near others: each is drawn again, or made smaller or larger.

        Whether, and in which direction, is drawn for those that are not numbers as well.
        """
        return self._explored(context.space, context.stream, hparams)

    def _explored(self, space: Space, stream: RandomStream, hparams: Hparams) -> Hparams:
        found: Hparams = {}
        for name in sorted(space.parts):
            part = space.parts[name]
            if stream.unit() < self._resample:
                found[name] = part.sample(stream)
                continue
            up = stream.unit() >= _DECREASE
            factor = 1 + self._perturb if up else 1 - self._perturb
            found[name] = part.moved(hparams.get(name), factor, up=up)
        return found

    def progress(self) -> float:
        """Return the share of rounds that trials have had."""
        return min(sum(self._rounds_of.values()) / (self._population * self._rounds), 1.0)

    def outlook(self, seed: int) -> dict[int, int]:
        """Play it through with values that are drawn: who is replaced depends on them."""
        stream = RandomStream(seed)
        rounds: dict[int, int] = {}
        alive = [0] * self._population
        for number in range(self._rounds):
            alive = [each + 1 for each in alive]
            if number + 1 == self._rounds:
                break
            order = sorted(range(len(alive)), key=[stream.unit() for _ in alive].__getitem__)
            replaced = set(order[len(order) - self._truncated :])
            for index in sorted(replaced):
                rounds[alive[index]] = rounds.get(alive[index], 0) + 1
                alive[index] = 0
        for each in alive:
            rounds[each] = rounds.get(each, 0) + 1
        return {each * self._round_time: rounds[each] for each in sorted(rounds)}

    def rungs(self) -> list[int]:
        """Return the ends of the rounds."""
        return [self._round_time * each for each in range(1, self._rounds + 1)]
