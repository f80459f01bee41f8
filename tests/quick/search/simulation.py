"""Plays a search through without a job: which trial reports what is a function of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.search.method import Create, Operation, RunTo, SearchMethod, Shutdown, StopTrial, TrialEnd
from workbench.search.searcher import Searcher
from workbench.search.space import Integer, Space

SPACE = Space({"x": Integer(1, 1_000_000)})
Value = Callable[[int, int], float]
"""The metric of the trial with this number, from 1, after so many units."""


@dataclass
class Played:
    """What came of it."""

    units: dict[str, int] = field(default_factory=dict)
    """How far each trial got, in the order of their creation."""
    operations: list[list[Operation]] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, Any] | TrialEnd]] = field(default_factory=list)
    most_at_once: int = 0
    shutdown: Shutdown | None = None

    @property
    def counts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for units in self.units.values():
            found[units] = found.get(units, 0) + 1
        return dict(sorted(found.items()))


def play(
    method: SearchMethod,
    value: Value,
    *,
    each: int = 100,
    longest: int = 900,
    seed: int = 7,
    space: Space = SPACE,
    ends: Callable[[int, int], TrialEnd | None] = lambda number, units: None,
    pick: Callable[[list[str]], str] = lambda open_trials: open_trials[0],
) -> Played:
    """Run a search to its end: trials take turns as ``pick`` says, and report each so many units.

    A trial that gets a length of training reports at its end only.
    """
    searcher, played = Searcher(method, space, seed), Played()
    targets: dict[str, int | None] = {}
    running: list[str] = []

    def take(operations: list[Operation]) -> None:
        played.operations.append(operations)
        for one in operations:
            match one:
                case Create(trial):
                    played.units[trial] = 0
                    targets[trial] = None
                    running.append(trial)
                case RunTo(trial, units):
                    targets[trial] = units
                    if trial not in running:
                        running.append(trial)
                case StopTrial(trial):
                    finish(trial, TrialEnd.COMPLETED)
                case Shutdown():
                    played.shutdown = one
        played.most_at_once = max(played.most_at_once, len(running))

    def finish(trial: str, how: TrialEnd) -> None:
        if trial in running:
            running.remove(trial)
        played.events.append((trial, how))
        take(searcher.end(trial, how))

    take(searcher.begin())
    while running:
        trial = pick(running)
        number = list(played.units).index(trial) + 1
        target = targets[trial]
        units = target if target is not None else played.units[trial] + each
        if how := ends(number, units):
            finish(trial, how)
            continue
        played.units[trial] = units
        if target is not None:
            running.remove(trial)  # it waits for a further length
        metrics = {"loss": value(number, units), "batches": units}
        played.events.append((trial, metrics))
        take(searcher.report(trial, metrics))
        if trial in running and target is None and units >= longest:
            finish(trial, TrialEnd.COMPLETED)
    return played


def replayed(
    method: SearchMethod, played: Played, *, seed: int = 7, space: Space = SPACE
) -> list[list[Operation]]:
    """Return the operations that the recorded events give again."""
    searcher = Searcher(method, space, seed)
    found = [searcher.begin()]
    for trial, event in played.events:
        if isinstance(event, TrialEnd):
            found.append(searcher.end(trial, event))
        else:
            found.append(searcher.report(trial, event))
    return found
