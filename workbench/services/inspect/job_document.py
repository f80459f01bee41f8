"""A job as a JSON document: short, as ``fabric list --json`` has it, and whole, as ``fabric show --json``.

Documents carry ``schema``; fields are only ever added to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.formats import iso

if TYPE_CHECKING:
    from workbench.job import JobId
    from workbench.store.db.database import Store
    from workbench.store.db.rows import AttemptRow, JobRow, LearnerRow, TransitionRow

JOB = "fabric.job/1"


def job_document(row: JobRow) -> dict[str, Any]:
    """Return the short form: what the job's row holds."""
    return {
        "schema": JOB,
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
        "changed": iso(row.changed_us),
        "seen": iso(row.seen_us),
        "as_of": iso(row.as_of_us),
    }


def describe(store: Store, job_id: JobId) -> dict[str, Any]:
    """Return everything that is known of a job.

    Raises:
        InputMissing: the job's folder is damaged.
    """
    from dataclasses import asdict

    from workbench.data.stores.fingerprints import fingerprints
    from workbench.metrics import checkpoints, latest, notes, progress
    from workbench.services.follow.full_disk import with_stall
    from workbench.services.result_store import result_store
    from workbench.spec import spec_to_json
    from workbench.store.jobs import attempts, detail, transitions
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
        "attempts": [_attempt(each) for each in attempts(store, job_id)],
        "learner_states": [_learner(each) for each in learners(store, job_id)],
        "history": [_event(each) for each in transitions(store, job_id)],
        "metrics": latest(store, job_id),
        "checkpoints": [asdict(each) for each in checkpoints(store, job_id)],
        "data": [asdict(each) for each in fingerprints(folder, job.row.attempt)],
        "progress": [asdict(each) for each in progress(store, job_id)],
        "notes": [asdict(each) for each in notes(store, job_id)],
        "folder": str(folder.path),
        "results": str(folder.results),
        "results_stored": stored.location if stored else "",
    }


def _attempt(attempt: AttemptRow) -> dict[str, Any]:
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


def _learner(learner: LearnerRow) -> dict[str, Any]:
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


def _event(event: TransitionRow) -> dict[str, Any]:
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
