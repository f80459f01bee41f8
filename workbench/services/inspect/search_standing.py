"""How a search stands: its trials with the rungs that they have reached, what each has reported, and when it ends."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from workbench.clock import elapsed_seconds
from workbench.distributions import distribution_name
from workbench.errors import FabricError
from workbench.manifest.builder.params import flat_params, params_by_name
from workbench.search.config import CONTINUED, SearchConfig
from workbench.search.stream import SEED_LIMIT
from workbench.store.db.database import Store
from workbench.store.history.journal import parse_event, read_events
from workbench.store.queries.experiments import (
    COMPLETED,
    PAUSED,
    QUEUED,
    RUNNING,
    WAITING,
    ExperimentRow,
    TrialRow,
    TrialTotals,
    archived_experiments,
    best_trial,
    experiment,
    newest_search,
    read_experiment_file,
    trial_totals,
    trials,
)
from workbench.values import dataclass

OPEN_TRIALS: Final = (QUEUED, RUNNING, PAUSED, WAITING)
"""The states of trials of which something is to come."""
UNREADABLE: Final = (FabricError, OSError, AttributeError, KeyError, TypeError, ValueError)
"""What is raised as a search is read whose files are gone or damaged: JSON may be valid, and no search."""
SURE_SHARE: Final = 0.05
"""Before so much of a search is done nobody can tell when it ends."""
READ_SHARE: Final = 0.05
"""So much of the time at most is taken by reading a search whose trials are so many that one look takes long."""
LONG_SECONDS: Final = 0.1
"""A look that takes less may be repeated at once."""
_STEERS: Final = re.compile(rb'"(?:pause|resume|continue|annotate)"')


@dataclass(frozen=True, slots=True)
class StandingTrial:
    """A trial as its search sees it."""

    row: TrialRow
    hparams: Mapping[str, Any]
    """With dots in the names of those within a map."""
    rung: int | None
    """How many rungs it has reached; None where its search has none."""

    @property
    def is_open(self) -> bool:
        """Whether something of it is to come."""
        return self.row.state in OPEN_TRIALS


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """The values of the metric that a trial has reported, over the units or, without these, over their numbers."""

    units: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    """NaN is one that was no number."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search has come, without the values that its trials have reported."""

    totals: TrialTotals
    expected_trials: int
    """How many there will be."""
    share: float | None = None
    """How much is done, from 0 to 1; None where that is not known."""
    rungs: tuple[int, ...] = ()
    """The units at which trials are compared."""
    ends_us: int | None = None
    """When it ends if it goes on at its rate; None where that is not known."""


@dataclass(frozen=True, slots=True)
class TriedRange:
    """From what the values of a hyper-parameter are drawn."""

    kind: str
    """One of :data:`workbench.distributions.DISTRIBUTIONS`."""
    values: tuple[Any, ...]
    """The lowest and the highest one, or all that may be chosen."""


@dataclass(frozen=True, slots=True)
class SearchStanding:
    """A search and all its trials at one time."""

    row: ExperimentRow
    trials: tuple[StandingTrial, ...]
    curves: Mapping[int, TrialCurve]
    """By the number of the trial; those that have reported nothing are left out."""
    best: StandingTrial | None
    expected_trials: int
    """How many there will be."""
    rungs: tuple[int, ...]
    """The units at which trials are compared."""
    axis: str
    """What the units are; empty where reports have none."""
    params: tuple[str, ...]
    """The names of the hyper-parameters in which trials differ."""
    ends_us: int | None
    """When it ends if it goes on at its rate; None where that is not known."""
    ranges: Mapping[str, TriedRange]
    """By the name of the hyper-parameter, with dots as in ``params``; those that stay the same are left out."""
    seed: int
    """What its trials are drawn with."""
    is_archived: bool = False

    @property
    def ended(self) -> int:
        """How many trials have ended."""
        return sum(not one.is_open for one in self.trials)

    @property
    def can_go_on(self) -> bool:
        """Whether it is over, and of a method that can be continued then."""
        return not self.row.is_open and self.row.method in CONTINUED

    @property
    def next_seed(self) -> int:
        """A seed with which a search like it draws other trials."""
        return (self.seed + 1) % SEED_LIMIT


