"""Downloads a job's files: from this machine, from the store that they are in, or from the backend that it ran on."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import CannotWrite, FabricError, InputMissing, UnknownName, UsageError
from workbench.job import TERMINAL, short_id
from workbench.services.cancel import Cancelled, call, cancellable_stream, check_cancelled
from workbench.services.transfer.events import CopyProgress, Report, SkippedFile, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.controller.runtime.result_store import ResultStore
    from workbench.services.backends.learner_access import LearnerAccess
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow

KINDS: Final = ("code", "logs", "results", "checkpoints")
"""What of a job can be downloaded."""

NOT_RESULTS = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What a store has in the folder of a job's results and is not a result: logs and checkpoints."""

FillFolder = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class DownloadOptions:
    """Which files are downloaded, and whether they may replace others."""

    include: tuple[str, ...] = ()
    """Patterns; empty for all."""
    force: bool = False
    """Whether what is there already is replaced."""
    cancel: threading.Event | None = None
    """Ends the download once it is set."""


@dataclass(frozen=True, slots=True)
class Download:
    """What was downloaded of a job."""

    row: JobRow
    folders: Mapping[str, Path]
    """By kind."""


def download_job(
    job: str, kinds: Sequence[str], target: str, options: DownloadOptions, report: Report = ignore
) -> Download:
    """Download some kinds of a job's files, each into a folder of that name, see :func:`download`.

    Args:
        job: The job, as a person names it.
        kinds: Which of :data:`KINDS`.
        target: Where the folders are made; empty for a new folder named after the job.
        options: Which files.
        report: Takes progress, and files that are left out.

    Raises:
        Cancelled: ``options.cancel`` was set; the folders that are there are whole.
        FabricError: there is no such job or no such files, or something is there already.
    """
    from workbench.services.open_store import store_with

    def work() -> Download:
        with store_with(job) as (store, row):
            folder = Path(target or row.id)
            return Download(
                row, {each: download(store, row, each, folder / each, options, report) for each in kinds}
            )

    return call(work, options.cancel)


def download(
    store: Store, row: JobRow, kind: str, target: Path, options: DownloadOptions, report: Report = ignore
) -> Path:
    """Download one kind of a job's files into a folder, whole or not at all.

    Args:
        store: The store.
        row: The job, also while it runs.
        kind: ``code``, ``logs``, ``results`` or ``checkpoints``.
        target: The folder, which is made.
        options: Which files.
        report: Takes progress, and files that are left out.

    Returns:
        ``target``.

    Raises:
        UnknownName: there is no such kind.
        InputMissing: the job has none.
        CannotWrite: something is there already, or the disk takes no more.
        Cancelled: ``options.cancel`` was set.
        FabricError: they are in a store or at a backend that does not give them.
    """
    from workbench.services.transfer.extract import write_folder

    if kind not in KINDS:
        raise UnknownName(f"unknown kind {kind!r}", hint=f"kinds are {', '.join(KINDS)}")
    if kind == "code":
        return write_folder(target, _code_writer(store, row, options), force=options.force)
    if kind == "logs" and (write := _logs_writer(store, row, options)):
        return write_folder(target, write, force=options.force)
    return _download_files(store, row, kind, target, options, report)


