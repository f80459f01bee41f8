"""A job as a JSON document: short, as ``fabric list --json`` has it, and whole, as ``fabric show --json``.

Documents carry ``schema``; fields are only ever added to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from workbench.formats import MICROSECONDS, iso

if TYPE_CHECKING:
    from workbench.documents.events import JobEvent
    from workbench.documents.experiments import UnmadeJobDocument
    from workbench.documents.jobs import (
        AttemptEntry,
        JobDocument,
        JobFields,
        LearnerEntry,
        TransitionEntry,
        WholeJobDocument,
    )
    from workbench.job import JobId
    from workbench.store.db.database import Store
    from workbench.store.db.rows import AttemptRow, JobRow, LearnerRow, TransitionRow
    from workbench.store.queries.members import UnmadeJob


def job_document(row: JobRow) -> JobDocument:
    """Return the short form: what the job's row holds."""
    return {"schema": "fabric.job/1", **job_fields(row)}


def unmade_document(job: UnmadeJob) -> UnmadeJobDocument:
    """Return a job of an array that is not made yet as a document."""
    return {
        "schema": "fabric.unmade/1",
        "experiment": job.search.id,
        "experiment_name": job.search.name,
        "experiment_state": job.search.state,
        "number": job.number,
        "expected_trials": job.count,
        "name": job.name,
        "hparams": None if job.hparams is None else dict(job.hparams),
        "will_be_made": job.will_be_made,
        "reason": job.reason,
        "made": job.made,
        "running": job.running,
        "at_most": job.at_most,
    }


def job_event(row: JobRow, event: Literal["state", "job", "end"]) -> JobEvent:
    """Return it as a line of a command that follows."""
    return {"schema": "fabric.event/1", "event": event, **job_fields(row)}


def job_fields(row: JobRow) -> JobFields:
    """Return what the job's row holds."""
    from workbench.clock import now_us
    from workbench.services.inspect.job_times import run_seconds

    return {
        "id": row.id,
        "name": row.name,
        "state": row.state.value,
        "reason": row.reason.text,
        "reason_code": row.reason.code,
        "hint": row.reason.hint,
        "intent": row.intent.value,
        "exit_code": row.exit_code,
        "exit_by": row.exit_by,
        "attempt": row.attempt,
        "backend": row.target.backend,
        "runner": row.target.runner,
        "owner": row.owner,
        "learners": row.learners,
        "gpus": row.gpus,
        "cpus": row.cpus,
        "memory_bytes": row.memory_bytes,
        "restarts": row.restarts,
        "platform_restarts": row.platform_restarts,
        "labels": dict(row.labels),
        "tags": list(row.tags),
        "note": row.note,
        "parent": row.parent,
        "trial": row.trial,
        "submitted": iso(row.submitted_us),
        "started": iso(row.started_us),
        "ended": iso(row.ended_us),
        "seconds": run_seconds(row, now_us()),
        "changed": iso(row.changed_us),
        "seen": iso(row.seen_us),
        "as_of": iso(row.as_of_us),
    }


def flat_documents(store: Store, rows: Sequence[JobRow]) -> list[dict[str, Any]]:
    """Return one flat record a job, for tables: its row, ``params.NAME``, ``label.NAME``, and the last of each metric.

    A metric whose name another column has is ``metrics.NAME``.
    Times are seconds since 1970, UTC, and None where there is none yet.
    """
    from workbench.clock import now_us
    from workbench.metrics import latest_of
    from workbench.services.inspect.job_times import run_seconds
    from workbench.store.queries.params import job_params

    metrics = latest_of(store, [row.id for row in rows])
    now = now_us()
    documents: list[dict[str, Any]] = []
    for row in rows:
        document = {
            "id": row.id,
            "name": row.name,
            "state": row.state.value,
            "reason": row.reason.text,
            "exit_code": row.exit_code,
            "attempt": row.attempt,
            "backend": row.target.backend,
            "runner": row.target.runner,
            "submitted": row.submitted_us / MICROSECONDS,
            "started": None if row.started_us is None else row.started_us / MICROSECONDS,
            "ended": None if row.ended_us is None else row.ended_us / MICROSECONDS,
            "seconds": run_seconds(row, now),
            "tags": " ".join(row.tags),
            **_params(job_params(store.home, row.id, row.attempt)),
            **{f"label.{name}": value for name, value in row.labels.items()},
        }
        # A metric named as one of these, such as `seconds`, has a column of its own.
        named = {
            f"metrics.{name}" if name in document else name: value for name, value in metrics[row.id].items()
        }
        documents.append({**document, **named})
    return documents


