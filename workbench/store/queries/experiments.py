"""Searches as they are read: their rows and those of their trials, what was submitted, and what has happened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from workbench.errors import InputMissing, UnknownName
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.history.journal import read_events
from workbench.values import dataclass

ID_PREFIX: Final = "experiment-"
ExperimentState = Literal["RUNNING", "PAUSED", "STOPPING", "COMPLETED", "FAILED", "KILLED"]
TrialState = Literal["RUNNING", "PAUSED", "WAITING", "STOPPED", "COMPLETED", "FAILED", "INVALID", "CANCELLED"]
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
"""A person paused it: its trials are halted, and no others begin. Such a trial is ``PAUSED``, too."""
STOPPING: Final = "STOPPING"
"""It was killed or has failed, and trials are still being ended."""
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
KILLED: Final = "KILLED"
OPEN: Final = (RUNNING, PAUSED, STOPPING)
WAITING: Final = "WAITING"
"""The state of a trial that is halted until the search has decided whether it goes on."""
STOPPED: Final = "STOPPED"
"""The state of a trial that the search has stopped."""

ENDED_EARLY: Final = (FAILED, "CANCELLED")
"""The states of trials that go on when their search is continued."""

_COLUMNS: Final = "id, name, state, reason, method, metric, goal, created_us, ended_us"
_TRIAL_COLUMNS: Final = "experiment, number, trial, job_id, hparams, seed, state, units, last, best"


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """One search."""

    id: str
    name: str
    state: ExperimentState
    reason: str
    method: str
    metric: str
    goal: str
    created_us: int
    ended_us: int | None

    @property
    def is_open(self) -> bool:
        """Whether something is still to be done."""
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial of a search."""

    experiment: str
    number: int
    trial: str
    job_id: str
    hparams: Mapping[str, Any]
    seed: int
    state: TrialState
    """Among others ``WAITING`` for the search to decide, and ``STOPPED`` by it."""
    units: float | None
    """How far it was trained at its last report, in units of the time metric."""
    last: float | None
    """Its last metric."""
    best: float | None
    backend: str | None = None
    """Where it runs; None as long as it has no job."""


def read_experiment_file(home: Home, experiment_id: str) -> dict[str, Any]:
    """Return what was submitted.

    Raises:
        InputMissing: the file is gone or damaged.
    """
    file = home.experiment(experiment_id).experiment_file
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputMissing(f"{file} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise InputMissing(f"{file} is not the file of an experiment")
    return document


def newest_search(
    home: Home, experiment_id: str, document: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the search of an experiment as it is now: what was submitted, or what it was last continued with.

    Args:
        home: where it is.
        experiment_id: its id.
        document: what was submitted, where that was read already.

    Raises:
        InputMissing: its file is gone or damaged.
    """
    found: dict[str, Any] = (document or read_experiment_file(home, experiment_id))["spec"]["search"]
    file = home.experiment(experiment_id).events
    # Few are ever continued, and to read all events of a long history takes long.
    if not file.exists() or b'"continue"' not in file.read_bytes():
        return found
    for event in events_of(home, experiment_id):
        if event["do"] == "continue":
            found = event["search"]
    return found


def events_of(home: Home, experiment_id: str) -> list[dict[str, Any]]:
    """Return all events of a search, in order."""
    file = home.experiment(experiment_id).events
    return [event for event, _ in read_events(file)] if file.exists() else []


def has_experiments(store: Store) -> bool:
    """Say whether this home has ever had a search."""
    return store.row("SELECT 1 FROM sqlite_master WHERE name = 'experiments'") is not None


def experiments(store: Store, *, only_open: bool = False) -> list[ExperimentRow]:
    """List searches, the newest first."""
    if not has_experiments(store):
        return []
    which = f"WHERE state IN {OPEN}" if only_open else ""
    sql = f"SELECT {_COLUMNS} FROM experiments {which} ORDER BY created_us DESC, id"
    return [ExperimentRow(*row) for row in store.rows(sql)]


def experiment(store: Store, experiment_id: str) -> ExperimentRow | None:
    """Return one search."""
    if not has_experiments(store):
        return None
    found = store.row(f"SELECT {_COLUMNS} FROM experiments WHERE id = ?", (experiment_id,))
    return ExperimentRow(*found) if found else None


def archived_experiments(store: Store) -> frozenset[str]:
    """Return the ids of the searches that are archived."""
    if not has_experiments(store):
        return frozenset()
    if store.row("SELECT 1 FROM sqlite_master WHERE name = 'archived_experiments'") is None:
        return frozenset()  # nothing was written since an older version
    return frozenset(str(found) for (found,) in store.rows("SELECT id FROM archived_experiments"))


def may_go_on(state: str, job: JobRow | None) -> bool:
    """Say whether a trial in such a state goes on when its search is continued; its job, if any, is not deleted."""
    return state in ENDED_EARLY and (job is None or job.deleted_us is None)


def resolve_experiment(store: Store, text: str) -> ExperimentRow:
    """Return the search that a person means: by its id, a beginning of it, its name, or ``@last``.

    Raises:
        UnknownName: there is none, or there are several.
    """
    known = experiments(store)
    nine = text.removeprefix(ID_PREFIX)
    found = [one for one in known if one.id == text or one.id.removeprefix(ID_PREFIX) == nine]
    if text == "@last":
        found = known[:1]
    found = found or [one for one in known if one.id.removeprefix(ID_PREFIX).startswith(nine) and nine]
    found = found or [one for one in known if one.name == text]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.id.removeprefix(ID_PREFIX) for one in found[:5])
        raise UnknownName(f"'{text}' could be {names}", hint="name one of them by its id")
    raise UnknownName(
        f"there is no experiment '{text}'", hint="`fabric experiment list` shows those there are"
    )


def trials(store: Store, experiment_id: str) -> list[TrialRow]:
    """List the trials of a search in the order of their creation."""
    if not has_experiments(store):
        return []
    backend = "(SELECT backend FROM jobs WHERE id = trials.job_id)"
    sql = f"SELECT {_TRIAL_COLUMNS}, {backend} FROM trials WHERE experiment = ? ORDER BY number"
    return [
        TrialRow(row[0], row[1], row[2], row[3], json.loads(row[4]), *row[5:])
        for row in store.rows(sql, (experiment_id,))
    ]


def best_trial(row: ExperimentRow, found: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial with the best value of the metric that it has reported; None where none has."""
    valued = [one for one in found if one.best is not None]
    if not valued:
        return None
    sign = 1.0 if row.goal == "minimize" else -1.0
    return min(valued, key=lambda one: (sign * (one.best or 0.0), one.number))
