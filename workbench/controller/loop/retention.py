"""Removes what ``checkpoints.at_end`` does not keep, once a job, or all trials of a search, have completed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import CheckpointsRetained
from workbench.controller.decide.requests import DONE
from workbench.controller.decide.retention import SavedCheckpoint, kept_at_end
from workbench.controller.runtime.job_checkpoints import Checkpoint, list_checkpoints, remove_checkpoints
from workbench.controller.targets.worker_pool import Post
from workbench.errors import FabricError
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.spec import Checkpoints, spec_from_json
from workbench.store.db.database import Store
from workbench.store.db.reserve import with_reserve
from workbench.store.db.rows import JobRow
from workbench.store.queries.experiments import COMPLETED, experiment, read_experiment_file, trials
from workbench.store.queries.jobs import detail, job, list_jobs
from workbench.store.updates.jobs import add_note

OF_SEARCH, OF_JOB = "experiment", "job"
"""The keys of a request's payload, one of which names what has completed."""
FINISHED: Final = ("COMPLETED", "STOPPED", "INVALID")
"""The states of trials that do not go on when their search is continued."""
UNNUMBERED: Final = "unnumbered"


def retain(home: Home, request_id: int, payload: Mapping[str, Any], post: Post) -> None:
    """Remove the checkpoints that are not kept, then post an event. Runs in a thread of its own."""
    try:
        with Store.open(home, makes=False) as store:
            outcome = _retain(store, payload)
    except Exception as error:
        outcome = sentence(error)
    post(CheckpointsRetained(request_id, outcome))


def _retain(store: Store, payload: Mapping[str, Any]) -> str:
    """Return what became of it: ``done``, or why nothing was removed."""
    policy, rows, going_on = _completed(store, payload)
    if policy.at_end is None:
        return "it goes on"
    troubles: list[str] = []
    there = {row.id: _removable(store, row, troubles.append) for row in rows}
    saved = {
        SavedCheckpoint(job_id, each.name, order, _value(each.metrics.get(policy.metric))): each
        for job_id, found in there.items()
        for order, each in enumerate(found)
    }
    rule = policy.at_end
    if (rule.keep_best or rule.keep_best_of_search) and all(each.value is None for each in saved):
        return f"no checkpoint has the metric {policy.metric}"
    kept = kept_at_end(saved, rule, smaller_is_better=policy.smaller_is_better, going_on=going_on)
    begun_from = _begun_from(store, rows)
    for row in rows:
        removed = [
            checkpoint
            for one, checkpoint in saved.items()
            if one.job_id == row.id and one not in kept and not {"", one.name} & begun_from.get(row.id, set())
        ]
        try:
            remove_checkpoints(store, row, removed)
        except FabricError as error:
            troubles.append(error.message)
    for text in dict.fromkeys(troubles):
        _note(store, rows[0], f"checkpoints that are not kept at the end are still there: {text}")
    return troubles[0] if troubles else DONE


def _completed(store: Store, payload: Mapping[str, Any]) -> tuple[Checkpoints, list[JobRow], set[str]]:
    """Return the policy, the jobs that it is about, and those of them that may go on; no policy where all does."""
    if experiment_id := str(payload.get(OF_SEARCH) or ""):
        search = experiment(store, experiment_id)
        if search is None or search.state != COMPLETED:
            return Checkpoints(), [], set()
        policy = spec_from_json(read_experiment_file(store.home, experiment_id)["spec"]).checkpoints
        found = trials(store, experiment_id)
        rows = [row for each in found if (row := job(store, each.job_id)) is not None]
        going_on = {each.job_id for each in found if each.state not in FINISHED}
    else:
        row = job(store, str(payload.get(OF_JOB) or ""))
        if row is None or row.state is not State.COMPLETED:
            return Checkpoints(), [], set()
        policy, rows, going_on = detail(store, row.id).spec.checkpoints, [row], set()
    return policy, [row for row in rows if row.deleted_us is None and row.state in TERMINAL], going_on


def _removable(store: Store, row: JobRow, report: Callable[[str], object]) -> list[Checkpoint]:
    """Return the checkpoints of a job that are where they can be removed, the newest last.

    What the code writes again and again under one name is its own, as is what it does not report beside others.
    """
    files = store.home.job(row.id)

    def is_result(name: str) -> bool:
        return (files.results / name).exists() and not (files.checkpoints / name).exists()

    found = [each for each in list_checkpoints(store, row, report) if each.where and not is_result(each.name)]
    reported = [each for each in found if not each.found]
    return reported or [each for each in found if each.found != UNNUMBERED]


def _value(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _begun_from(store: Store, rows: Sequence[JobRow]) -> dict[str, set[str]]:
    """Return by job the names of its checkpoints with which other jobs began; empty for all of them."""
    ids = {row.id for row in rows}
    since = min((row.submitted_us for row in rows), default=0)
    found: dict[str, set[str]] = {}
    for other in list_jobs(store):
        if other.submitted_us < since:
            continue
        try:
            origin = detail(store, other.id).recorded.get("from") or {}
        except FabricError:
            continue  # it cannot begin any more
        if origin.get("job") in ids:
            found.setdefault(str(origin["job"]), set()).add(str(origin.get("name") or ""))
    return found


def _note(store: Store, row: JobRow, text: str) -> None:
    with_reserve(store.home, lambda: add_note(store, row.id, text))
