"""The checkpoint of another job that a job begins with: which one, and where the new job can get at it."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import AmbiguousName, InputMissing, UnknownName, UsageError
from workbench.job import short_id

if TYPE_CHECKING:
    from workbench.metrics import CheckpointRow
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, TargetRef

INSIDE = "/mnt/checkpoints"
"""Where a container has them."""


_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What checkpoints of Determined's Core API are called."""
_JOBS_MAX: Final = 20
"""So many jobs of one trial are looked at for a checkpoint that is left."""


def is_uuid(text: str) -> bool:
    """Return whether a checkpoint may be called so."""
    return _UUID.fullmatch(text) is not None


def checkpoint_text(name: str, job_id: str) -> str:
    """Return how a message calls the checkpoint that a job begins with; without a name it is all that a job has."""
    return f"{f'the checkpoint {name}' if name else 'the checkpoints'} of {short_id(job_id)}"


def job_that_saved(store: Store, uuid: str) -> JobRow:
    """Return the job that saved the checkpoint with a UUID.

    Raises:
        UnknownName: there is none.
        AmbiguousName: several jobs have it.
    """
    from workbench.store.queries.jobs import job

    sql = "SELECT DISTINCT job_id FROM checkpoints WHERE substr(path, -37) = '/' || ?"
    found = [row for (job_id,) in store.rows(sql, (uuid,)) if (row := job(store, job_id)) is not None]
    rows = [row for row in found if row.deleted_us is None]
    if len(rows) > 1:
        ids = ", ".join(short_id(row.id) for row in rows)
        raise AmbiguousName(
            f"{uuid} is a checkpoint of several jobs: {ids}", hint="name the job, and --step N"
        )
    if rows:
        return rows[0]
    raise UnknownName(
        f"no job has a checkpoint {uuid}", hint="`fabric checkpoint list JOB` has the names of a job's"
    )


def job_of_trial(store: Store, experiment: str, trial: str) -> JobRow | None:
    """Return the newest job whose code gave these external ids and that has a checkpoint left; None without one."""
    from workbench.learner.determined_jobs import EXTERNAL_IDS, noted_as
    from workbench.learner.texts import clean
    from workbench.store.queries.jobs import jobs_of_trial

    notes = [
        clean(noted_as(name) + text) for name, text in zip(EXTERNAL_IDS, (experiment, trial), strict=True)
    ]
    for row in jobs_of_trial(store, *notes, limit=_JOBS_MAX):
        with contextlib.suppress(UsageError, InputMissing):
            _checkpoint(store, row, None, "")
            return row
    return None


def initial_checkpoint(
    store: Store, row: JobRow, step: int | None, spec: JobSpec, target: TargetRef, *, name: str = ""
) -> dict[str, Any]:
    """Return what a new job records, so that its agent copies a checkpoint into ``CHECKPOINT_DIR``.

    Args:
        store: where the job is that has the checkpoint.
        row: that job.
        step: of the checkpoint; None takes the newest that is there.
        spec: the new job.
        target: where the new job runs.
        name: what the checkpoint is called below its job's folder of them, where that is known.

    Raises:
        UsageError: there is no such checkpoint, or the new job cannot reach it.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.store.queries.jobs import detail

    whole = detail(store, row.id)
    checkpoint = _checkpoint(store, row, step, name)
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


def _checkpoint(store: Store, row: JobRow, step: int | None, wanted: str) -> str:
    """Return the name of the newest checkpoint that is there; empty for all of them, where none was reported."""
    from workbench.controller.runtime.job_checkpoints import is_gone, name_of
    from workbench.metrics import checkpoints

    def name(path: str) -> str:
        return name_of_checkpoint(path, row.id)

    def is_left(each: CheckpointRow) -> bool:
        names = (name(each.path), name_of(each.path, row.id))
        return not is_gone(store, row, names, each.time_us)

    rows = checkpoints(store, row.id)
    matching = [
        each for each in rows if (step is None or each.step == step) and wanted in ("", name(each.path))
    ]
    newest = next(filter(is_left, reversed(matching)), None)
    if newest is not None:
        return name(newest.path)
    if rows:
        left = dict.fromkeys(str(each.step) for each in rows if each.step is not None and is_left(each))
        one = f"checkpoint {wanted}" if wanted else f"checkpoint of step {step}"
        what = f"the {one}" if wanted or step is not None else "every checkpoint"
        raise UsageError(
            f"{what} of {short_id(row.id)} is gone" if matching else f"{short_id(row.id)} has no {one}",
            hint=f"it has those of {', '.join(left)}"
            if left
            else f"fabric checkpoint list {short_id(row.id)}",
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