def _params(params: Mapping[str, Any]) -> dict[str, Any]:
    return {f"params.{name}": value for name, value in params.items() if not isinstance(value, Mapping)}


def describe(store: Store, job_id: JobId) -> WholeJobDocument:
    """Return everything that is known of a job.

    Raises:
        InputMissing: the job's folder is damaged.
    """
    from dataclasses import asdict

    from workbench.controller.runtime.result_store import result_store
    from workbench.data.stores.fingerprints import fingerprints
    from workbench.metrics import checkpoints, latest, latest_texts, notes, progress
    from workbench.services.follow.full_disk import with_stall
    from workbench.services.inspect.job_overview import ran_with
    from workbench.spec import spec_to_json
    from workbench.store.queries.jobs import attempts, detail, transitions
    from workbench.store.queries.learners import learners

    job = detail(store, job_id)
    folder = store.home.job(job_id)
    stored = result_store(job.spec, job_id)
    return {
        **job_document(with_stall(store.home, job.row)),
        "spec": spec_to_json(job.spec),
        "origins": dict(job.origins),
        "manifest": job.manifest_text,
        "code_hash": job.code_hash,
        "recorded": dict(job.recorded),
        "ran_with": ran_with(store, job.row),
        "attempts": [_attempt(each) for each in attempts(store, job_id)],
        "learner_states": [_learner(each) for each in learners(store, job_id)],
        "history": [_event(each) for each in transitions(store, job_id)],
        "metrics": latest(store, job_id),
        "texts": latest_texts(store, job_id),
        "checkpoints": [asdict(each) for each in checkpoints(store, job_id)],
        "data": [asdict(each) for each in fingerprints(folder, job.row.attempt)],
        "progress": [asdict(each) for each in progress(store, job_id)],
        "notes": [asdict(each) for each in notes(store, job_id)],
        "folder": str(folder.path),
        "results": str(folder.results),
        "results_stored": stored.location if stored else "",
    }


def _attempt(attempt: AttemptRow) -> AttemptEntry:
    return {
        "attempt": attempt.attempt,
        "state": attempt.state.value,
        "reason": attempt.reason.text,
        "reason_code": attempt.reason.code,
        "exit_code": attempt.exit_code,
        "exit_by": attempt.exit_by,
        "node": attempt.node,
        "queued": iso(attempt.queued_us),
        "pending": iso(attempt.pending_us),
        "downloading": iso(attempt.downloading_us),
        "processing": iso(attempt.processing_us),
        "storing": iso(attempt.storing_us),
        "ended": iso(attempt.ended_us),
    }


def _learner(learner: LearnerRow) -> LearnerEntry:
    return {
        "attempt": learner.attempt,
        "learner": learner.learner,
        "phase": learner.phase.value,
        "exit_code": learner.exit_code,
        "signal": learner.signal,
        "reason": learner.reason.text if learner.reason else "",
        "reason_code": learner.reason.code if learner.reason else "",
        "decided": learner.decided,
        "stopped": learner.stopped,
        "node": learner.node,
        "slots": list(learner.slots),
        "started": iso(learner.started_us),
        "ended": iso(learner.ended_us),
    }


def _event(event: TransitionRow) -> TransitionEntry:
    return {
        "time": iso(event.time_us),
        "attempt": event.attempt,
        "kind": event.kind,
        "state": event.state,
        "text": event.text,
        "code": event.code,
        "who": event.who,
        "origin": event.origin,
    }
