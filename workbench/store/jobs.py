"""Everything that reads and writes jobs, in one module to import from."""

from __future__ import annotations

from workbench.store.queries.jobs import (
    attempts,
    changed_jobs,
    count_jobs,
    deleted_jobs,
    detail,
    has_open_jobs,
    has_open_searches,
    job,
    list_jobs,
    open_jobs,
    revision,
    transitions,
)
from workbench.store.queries.resolve import resolve
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import (
    NextAttempt,
    add_note,
    annotate,
    correct_end,
    insert_job,
    mark_in_sight,
    mark_seen,
    new_attempt,
    set_intent,
    set_reason,
    step,
    who_am_i,
)

__all__ = [
    "NextAttempt",
    "add_note",
    "annotate",
    "attempts",
    "changed_jobs",
    "correct_end",
    "count_jobs",
    "deleted_jobs",
    "detail",
    "has_open_jobs",
    "has_open_searches",
    "insert_job",
    "job",
    "list_jobs",
    "mark_deleted",
    "mark_in_sight",
    "mark_seen",
    "new_attempt",
    "open_jobs",
    "resolve",
    "revision",
    "set_intent",
    "set_reason",
    "step",
    "transitions",
    "who_am_i",
]
