"""Writes a prepared job into the store, wakes the controller, and says what was submitted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from workbench.errors import FabricError
from workbench.formats import count, size
from workbench.job import nine
from workbench.terminal.console import narrate
from workbench.terminal.errors import warn

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.services.submit.prepare import Prepared
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ORIGIN = "cli"


class ControllerStart:
    """Starts the controller while a job is being prepared, since one takes as long as the other.

    A failure is told by whoever needs the controller next.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._thread = threading.Thread(target=self._start, name="controller start", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(timeout=5)

    def _start(self) -> None:
        from workbench.controller.runtime.client import ensure_controller

        try:
            ensure_controller(self._home)
        except (FabricError, OSError):
            return


def submit(
    store: Store,
    prepared: Prepared,
    *,
    keep_manifest: bool,
    quiet: bool,
    parent: str | None = None,
    origin: str = ORIGIN,
) -> JobRow:
    """Submit a job, wake the controller, and say on stderr what it is.

    Args:
        store: The store.
        prepared: The job.
        keep_manifest: Whether the manifest is ours, so that it is written to a file and the user told where.
        quiet: Say nothing but warnings.
        parent: The job that this one belongs to.
        origin: Where it was asked: ``cli``, ``python``.
    """
    from workbench.controller.runtime import client

    for text in prepared.warnings:
        warn(text)
    submission = client.Submission(
        spec=prepared.loaded.spec,
        manifest_text=prepared.loaded.text,
        origins=prepared.loaded.origins,
        place=prepared.place,
        code_hash=prepared.snapshot.code_hash if prepared.snapshot else "",
        recorded=prepared.recorded,
        secrets=prepared.secrets,
        diff=prepared.diff,
        parent=parent,
        job_id=prepared.job_id,
    )
    row = client.submit(store, submission, origin=origin)
    client.ensure_controller(store.home)
    manifest = store.home.job(row.id).manifest if keep_manifest else None
    if manifest is not None:
        manifest.write_text(prepared.loaded.text, encoding="utf-8")
    if not quiet:
        _tell(prepared, row, manifest)
    return row


def _tell(prepared: Prepared, row: JobRow, manifest: Path | None) -> None:
    spec = prepared.loaded.spec
    what = count(spec.learners, "learner") + (f" with {count(spec.gpus, 'GPU')}" if spec.gpus else "")
    narrate(f"{nine(row.id)} {row.name}: {what} as {row.place.runner} at {row.place.backend}")
    if prepared.snapshot:
        snapshot = prepared.snapshot
        known = ", unchanged" if snapshot.cached else ""
        narrate(f"code: {count(snapshot.files, 'file')}, {size(snapshot.size_bytes)}{known}")
    if manifest is not None:
        narrate(f"manifest: {manifest}")
    for text in prepared.notes:
        narrate(f"note: {text}")


def tell_detached(row: JobRow, *, json: bool, quiet: bool) -> int:
    """Print a job's id, or its document, and how to come back to it."""
    if json:
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

        print_document(job_document(row))
        return 0
    print(row.id)
    if not quiet:
        narrate(f"it runs on by itself; `fabric attach {nine(row.id)}` follows it")
    return 0
