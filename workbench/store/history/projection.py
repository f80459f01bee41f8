"""What each event means to the rows.

The live store and a rebuilt one both come about through :func:`apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from workbench.job import TERMINAL, Intent, LearnerPhase, State
from workbench.store.db.database import Store
from workbench.store.db.rows import dump
from workbench.store.history.job_file import read_job_document, row_from

Event = Mapping[str, Any]


def apply(store: Store, job_id: str, event: Event) -> None:
    """Bring the rows to what they are after an event.

    Kinds that this version does not know change nothing.
    """
    if handler := _HANDLERS.get(event["do"]):
        handler(store, job_id, event)


def _submit(store: Store, job_id: str, event: Event) -> None:
    row = row_from(read_job_document(store.home, job_id))
    text, code, hint = _reason(event)
    seq = _free(store, "jobs", "seq", "next_job", event["seq"])
    store.execute(
        "INSERT OR IGNORE INTO jobs (seq, id, name, state, reason, reason_code, reason_hint, place, backend, "
        "owner, submitted_us, changed_us, learners, gpus, cpus, memory_bytes, labels, tags, parent, trial) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            job_id,
            row.name,
            row.state,
            text,
            code,
            hint,
            dump(asdict(row.target)),
            row.target.backend,
            row.owner,
            row.submitted_us,
            row.changed_us,
            row.learners,
            row.gpus,
            row.cpus,
            row.memory_bytes,
            dump(dict(row.labels)),
            dump(list(row.tags)),
            row.parent,
            row.trial,
        ),
    )
    at_least(store, "next_job", seq + 1)
    _start_attempt(store, job_id, 1, event, row.submitted_us)


def _attempt(store: Store, job_id: str, event: Event) -> None:
    text, code, hint = _reason(event)
    store.execute(
        "UPDATE jobs SET attempt = ?, state = 'QUEUED', reason = ?, reason_code = ?, reason_hint = ?, "
        "exit_code = NULL, exit_by = '', started_us = NULL, ended_us = NULL, changed_us = ?, "
        "next_try_us = ?, restarts = ?, platform_restarts = ? WHERE id = ?",
        (
            event["attempt"],
            text,
            code,
            hint,
            event["time"],
            event.get("next_try_us"),
            event["restarts"],
            event["platform_restarts"],
            job_id,
        ),
    )
    if target := event.get("place"):
        sql = "UPDATE jobs SET place = ?, backend = ? WHERE id = ?"
        store.execute(sql, (dump(dict(target)), target["backend"], job_id))
    _start_attempt(store, job_id, event["attempt"], event, event["time"])


def _start_attempt(store: Store, job_id: str, attempt: int, event: Event, time_us: int) -> None:
    store.execute(
        "INSERT OR IGNORE INTO attempts (job_id, attempt, state, reason, reason_code, reason_hint, "
        "queued_us) VALUES (?, ?, 'QUEUED', ?, ?, ?, ?)",
        (job_id, attempt, *_reason(event), time_us),
    )
    _transition(store, job_id, attempt, event, "state", State.QUEUED)


def _step(store: Store, job_id: str, event: Event) -> None:
    state, attempt = State(event["state"]), event["attempt"]
    shared = (state, *_reason(event), event.get("exit_code"), event.get("exit_by", ""))
    _step_attempt(store, job_id, event, shared)
    started, ended = event.get("started_us"), event.get("ended_us")
    then = event.get("then") or {}
    is_at_host = bool(then.get("at_host"))
    if state in TERMINAL and ended is None:
        ended = event["time"]
    if state is State.PROCESSING and started is None:
        started = event["time"]
    store.execute(
        "UPDATE jobs SET state = ?, reason = ?, reason_code = ?, reason_hint = ?, exit_code = ?, "
        "exit_by = ?, started_us = coalesce(?, started_us), ended_us = coalesce(?, ended_us), "
        "changed_us = ?, next_try_us = NULL, "
        "intent = CASE WHEN ? AND intent IN ('halt', 'kill') THEN '' ELSE intent END "
        "WHERE id = ? AND attempt = ?",
        (
            *shared,
            started,
            ended,
            event["time"],
            state in TERMINAL and not is_at_host,
            job_id,
            attempt,
        ),
    )
    _transition(store, job_id, attempt, event, "state", state)
    if then:
        origin = {key: event[key] for key in ("time", "who", "origin")}
        _attempt(store, job_id, {**origin, **then})
        if is_at_host:
            # By these rows it is known that the attempt was handed over.
            phase = LearnerPhase.STARTING.value
            (learners,) = store.row("SELECT learners FROM jobs WHERE id = ?", (job_id,)) or (1,)
            for learner in range(1, learners + 1):
                text = f"learner {learner} {phase}"
                begun = {"attempt": then["attempt"], "learner": learner, "phase": phase, "text": text}
                _learner(store, job_id, {**origin, **begun})


def _correct_end(store: Store, job_id: str, event: Event) -> None:
    """An end that was written down wrongly, or holds no more: what else is known of it stays."""
    state = State(event["state"])
    shared = (state, *_reason(event), event.get("exit_code"), event.get("exit_by", ""))
    sets = "state = ?, reason = ?, reason_code = ?, reason_hint = ?, exit_code = ?, exit_by = ?"
    attempt = event["attempt"]
    store.execute(f"UPDATE attempts SET {sets} WHERE job_id = ? AND attempt = ?", (*shared, job_id, attempt))
    store.execute(
        f"UPDATE jobs SET {sets}, changed_us = ? WHERE id = ? AND attempt = ?",
        (*shared, event["time"], job_id, attempt),
    )
    _transition(store, job_id, attempt, event, "state", state)


def _step_attempt(store: Store, job_id: str, event: Event, shared: tuple[Any, ...]) -> None:
    state = State(event["state"])
    time_us = event["time"]
    column = "ended_us" if state in TERMINAL else f"{state.lower()}_us"
    # Back in the queue it still waits since it came there first.
    keep = f"{column} = coalesce({column}, ?)" if state is State.QUEUED else f"{column} = ?"
    if state in TERMINAL and event.get("ended_us") is not None:
        time_us = event["ended_us"]
    if state is State.PROCESSING and event.get("started_us") is not None:
        time_us = event["started_us"]
    store.execute(
        "UPDATE attempts SET state = ?, reason = ?, reason_code = ?, reason_hint = ?, exit_code = ?, "
        f"exit_by = ?, {keep}, node = CASE WHEN ? <> '' THEN ? ELSE node END "
        "WHERE job_id = ? AND attempt = ?",
        (*shared, time_us, event.get("node", ""), event.get("node", ""), job_id, event["attempt"]),
    )


def _set_reason(store: Store, job_id: str, event: Event) -> None:
    reason = _reason(event)
    store.execute(
        "UPDATE jobs SET reason = ?, reason_code = ?, reason_hint = ?, next_try_us = ? WHERE id = ?",
        (*reason, event.get("next_try_us"), job_id),
    )
    store.execute(
        "UPDATE attempts SET reason = ?, reason_code = ?, reason_hint = ? "
        "WHERE job_id = ? AND attempt = (SELECT attempt FROM jobs WHERE id = ?)",
        (*reason, job_id, job_id),
    )


def _set_intent(store: Store, job_id: str, event: Event) -> None:
    store.execute("UPDATE jobs SET intent = ? WHERE id = ?", (Intent(event["intent"]), job_id))


def _learner(store: Store, job_id: str, event: Event) -> None:
    key = (job_id, event["attempt"], event["learner"])
    before = store.row("SELECT phase FROM learners WHERE job_id = ? AND attempt = ? AND learner = ?", key)
    reason = event.get("reason")
    store.execute(
        "INSERT OR REPLACE INTO learners (job_id, attempt, learner, phase, exit_code, signal, reason, "
        "reason_code, reason_hint, started_us, ended_us, decided, stopped, node, slots) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *key,
            event["phase"],
            event.get("exit_code"),
            event.get("signal"),
            reason["text"] if reason else None,
            *(_reason(event)[1:]),
            event.get("started_us"),
            event.get("ended_us"),
            event.get("decided", False),
            event.get("stopped", ""),
            event.get("node", ""),
            dump(event.get("slots") or []),
        ),
    )
    if before is None or before[0] != event["phase"]:
        _transition(store, job_id, event["attempt"], event, "learner", event["phase"])


def _request(store: Store, job_id: str, event: Event) -> None:
    request_id = _free(store, "requests", "id", "next_request", event["id"])
    values = (event["kind"], job_id, dump(event["payload"]), event["who"], event["origin"], event["time"])
    store.execute(
        "INSERT INTO requests (id, kind, job_id, payload, who, origin, time_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (request_id, *values),
    )
    at_least(store, "next_request", request_id + 1)
    # What is asked for in words stands beside the kind, where the kind alone does not say it.
    words = event["payload"].get("text")
    text = f"{event['kind']}: {words}" if words else event["kind"]
    _transition(store, job_id, None, {**event, "text": text}, "request", "")


def _settle(store: Store, job_id: str, event: Event) -> None:
    sql = "UPDATE requests SET outcome = ? WHERE id = ? AND job_id = ?"
    store.execute(sql, (event["outcome"], event["id"], job_id))


def _annotate(store: Store, job_id: str, event: Event) -> None:
    for column in ("name", "note"):
        if column in event:
            store.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (event[column], job_id))
    for column in ("tags", "labels"):
        if column in event:
            store.execute(f"UPDATE jobs SET {column} = ? WHERE id = ?", (dump(event[column]), job_id))
    if event.get("who"):
        _transition(store, job_id, None, {**event, "text": _annotation(event)}, "annotate", "")


def _annotation(event: Event) -> str:
    changes = []
    if "name" in event:
        changes.append(f"named {event['name']}")
    if "tags" in event:
        changes.append(f"tagged {' '.join(event['tags'])}" if event["tags"] else "all tags removed")
    if "labels" in event:
        changes.append("labelled " + " ".join(f"{key}={value}" for key, value in event["labels"].items()))
    if "note" in event:
        changes.append("noted" if event["note"] else "note removed")
    return ", ".join(changes)


def _note(store: Store, job_id: str, event: Event) -> None:
    _transition(store, job_id, event.get("attempt"), event, "note", "")


def _transition(store: Store, job_id: str, attempt: int | None, event: Event, kind: str, state: str) -> None:
    text, code, _ = _reason(event)
    store.execute(
        "INSERT INTO transitions (job_id, id, attempt, time_us, kind, state, text, code, who, origin) "
        "VALUES (?, (SELECT coalesce(max(id), 0) + 1 FROM transitions WHERE job_id = ?), "
        "coalesce(?, (SELECT attempt FROM jobs WHERE id = ?), 1), ?, ?, ?, ?, ?, ?, ?)",
        (
            job_id,
            job_id,
            attempt,
            job_id,
            event["time"],
            kind,
            state,
            event.get("text") or text,
            event.get("code") or code,
            event.get("who", ""),
            event.get("origin", ""),
        ),
    )


def at_least(store: Store, counter: str, value: int) -> None:
    """Move a counter of ids beyond what an event has used."""
    store.execute("UPDATE counters SET value = max(value, ?) WHERE name = ?", (value, counter))


def _free(store: Store, table: str, column: str, counter: str, number: int) -> int:
    """Return the number that an event was given, or the next free one.

    It is taken only when a power failure undid the event's rows and another was given the same number since.
    """
    taken = store.row(f"SELECT 1 FROM {table} WHERE {column} = ?", (number,))
    return number if taken is None else store.counter(counter)


def _reason(event: Event) -> tuple[str, str, str]:
    reason = event.get("reason") or {}
    return reason.get("text", ""), reason.get("code", ""), reason.get("hint", "")


_HANDLERS: Final[Mapping[str, Callable[[Store, str, Event], None]]] = {
    "submit": _submit,
    "attempt": _attempt,
    "step": _step,
    "mend": _correct_end,
    "reason": _set_reason,
    "intent": _set_intent,
    "learner": _learner,
    "request": _request,
    "settle": _settle,
    "annotate": _annotate,
    "note": _note,
}