def results_folder(store: Store, row: JobRow) -> Path:
    """Return the folder of this machine that has a job's results as they are last; nothing is copied.

    That of a job whose results stay on this machine is not there before the job has begun.

    Raises:
        InputMissing: they are in a store, in a volume or at another backend, and not here.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.data.stores.model import stores_of
    from workbench.store.queries.jobs import detail

    job, is_local = detail(store, row.id), row.target.type == "local"
    stored = result_store(job.spec, row.id)
    here = _local_folder(store, job, stored, "results")
    volume = next((each for each in stores_of(job.spec) if each.results_container and each.is_volume), None)
    hint = "download() copies them here"
    if volume is not None and not (here and any(here.iterdir())):
        where = f"are in the volume {volume.results_container} at {row.target.backend}"
        hint = "a job with a store of type volume reads them" if is_local else hint
    elif here is not None:
        return here
    elif is_local and stored is None:
        return store.home.job(row.id).results
    elif is_local and stored is not None and stored.store.is_folder:
        return Path(stored.results)
    else:
        where = f"go to {stored.location}" if stored else f"are at {row.target.backend}"
        where += f" at {row.target.backend}" if stored and stored.store.is_folder else ""
    message = f"the results of {short_id(row.id)} are not in a folder of this machine: they {where}"
    raise InputMissing(message, hint=hint)


def _download_files(
    store: Store, row: JobRow, kind: str, target: Path, options: DownloadOptions, report: Report
) -> Path:
    from workbench.controller.runtime.result_store import result_store
    from workbench.services.transfer.extract import write_folder
    from workbench.store.queries.jobs import detail

    job = detail(store, row.id)
    stored = result_store(job.spec, row.id)
    here = _local_folder(store, job, stored, kind)
    if here is not None:
        return write_folder(
            target, lambda into: _copy(here, into, options, _within(stored)), force=options.force
        )
    errors: list[FabricError] = []
    for write, resume_key in _sources(store, row, stored, kind, options, report):
        try:
            return write_folder(target, write, force=options.force, resume_key=resume_key)
        except _NoFiles:
            continue
        except Cancelled:
            raise
        except FabricError as error:
            if target.exists() and not options.force:
                raise
            errors.append(error)
    if errors:
        raise errors[0]
    raise InputMissing(f"{short_id(row.id)} has no {kind} yet")


def _sources(
    store: Store,
    row: JobRow,
    stored: ResultStore | None,
    kind: str,
    options: DownloadOptions,
    report: Report,
) -> list[tuple[FillFolder, str]]:
    """Return what downloads from elsewhere, the best source first, each with the key by which it can be resumed."""
    found: list[tuple[FillFolder, str]] = []
    if stored is not None and not stored.store.is_folder:
        found.append((lambda into: _from_store(store, stored, kind, into, options, report), short_id(row.id)))
    if row.target.type != "local" and kind != "logs":
        found.append((lambda into: _from_backend(row, kind, into, options, report), ""))
    return found


class _NoFiles(Exception):
    """There are no such files at a source."""


def _local_folder(store: Store, job: JobDetail, stored: ResultStore | None, kind: str) -> Path | None:
    """Return the folder of this machine that has the files as they are last; None where it is elsewhere."""
    row, folder = job.row, store.home.job(job.row.id)
    is_local = row.target.type == "local"
    if kind == "logs":
        return None
    if stored is not None and stored.store.is_folder:
        path = Path(stored.results if kind == "results" else stored.checkpoints)
        return path if is_local and path.is_dir() else None
    path = folder.results if kind == "results" else folder.checkpoints
    has_some = path.is_dir() and any(path.iterdir())
    if is_local and (has_some or (stored is None and path.is_dir())):
        return path
    return path if has_some and row.state in TERMINAL else None


def _within(stored: ResultStore | None) -> Path | None:
    """Return the folder of a bound store, which other jobs' containers write in, too."""
    if stored is None or not stored.store.is_folder:
        return None
    return Path(stored.store.results_path())


def _from_store(
    store: Store, stored: ResultStore, kind: str, into: Path, options: DownloadOptions, report: Report
) -> None:
    transfer = stored.transfer(store.home)
    source = stored.checkpoints if kind == "checkpoints" else stored.results
    exclude = NOT_RESULTS if kind == "results" else ()
    include = options.include
    if kind == "logs":
        include = tuple(f"/learner-*/**{each}" for each in options.include or ("",))
    if not transfer.files(source):
        raise _NoFiles
    what = f"{kind} of {short_id(stored.job_id)}"
    transfer.get(
        source,
        into,
        include=include,
        exclude=exclude,
        on_progress=lambda progress: report(CopyProgress(what, progress)),
        check_stop=partial(check_cancelled, options.cancel),
    )
    if not any(into.iterdir()):
        raise _NoFiles


def _from_backend(row: JobRow, kind: str, into: Path, options: DownloadOptions, report: Report) -> None:
    """Copy from where the job is, over the connection that its runner has there."""
    from workbench.services.backends.learner_access import reached
    from workbench.services.transfer.extract import Received, copy_into, receive_folder

    received: list[Received] = []

    def take(found: LearnerAccess, number: int, unpacked: Path) -> None:
        ref = replace(found.ref, learner=number)
        if not found.runner.files(ref, kind):
            return
        unpacked.mkdir(exist_ok=True)
        found.runner.fetch(
            ref,
            kind,
            lambda stream: received.append(
                receive_folder(cancellable_stream(stream, options.cancel), unpacked)
            ),
        )
        check_cancelled(options.cancel)

    with reached(row.id, 1) as found:
        # Of several hosts each has a folder of its own; what the first one has by a name is the job's.
        firsts = _first_learners(row)
        merges = len(firsts) > 1 or bool(options.include)
        for number in reversed(firsts):
            unpacked = into / f".whole-{number}" if merges else into
            take(found, number, unpacked)
            if merges and unpacked.is_dir():
                copy_into(unpacked, into, options.include)
                shutil.rmtree(unpacked)
    if not received:
        raise _NoFiles
    for name in (name for each in received for name in each.left_out):
        report(SkippedFile(name))


