"""New jobs as clients write them to the store; the controller is then woken or started."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from workbench.clock import now_us
from workbench.controller.runtime.secrets import forget_secrets, write_secrets
from workbench.job import JobId, Reason, State, new_job_id
from workbench.paths import Home, write_private
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.home_folder import require_home
from workbench.store.db.rows import JobDetail, JobRow, TargetRef
from workbench.store.queries.jobs import job
from workbench.store.queries.requests import add_request
from workbench.store.updates.jobs import insert_job, new_attempt, step, who_am_i
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as the client resolved it, ready to be submitted."""

    spec: JobSpec
    manifest_text: str
    """As the user wrote it, with secrets masked."""
    origins: Mapping[str, str]
    target: TargetRef
    code_hash: str
    """Empty when the job has no code."""
    recorded: Mapping[str, Any]
    """Design, section 9: interpreter, environment, git, host, packages, seed, arguments."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values by name; they go to a 0600 file and into no row."""
    diff: str = ""
    """The uncommitted changes when the code was packed."""
    parent: str | None = None
    trial: int | None = None
    tags: tuple[str, ...] = ()
    job_id: JobId | None = None
    """Chosen beforehand, or None for a new one."""


def submit(store: Store, submission: Submission, *, origin: str) -> JobRow:
    """Write a new job, its secrets and the request to start it; return its row. It starts no controller.

    Raises:
        CannotWrite: the home takes no more; nothing is left of the job.
        HomeNotBound: the home is a copy.
    """
    require_home(store.home)
    job_id = submission.job_id or new_job_id()
    who = who_am_i()
    try:
        write_secrets(store.home, job_id, submission.secrets)
        with store.atomic():
            row = insert_job(store, detail_of(job_id, submission, who), who=who, origin=origin)
            _write_diff(store.home, job_id, submission.diff)
            add_request(store, "submit", job_id, {}, who, origin)
    except BaseException:
        forget_secrets(store.home, job_id)
        raise
    return row


def take_up(store: Store, submission: Submission, attempt: int, *, origin: str) -> JobRow:
    """Write a job of another home that runs already; the controller then observes it.

    A job that this home has already is returned unchanged.

    Raises:
        CannotWrite: the home takes no more; nothing is left of the job.
        HomeNotBound: the home is a copy.
    """
    require_home(store.home)
    assert submission.job_id is not None
    who = who_am_i()
    if known := job(store, submission.job_id):
        return known
    reason = Reason("was adopted from another laptop")
    with store.atomic():
        row = insert_job(store, detail_of(submission.job_id, submission, who), who=who, origin=origin)
        for number in range(1, attempt):
            step(
                store, row.id, number, State.HALTED, Reason("ended on another laptop"), who=who, origin=origin
            )
            new_attempt(store, row.id, reason, who=who, origin=origin)
        step(store, row.id, attempt, State.PENDING, reason, who=who, origin=origin)
        add_request(store, "submit", row.id, {}, who, origin)
    found = job(store, row.id)
    assert found is not None
    return found


def detail_of(job_id: JobId, submission: Submission, who: str) -> JobDetail:
    """Return what is written down of a new job."""
    spec, now = submission.spec, now_us()
    row = JobRow(
        id=job_id,
        name=spec.name,
        reason=Reason("was submitted"),
        target=submission.target,
        owner=who.partition("@")[0],
        submitted_us=now,
        changed_us=now,
        learners=spec.learners,
        gpus=spec.gpus,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=spec.labels,
        tags=submission.tags,
        parent=submission.parent,
        trial=submission.trial,
    )
    return JobDetail(
        row=row,
        spec=spec,
        manifest_text=submission.manifest_text,
        origins=submission.origins,
        code_hash=submission.code_hash,
        recorded=submission.recorded,
    )


def _write_diff(home: Home, job_id: str, diff: str) -> None:
    if not diff:
        return
    file = home.job(job_id).diff
    try:
        write_private(file, diff, errors="surrogateescape")
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        raise write_failure(error, file) from error
