"""What places said last of their slots, so that screens and lists need not ask the places."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.clock import now_us
from workbench.store.db.database import Store
from workbench.store.db.rows import dump


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot of a place."""

    backend: str
    node: str
    uuid: str
    position: int
    """Its index on the node."""
    job_id: str
    """The job that holds it, or empty."""
    document: Mapping[str, Any]
    """Model, memory, use and the like, as the place gave them."""
    seen_us: int


def save_slots(store: Store, backend: str, rows: Sequence[SlotRow]) -> None:
    """Write all slots of a place; those that it has no more go. ``seen_us`` 0 stands for now."""
    now = now_us()
    with store.atomic():
        store.execute("DELETE FROM slots WHERE backend = ?", (backend,))
        store.executemany(
            "INSERT INTO slots (backend, node, uuid, position, job_id, document, seen_us) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    backend,
                    row.node,
                    row.uuid,
                    row.position,
                    row.job_id,
                    dump(dict(row.document)),
                    row.seen_us or now,
                )
                for row in rows
            ],
        )


def slots(store: Store, backend: str | None = None) -> list[SlotRow]:
    """List the slots of all places, or of one, in their order."""
    where, values = ("", ()) if backend is None else (" WHERE backend = ?", (backend,))
    sql = (
        f"SELECT backend, node, uuid, position, job_id, document, seen_us FROM slots{where} ORDER BY 1, 2, 4"
    )
    return [SlotRow(*(*row[:5], json.loads(row[5]), row[6])) for row in store.rows(sql, values)]
