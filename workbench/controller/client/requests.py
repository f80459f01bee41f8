"""What clients ask of jobs: it is written to the store, and the controller is then woken or started."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from workbench.controller.client.connect import send_message
from workbench.errors import CannotWrite, NoSpaceLeft, UnknownName
from workbench.job import short_id
from workbench.learner.journal.state import ask_to_stop, read
from workbench.paths import Home, JobFolder
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.reserve import with_reserve
from workbench.store.db.rows import JobRow, is_over
from workbench.store.queries.jobs import job
from workbench.store.queries.requests import add_request
from workbench.store.updates.jobs import who_am_i
from workbench.values import dataclass

STOPS: Final = ("halt", "kill", "delete")
"""What can be asked for though the disk is full."""

_KEPT: Final = ("job.json", "events.jsonl")
"""What a job is known by."""


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
