"""Removes what ``checkpoints.at_end`` does not keep, once a job, or all trials of a search, have completed.

What is in doubt stays: lost work cannot be had again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import CheckpointsRetained
from workbench.controller.decide.requests import DONE
from workbench.controller.decide.retention import SavedCheckpoint, kept_at_end, removable_names
from workbench.controller.runtime.job_checkpoints import (
    Checkpoint,
    MetricAtCheckpoints,
    is_inside,
    is_linked_name,
    link_targets,
    list_checkpoints,
    remove_checkpoints,
)
from workbench.controller.targets.worker_pool import Post
from workbench.errors import FabricError
from workbench.job import State, short_id
from workbench.paths import Home
from workbench.spec import Checkpoints, CheckpointsAtEnd, is_metric_of_search, spec_from_json
from workbench.store.db.database import Store
from workbench.store.db.reserve import with_reserve
from workbench.store.db.rows import JobRow, is_over
from workbench.store.queries.experiments import (
    COMPLETED,
    experiment,
    experiments,
    read_experiment_file,
    trials,
)
from workbench.store.queries.jobs import detail, job, list_jobs
from workbench.store.updates.jobs import add_note
from workbench.values import dataclass

OF_SEARCH, OF_JOB = "experiment", "job"
"""The keys of a request's payload, one of which names what has completed."""
FINISHED: Final = ("COMPLETED", "STOPPED", "INVALID")
"""The states of trials that do not go on when their search is continued."""
UNNUMBERED: Final = "unnumbered"
GOES_ON: Final = "it goes on"


def retain(home: Home, request_id: int, payload: Mapping[str, Any], post: Post) -> None:
    """Remove the checkpoints that are not kept, then post an event. Runs in a thread of its own."""
    try:
        with Store.open(home, makes=False) as store:
            outcome = _retain(store, payload)
    except Exception as error:
        outcome = sentence(error)
    post(CheckpointsRetained(request_id, outcome))


class _GoesOn(Exception):
    """The search or the job has begun again."""


