"""Searches: their history on disk, the rows that are made of it, and what is read of them.

Every event of a search is a line of its ``events.jsonl`` before it is a row; the line holds the operations that
followed, so the trials can be restored without the search methods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from workbench.clock import now_us
from workbench.errors import InputMissing, UnknownName
from workbench.job import ID_ALPHABET
from workbench.paths import Home, create_private, make_private_folder
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.rows import JobRow, dump
from workbench.store.db.schema import EXPERIMENTS, statements
from workbench.store.history.journal import append_line, read_events
from workbench.values import dataclass

ID_PREFIX: Final = "experiment-"
_ID_LENGTH: Final = 9
FORMAT: Final = 1

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


def new_experiment_id() -> str:
    """Make a new id."""
    return ID_PREFIX + "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in os.urandom(_ID_LENGTH))


def insert_experiment(store: Store, experiment_id: str, document: Mapping[str, Any]) -> ExperimentRow:
    """Write a new search: its file, its history, its row.

    Raises:
        CannotWrite: the home takes no more.
    """
    file = store.home.experiment(experiment_id).experiment_file
    try:
        make_private_folder(file.parent)
        with create_private(file) as stream:
            json.dump({"format": FORMAT, "id": experiment_id, **document}, stream, ensure_ascii=False)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise write_failure(error, file) from error
    record_event(store, experiment_id, {"do": "submit"})
    found = experiment(store, experiment_id)
    assert found is not None
    return found


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


def record_event(store: Store, experiment_id: str, event: dict[str, Any]) -> None:
    """Write an event to the search's history, then to the rows, all or nothing.

    Raises:
        CannotWrite: the history cannot be written; nothing has changed.
    """
    event.setdefault("time", now_us())
    with store.atomic():
        catch_up_experiment(store, experiment_id)
        file = store.home.experiment(experiment_id).events
        end = append_line(store.home, file, event, durable=True, store=store)
        _apply(store, experiment_id, event, end)


def catch_up_experiment(store: Store, experiment_id: str) -> int:
    """Apply what the history holds and the rows do not; return how many events that were."""
    with store.atomic():
        for statement in statements(EXPERIMENTS):
            store.execute(statement)
        held = store.row("SELECT events_size FROM experiments WHERE id = ?", (experiment_id,))
        file = store.home.experiment(experiment_id).events
        count = 0
        if file.exists():
            for event, end in read_events(file, held[0] if held else 0):
                _apply(store, experiment_id, event, end)
                count += 1
        return count


def newest_search(home: Home, experiment_id: str) -> dict[str, Any]:
    """Return the search of an experiment as it is now: what was submitted, or what it was last continued with.

    Raises:
        InputMissing: its file is gone or damaged.
    """
    found: dict[str, Any] = read_experiment_file(home, experiment_id)["spec"]["search"]
    for event in events_of(home, experiment_id):
        if event["do"] == "continue":
            found = event["search"]
    return found


def events_of(home: Home, experiment_id: str) -> list[dict[str, Any]]:
    """Return all events of a search, in order."""
    file = home.experiment(experiment_id).events
    return [event for event, _ in read_events(file)] if file.exists() else []


def _apply(store: Store, experiment_id: str, event: Mapping[str, Any], end: int) -> None:
    if event["do"] == "submit":
        document = read_experiment_file(store.home, experiment_id)
        search = document["spec"]["search"]
        store.execute(
            "INSERT OR IGNORE INTO experiments (id, name, state, method, metric, goal, created_us)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                experiment_id,
                document["spec"]["name"],
                RUNNING,
                search["method"],
                search.get("metric", ""),
                search.get("goal", "minimize"),
                event["time"],
            ),
        )
    if event["do"] == "report":
        _report(store, experiment_id, event)
    for each in event.get("operations") or ():
        _operation(store, experiment_id, each)
    if event["do"] == "end":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ? AND state IN (?, ?, ?)",
            (event["how"].upper(), experiment_id, event["trial"], RUNNING, PAUSED, WAITING),
        )
    elif event["do"] == "paused":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ? AND state = ?",
            (PAUSED, experiment_id, event["trial"], RUNNING),
        )
    elif event["do"] == "resume":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND state = ?", (RUNNING, experiment_id, PAUSED)
        )
    elif event["do"] == "continue":
        store.execute("DELETE FROM archived_experiments WHERE id = ?", (experiment_id,))
    elif event["do"] == "continued":
        for each in event["trials"]:
            store.execute(
                "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
                (RUNNING, experiment_id, each["trial"]),
            )
    if state := event.get("state"):
        ended = None if state in OPEN else event["time"]
        store.execute(
            "UPDATE experiments SET state = ?, reason = ?, ended_us = ? WHERE id = ?",
            (state, event.get("reason", ""), ended, experiment_id),
        )
    elif event["do"] == "archive":
        store.execute("INSERT OR IGNORE INTO archived_experiments (id) VALUES (?)", (experiment_id,))
    elif event["do"] == "unarchive":
        store.execute("DELETE FROM archived_experiments WHERE id = ?", (experiment_id,))
    elif event["do"] == "note":
        store.execute("UPDATE experiments SET reason = ? WHERE id = ?", (event["reason"], experiment_id))
    store.execute("UPDATE experiments SET events_size = ? WHERE id = ?", (end, experiment_id))


def _operation(store: Store, experiment_id: str, operation: Mapping[str, Any]) -> None:
    if operation["do"] == "create":
        store.execute(
            "INSERT OR IGNORE INTO trials (experiment, number, trial, job_id, hparams, seed, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                experiment_id,
                operation["number"],
                operation["trial"],
                operation["job"],
                dump(operation["hparams"]),
                operation["seed"],
                RUNNING,
            ),
        )
    elif operation["do"] == "run":
        state = "CASE (SELECT state FROM experiments WHERE id = ?1) WHEN ?2 THEN ?2 ELSE ?3 END"
        store.execute(
            f"UPDATE trials SET state = {state} WHERE experiment = ?1 AND trial = ?4 AND state = ?5",
            (experiment_id, PAUSED, RUNNING, operation["trial"], WAITING),
        )
    elif operation["do"] == "stop":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
            (STOPPED, experiment_id, operation["trial"]),
        )


def _report(store: Store, experiment_id: str, event: Mapping[str, Any]) -> None:
    value = event["value"]
    least = store.row("SELECT goal FROM experiments WHERE id = ?", (experiment_id,)) == ("minimize",)
    better = "min" if least else "max"
    store.execute(
        f"UPDATE trials SET units = coalesce(?, units), last = ?, best = coalesce({better}(best, ?), best, ?)"
        " WHERE experiment = ? AND trial = ?",
        (event.get("units"), value, value, value, experiment_id, event["trial"]),
    )
    if event.get("waits"):
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
            (WAITING, experiment_id, event["trial"]),
        )


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
