"""From SQLite's tuples to rows: the column lists stand beside the functions that read them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from workbench.job import Intent, JobId, LearnerPhase, Reason, State
from workbench.store.db.rows import AttemptRow, JobRow, LearnerRow, PlaceRef, RequestRow, TransitionRow

JOB_COLUMNS: Final = (
    "id, seq, name, state, reason, reason_code, reason_hint, intent, exit_code, exit_by, attempt, place, "
    "owner, submitted_us, started_us, ended_us, changed_us, seen_us, restarts, platform_restarts, "
    "next_try_us, learners, gpus, cpus, memory_bytes, labels, tags, note, parent, trial, deleted_us, revision"
)

ATTEMPT_COLUMNS: Final = (
    "job_id, attempt, state, reason, reason_code, reason_hint, exit_code, exit_by, queued_us, pending_us, "
    "downloading_us, processing_us, storing_us, ended_us, node"
)

LEARNER_COLUMNS: Final = (
    "l.job_id, l.attempt, l.learner, l.phase, l.exit_code, l.signal, l.reason, l.reason_code, l.reason_hint, "
    "l.started_us, l.ended_us, l.decided, l.stopped, l.node, l.slots, coalesce(j.records_offset, 0)"
)

TRANSITION_COLUMNS: Final = "id, job_id, attempt, time_us, kind, state, text, code, who, origin"

REQUEST_COLUMNS: Final = "id, kind, job_id, payload, who, origin, time_us, outcome"

# Looked up ten thousand times in a list: a dict is faster than calling the enumeration.
_STATES: Final = {state.value: state for state in State}
_INTENTS: Final = {intent.value: intent for intent in Intent}


def job_row(row: tuple[Any, ...]) -> JobRow:
    """Make a job's row of :data:`JOB_COLUMNS`."""
    return JobRow(
        id=JobId(row[0]),
        seq=row[1],
        name=row[2],
        state=_STATES[row[3]],
        reason=_reason(row[4], row[5], row[6]),
        intent=_INTENTS[row[7]],
        exit_code=row[8],
        exit_by=row[9],
        attempt=row[10],
        place=_place(row[11]),
        owner=row[12],
        submitted_us=row[13],
        started_us=row[14],
        ended_us=row[15],
        changed_us=row[16],
        seen_us=row[17],
        restarts=row[18],
        platform_restarts=row[19],
        next_try_us=row[20],
        learners=row[21],
        gpus=row[22],
        cpus=row[23],
        memory_bytes=row[24],
        labels=_labels(row[25]),
        tags=_texts(row[26]),
        note=row[27],
        parent=row[28],
        trial=row[29],
        deleted_us=row[30],
        revision=row[31],
    )


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    """Make an attempt's row of :data:`ATTEMPT_COLUMNS`."""
    return AttemptRow(JobId(row[0]), row[1], State(row[2]), Reason(row[3], row[4], row[5]), *row[6:])


def learner_row(row: tuple[Any, ...]) -> LearnerRow:
    """Make a learner's row of :data:`LEARNER_COLUMNS`."""
    reason = None if row[6] is None else Reason(row[6], row[7], row[8])
    return LearnerRow(
        JobId(row[0]),
        row[1],
        row[2],
        LearnerPhase(row[3]),
        row[4],
        row[5],
        reason,
        row[9],
        row[10],
        bool(row[11]),
        row[12],
        row[13],
        _texts(row[14]),
        row[15],
    )


def transition_row(row: tuple[Any, ...]) -> TransitionRow:
    """Make a transition's row of :data:`TRANSITION_COLUMNS`."""
    return TransitionRow(*row)


def request_row(row: tuple[Any, ...]) -> RequestRow:
    """Make a request's row of :data:`REQUEST_COLUMNS`."""
    return RequestRow(row[0], row[1], JobId(row[2]), json.loads(row[3]), *row[4:])


def dump(value: Any) -> str:
    """Write a value as the store keeps it, so that equal values are equal texts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=4096)
def _reason(text: str, code: str, hint: str) -> Reason:
    return Reason(text, code, hint)


@lru_cache(maxsize=1024)
def _place(text: str) -> PlaceRef:
    return PlaceRef(**json.loads(text))


@lru_cache(maxsize=4096)
def _texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()


def _labels(text: str) -> dict[str, str]:
    # Not shared between rows: a mapping that someone changes must not change the others.
    labels: dict[str, str] = json.loads(text) if text != "{}" else {}
    return labels
