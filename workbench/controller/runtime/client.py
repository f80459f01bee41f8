"""Requests of clients to the controller: they are written to the store; the controller is then woken or started."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal

from workbench.clock import now_us
from workbench.controller.runtime.connect import (
    ControllerStatus,
    ensure_controller,
    ensure_heard,
    send_message,
    status,
    stop_controller,
    wake,
)
from workbench.controller.runtime.secrets import forget_secrets, write_secrets
from workbench.errors import CannotWrite, NoSpaceLeft, UnknownName
from workbench.job import JobId, Reason, State, new_job_id, short_id
from workbench.learner.journal.state import ask_to_stop, read
from workbench.paths import Home, JobFolder, write_private
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.home_folder import require_home
from workbench.store.db.reserve import with_reserve
from workbench.store.db.rows import JobDetail, JobRow, TargetRef, is_over
from workbench.store.jobs import insert_job, job, new_attempt, step, who_am_i
from workbench.store.queries.requests import add_request
from workbench.values import dataclass

__all__ = [
    "ControllerStatus",
    "Submission",
    "ask",
    "detail_of",
    "ensure_controller",
    "ensure_heard",
    "status",
    "stop_controller",
    "stop_learners",
    "submit",
    "take_up",
    "wake",
]

STOPS: Final = ("halt", "kill", "delete")
"""What can be asked for though the disk is full."""

_KEPT: Final = ("job.json", "events.jsonl")
"""What a job is known by."""


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


def ask(
    store: Store, job_id: str, kind: str, *, origin: str, payload: Mapping[str, Any] | None = None
) -> int:
    """Ask for a job to be halted, killed, resumed or deleted; return the request's id.

    On a full disk a stop is written into the home's reserve. Where that is used up, too, or the home is read-only, the
    controller and the learners are asked directly.

    Raises:
        CannotWrite: the request cannot be written; the sentence says whether the job stops all the same.
        UnknownName: there is no such job.
    """
    row = job(store, job_id)
    if row is None or row.deleted_us is not None:
        raise UnknownName(f"there is no job {job_id}", hint="fabric list shows those there are")
    who = who_am_i()

    def write() -> int:
        return add_request(store, kind, job_id, dict(payload or {}), who, origin)

    if kind not in STOPS:
        return write()
    try:
        return with_reserve(store.home, write)
    except CannotWrite as error:
        is_full = isinstance(error, NoSpaceLeft)
        if is_full and kind == "delete" and is_over(row) and _make_room(store.home.job(job_id)):
            return write()
        raise _unwritten(store.home, row, kind, who, error) from error


def _unwritten(home: Home, row: JobRow, kind: str, who: str, error: CannotWrite) -> CannotWrite:
    """Stop a job without the store; return the failure that says how far that went."""
    name = f"{short_id(row.id)} {row.name}"
    if is_over(row):
        return type(error)(f"{error}; the {kind} of {name} is not recorded", hint=error.hint)
    stop: Literal["halt", "kill"] = "halt" if kind == "halt" else "kill"
    is_heard = _ask_controller(home, row.id, kind, who)
    learners = stop_learners(home, row, stop, who)
    if learners.refusal:
        done = f"{name} cannot be asked to stop: {learners.refusal}"
        if is_heard:
            done += "; the controller tries it again until it is"
    elif is_heard:
        later = "there is room" if isinstance(error, NoSpaceLeft) else "it can be written"
        done = f"the controller stops {name}, and records the {kind} when {later}"
    elif learners.asked:
        done = f"{name} was asked to stop, but the {kind} is not recorded"
    else:
        done = f"{name} could not be asked to stop, as no controller answers"
    hint = learners.hint or error.hint
    return type(error)(f"{error}; {done}", hint=hint)


def _ask_controller(home: Home, job_id: str, kind: str, who: str) -> bool:
    """Have the controller stop a job and record that once it can; return whether one has heard it."""
    answer = send_message(home, "ask", job=job_id, kind=kind, who=who)
    return answer is not None and bool(answer.get("ok"))


@dataclass(frozen=True, slots=True)
class AskedLearners:
    """What came of asking a job's learners on this machine to stop."""

    asked: int = 0
    refusal: str = ""
    """Why one that runs cannot be asked; empty where each was."""
    hint: str = ""


def stop_learners(home: Home, row: JobRow, kind: Literal["halt", "kill"], who: str) -> AskedLearners:
    """Ask the learners of a job on this machine to stop that run."""
    if row.target.type != "local":
        return AskedLearners()
    asked = 0
    for number in range(1, row.learners + 1):
        folder = str(home.job(row.id).attempt(row.attempt).learner(number).path)
        state = read(folder)
        if state.get("phase") in (None, "exited"):
            continue
        try:
            # Without a grace period of its own the learner's launch document decides.
            ask_to_stop(folder, {"kind": kind, "by": who})
        except OSError as error:
            hint, pid = "make it writable again", state.get("command_pid")
            hint += f", or end the command yourself: kill {pid}" if pid else ""
            return AskedLearners(asked, write_failure(error, Path(folder)).message, hint)
        asked += 1
    return AskedLearners(asked)


def _make_room(folder: JobFolder) -> bool:
    """Remove what takes room of a job that has ended and is to be deleted; return whether there was anything."""
    found = False
    for path in folder.path.iterdir() if folder.path.is_dir() else ():
        if path.name in _KEPT:
            continue
        found = True
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
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
