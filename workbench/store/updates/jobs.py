"""Writing jobs: submit, steps, reasons, intents, attempts, deletion.

Each goes through the job's history first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from workbench.clock import now_us
from workbench.errors import FabricError, UnknownName
from workbench.job import TERMINAL, Intent, Reason, State, may_step
from workbench.store.db.database import Store
from workbench.store.db.home_folder import require_home
from workbench.store.db.rows import JobDetail, JobRow, TargetRef
from workbench.store.history.job_file import write_changed_spec, write_job_file
from workbench.store.history.journal import catch_up, record
from workbench.store.queries.jobs import job
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """What follows an attempt that failed and is tried again."""

    reason: Reason
    restarts: int
    platform_restarts: int
    due_us: int
    """It is not tried before that moment."""
    is_at_host: bool = False
    """Whether its host has begun it: its learner waits there, or runs, and what is asked of the job concerns it."""


@lru_cache(maxsize=1)
def who_am_i() -> str:
    """Return ``user@host``, as requests and histories name people."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def insert_job(store: Store, detail: JobDetail, *, who: str = "", origin: str = "") -> JobRow:
    """Write a new job: ``job.json``, its history, its row and first attempt.

    Return the row with its order and revision. A job that is there already is returned as it is.

    Raises:
        CannotWrite: the home takes no more; nothing is left of the job.
    """
    job_id = detail.row.id
    with store.atomic():
        if known := job(store, job_id):
            return known
        store.on_rollback(lambda: _forget_folder(store, job_id))
        write_job_file(store.home, detail)
        seq = store.counter("next_job")
        record(
            store,
            job_id,
            {
                "do": "submit",
                "time": detail.row.submitted_us,
                "seq": seq,
                "reason": _plain(detail.row.reason),
                "who": who or who_am_i(),
                "origin": origin,
            },
        )
        return _existing(store, job_id)


def step(
    store: Store,
    job_id: str,
    attempt: int,
    state: State,
    reason: Reason,
    *,
    exit_code: int | None = None,
    exit_by: str = "",
    who: str = "controller",
    origin: str = "controller",
    node: str = "",
    time_us: int | None = None,
    started_us: int | None = None,
    ended_us: int | None = None,
    then: NextAttempt | None = None,
) -> None:
    """Take one legal step of an attempt.

    A step to the state that it is in already changes at most the reason.

    A terminal step fulfils an intent to halt or kill. ``started_us`` and ``ended_us`` are the learner's own
    times; without them those of the step count. What comes ``then`` is in the same line of the history: whoever
    is killed between two lines leaves a job that has failed for good.

    Raises:
        FabricError: the step is not legal: a bug of the caller's.
    """
    with store.atomic():
        row = _existing(store, job_id)
        before = _attempt_state(store, job_id, attempt)
        if before is state:
            if row.attempt == attempt:
                set_reason(store, job_id, reason)
            return
        if not may_step(before, state):
            raise FabricError(f"attempt {attempt} of {job_id} cannot go from {before} to {state}")
        event: dict[str, Any] = {
            "do": "step",
            "attempt": attempt,
            "state": state.value,
            "reason": _plain(reason),
            "exit_code": exit_code,
            "exit_by": exit_by,
            "who": who,
            "origin": origin,
            "time": time_us or now_us(),
        }
        known: dict[str, Any] = {"node": node, "started_us": started_us, "ended_us": ended_us}
        if then is not None:
            write_changed_spec(store.home, job_id, attempt + 1, None)
            counted = _counted(attempt + 1, then.reason, then.restarts, then.platform_restarts)
            known["then"] = counted | {"next_try_us": then.due_us}
            if then.is_at_host:
                known["then"]["at_host"] = True
        record(store, job_id, event | {key: value for key, value in known.items() if value})


def correct_end(
    store: Store,
    job_id: str,
    attempt: int,
    state: State,
    reason: Reason,
    *,
    exit_code: int | None,
    exit_by: str,
    text: str,
    who: str = "",
    origin: str = "",
) -> None:
    """Change how an attempt ended: what was wrong with its end has been put right since. ``text`` says what.

    Raises:
        FabricError: the attempt has not ended, or is to go on: a bug of the caller's.
    """
    with store.atomic():
        before = _attempt_state(store, _existing(store, job_id).id, attempt)
        if before not in TERMINAL or state not in TERMINAL:
            raise FabricError(f"the end of attempt {attempt} of {job_id} cannot go from {before} to {state}")
        event = {
            "do": "mend",
            "attempt": attempt,
            "state": state.value,
            "reason": _plain(reason),
            "text": text,
        }
        event |= {"exit_code": exit_code, "exit_by": exit_by, "who": who or who_am_i(), "origin": origin}
        record(store, job_id, event)