def _first_learners(row: JobRow) -> list[int]:
    """Return one learner of each host that a job has, the first host's first."""
    from backends.contract.host import BackendOptions
    from backends.contract.host_group import learners_by_host, member_options

    target = row.target
    hosts = member_options(BackendOptions.of(target))
    return [numbers.start for numbers in learners_by_host(row.learners, len(hosts)) if numbers]


def _copy(source: Path, into: Path, options: DownloadOptions, within: Path | None) -> None:
    """Copy the files of a folder that are asked for, until the download is cancelled."""
    from workbench.services.transfer.extract import copy_into

    copy_into(source, into, options.include, within, partial(check_cancelled, options.cancel))


def _code_writer(store: Store, row: JobRow, options: DownloadOptions) -> FillFolder:
    from workbench.data.code.snapshot import unpack
    from workbench.store.queries.jobs import detail

    code_hash = detail(store, row.id).code_hash
    if not code_hash:
        raise InputMissing(f"{short_id(row.id)} has no code")
    snapshot = store.home.snapshot(code_hash)
    if not snapshot.exists():
        raise InputMissing(f"the code of {short_id(row.id)} no longer exists: {snapshot}")

    def write(into: Path) -> None:
        if not options.include:
            into.rmdir()  # unpack makes it
            unpack(snapshot, into)
            return
        from workbench.services.transfer.extract import copy_into

        unpack(snapshot, into / ".whole")
        copy_into(into / ".whole", into, options.include)
        shutil.rmtree(into / ".whole")

    return write


def _logs_writer(store: Store, row: JobRow, options: DownloadOptions) -> FillFolder | None:
    """Return what writes each learner's output, of every attempt, and LOG_DIR; None where this machine has none."""
    job = store.home.job(row.id)
    if not any(job.attempt(attempt).path.is_dir() for attempt in range(1, row.attempt + 1)):
        return None
    return lambda into: _write_logs(store, row, into, options)


def _write_logs(store: Store, row: JobRow, into: Path, options: DownloadOptions) -> None:
    from runners.registry import capabilities_of
    from workbench.services.transfer.extract import fits, has_some

    can = capabilities_of(row.target.runner)
    # Where learners see other files than this machine's, their links mean nothing here.
    is_apart = can is None or can.uses_image
    for attempt in range(1, row.attempt + 1):
        folder = store.home.job(row.id).attempt(attempt)
        attempt_folder = into / f"attempt-{attempt}" if row.attempt > 1 else into
        attempt_folder.mkdir(parents=True, exist_ok=True)
        for learner in range(1, row.learners + 1):
            check_cancelled(options.cancel)
            output, name = folder.learner(learner).output, f"learner-{learner}.log"
            if output.exists() and (not options.include or fits(name, options.include)):
                shutil.copyfile(output, attempt_folder / name)
        within = folder.job_state if is_apart else None
        if has_some(folder.logs, within):
            (attempt_folder / "log-dir").mkdir(exist_ok=True)
            _copy(folder.logs, attempt_folder / "log-dir", options, within)


def download_zips(
    store: Store,
    row: JobRow,
    parts: Sequence[tuple[str, str]],
    filename: str,
    *,
    force: bool,
    report: Report = ignore,
) -> dict[str, Path]:
    """Write a zip for each part of a job.

    Args:
        store: The store.
        row: The job.
        parts: The kind of files of each part, and FfDL's name for it.
        filename: The zip; empty for a name made of the job's id and the part's.
        force: Whether a file that is there already is replaced.
        report: Takes progress.

    Returns:
        The zip of each part, by FfDL's name.

    Raises:
        UsageError: one name is given for two files.
        CannotWrite: a file is there already, or cannot be written.
    """
    if filename and len(parts) > 1:
        raise UsageError("--filename is one file; ask for one of them at a time")
    written: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="fabric-zip-") as scratch:
        for kind, part in parts:
            target = Path(filename or f"{row.id}-{part}.zip")
            if target.exists() and not force:
                raise CannotWrite(f"{target} already exists", hint="--force replaces it")
            folder = download(store, row, kind, Path(scratch) / kind, DownloadOptions(), report)
            written[part] = _zipped(folder, target)
    return written


def _zipped(folder: Path, target: Path) -> Path:
    """Make the zip in a folder next to the target first, so that it is whole or not there."""
    try:
        with tempfile.TemporaryDirectory(prefix=".fabric-", dir=target.absolute().parent) as scratch:
            made = shutil.make_archive(str(Path(scratch) / "files"), "zip", root_dir=folder)
            Path(made).replace(target)
    except OSError as error:
        raise CannotWrite(f"{target} cannot be written: {error.strerror}") from error
    return target
