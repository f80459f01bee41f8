"""What a search method is asked, what it answers, and the methods that stop no trial of themselves.

Random and grid choose what is tried; with the third one something outside of this package does.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from workbench.search.space import Hparams, Space
from workbench.search.stream import RandomStream
from workbench.values import dataclass

WORST: Final = sys.float_info.max
"""What counts as the metric of a trial that failed, or that reported no number."""

ALL_THE_WAY: Final = 0
"""The units of a trial that runs as long as its own code does, in :meth:`SearchMethod.outlook`."""


@dataclass(frozen=True, slots=True)
class Create:
    """A trial begins."""

    trial: str
    hparams: Hparams
    seed: int
    parent: str = ""
    """The trial whose checkpoint it begins with; empty for none."""


@dataclass(frozen=True, slots=True)
class RunTo:
    """A trial trains until it has had so many units in all, then it is validated."""

    trial: str
    units: int


@dataclass(frozen=True, slots=True)
class StopTrial:
    """A trial gets no more training."""

    trial: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The search is over: every trial has ended."""

    failed: bool = False
    """Whether every trial has failed."""
    cancelled: bool = False


Operation = Create | RunTo | StopTrial | Shutdown


class TrialEnd(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"
    """Of itself, or because it was stopped."""
    FAILED = "failed"
    INVALID = "invalid"
    """It says that its hyper-parameters make no sense; another one takes its turn."""
    CANCELLED = "cancelled"
    """A person ended it."""


class MetricMissing(ValueError):
    """A report lacks the metric or the time metric of the search, or holds a text there."""


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What a method draws from."""

    space: Space
    stream: RandomStream

    def create(self, hparams: Hparams | None = None, *, parent: str = "") -> Create:
        """Return a new trial: its hyper-parameters are drawn first, then its id, then its seed."""
        drawn = self.space.sample(self.stream) if hparams is None else hparams
        trial = self.stream.trial_id()
        return Create(trial, drawn, self.stream.trial_seed(), parent)


@dataclass(frozen=True, slots=True)
class Measure:
    """Which values of a report count."""

    metric: str = ""
    smaller_is_better: bool = True
    time_metric: str = ""

    def value(self, metrics: Mapping[str, Any]) -> float:
        """Return a report's metric so that smaller is better; what is not a number is the worst.

        Raises:
            MetricMissing: the report does not have it.
        """
        value = _number(metrics, self.metric, "metric")
        if math.isnan(value):
            return WORST
        return value if self.smaller_is_better else -value

    def time(self, metrics: Mapping[str, Any]) -> float:
        """Return how many units the trial had been trained.

        Raises:
            MetricMissing: the report does not have it.
        """
        return _number(metrics, self.time_metric, "time metric")


class SearchMethod(ABC):
    """Answers events of trials by operations. It keeps its own state, which replay makes again."""

    @abstractmethod
    def begin(self, context: SearchContext) -> list[Operation]:
        """Return the first trials."""

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Take what a trial's validation gave.

        Raises:
            MetricMissing: the report lacks what the method goes by.
        """
        return []

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Take that a trial ended before its time; :meth:`ended` is called next."""
        return []

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Take that a trial runs no more, however it ended."""
        return []

    def reopened(self, trial: str) -> None:
        """Take that a trial which had ended runs again."""
        raise NotImplementedError

    def extended(self, context: SearchContext, max_trials: int, max_concurrent: int) -> list[Operation]:
        """Take new limits, and begin what there is room for."""
        raise NotImplementedError

    @property
    def wanted(self) -> int:
        """How many samples something outside is to be asked for now."""
        return 0

    @property
    def is_asking(self) -> bool:
        """Whether trials may begin though no event of a trial comes."""
        return False

    def ask(self) -> None:
        """Take that something outside was asked for a sample."""
        raise NotImplementedError

    def answer(self, context: SearchContext, hparams: Hparams | None) -> list[Operation]:
        """Take the sample that was asked for; None where there are no more."""
        raise NotImplementedError

    @abstractmethod
    def progress(self) -> float:
        """Return how much of the search is done, from 0 to 1."""

    @abstractmethod
    def outlook(self, seed: int) -> dict[int, int]:
        """Return how many trials get how far: counts by units, :data:`ALL_THE_WAY` where nothing stops them."""

    def rungs(self) -> list[int]:
        """Return the units at which trials are compared, ascending; none where they are not."""
        return []


class RandomSearch(SearchMethod):
    """Draws each trial by itself; ``max_concurrent`` 0 starts all at once."""

    def __init__(self, max_trials: int, max_concurrent: int = 0) -> None:
        self._max_trials = max_trials
        self._max_concurrent = max_concurrent
        self._created = 0
        self._ended = 0
        self._replaced: set[str] = set()

    def begin(self, context: SearchContext) -> list[Operation]:
        """Draw as many as may run at once."""
        return self._fill(context)

    def _fill(self, context: SearchContext) -> list[Operation]:
        running = self._created - self._ended
        count = max(
            min(self._max_trials - self._created, (self._max_concurrent or self._max_trials) - running), 0
        )
        self._created += count
        return [context.create() for _ in range(count)]

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Replace a trial whose hyper-parameters made no sense; it does not count."""
        if how is not TrialEnd.INVALID:
            return []
        self._replaced.add(trial)
        return [context.create()]

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Begin another one while there are any; one that was replaced has made room for no more."""
        if trial in self._replaced:
            return []
        self._ended += 1
        return self._fill(context)

    def reopened(self, trial: str) -> None:
        """Count it as running; one that was replaced is not reopened."""
        self._ended -= 1

    def extended(self, context: SearchContext, max_trials: int, max_concurrent: int) -> list[Operation]:
        """Draw as many as may run beside those that do."""
        self._max_trials, self._max_concurrent = max_trials, max_concurrent
        return self._fill(context)

    def progress(self) -> float:
        """Return the share of trials that have ended."""
        return self._ended / self._max_trials

    def outlook(self, seed: int) -> dict[int, int]:
        """All of them, all the way."""
        return {ALL_THE_WAY: self._max_trials}


class GridSearch(SearchMethod):
    """Tries every combination, the last one first."""

    def __init__(self, space: Space, max_concurrent: int = 0) -> None:
        self._space = space
        self._max_concurrent = max_concurrent
        self._left: list[Hparams] = []
        self._running = 0
        self._ended = 0

    def begin(self, context: SearchContext) -> list[Operation]:
        """Begin as many as may run at once."""
        self._left = self._space.points()
        return self._fill(context)

    def _fill(self, context: SearchContext) -> list[Operation]:
        room = self._max_concurrent - self._running if self._max_concurrent else len(self._left)
        count = max(min(room, len(self._left)), 0)
        self._running += count
        return [context.create(self._left.pop()) for _ in range(count)]

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Begin the next one; a point whose hyper-parameters made no sense is not replaced."""
        self._ended += 1
        self._running -= 1
        return self._fill(context)

    def reopened(self, trial: str) -> None:
        """Count it as running."""
        self._ended -= 1
        self._running += 1

    def extended(self, context: SearchContext, max_trials: int, max_concurrent: int) -> list[Operation]:
        """Begin as many as may run beside those that do; the number of points is that of the space."""
        self._max_concurrent = max_concurrent
        return self._fill(context)

    def progress(self) -> float:
        """Return the share of points whose trial has ended."""
        return self._ended / max(self._space.size(), 1)

    def outlook(self, seed: int) -> dict[int, int]:
        """All of them, all the way."""
        return {ALL_THE_WAY: self._space.size()}


class AskedSearch(SearchMethod):
    """Takes its samples from something outside: Optuna, or a class of the user's own.

    Questions and answers are events of their own, so what happens to trials while an answer is awaited has its order.
    """

    def __init__(self, max_trials: int, max_concurrent: int, measure: Measure) -> None:
        self._max_trials = max_trials
        self._at_once = min(max_trials, max_concurrent) if max_concurrent else max_trials
        self._measure = measure
        self._created = 0
        self._ended = 0
        self._invalid = 0
        self._asked = 0
        self._is_exhausted = False

    def begin(self, context: SearchContext) -> list[Operation]:
        """Nothing begins before the first answer."""
        return []

    @property
    def wanted(self) -> int:
        """As many as may run at once and do not, while there are any."""
        if self._is_exhausted:
            return 0
        left = self._max_trials - (self._created - self._invalid)
        free = self._at_once - (self._created - self._ended)
        return max(min(left, free) - self._asked, 0)

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited, or something is to be asked."""
        return self._asked > 0 or self.wanted > 0

    def ask(self) -> None:
        """Count the question."""
        self._asked += 1

    def answer(self, context: SearchContext, hparams: Hparams | None) -> list[Operation]:
        """Begin a trial; None ends the search once the trials under way have ended."""
        self._asked -= 1
        if hparams is None:
            self._is_exhausted = True
            return []
        self._created += 1
        return [context.create(hparams)]

    def reported(self, context: SearchContext, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """See that what it goes by is there; whether the trial goes on is decided outside."""
        self._measure.value(metrics)
        if self._measure.time_metric:
            self._measure.time(metrics)
        return []

    def failed(self, context: SearchContext, trial: str, how: TrialEnd) -> list[Operation]:
        """Leave a trial out whose hyper-parameters made no sense: another one takes its turn."""
        self._invalid += how is TrialEnd.INVALID
        return []

    def ended(self, context: SearchContext, trial: str) -> list[Operation]:
        """Count it."""
        self._ended += 1
        return []

    def progress(self) -> float:
        """Return the share of trials that have ended."""
        return min((self._ended - self._invalid) / self._max_trials, 1.0)

    def outlook(self, seed: int) -> dict[int, int]:
        """All of them, all the way: what is stopped early is decided outside."""
        return {ALL_THE_WAY: self._max_trials}


def _number(metrics: Mapping[str, Any], name: str, what: str) -> float:
    if name not in metrics:
        raise MetricMissing(f"the {what} {name!r} is not among what was reported")
    value = metrics[name]
    if value is None:
        return math.nan  # how a store keeps what is not a number
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MetricMissing(f"the {what} {name!r} is not a number: {value!r}")
    return float(value)