class SearchReader:
    """Reads how a search stands again and again: of its history what is new, and nothing where nothing is.

    Where it has very many trials these are looked at more seldom; whether it runs, is paused or over is always known.
    """

    def __init__(self, experiment_id: str) -> None:
        self._id = experiment_id
        self._seen: object = None
        self._standing: SearchStanding | None = None
        self._next_look_at = 0.0
        self._axis: str | None = None
        """What the units are; None until the search was read."""
        self._search: Mapping[str, Any] = {}
        self._seed = 0
        self._expected = 0
        self._rungs: tuple[int, ...] = ()
        self._ranges: dict[str, TriedRange] = {}
        self._offset = 0
        self._curves: dict[str, TrialCurve] = {}
        """By the id that the search drew for the trial."""
        self._clock = _Clock()

    def __call__(self, store: Store) -> SearchStanding | None:
        """Return how it stands now, the same value as before where nothing has changed; None where there is none.

        Raises:
            InputMissing: what was submitted is gone or damaged.
        """
        row = experiment(store, self._id)
        if row is None:
            return None
        written = store.row("SELECT events_size FROM experiments WHERE id = ?", (self._id,))
        jobs = store.row("SELECT value FROM counters WHERE name = 'jobs'")
        if (row, written, jobs) != self._seen:
            began = elapsed_seconds()
            if self._standing is None or began >= self._next_look_at:
                self._standing = self._read(store, row, written[0] if written else 0)
                self._seen = row, written, jobs
                took = elapsed_seconds() - began
                self._next_look_at = began + took / READ_SHARE if took >= LONG_SECONDS else 0.0
            elif row != self._standing.row:
                ends_us = self._standing.ends_us if row.state == RUNNING else None
                self._standing = replace(self._standing, row=row, ends_us=ends_us)
        return self._standing

    def _read(self, store: Store, row: ExperimentRow, written: int) -> SearchStanding:
        if self._axis is None:
            document = read_experiment_file(store.home, self._id)
            self._seed = document["seed"]
            self._take_search(document["spec"]["search"])
        self._read_events(store, written)
        rows = trials(store, self._id)
        found = tuple(StandingTrial(one, params_by_name(one.hparams), self._rung(one)) for one in rows)
        best = best_trial(row, rows)
        expected = _expected(row, len(rows), self._expected)
        share = _share(row, trial_totals(store, self._id), expected, self._search)
        curves = {one.number: self._curves[one.trial] for one in rows if one.trial in self._curves}
        return SearchStanding(
            row,
            found,
            curves,
            None if best is None else found[rows.index(best)],
            expected,
            self._rungs,
            self._axis or "",
            _differing(found),
            _ends_us(row, share, lambda: self._clock),
            self._ranges,
            self._seed,
            is_archived=self._id in archived_experiments(store),
        )

    def _take_search(self, search: Mapping[str, Any]) -> None:
        """Take what was submitted, or what a search that was over was continued with."""
        self._search = search
        config = SearchConfig.from_json(search)
        self._axis = config.time_metric
        method = config.make_method()
        self._expected = sum(method.outlook(self._seed).values())
        self._rungs = tuple(sorted(set(method.rungs())))
        split = ((name.rpartition("."), values) for name, values in flat_params(config.params))
        self._ranges = {
            name: TriedRange(kind, tuple(values))
            for (name, _, kind), values in split
            if distribution_name({kind: values})
        }

    def _read_events(self, store: Store, written: int) -> None:
        """Take in what the history holds up to where the rows are."""
        file = store.home.experiment(self._id).events
        new: dict[str, tuple[list[float], list[float]]] = {}
        for event, end in read_events(file, self._offset) if file.exists() else ():
            if end > written:
                break
            self._offset = end
            if event["do"] == "annotate":
                continue  # nothing has become of a trial
            self._clock.take(event)
            match event["do"]:
                case "report":
                    units, values = new.setdefault(event["trial"], ([], []))
                    known = self._curves.get(event["trial"], TrialCurve())
                    number = len(known.values) + len(values) + 1
                    units.append(float(number if event.get("units") is None else event["units"]))
                    values.append(math.nan if event["value"] is None else float(event["value"]))
                case "continue":
                    self._take_search(event["search"])
        for trial, (more_units, more_values) in new.items():
            known = self._curves.get(trial, TrialCurve())
            self._curves[trial] = TrialCurve((*known.units, *more_units), (*known.values, *more_values))

    def _rung(self, row: TrialRow) -> int | None:
        return rung_of(row, self._rungs)


def read_progress(store: Store, row: ExperimentRow) -> SearchProgress:
    """Return how far a search has come, without reading each of its trials: they may be many.

    Its history, which may be long, is read only while it runs: to tell when it ends.
    """
    try:
        document = read_experiment_file(store.home, row.id)
        search = document["spec"]["search"]
        if row.method in CONTINUED:
            search = newest_search(store.home, row.id, document)
        method = SearchConfig.from_json(search).make_method()
        outlook = sum(method.outlook(document["seed"]).values())
        rungs = tuple(sorted(set(method.rungs())))
    except UNREADABLE:
        totals = trial_totals(store, row.id)
        return SearchProgress(totals, totals.count)
    totals = trial_totals(store, row.id, rungs)
    expected = _expected(row, totals.count, outlook)
    share = _share(row, totals, expected, search)
    try:
        ends_us = _ends_us(row, share, lambda: _read_clock(store, row.id))
    except UNREADABLE:
        ends_us = None
    return SearchProgress(totals, expected, share, rungs, ends_us)


