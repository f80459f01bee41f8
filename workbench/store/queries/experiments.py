"""Searches as they are read: their rows and those of their trials, what was submitted, and what has happened."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from workbench.errors import AmbiguousName, InputMissing, UnknownName
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job
from workbench.values import dataclass

ID_PREFIX: Final = "experiment-"
ExperimentState = Literal["RUNNING", "PAUSED", "STOPPING", "COMPLETED", "FAILED", "KILLED"]
TrialState = Literal[
    "QUEUED", "RUNNING", "PAUSED", "WAITING", "STOPPED", "COMPLETED", "FAILED", "INVALID", "CANCELLED"
]
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
"""A person paused it: its trials are halted, and no others begin. Such a trial is ``PAUSED``, too."""
STOPPING: Final = "STOPPING"
"""It was killed or has failed, and trials are still being ended."""
QUEUED: Final = "QUEUED"
"""The state of a trial that has not begun: its job waits for its turn, or is still to be made.

Nothing is written of it: as rows are written such a trial is ``RUNNING``.
"""
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
KILLED: Final = "KILLED"
OPEN: Final = (RUNNING, PAUSED, STOPPING)
WAITING: Final = "WAITING"
"""The state of a trial that is halted until the search has decided whether it goes on."""
STOPPED: Final = "STOPPED"
"""The state of a trial that the search has stopped."""
CANCELLED: Final = "CANCELLED"
"""The state of a trial that a person, or the end of its search, has cut off."""
INVALID: Final = "INVALID"
"""The state of a trial whose hyper-parameters its code refuses."""

TRIALS_AHEAD: Final = "trials_ahead"
"""The key of an experiment's file that says how many more trials there are at once than may run.

There ``spec.at_most``, which each trial's job gets, is how many may run, and ``search.max_concurrent`` counts those
ahead, too. So the search methods, and a fabric that does not know the key, have nothing else to heed.
"""

REPLACES_EARLY_ENDS: Final = "replaces_early_ends"
"""The key of an experiment's file that says whether another trial takes the turn of one that ends below the top rung.

It did not in those that an older fabric has begun, whose history must give the same decisions when it is read again.
"""

ENDED_EARLY: Final = (FAILED, CANCELLED)
"""The states of trials that go on when their search is continued."""

_SHOWN: Final = 5
"""So many candidates are named."""

_COLUMNS: Final = "id, name, state, reason, method, metric, goal, created_us, ended_us"
_HAS_NOT_BEGUN: Final = (
    f"(trials.state IN ('{RUNNING}', '{PAUSED}') AND (jobs.id IS NULL OR (jobs.started_us IS NULL"
    " AND jobs.state IN ('QUEUED', 'PENDING', 'HALTED') AND NOT EXISTS"
    " (SELECT 1 FROM attempts WHERE attempts.job_id = jobs.id AND attempts.processing_us IS NOT NULL))))"
)
_TRIAL_STATE: Final = (
    f"CASE WHEN trials.state = '{RUNNING}' AND {_HAS_NOT_BEGUN} THEN '{QUEUED}' ELSE trials.state END"
)
_TRIAL_COLUMNS: Final = (
    f"experiment, number, trials.trial, job_id, hparams, trials.seed, {_TRIAL_STATE}, units, last, best"
)


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
class ExperimentSummary:
    """One search with what its trials come to."""

    row: ExperimentRow
    newest_seq: int | None
    """The ``seq`` of its newest trial's job; None where it has none."""
    backends: tuple[str, ...]
    """Where its trials run."""
    trials: int
    """How many have begun."""
    running: int
    best: float | None
    """The best value of the metric so far."""


@dataclass(frozen=True, slots=True)
class ExperimentAnnotations:
    """What people say of a search."""

    note: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialTurns:
    """What a person has changed of the turns of a search's trials since it was submitted; None is as submitted."""

    priority: int | None = None
    weight: float | None = None


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
    """Among others ``QUEUED`` to begin, ``WAITING`` for the search to decide, and ``STOPPED`` by it."""
    units: float | None
    """How far it was trained at its last report, in units of the time metric."""
    last: float | None
    """Its last metric."""
    best: float | None
    backend: str | None = None
    """Where it runs; None as long as it has no job."""
    has_begun: bool = True
    """Whether it has ever run; one that was ended before that counts."""


