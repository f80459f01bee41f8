"""The checkpoint of another job that a job begins with: which one, and where the new job can get at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.job import short_id

if TYPE_CHECKING:
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, TargetRef

INSIDE = "/mnt/checkpoints"
"""Where a container has them."""


def initial_checkpoint(
    store: Store, row: JobRow, step: int | None, spec: JobSpec, target: TargetRef
) -> dict[str, Any]:
    """Return what a new job records, so that its agent copies a checkpoint into ``CHECKPOINT_DIR``.

    Args:
        store: where the job is that has the checkpoint.
        row: that job.
        step: of the checkpoint; None takes the last one.
        spec: the new job.
        target: where the new job runs.

    Raises:
        UsageError: there is no such checkpoint, or the new job cannot reach it.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.store.queries.jobs import detail

    whole = detail(store, row.id)
    checkpoint = _checkpoint(store, row, step)
    record: dict[str, Any] = {"job": row.id, "step": step, "name": checkpoint}
    theirs, ours = result_store(whole.spec, row.id), result_store(spec, row.id)
    if theirs is not None and ours is not None and _same(theirs.store, ours.store):
        path = f"{theirs.checkpoints}/{checkpoint}" if checkpoint else theirs.checkpoints
        if not theirs.store.is_folder:
            return {**record, "path": path}
        return {**record, "local": path}
    here = store.home.job(row.id).checkpoints / checkpoint
    if not here.exists() and checkpoint:
        here = store.home.job(row.id).results / checkpoint
    if target.type == "local" and here.exists():
        return {**record, "local": str(here)}
    raise UsageError(
        f"the checkpoint of {short_id(row.id)} is not where the new job can get at it",
        hint="give both jobs the same result store, or run it on this machine once the checkpoint is here",
    )


def _checkpoint(store: Store, row: JobRow, step: int | None) -> str:
    """Return a checkpoint's name in the job's folder of them; empty for all of it, where none was reported."""
    from workbench.metrics import checkpoints

    rows = checkpoints(store, row.id)
    matching = [each for each in rows if step is None or each.step == step]
    if matching:
        return name_of_checkpoint(matching[-1].path, row.id)
    if rows:
        steps = ", ".join(str(each.step) for each in rows if each.step is not None)
        raise UsageError(
            f"{short_id(row.id)} has no checkpoint of step {step}", hint=f"it has those of {steps}"
        )
    folder = store.home.job(row.id).checkpoints
    if step is None and folder.is_dir() and any(folder.iterdir()):
        return ""
    raise UsageError(f"{short_id(row.id)} has no checkpoint", hint=f"fabric show {short_id(row.id)}")


def name_of_checkpoint(path: str, job_id: str) -> str:
    """Return what a checkpoint is called below its job's folder of them, by the path that training code reported."""
    marks = (
        f"/{job_id}/checkpoints/",
        f"/{job_id}/_checkpoints/",
        "/_wml_checkpoints/",
        f"{INSIDE}/",
        f"/{job_id}/results/",
    )
    for mark in marks:
        if mark in path and ".." not in path.split("/"):
            return path.rpartition(mark)[2]
    return path.rpartition("/")[2]


def _same(one: Any, other: Any) -> bool:
    """Say whether two stores are one: same kind, address and folder."""
    return (one.type, one.address, one.results_path()) == (other.type, other.address, other.results_path())
