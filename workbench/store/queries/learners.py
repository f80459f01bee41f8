"""Learners: how each was found last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from workbench.store.db.database import Store
from workbench.store.db.rows import LEARNER_COLUMNS, LearnerRow, learner_row
from workbench.store.history.journal import record


def save_learner(store: Store, row: LearnerRow) -> bool:
    """Write how a learner was found.

    Return whether that was news. ``records_offset`` is ingestion's, not written here.
    """
    with store.atomic():
        known = learners(store, row.job_id, row.attempt, learner=row.learner)
        if known and replace(row, records_offset=known[0].records_offset) == known[0]:
            return False
        record(store, row.job_id, _event(row))
        return True


def learners(
    store: Store, job_id: str, attempt: int | None = None, *, learner: int | None = None
) -> list[LearnerRow]:
    """List a job's learners, of all attempts or of one."""
    where, values = "l.job_id = ?", [job_id, *(n for n in (attempt, learner) if n is not None)]
    where += "" if attempt is None else " AND l.attempt = ?"
    where += "" if learner is None else " AND l.learner = ?"
    sql = (
        f"SELECT {LEARNER_COLUMNS} FROM learners l LEFT JOIN journals j USING (job_id, attempt, learner) "
        f"WHERE {where} ORDER BY l.attempt, l.learner"
    )
    return [learner_row(row) for row in store.rows(sql, values)]


def _event(row: LearnerRow) -> dict[str, Any]:
    event: dict[str, Any] = {
        "do": "learner",
        "attempt": row.attempt,
        "learner": row.learner,
        "phase": row.phase.value,
        "text": _text(row),
    }
    known = {
        "exit_code": row.exit_code,
        "signal": row.signal,
        "started_us": row.started_us,
        "ended_us": row.ended_us,
        "decided": row.decided or None,
        "stopped": row.stopped or None,
        "node": row.node or None,
        "slots": list(row.slots) or None,
    }
    event |= {key: value for key, value in known.items() if value is not None}
    if row.reason is not None:
        event["reason"] = {"text": row.reason.text, "code": row.reason.code, "hint": row.reason.hint}
    return event


def _text(row: LearnerRow) -> str:
    end = f" with {row.exit_code}" if row.exit_code is not None else ""
    end = f" by signal {row.signal}" if row.signal is not None else end
    why = f": {row.reason.text}" if row.reason and row.reason.text else ""
    return f"learner {row.learner} {row.phase.value}{end}{why}"