@dataclass(frozen=True, slots=True)
class TrialTotals:
    """What the trials of a search come to, however many they are."""

    count: int
    begun: int
    """How many have ever run."""
    running: int
    ended: int
    """Of how many nothing is to come."""
    finished: int
    """How many have ended by themselves, or as their search wanted: they were neither cut off nor invalid."""
    invalid: int
    going: float
    """What is done of those that go on or were cut off: 1 for each that has come as far as finished ones on average."""
    reached: tuple[int, ...] = ()
    """How many have come to each of the units that were asked about."""


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

    Of one whose trials are created ahead, ``max_concurrent`` is how many may run at once, as a person has it.

    Args:
        home: where it is.
        experiment_id: its id.
        document: what was submitted, where that was read already.

    Raises:
        InputMissing: its file is gone or damaged.
    """
    document = document or read_experiment_file(home, experiment_id)
    found: dict[str, Any] = document["spec"]["search"]
    at_most = document["spec"].get("at_most")
    file = home.experiment(experiment_id).events
    # The history of a long search is large, and few are continued.
    if file.exists() and b'"continue"' in file.read_bytes():
        for event in events_of(home, experiment_id):
            if event["do"] == "continue":
                found, at_most = event["search"], event.get("at_most", at_most)
    return {**found, "max_concurrent": at_most or 0} if document.get(TRIALS_AHEAD) else found


def events_of(home: Home, experiment_id: str) -> list[dict[str, Any]]:
    """Return all events of a search, in order."""
    # What a history needs costs every command that looks for a job 3 ms.
    from workbench.store.history.journal import read_events

    file = home.experiment(experiment_id).events
    return [event for event, _ in read_events(file)] if file.exists() else []


def has_experiments(store: Store) -> bool:
    """Say whether this home has ever had a search."""
    return store.has_table("experiments")


def experiments(store: Store, *, only_open: bool = False) -> list[ExperimentRow]:
    """List searches, the newest first."""
    if not has_experiments(store):
        return []
    which = f"WHERE state IN {OPEN}" if only_open else ""
    sql = f"SELECT {_COLUMNS} FROM experiments {which} ORDER BY created_us DESC, id"
    return [ExperimentRow(*row) for row in store.rows(sql)]


def summaries(store: Store) -> list[ExperimentSummary]:
    """List searches with what their trials come to, in no order."""
    if not has_experiments(store):
        return []
    columns = ", ".join(f"experiments.{name}" for name in _COLUMNS.split(", "))
    sql = f"""
        SELECT {columns}, max(jobs.seq), group_concat(DISTINCT jobs.backend), count(trials.number),
          total({_TRIAL_STATE} = ?), total({_HAS_NOT_BEGUN}), min(trials.best), max(trials.best)
        FROM experiments LEFT JOIN trials ON trials.experiment = experiments.id
        LEFT JOIN jobs ON jobs.id = trials.job_id AND jobs.deleted_us IS NULL
        GROUP BY experiments.id"""
    found = []
    for row in store.rows(sql, (RUNNING,)):
        *fields, newest, backends, count, running, not_begun, least, most = row
        search = ExperimentRow(*fields)
        names = tuple(sorted(backends.split(","))) if backends else ()
        best = least if search.goal == "minimize" else most
        found.append(ExperimentSummary(search, newest, names, count - int(not_begun), int(running), best))
    return found


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
    if not store.has_table("archived_experiments"):
        return frozenset()  # nothing was written since an older version
    return frozenset(str(found) for (found,) in store.rows("SELECT id FROM archived_experiments"))


def annotations_of(store: Store, experiment_id: str) -> ExperimentAnnotations:
    """Return the note and the tags of a search."""
    if not store.has_table("annotated_experiments"):
        return ExperimentAnnotations()  # nothing was written since an older version
    found = store.row("SELECT note, tags FROM annotated_experiments WHERE id = ?", (experiment_id,))
    return ExperimentAnnotations(found[0], tuple(json.loads(found[1]))) if found else ExperimentAnnotations()


def turns_of(store: Store, experiment_id: str) -> TrialTurns:
    """Return what was changed of the turns of a search's trials."""
    if not store.has_table("reordered_experiments"):
        return TrialTurns()  # nothing was written since an older version
    found = store.row("SELECT priority, weight FROM reordered_experiments WHERE id = ?", (experiment_id,))
    return TrialTurns(*found) if found else TrialTurns()