class _Deleted(Exception):
    """The job was deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class _Completed:
    """What has completed, and what stays of it."""

    policy: Checkpoints
    rule: CheckpointsAtEnd
    rows: Sequence[JobRow]
    metric: str
    """The longest name that it has, of the policy's and the search's."""
    going_on: Collection[str] = ()
    """The jobs that may go on."""
    contradiction: str = ""
    """Why it is not known which values are better."""


@dataclass(frozen=True, slots=True)
class _OfJob:
    """The checkpoints of a job that are somewhere, the newest last."""

    listed: Sequence[Checkpoint] = ()
    removable: Sequence[Checkpoint] = ()
    """Those that could go, as far as where they are is concerned."""
    pointed_at: Collection[str] = ()
    """The names of those among them that a link needs: they count, and stay."""


def _retain(store: Store, payload: Mapping[str, Any]) -> str:
    """Return what became of it: ``done``, or why nothing, or nothing more, was removed."""
    completed = _completed(store, payload)
    if completed is None:
        return GOES_ON
    rows, rule, policy = completed.rows, completed.rule, completed.policy
    troubles: list[str] = []
    there = {row.id: _checkpoints(store, row, troubles.append) for row in rows}
    values = MetricAtCheckpoints(store, completed.metric, is_exact=True)
    saved = [
        SavedCheckpoint(row.id, each.name, order, values.of(row, each), values.is_unknown(row, each))
        for row in rows
        for order, each in enumerate(there[row.id].removable)
    ]
    if saved and (rule.keep_best or rule.keep_best_of_search):
        is_unrated = all(each.value is None for each in saved)
        why = f"no checkpoint has the metric {policy.metric}" if is_unrated else completed.contradiction
        if why:
            _note(store, rows[0], f"all checkpoints are kept at the end: {why}")
            return why
    kept = kept_at_end(saved, rule, smaller_is_better=policy.smaller_is_better, going_on=completed.going_on)
    beginnings = _Beginnings(store, rows)
    for row in rows:
        found = there[row.id]
        stays = {*found.pointed_at, *(each.name for each in kept if each.job_id == row.id)}
        names = {each.name for each in found.removable} - stays
        names = removable_names([each.name for each in found.listed if each.name not in names], names)

        def may_go(each: Checkpoint, row: JobRow = row) -> bool:
            _check_over(store, payload, row)
            return not is_linked_name(store, row, each.name) and not beginnings.need(row, each.name)

        removed = [each for each in found.removable if each.name in names]
        try:
            remove_checkpoints(store, row, removed, may_go=may_go)
        except _GoesOn:
            return GOES_ON
        except _Deleted:
            continue
        except FabricError as error:
            troubles.append(error.message)
    for text in dict.fromkeys(troubles):
        _note(store, rows[0], f"checkpoints that are not kept at the end are still there: {text}")
    return troubles[0] if troubles else DONE


def _completed(store: Store, payload: Mapping[str, Any]) -> _Completed | None:
    """Return what has completed; None where it goes on, or keeps all."""
    if not (experiment_id := str(payload.get(OF_SEARCH) or "")):
        row = job(store, str(payload.get(OF_JOB) or ""))
        if row is None or row.deleted_us is not None or row.state is not State.COMPLETED or not is_over(row):
            return None
        policy = detail(store, row.id).spec.checkpoints
        return _Completed(policy, policy.at_end, [row], policy.metric) if policy.at_end else None
    search = experiment(store, experiment_id)
    if search is None or search.state != COMPLETED:
        return None
    policy = spec_from_json(read_experiment_file(store.home, experiment_id)["spec"]).checkpoints
    if policy.at_end is None:
        return None
    found = trials(store, experiment_id)
    rows = [row for each in found if (row := job(store, each.job_id)) is not None]
    metric, contradiction = policy.metric, ""
    if is_metric_of_search(metric, search.metric):
        metric = max(metric, search.metric, key=len)
        if policy.smaller_is_better != (search.goal == "minimize"):
            contradiction = f"checkpoints.smaller_is_better contradicts the search's goal, {search.goal}"
    return _Completed(
        policy,
        policy.at_end,
        [row for row in rows if row.deleted_us is None and is_over(row)],
        metric,
        {each.job_id for each in found if each.state not in FINISHED},
        contradiction,
    )


def _check_over(store: Store, payload: Mapping[str, Any], row: JobRow) -> None:
    """Look again before each removal: what was removed before may have taken minutes.

    Raises:
        _GoesOn: the search or the job has begun again.
        _Deleted: the job was deleted.
    """
    if experiment_id := str(payload.get(OF_SEARCH) or ""):
        search = experiment(store, experiment_id)
        if search is None or search.state != COMPLETED:
            raise _GoesOn
    now = job(store, row.id)
    if now is None or now.deleted_us is not None:
        raise _Deleted
    if not is_over(now) or (now.attempt, now.state) != (row.attempt, row.state):
        raise _GoesOn


def _checkpoints(store: Store, row: JobRow, report: Callable[[str], object]) -> _OfJob:
    """Return the checkpoints of a job, and which are where they can be removed; none where that cannot be seen.

    What the code writes again and again under one name is its own, as is what it does not report beside others, and a
    link.
    """
    files = store.home.job(row.id)

    def is_result(name: str) -> bool:
        return (files.results / name).exists() and not (files.checkpoints / name).exists()

    try:
        links = link_targets(store, row)
        listed = [each for each in list_checkpoints(store, row, report) if each.where]
        found = [
            each for each in listed if not is_result(each.name) and not is_linked_name(store, row, each.name)
        ]
    except (OSError, FabricError) as error:
        report(f"what {short_id(row.id)} has cannot be read: {error}")
        return _OfJob()
    reported = [each for each in found if not each.found]
    removable = reported or [each for each in found if each.found != UNNUMBERED]
    pointed_at = {each.name for each in removable if any(_needs(link, each.name) for link in links)}
    return _OfJob(listed, removable, pointed_at)


def _needs(link: tuple[str, str], name: str) -> bool:
    """Say whether a link points at a checkpoint, or into it from without."""
    source, target = link
    is_own = bool(source) and is_inside(source, name)
    return is_inside(name, target) or (is_inside(target, name) and not is_own)


class _Beginnings:
    """The checkpoints with which other jobs and searches begin."""

    def __init__(self, store: Store, rows: Sequence[JobRow]) -> None:
        self._store = store
        self._ids = {row.id for row in rows}
        self._since_us = min((row.submitted_us for row in rows), default=0)
        self._read: set[str] = set()
        self._newest = -1
        self._names: dict[str, set[str]] = {}
        """By job; an empty name stands for all of its checkpoints."""

    def need(self, row: JobRow, name: str) -> bool:
        """Say whether a job or a search, up to this moment, begins with a checkpoint, or something of it.

        Raises:
            FabricError: what one begins with cannot be read.
        """
        self._look()
        return any(
            not each
            or is_inside(each, name)
            or is_inside(name, each)
            or each.endswith(f"/{name}")
            or name.endswith(f"/{each}")
            for each in self._names.get(row.id, ())
        )

    def _look(self) -> None:
        store = self._store
        newest = next(iter(list_jobs(store, limit=1)), None)
        if newest is not None and newest.seq != self._newest:
            for other in list_jobs(store):
                if other.submitted_us >= self._since_us and other.id not in self._read:
                    self._take_job(other)
            self._newest = newest.seq
        for search in experiments(store):
            if search.created_us >= self._since_us and search.id not in self._read:
                self._take_search(search.id)

    def _take_job(self, other: JobRow) -> None:
        try:
            recorded = detail(self._store, other.id).recorded
        except FabricError:
            now = job(self._store, other.id)
            if now is not None and now.deleted_us is None:
                raise
            return
        self._take(other.id, recorded)

    def _take_search(self, experiment_id: str) -> None:
        try:
            recorded = read_experiment_file(self._store.home, experiment_id).get("recorded") or {}
        except FabricError:
            if experiment(self._store, experiment_id) is not None:
                raise
            return
        self._take(experiment_id, recorded)

    def _take(self, other_id: str, recorded: Mapping[str, Any]) -> None:
        origin = recorded.get("from") or {}
        if origin.get("job") in self._ids:
            self._names.setdefault(str(origin["job"]), set()).add(str(origin.get("name") or ""))
        self._read.add(other_id)


def _note(store: Store, row: JobRow, text: str) -> None:
    with_reserve(store.home, lambda: add_note(store, row.id, text))
