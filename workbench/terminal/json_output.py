"""What ``--json`` prints: documents that carry ``schema``, to which fields are only ever added."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.formats import iso

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow

JOB = "fabric.job/1"


def print_document(document: Any) -> None:
    """Print one whole document: an object indented, of an array one element a line."""
    if isinstance(document, list):
        # One line an element: the standard library indents ten times slower than it writes.
        body = ",\n".join(_dump(element) for element in document)
        sys.stdout.write(f"[\n{body}\n]\n" if document else "[]\n")
    else:
        sys.stdout.write(_dump(document, indent=2) + "\n")


def print_event(kind: str, fields: Mapping[str, Any], *, flush: bool = True) -> None:
    """Print one line of a stream, at once unless more follow."""
    sys.stdout.write(_dump({"schema": "fabric.event/1", "event": kind, **fields}) + "\n")
    if flush:
        sys.stdout.flush()


def _dump(value: Any, *, indent: int | None = None) -> str:
    """Write JSON; NaN and infinities, which it does not have, are null and texts."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(clean(value), indent=indent, ensure_ascii=False, allow_nan=False)


def job_document(row: JobRow) -> dict[str, Any]:
    """Return a job as ``list`` and ``show`` give it."""
    return {
        "schema": JOB,
        "id": row.id,
        "name": row.name,
        "state": row.state.value,
        "reason": row.reason.text,
        "reason_code": row.reason.code,
        "hint": row.reason.hint,
        "intent": row.intent.value,
        "exit_code": row.exit_code,
        "exit_by": row.exit_by,
        "attempt": row.attempt,
        "backend": row.place.backend,
        "runner": row.place.runner,
        "owner": row.owner,
        "learners": row.learners,
        "gpus": row.gpus,
        "cpus": row.cpus,
        "memory_bytes": row.memory_bytes,
        "restarts": row.restarts,
        "platform_restarts": row.platform_restarts,
        "labels": dict(row.labels),
        "tags": list(row.tags),
        "note": row.note,
        "parent": row.parent,
        "trial": row.trial,
        "submitted": iso(row.submitted_us),
        "started": iso(row.started_us),
        "ended": iso(row.ended_us),
        "changed": iso(row.changed_us),
        "seen": iso(row.seen_us),
    }


def clean(value: Any) -> Any:
    """Return a value that JSON can hold: NaN is null, infinities are ``"inf"`` and ``"-inf"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value