def may_go_on(state: str, job: JobRow | None) -> bool:
    """Say whether a trial in such a state goes on when its search is continued; its job, if any, is not deleted."""
    return state in ENDED_EARLY and (job is None or job.deleted_us is None)


def resolve_experiment(store: Store, text: str) -> ExperimentRow:
    """Return the search that a person means: by its id, a beginning of it, its name, or ``@last``.

    Raises:
        UnknownName: there is none.
        AmbiguousName: there are several; they are named.
    """
    if text == "@last":
        found = next(iter(experiments(store)), None)
    else:
        found = whole_experiment(store, text) or begun_experiment(store, text, letters_min=1)
    if found is not None:
        return found
    raise UnknownName(
        f"there is no experiment '{text}'", hint="`fabric experiment list` shows those there are"
    )


def whole_experiment(store: Store, text: str) -> ExperimentRow | None:
    """Return the search with such an id or name.

    Raises:
        AmbiguousName: several have the name; they are named.
    """
    known = experiments(store)
    letters = text.lower().removeprefix(ID_PREFIX)
    found = [one for one in known if short_experiment_id(one.id) == letters]
    return _only(text, found or [one for one in known if one.name == text])


def begun_experiment(store: Store, text: str, *, letters_min: int) -> ExperimentRow | None:
    """Return the search whose id begins so, if the text has at least so many letters of it.

    Raises:
        AmbiguousName: there are several; they are named.
    """
    letters = text.lower().removeprefix(ID_PREFIX)
    if len(letters) < letters_min:
        return None
    return _only(text, [one for one in experiments(store) if short_experiment_id(one.id).startswith(letters)])


def _only(text: str, found: Sequence[ExperimentRow]) -> ExperimentRow | None:
    if len(found) > 1:
        named = [f"{short_experiment_id(one.id)} ({one.name}, {one.state})" for one in found[:_SHOWN]]
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise AmbiguousName(
            f"{text!r} fits {len(found)} searches: {', '.join(named)}{more}",
            hint="name one of them by its id",
        )
    return found[0] if found else None


def short_experiment_id(experiment_id: str) -> str:
    """Return the nine letters that stand for a search where space is short."""
    return experiment_id.removeprefix(ID_PREFIX)


def deleted_experiments(store: Store) -> dict[str, str]:
    """Return who deletes which of the searches whose deletion is under way, by their ids."""
    if not store.has_table("deleted_experiments"):
        return {}
    return {str(found): str(who) for found, who in store.rows("SELECT id, who FROM deleted_experiments")}


def trial_jobs(store: Store, experiment_id: str) -> list[JobRow]:
    """List the jobs of a search's trials that are not deleted, oldest first."""
    return [row for one in trial_job_ids(store, experiment_id) if (row := job(store, one)) is not None]


def trial_job_ids(store: Store, experiment_id: str) -> list[str]:
    """List the ids of the same jobs."""
    if not has_experiments(store):
        return []
    sql = (
        "SELECT jobs.id FROM trials JOIN jobs ON jobs.id = trials.job_id"
        " WHERE trials.experiment = ? AND jobs.deleted_us IS NULL ORDER BY jobs.seq"
    )
    return [str(job_id) for (job_id,) in store.rows(sql, (experiment_id,))]


