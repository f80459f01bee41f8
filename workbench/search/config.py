"""A search as a manifest describes it, in plain JSON, and what is made of that: its space and its method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any, Final

from workbench.distributions import distribution_name
from workbench.search.asha import AdaptiveAsha, AshaPromotion, AshaStopping
from workbench.search.method import (
    AskedSearch,
    Create,
    GridSearch,
    Measure,
    RandomSearch,
    SearchContext,
    SearchMethod,
)
from workbench.search.pbt import PopulationSearch
from workbench.search.space import Categorical, Constant, Distribution, Integer, LogUniform, Space, Uniform
from workbench.search.stream import RandomStream
from workbench.values import dataclass

ASKED: Final = ("python", "optuna")
"""The methods whose samples come from a process of their own."""
CONTINUED: Final = ("random", "grid")
"""The methods that can go on when they are over: they compare no trials."""

_DECIMAL: Final = 10.0


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """One search; the fields are the keys of ``search:`` in a manifest, where their meaning is documented."""

    method: str = "random"
    metric: str = ""
    goal: str = "minimize"
    params: Mapping[str, Any] = field(default_factory=dict)
    max_trials: int = 1
    max_concurrent: int = 16
    backends: tuple[str, ...] = ()
    """``NAME`` or ``RUNNER@NAME``."""
    time_metric: str = ""
    max_time: int = 0
    divisor: float = 4.0
    max_rungs: int = 5
    rungs: int = 0
    """Of ``asha``; 0 takes as many as ``max_rungs``, ``max_time`` and ``max_trials`` allow."""
    brackets: tuple[int, ...] = ()
    mode: str = "standard"
    variant: str = "stopping"
    population: int = 0
    rounds: int = 0
    round_time: int = 0
    truncate: float = 0.2
    resample: float = 0.2
    perturb: float = 0.2
    searcher: str = ""
    """Of ``python``: MODULE:CLASS or FILE.py:CLASS in the job's code."""
    sampler: str = "tpe"
    pruner: str = "none"

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> SearchConfig:
        """Return the configuration of plain values; names that this version does not know are left out."""
        known = {each.name for each in fields(SearchConfig)}
        values = {name: value for name, value in document.items() if name in known}
        listed = {name: tuple(values.get(name) or ()) for name in ("brackets", "backends")}
        return SearchConfig(**{**values, **listed})

    @property
    def smaller_is_better(self) -> bool:
        """Whether the metric is to become small."""
        return self.goal == "minimize"

    @property
    def measure(self) -> Measure:
        """Which values of a report count."""
        return Measure(self.metric, self.smaller_is_better, self.time_metric)

    def space(self) -> Space:
        """Return what may be tried."""
        return _space(self.params)

    def make_method(self, *, replaces_early_ends: bool = True) -> SearchMethod:
        """Return the method, before its first trial; a search that an older fabric has begun replaces no trials."""
        match self.method:
            case "grid":
                return GridSearch(self.space(), self.max_concurrent)
            case "asha":
                variant = (
                    AshaPromotion
                    if self.variant == "promotion"
                    else partial(AshaStopping, replaces_early_ends=replaces_early_ends)
                )
                return variant(
                    rung_count=self.rungs or self._deepest(),
                    divisor=self.divisor,
                    max_time=self.max_time,
                    max_trials=self.max_trials,
                    max_concurrent=self.max_concurrent,
                    measure=self.measure,
                )
            case "adaptive_asha":
                return AdaptiveAsha(
                    mode=self.mode,
                    divisor=self.divisor,
                    max_rungs=self.max_rungs,
                    max_time=self.max_time,
                    max_trials=self.max_trials,
                    max_concurrent=self.max_concurrent,
                    measure=self.measure,
                    rungs=self.brackets,
                    promotes=self.variant == "promotion",
                    replaces_early_ends=replaces_early_ends,
                )
            case "pbt":
                return PopulationSearch(
                    population=self.population,
                    rounds=self.rounds,
                    round_time=self.round_time,
                    truncate=self.truncate,
                    resample=self.resample,
                    perturb=self.perturb,
                    measure=self.measure,
                )
            case "python" | "optuna":
                return AskedSearch(self.max_trials, self.max_concurrent, self.measure)
        return RandomSearch(self.max_trials, self.max_concurrent)

    @property
    def is_asked(self) -> bool:
        """Whether its samples come from something outside: Optuna, or a class of the user's own."""
        return self.method in ASKED

    def for_searcher(self) -> dict[str, Any]:
        """Return what the process that chooses has to know, as plain values."""
        names = ("method", "metric", "goal", "max_trials", "max_concurrent", "searcher", "sampler", "pruner")
        return {"params": self.params, **{name: getattr(self, name) for name in names}}

    def first_trials(self, count: int, seed: int) -> list[Create]:
        """Return the trials that begin first, at most so many; none where something outside chooses them.

        All are drawn from one stream as they begin, so what happens to some does not change the others.
        """
        if self.is_asked:
            return []
        space = self.space()
        context = SearchContext(space, RandomStream(seed))
        if self.method != "grid":
            return [context.create() for _ in range(count)]
        points = space.points()
        return [context.create(points.pop()) for _ in range(min(count, len(points)))]

    def _deepest(self) -> int:
        bounds = (
            int(math.log(each) / math.log(self.divisor)) + 1 for each in (self.max_time, self.max_trials)
        )
        return min(self.max_rungs, *bounds)


def _space(document: Mapping[str, Any]) -> Space:
    return Space({name: _distribution(value) for name, value in document.items()})


def _distribution(value: Any) -> Distribution:
    """Return the distribution of a value: a map is one, or nested hyper-parameters; all else is a constant."""
    if not isinstance(value, Mapping):
        return Constant(value)
    kind = distribution_name(value)
    if not kind:
        return _space(value)
    if kind == "choice":
        return Categorical(tuple(value[kind]))
    low, high = value[kind]
    count = value.get("count")
    if kind == "int":
        return Integer(int(low), int(high), count)
    if kind == "uniform":
        return Uniform(float(low), float(high), count)
    return LogUniform(math.log10(low), math.log10(high), _DECIMAL, count)
