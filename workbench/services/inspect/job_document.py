"""A job as ``fabric show --json`` gives it: everything that is known."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from workbench.formats import iso
from workbench.terminal.json_output import job_document

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import AttemptRow, JobDetail, LearnerRow, TransitionRow


def show_document(store: Store, whole: JobDetail) -> dict[str, Any]:
    """Return the whole of a job."""
    from workbench.data.stores.fingerprints import fingerprints
    from workbench.metrics import checkpoints, latest, progress
    from workbench.services.result_store import result_store
    from workbench.spec import spec_to_json
    from workbench.store.jobs import attempts, transitions
    from workbench.store.queries.learners import learners

    row = whole.row
    folder = store.home.job(row.id)
    stored = result_store(whole.spec, row.id)
    return {
        **job_document(row),
        "spec": spec_to_json(whole.spec),
        "origins": dict(whole.origins),
        "manifest": whole.manifest_text,
        "code_hash": whole.code_hash,
        "recorded": dict(whole.recorded),
        "attempts": [_attempt(each) for each in attempts(store, row.id)],
        "learner_states": [_learner(each) for each in learners(store, row.id)],
        "history": [_event(each) for each in transitions(store, row.id)],
        "metrics": latest(store, row.id),
        "checkpoints": [asdict(each) for each in checkpoints(store, row.id)],
        "data": [asdict(each) for each in fingerprints(folder, row.attempt)],
        "progress": [asdict(each) for each in progress(store, row.id)],
        "folder": str(folder.path),
        "results": str(folder.results),
        "results_stored": stored.words if stored else "",
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