def set_reason(store: Store, job_id: str, reason: Reason, next_try_us: int | None = None) -> None:
    """Say why a job is in its state now, and when it is tried again.

    Nothing is written when nothing changed.
    """
    with store.atomic():
        row = _existing(store, job_id)
        if (row.reason, row.next_try_us) != (reason, next_try_us):
            record(store, job_id, {"do": "reason", "reason": _plain(reason), "next_try_us": next_try_us})


def set_intent(store: Store, job_id: str, intent: Intent, *, who: str = "", origin: str = "") -> None:
    """Write down what is asked of a job, to be tried until the backend confirms it; NONE takes it back."""
    with store.atomic():
        if _existing(store, job_id).intent is not intent:
            event = {"do": "intent", "intent": intent.value, "who": who or who_am_i(), "origin": origin}
            record(store, job_id, event)


def new_attempt(
    store: Store,
    job_id: str,
    reason: Reason,
    who: str = "controller",
    origin: str = "controller",
    *,
    restarts: int | None = None,
    platform_restarts: int | None = None,
    target: TargetRef | None = None,
    changed: Mapping[str, Any] | None = None,
) -> int:
    """Start the next attempt of a job that ended, QUEUED.

    Return its number. Counters that are left out stay, and so do the target and the spec; ``changed`` has another
    ``spec`` with its ``origins``.
    """
    with store.atomic():
        row = _existing(store, job_id)
        event = {
            "do": "attempt",
            **_counted(
                row.attempt + 1,
                reason,
                row.restarts if restarts is None else restarts,
                row.platform_restarts if platform_restarts is None else platform_restarts,
            ),
            "who": who,
            "origin": origin,
            **({"place": asdict(target)} if target is not None else {}),
        }
        write_changed_spec(store.home, job_id, row.attempt + 1, changed)
        record(store, job_id, event)
        return row.attempt + 1


def _counted(attempt: int, reason: Reason, restarts: int, platform_restarts: int) -> dict[str, Any]:
    """Return what a history says of an attempt that begins, whoever has it begin."""
    return {
        "attempt": attempt,
        "reason": _plain(reason),
        "restarts": restarts,
        "platform_restarts": platform_restarts,
    }


def add_note(
    store: Store, job_id: str, text: str, *, who: str = "controller", origin: str = "controller"
) -> None:
    """Add a line in words to a job's history."""
    record(store, job_id, {"do": "note", "text": text, "who": who, "origin": origin})


def annotate(
    store: Store,
    job_id: str,
    *,
    name: str | None = None,
    tags: Sequence[str] | None = None,
    note: str | None = None,
    labels: Mapping[str, str] | None = None,
    who: str = "",
    origin: str = "",
) -> None:
    """Change what people say of a job; what is left out stays. It is in the job's history, with who said it.

    Raises:
        HomeNotBound: the home is a copy, or was moved.
    """
    event: dict[str, Any] = {"do": "annotate"}
    event |= {"name": name} if name is not None else {}
    event |= {"tags": list(tags)} if tags is not None else {}
    event |= {"note": note} if note is not None else {}
    event |= {"labels": dict(labels)} if labels is not None else {}
    if len(event) > 1:
        require_home(store.home)
        record(store, job_id, event | {"who": who or who_am_i(), "origin": origin})


def mark_seen(store: Store, job_ids: str | Iterable[str], time_us: int | None = None) -> None:
    """Note until when the backend of these jobs answered, which does not answer now. It is in no history."""
    ids = [job_ids] if isinstance(job_ids, str) else list(job_ids)
    answered_us = time_us or now_us()
    with store.atomic():
        store.executemany(
            "UPDATE jobs SET seen_us = ? WHERE id = ?", [(answered_us, job_id) for job_id in ids]
        )


def mark_in_sight(store: Store, job_ids: Iterable[str]) -> None:
    """Note that the backend of these jobs answers again."""
    with store.atomic():
        store.executemany("UPDATE jobs SET seen_us = NULL WHERE id = ?", [(job_id,) for job_id in job_ids])


def _existing(store: Store, job_id: str) -> JobRow:
    catch_up(store, job_id)
    row = job(store, job_id)
    if row is None:
        raise UnknownName(f"there is no job {job_id}", hint="fabric list shows those there are")
    return row


def _attempt_state(store: Store, job_id: str, attempt: int) -> State:
    found = store.row("SELECT state FROM attempts WHERE job_id = ? AND attempt = ?", (job_id, attempt))
    if found is None:
        raise UnknownName(f"{job_id} has no attempt {attempt}")
    return State(found[0])


def _plain(reason: Reason) -> dict[str, str]:
    return {
        key: value
        for key, value in (("text", reason.text), ("code", reason.code), ("hint", reason.hint))
        if value
    }


def _forget_folder(store: Store, job_id: str) -> None:
    folder = store.home.job(job_id)
    try:
        folder.job_file.unlink(missing_ok=True)
        folder.events.unlink(missing_ok=True)
        folder.path.rmdir()
    except OSError:
        return  # there never was a folder, or others have put something there already