def trials(store: Store, experiment_id: str) -> list[TrialRow]:
    """List the trials of a search in the order of their creation."""
    return _trial_rows(store, "1 ORDER BY number", experiment_id) if has_experiments(store) else []


def _trial_rows(store: Store, which: str, experiment_id: str) -> list[TrialRow]:
    sql = (
        f"SELECT {_TRIAL_COLUMNS}, jobs.backend, NOT {_HAS_NOT_BEGUN}"
        " FROM trials LEFT JOIN jobs ON jobs.id = trials.job_id"
        f" WHERE experiment = ? AND {which}"
    )
    return [
        TrialRow(*(*row[:4], json.loads(row[4]), *row[5:11], bool(row[11])))
        for row in store.rows(sql, (experiment_id,))
    ]


def trial_totals(store: Store, experiment_id: str, rungs: Sequence[float] = ()) -> TrialTotals:
    """Add up the trials of a search; ``rungs`` are units, for each of which it counts who has come so far."""
    if not has_experiments(store):
        return TrialTotals(0, 0, 0, 0, 0, 0, 0.0, (0,) * len(rungs))
    is_finite = f"abs(units) <= {sys.float_info.max!r}"
    is_open = f"state IN ('{RUNNING}', '{PAUSED}', '{WAITING}')"
    is_going = f"({is_open} OR state = '{CANCELLED}')"
    is_finished = f"(NOT {is_going} AND state <> '{INVALID}')"
    sums = [f"NOT {is_open}", is_finished, f"state = '{INVALID}'", *("units >= ?" for _ in rungs)]
    sql = (
        f"SELECT count(*), {', '.join(f'total({each})' for each in sums)},"
        f" avg(CASE WHEN {is_finished} AND {is_finite} THEN units END) FROM trials WHERE experiment = ?"
    )
    found = store.row(sql, (*rungs, experiment_id))
    assert found is not None
    count, ended, finished, invalid, *reached, usual = found
    part = (
        f"SELECT total(min(units / ?, 1.0)) FROM trials WHERE experiment = ? AND {is_going} AND {is_finite}"
    )
    going = store.row(part, (usual, experiment_id)) if usual and usual > 0 else None
    early = store.row(
        f"SELECT total(trials.state = '{RUNNING}'), total({_HAS_NOT_BEGUN}),"
        f" total(trials.state = '{RUNNING}' AND {_HAS_NOT_BEGUN})"
        " FROM trials LEFT JOIN jobs ON jobs.id = trials.job_id"
        f" WHERE experiment = ? AND trials.state IN ('{RUNNING}', '{PAUSED}')",
        (experiment_id,),
    )
    assert early is not None
    running, not_begun, queued = map(int, early)
    return TrialTotals(
        count,
        count - not_begun,
        running - queued,
        int(ended),
        int(finished),
        int(invalid),
        float(going[0]) if going else 0.0,
        tuple(map(int, reached)),
    )


def running_trials(store: Store, experiment_id: str) -> int:
    """Count the trials of a search that are under way: they have begun and are not over."""
    sql = (
        "SELECT count(*) FROM trials LEFT JOIN jobs ON jobs.id = trials.job_id"
        f" WHERE experiment = ? AND trials.state = '{RUNNING}' AND NOT {_HAS_NOT_BEGUN}"
    )
    (count,) = store.row(sql, (experiment_id,)) or (0,)
    return int(count)


def find_best_trial(store: Store, row: ExperimentRow) -> TrialRow | None:
    """Return the same trial as :func:`best_trial`, without reading the others."""
    if not has_experiments(store):
        return None
    order = "ASC" if row.goal == "minimize" else "DESC"
    found = _trial_rows(store, f"best IS NOT NULL ORDER BY best {order}, number LIMIT 1", row.id)
    return next(iter(found), None)


def best_trial(row: ExperimentRow, found: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial with the best value of the metric that it has reported; None where none has."""
    valued = [one for one in found if one.best is not None]
    if not valued:
        return None
    sign = 1.0 if row.goal == "minimize" else -1.0
    return min(valued, key=lambda one: (sign * (one.best or 0.0), one.number))
