"""Writes a prepared job into the store and wakes the controller."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from workbench.errors import FabricError, UsageError

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


class ControllerStart:
    """Starts the controller in a thread while a job is being prepared: either takes as long as the other.

    A failure is not reported here: :func:`submit` needs the controller too, and raises it. Only a home that is a copy
    is refused at once.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._thread = threading.Thread(target=self._start, name="controller start", daemon=True)

    def __enter__(self) -> Self:
        from workbench.store.db.home_folder import require_home

        require_home(self._home)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(timeout=5)

    def _start(self) -> None:
        from workbench.controller.client.connect import ensure_controller

        try:
            ensure_controller(self._home)
        except (FabricError, OSError):
            return


def submit(
    store: Store,
    submission: JobSubmission,
    *,
    origin: str,
    keep_manifest: bool = False,
    parent: str | None = None,
) -> JobRow:
    """Write a job into the store and wake the controller, which starts it; return the job's row.

    Args:
        store: the store.
        submission: the job.
        origin: which client asks: ``cli``, ``python``, ``tui``.
        keep_manifest: whether the generated manifest is also written to a file in the job's folder.
        parent: the id of the job that this one belongs to.

    Raises:
        CannotWrite: the home takes no more; nothing is left of the job.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.client.submission import Submission
    from workbench.controller.client.submission import submit as write_job

    if submission.loaded.spec.search is not None:
        raise UsageError(
            "this manifest is a search, which `fabric run MANIFEST` alone starts",
            hint="one job of it: --set search=null --set params.NAME=VALUE",
        )
    row = write_job(
        store,
        Submission(
            spec=submission.loaded.spec,
            manifest_text=submission.loaded.text,
            origins=submission.loaded.origins,
            target=submission.target,
            code_hash=submission.code.code_hash if submission.code else "",
            recorded=submission.recorded,
            secrets=submission.secrets,
            diff=submission.diff,
            parent=parent,
            job_id=submission.job_id,
        ),
        origin=origin,
    )
    ensure_controller(store.home)
    if keep_manifest:
        from workbench.paths import write_private

        try:
            write_private(store.home.job(row.id).manifest, submission.loaded.text)
        except OSError as error:  # the job has it anyway, and runs
            store.note(f"the manifest of this command line is not written to a file: {error.strerror}")
    return row


def submission_lines(submission: JobSubmission, row: JobRow) -> list[str]:
    """Return what a person reads of a job that was just submitted: what runs where, and its code."""
    from workbench.formats import count, size
    from workbench.job import short_id

    spec = submission.loaded.spec
    what = count(spec.learners, "learner") + (f" with {count(spec.gpus, 'GPU')}" if spec.gpus else "")
    lines = [f"{short_id(row.id)} {row.name}: {what} on {row.target.backend}, as {row.target.runner}"]
    if code := submission.code:
        unchanged = ", unchanged" if code.cached else ""
        lines.append(f"code: {count(code.files, 'file')}, {size(code.size_bytes)}{unchanged}")
    return lines
