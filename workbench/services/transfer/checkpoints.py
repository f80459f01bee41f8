"""A job's checkpoints for people: which it reported, those of some steps, and their document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.controller.runtime import job_checkpoints
from workbench.controller.runtime.job_checkpoints import Checkpoint as Checkpoint
from workbench.controller.runtime.job_checkpoints import remove_checkpoints as remove_checkpoints
from workbench.errors import UnknownName
from workbench.formats import iso
from workbench.job import short_id
from workbench.services.transfer.events import Report, TransferNotice, ignore

if TYPE_CHECKING:
    from workbench.documents.files import CheckpointDocument
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


def list_checkpoints(store: Store, row: JobRow, report: Report = ignore) -> list[Checkpoint]:
    """Return a job's checkpoints in the order of their time; one that was reported twice counts once.

    ``report`` takes a notice where the job's store does not say which of them it has.
    """
    return job_checkpoints.list_checkpoints(store, row, lambda text: report(TransferNotice(text)))


def checkpoints_of_steps(found: Sequence[Checkpoint], steps: Sequence[int], row: JobRow) -> list[Checkpoint]:
    """Return the checkpoints of some steps.

    Raises:
        UnknownName: there is none of one of them; the hint names those there are.
    """
    known = sorted({each.step for each in found if each.step is not None})
    for step in steps:
        if step not in known:
            known_steps = ", ".join(map(str, known[-20:])) or "none"
            raise UnknownName(
                f"{short_id(row.id)} has no checkpoint of step {step}", hint=f"there are {known_steps}"
            )
    return [each for each in found if each.step in steps]


def checkpoint_document(each: Checkpoint) -> CheckpointDocument:
    """Return a checkpoint as ``--json`` gives it."""
    return {
        "schema": "fabric.checkpoint/1",
        "name": each.name,
        "step": each.step,
        "attempt": each.attempt,
        "time": iso(each.time_us),
        "size_bytes": each.size_bytes,
        "sha256": each.sha256,
        "metrics": dict(each.metrics),
        "where": list(each.where),
    }
