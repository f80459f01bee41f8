"""Starts in the background what a client asks for: a job, a sweep or chain, a search, a schedule, a job once more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.config import profile
from workbench.errors import UsageError
from workbench.services.cancel import check_cancelled
from workbench.services.open_store import open_store, store_with
from workbench.services.submit.batch import read_batch
from workbench.services.submit.submit import ControllerStart, submission_lines, submit
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.code.scan import Progress
    from workbench.services.submit.options import RunRequest
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.database import Store


@dataclass(frozen=True, slots=True)
class StartReport:
    """Who is told what a start does."""

    say: Callable[[str], object] = lambda _: None
    """Gets warnings, notes and what was started, a sentence each."""
    progress: Progress = lambda *_: None
    """Gets how far the code is taken."""
    cancel: threading.Event | None = None
    """Ends the call once it is set; nothing is started then, unless something was already."""


def start_run(request: RunRequest, *, origin: str, report: StartReport) -> list[str]:
    """Start what a command line of ``fabric run`` asks for; return the ids of its jobs, search or schedule.

    Args:
        request: the command line.
        origin: which client asks: ``cli``, ``python``, ``tui``.
        report: who is told.

    Raises:
        UsageError: something is asked for that only who waits for the end can do.
        Cancelled: ``report.cancel`` was set.
        FabricError: it cannot be started like that; nothing is left of it.
    """
    from workbench.services.submit.schedules import create_schedule

    if request.needs_waiting:
        names = ", ".join(request.needs_waiting)
        raise UsageError(f"{names}: the job starts in the background, where nobody waits for its end")
    with profile(request.profile), open_store(steers=True) as store:
        if request.every:
            return [create_schedule(store, request.options, request.every).id]
        return _start(store, request, origin, report)


def _start(store: Store, request: RunRequest, origin: str, report: StartReport) -> list[str]:
    from workbench.data.code.snapshot import SnapshotOptions
    from workbench.services.submit.experiments import start_experiment
    from workbench.services.submit.preview import refuse_loss

    batch = read_batch(request.options)
    code_options = SnapshotOptions(progress=report.progress)
    with ControllerStart(store.home):
        submissions = batch.prepare(store.home, launch=True, code_options=code_options, cancel=report.cancel)
        check_cancelled(report.cancel)
        if batch.is_single and submissions[0].loaded.spec.search is not None:
            _say_remarks(submissions[0], report)
            return [start_experiment(store, submissions[0]).id]
        if batch.is_single and not request.accept_loss:
            refuse_loss(submissions[0], store.home)
        return [
            _submit(store, submission, origin, report, keep_manifest=not options.manifest)
            for options, submission in zip(batch.options, submissions, strict=True)
        ]


def start_again(job: str, *, origin: str, argv: tuple[str, ...], report: StartReport) -> str:
    """Run a job again with exactly its code, settings and Python; return the new job's id.

    Args:
        job: the earlier job, as a person names it.
        origin: which client asks.
        argv: the client's command line, for the job's records.
        report: who is told; differences that cannot be avoided are said, too.

    Raises:
        InputMissing: its code, its interpreter, a credential, or the checkpoint that it began with, no longer exists.
    """
    from workbench.job import short_id
    from workbench.services.inspect.job_overview import runs_with_submitted_python
    from workbench.services.submit.rerun import differences, prepare_rerun
    from workbench.store.queries.jobs import detail

    with store_with(job, steers=True) as (store, row), ControllerStart(store.home):
        whole = detail(store, row.id)
        submission = prepare_rerun(store, whole, name="", argv=argv)
        uses_packages = runs_with_submitted_python(whole.row)
        for text in differences(whole.recorded, submission.recorded, uses_packages=uses_packages):
            report.say(f"differs from {short_id(row.id)}: {text}")
        check_cancelled(report.cancel)
        return _submit(store, submission, origin, report)


def _submit(
    store: Store,
    submission: JobSubmission,
    origin: str,
    report: StartReport,
    *,
    keep_manifest: bool = False,
) -> str:
    _say_remarks(submission, report)
    row = submit(store, submission, origin=origin, keep_manifest=keep_manifest)
    for line in submission_lines(submission, row):
        report.say(line)
    return row.id


def _say_remarks(submission: JobSubmission, report: StartReport) -> None:
    for text in (*submission.warnings, *submission.notes):
        report.say(text)
