"""A search under way: hands events to its method and keeps account of the trials."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workbench.search.method import (
    Create,
    Operation,
    SearchContext,
    SearchMethod,
    Shutdown,
    StopTrial,
    TrialEnd,
)
from workbench.search.space import Hparams, Space
from workbench.search.stream import RandomStream


class Searcher:
    """One search. The same seed and the same events in the same order give the same operations."""

    def __init__(self, method: SearchMethod, space: Space, seed: int) -> None:
        self._method = method
        self._context = SearchContext(space, RandomStream(seed))
        self._created: dict[str, None] = {}
        self._stopped: set[str] = set()
        self._ended: dict[str, TrialEnd] = {}
        self._is_over = False

    @property
    def trials(self) -> tuple[str, ...]:
        """The ids of all trials, in the order of their creation."""
        return tuple(self._created)

    @property
    def is_over(self) -> bool:
        """Whether it has shut down."""
        return self._is_over

    def begin(self) -> list[Operation]:
        """Return the first trials."""
        return self._noted(self._method.begin(self._context))

    def report(self, trial: str, metrics: Mapping[str, Any]) -> list[Operation]:
        """Take what a trial's validation gave; what comes after its stop or end is ignored.

        Raises:
            MetricMissing: the report lacks what the method goes by.
            KeyError: there is no such trial.
        """
        if not self._is_open(trial) or trial in self._stopped:
            return []
        return self._noted(self._method.reported(self._context, trial, metrics))

    def end(self, trial: str, how: TrialEnd = TrialEnd.COMPLETED) -> list[Operation]:
        """Take that a trial has ended; the last one of all shuts the search down.

        Raises:
            KeyError: there is no such trial.
        """
        if not self._is_open(trial):
            return []
        return self._take_end(trial, how) + self._over()

    def _take_end(self, trial: str, how: TrialEnd) -> list[Operation]:
        found: list[Operation] = []
        # One that was stopped has had its say: how it ended then changes nothing.
        if how is not TrialEnd.COMPLETED and trial not in self._stopped:
            found += self._method.failed(self._context, trial, how)
        self._ended[trial] = how
        self._noted(found)
        return found + self._noted(self._method.ended(self._context, trial))

    def reopen(
        self, trials: Collection[str], ends: Mapping[str, TrialEnd], *, max_trials: int, max_concurrent: int
    ) -> list[Operation]:
        """Take a search up again that is over, by :data:`~workbench.search.config.CONTINUED` methods.

        Args:
            trials: those that run again.
            ends: how all others ended. A search that was ended by a person was not given the ends of its last trials.
            max_trials: how many there may be from now on.
            max_concurrent: how many may run at once from now on; 0 for all.

        Returns:
            The trials that begin beside them; that it is over where there is nothing to do.
        """
        self._is_over = False
        for trial in trials:
            if self._ended.pop(trial, None) is not None:
                self._method.reopened(trial)
        found = self._noted(self._method.extended(self._context, max_trials, max_concurrent))
        for trial, how in ends.items():
            if trial not in self._ended:
                found += self._take_end(trial, how)
        return found + self._over()

    @property
    def wanted(self) -> int:
        """How many samples something outside is to be asked for now."""
        return 0 if self._is_over else self._method.wanted

    @property
    def is_asking(self) -> bool:
        """Whether an answer from outside is awaited, or something is to be asked there."""
        return not self._is_over and self._method.is_asking

    def ask(self) -> None:
        """Take that something outside was asked for a sample."""
        self._method.ask()

    def answer(self, hparams: Hparams | None) -> list[Operation]:
        """Take the sample that was asked for; None where there are no more."""
        return self._noted(self._method.answer(self._context, hparams)) + self._over()

    def stop(self, trial: str) -> list[Operation]:
        """Take that something outside stops a trial; one that has ended or was stopped stays as it is.

        Raises:
            KeyError: there is no such trial.
        """
        if not self._is_open(trial) or trial in self._stopped:
            return []
        return self._noted([StopTrial(trial)])

    def _over(self) -> list[Operation]:
        if len(self._ended) < len(self._created) or self._method.is_asking:
            return []
        self._is_over = True
        ends = set(self._ended.values())
        return [Shutdown(ends == {TrialEnd.FAILED}, ends == {TrialEnd.CANCELLED})]

    def progress(self) -> float:
        """Return how much is done, from 0 to 1."""
        return 1.0 if self._is_over else self._method.progress()

    def _is_open(self, trial: str) -> bool:
        if trial not in self._created:
            raise KeyError(trial)
        return trial not in self._ended

    def _noted(self, operations: list[Operation]) -> list[Operation]:
        for each in operations:
            if isinstance(each, Create):
                self._created[each.trial] = None
            elif isinstance(each, StopTrial):
                self._stopped.add(each.trial)
        return operations