def read_rungs(store: Store, row: ExperimentRow) -> tuple[int, ...]:
    """Return the units at which a search compares its trials; none where what was submitted is gone or damaged."""
    try:
        search = read_experiment_file(store.home, row.id)["spec"]["search"]
        return tuple(sorted(set(SearchConfig.from_json(search).make_method().rungs())))
    except UNREADABLE:
        return ()


def rung_of(row: TrialRow, rungs: Sequence[int]) -> int | None:
    """Return how many rungs a trial has reached; None where its search has none."""
    if not rungs:
        return None
    return sum(row.units is not None and row.units >= each for each in rungs)


def _expected(row: ExperimentRow, count: int, expected: int) -> int:
    """Return how many trials there will be: others may come for invalid ones, and a searcher may end earlier."""
    return count if row.state == COMPLETED else max(expected, count)


def _share(row: ExperimentRow, totals: TrialTotals, expected: int, search: Mapping[str, Any]) -> float | None:
    """Return how much of a search is done: its trials that have ended, and of the others the part that is trained.

    The others are expected to get as far as those that have ended did on average: how many a search stops early is
    known only as it goes. None where trials wait, at a rung or for the end of a round: whether they go on is not known.
    Of invalid trials others take the turn, except in a grid; those that were cut off count as far as they came.
    """
    if row.state == COMPLETED:
        return 1.0
    if row.method == "pbt" or search.get("variant") == "promotion":
        return None
    if not expected:
        return 0.0
    done = totals.finished + totals.going + (totals.invalid if row.method == "grid" else 0)
    return min(done / expected, 1.0)


def _ends_us(row: ExperimentRow, share: float | None, read_clock: Callable[[], _Clock]) -> int | None:
    """Return when a search that runs has done as much as is expected of it; None where that is not known."""
    if row.state != RUNNING or share is None or not SURE_SHARE <= share < 1:
        return None
    clock = read_clock()
    took_us = clock.last_us - row.created_us - clock.paused_us
    return round(clock.last_us + took_us * (1 - share) / share)


class _Clock:
    """For how long a search has been under way, by its events in their order."""

    def __init__(self) -> None:
        self.last_us = 0
        """When the last event was."""
        self.paused_us = 0
        """For how long it was paused, or over until it was continued."""
        self._pause_began_us: int | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in an event by which something has become of the search."""
        before_us, self.last_us = self.last_us, event["time"]
        match event["do"]:
            case "pause":
                self._pause_began_us = event["time"]
            case "resume" if self._pause_began_us is not None:
                self.paused_us += event["time"] - self._pause_began_us
                self._pause_began_us = None
            case "continue":
                self.paused_us += event["time"] - before_us

    def take_line(self, line: bytes) -> None:
        """Take in the event of a line of the history, if it holds one."""
        if (event := parse_event(line)) is not None:
            self.take(event)


def _read_clock(store: Store, experiment_id: str) -> _Clock:
    """Read the times of a search from its history, of which only the lines that matter are parsed: it may be long."""
    written = store.row("SELECT events_size FROM experiments WHERE id = ?", (experiment_id,))
    history = store.home.experiment(experiment_id).events.read_bytes()[: written[0] if written else 0]
    clock = _Clock()
    before = b""
    for line in history.splitlines():
        if not _STEERS.search(line):
            before = line
            continue
        event = parse_event(line)
        if event is not None and event["do"] != "annotate":  # by which nothing has become of a trial
            clock.take_line(before)
            clock.take(event)
            before = b""
    clock.take_line(before)
    return clock


def _differing(found: tuple[StandingTrial, ...]) -> tuple[str, ...]:
    """Return the names of the hyper-parameters whose values differ; of one trial alone all of them."""
    names = list(dict.fromkeys(name for one in found for name in one.hparams))
    if len(found) < 2:
        return tuple(names)
    first = found[0].hparams
    return tuple(
        name for name in names if any(not _is_same(one.hparams.get(name), first.get(name)) for one in found)
    )


def _is_same(value: object, other: object) -> bool:
    """Say whether two values are written alike: 1, 1.0 and true are three."""
    if type(value) is type(other) and isinstance(value, str | int | float):
        return value == other
    return json.dumps(value, default=str) == json.dumps(other, default=str)
