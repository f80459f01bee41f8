"""Stores results again that could not be stored at a job's end, from wherever they are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.errors import BackendUnreachable, FabricError, InputMissing, UsageError
from workbench.job import TERMINAL, Intent, Reason, State, short_id
from workbench.services.transfer.events import CopyProgress, Report, TransferNotice, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workbench.controller.runtime.result_store import ResultStore
    from workbench.data.stores.transfer import TransferProgress
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, LearnerRow


@dataclass(frozen=True, slots=True)
class UploadRetry:
    """The result of storing a job's results again."""

    address: str
    """Where the results are stored."""
    files: int
    """How many files the store has of the job."""
    size_bytes: int
    missing_files: int
    reasons: tuple[str, ...]
    """Why files are missing; empty where none is."""
    state_before: State
    state: State
    """The job's state now: one that failed for its storage alone has completed."""

    @property
    def is_complete(self) -> bool:
        """Whether everything is stored."""
        return not (self.missing_files or self.reasons)


def retry_upload(store: Store, job_id: str, *, origin: str, report: Report = ignore) -> UploadRetry:
    """Store a job's results again.

    Args:
        store: The store.
        job_id: A job that is over.
        origin: Who asks, as the job's history has it.
        report: Takes progress, and a notice where the job's backend does not answer.

    Raises:
        UsageError: the job runs, or has no result store.
        InputMissing: it was never launched, or its results are neither at its backend nor here.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.services.submit.secrets_refresh import renew_credentials
    from workbench.store.queries.jobs import detail
    from workbench.store.queries.learners import learners

    job = detail(store, job_id)
    stored = result_store(job.spec, job_id)
    if stored is None:
        raise UsageError(
            f"{short_id(job_id)} has no result store", hint=f"fabric download {short_id(job_id)}"
        )
    if job.row.state not in TERMINAL:
        raise UsageError(
            f"{short_id(job_id)} is not over: its results are stored while it runs, and at its end"
        )
    if not learners(store, job_id) and not any(_folders(store, job_id)):
        raise InputMissing(
            f"{short_id(job_id)} ended before it was launched, so it has no results: {job.row.reason.text}",
            hint=f"fabric resume {short_id(job_id)}",
        )
    renew_credentials(store.home, job)
    summaries = _from_backend(store, job, report) or [_from_here(store, job, stored, report)]
    missing = sum(int(each.get("missing_files") or 0) for each in summaries)
    reasons = tuple(str(each["reason"]["text"]) for each in summaries if each.get("reason"))
    return UploadRetry(
        address=stored.location,
        files=max(int(each.get("files") or 0) for each in summaries),
        size_bytes=max(int(each.get("bytes") or 0) for each in summaries),
        missing_files=missing,
        reasons=reasons,
        state_before=job.row.state,
        state=job.row.state if missing or reasons else correct_outcome(store, job, origin),
    )


def _from_backend(store: Store, job: JobDetail, report: Report) -> Sequence[Mapping[str, Any]]:
    """Store what the job's backend has; return each learner's summary.

    Nothing where it has nothing, or does not answer while this machine has the files.
    """
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.services.backends.learner_access import opened_runner, recorded_request

    row = job.row
    request = replace(
        recorded_request(job, store.home),
        code_hash="",
        code_file="",
        secrets=read_secrets(store.home, row.id),
    )
    try:
        with opened_runner(row, store.home) as runner:
            return runner.retry_upload(request)
    except BackendUnreachable as error:
        if not any(_folders(store, row.id)):
            raise
        report(
            TransferNotice(
                f"{error.message}; what this machine has of {short_id(row.id)} is stored from here"
            )
        )
        return []


def _folders(store: Store, job_id: str) -> list[bool]:
    job = store.home.job(job_id)
    return [folder.is_dir() and any(folder.iterdir()) for folder in (job.results, job.checkpoints)]


def _from_here(store: Store, job: JobDetail, stored: ResultStore, report: Report) -> Mapping[str, Any]:
    """Store what this machine has of a job; return a summary as a learner's agent gives it."""
    folder = store.home.job(job.row.id)
    if not any(_folders(store, job.row.id)):
        raise InputMissing(
            f"nothing of {short_id(job.row.id)} is left that could be stored, neither at its backend nor here"
        )
    if stored.store.is_folder:
        raise UsageError(
            f"the results of {short_id(job.row.id)} are in a folder of its backend, not in a store"
        )
    transfer = stored.transfer(store.home)
    pairs = [(folder.results, stored.results), (folder.checkpoints, stored.checkpoints)]
    try:
        for source, path in pairs:
            if source.is_dir() and any(source.iterdir()):
                transfer.put(source, path, partial(_report_progress, report, f"stores {source.name}"))
    except FabricError as error:
        return {"missing_files": 0, "reason": {"text": error.message}}
    files = transfer.files(stored.results)
    return {"files": len(files), "bytes": sum(each.size_bytes for each in files), "missing_files": 0}


def _report_progress(report: Report, what: str, progress: TransferProgress) -> None:
    report(CopyProgress(what, progress))


CORRECTION = "its results are in the store after all"
"""What the job's history says about the change of its end."""


def correct_outcome(store: Store, job: JobDetail, origin: str) -> State:
    """Take out of a job's end that its results were not stored; return the state that it has now.

    A job that failed for that alone gets the state of its command's own exit. An end that does not name unstored
    results stays as it is, and nothing is written.

    Args:
        store: The store.
        job: A job that is over.
        origin: Who asks, as the job's history has it.
    """
    from workbench.controller.decide.observations import status_of
    from workbench.controller.decide.outcome import RESUMES, UNSTORED, judge
    from workbench.store.db.identity import home_uuid
    from workbench.store.queries.learners import learners, save_learner
    from workbench.store.updates.jobs import correct_end

    row = job.row
    state, reason, exit_code, exit_by = row.state, _without_unstored(row.reason), row.exit_code, row.exit_by
    if state is State.HALTED and reason != row.reason:
        reason = Reason(reason.text, hint=RESUMES)
    corrected = [_corrected(each) for each in learners(store, row.id, row.attempt)]
    if corrected and state is State.FAILED and row.reason.code == UNSTORED:
        uuid = home_uuid(store.home)
        statuses = {each.learner: status_of(each, uuid) for each in corrected}
        found = judge(statuses, ends_when=job.spec.ends_when, intent=Intent.NONE, asked_by="")
        state, reason, exit_code, exit_by = found.state, found.reason, found.exit_code, found.exit_by
    if (state, reason) == (row.state, row.reason):
        return state
    with store.atomic():
        for each in corrected:
            save_learner(store, each)
        correct_end(
            store, row.id, row.attempt, state, reason, exit_code=exit_code, exit_by=exit_by, text=CORRECTION,
            origin=origin,
        )  # fmt: skip
    return state


def _without_unstored(reason: Reason) -> Reason:
    from workbench.controller.decide.outcome import UNSTORED
    from workbench.learner.journal.reasons import without_unstored

    text = without_unstored(reason.text)
    if text == reason.text:
        return reason
    return Reason(text) if reason.code == UNSTORED else replace(reason, text=text)


def _corrected(learner: LearnerRow) -> LearnerRow:
    if learner.reason is None:
        return learner
    reason = _without_unstored(learner.reason)
    return replace(learner, reason=reason if reason.text else None)
