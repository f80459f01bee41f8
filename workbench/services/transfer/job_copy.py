"""Copies files between a job and this machine, in either direction."""

from __future__ import annotations

import os
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final

from workbench.errors import CannotWrite, InputMissing, UsageError
from workbench.job import short_id
from workbench.services.cancel import call, cancellable_stream, check_cancelled
from workbench.services.transfer.events import Report, SkippedFile, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.services.backends.learner_access import LearnerAccess

EXECUTABLE: Final = 0o111


@dataclass(frozen=True, slots=True)
class CopyPath:
    """A path of a job."""

    job: str
    path: str


@dataclass(frozen=True, slots=True)
class WhichLearner:
    """A learner of a job, as a person names both."""

    job: str
    learner: int = 1
    attempt: int | None = None
    """None for the last one."""


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """What was copied."""

    job_id: str
    target: str
    """Where it is now: a path here, or ``JOB:PATH``."""
    files: int
    size_bytes: int


def read_copy_path(text: str) -> CopyPath | None:
    """Read ``JOB:PATH``; None for a path here. One that has a colon begins with ``./`` or ``/``."""
    job, colon, path = text.partition(":")
    if not colon or "/" in job or not job or job == ".":
        return None
    return CopyPath(job, path)


def copy_here(
    which: WhichLearner,
    path: str,
    target: str,
    *,
    force: bool = False,
    report: Report = ignore,
    cancel: threading.Event | None = None,
) -> CopiedFiles:
    """Copy a file or a folder of a job to this machine, see :func:`copy_from_job`.

    Raises:
        Cancelled: ``cancel`` was set; a file or folder is whole or not there.
        FabricError: the job or the file is not there, or the backend does not answer.
    """
    from workbench.services.backends.learner_access import reached

    def copy() -> CopiedFiles:
        with reached(which.job, which.learner, which.attempt) as access:
            return copy_from_job(access, path, target, force=force, report=report, cancel=cancel)

    return call(copy, cancel)


def copy_there(
    which: WhichLearner,
    source: Path,
    path: str,
    *,
    force: bool = False,
    cancel: threading.Event | None = None,
) -> CopiedFiles:
    """Copy a file or a folder from this machine into a job, see :func:`copy_to_job`.

    Raises:
        Cancelled: ``cancel`` was set; of a folder some files may be there.
        FabricError: the job or the source is not there, or the backend does not answer.
    """
    from workbench.services.backends.learner_access import reached

    def copy() -> CopiedFiles:
        with reached(which.job, which.learner, which.attempt, steers=True) as access:
            return copy_to_job(access, source, path, force=force, cancel=cancel)

    return call(copy, cancel)


def print_file(which: WhichLearner, path: str, stream: BinaryIO) -> None:
    """Write a file of a job to a stream.

    Raises:
        InputMissing: there is no such file.
        UsageError: it is a folder.
    """
    from workbench.services.backends.learner_access import reached
    from workbench.services.transfer.extract import receive_file

    def receive(archive: BinaryIO) -> None:
        receive_file(archive, stream)

    with reached(which.job, which.learner, which.attempt) as access:
        if not _is_single_file(access, path):
            raise UsageError(f"{path} is a folder; - prints one file")
        access.runner.fetch(access.ref, path, receive)
        stream.flush()


def copy_from_job(
    access: LearnerAccess,
    path: str,
    target: str,
    *,
    force: bool = False,
    report: Report = ignore,
    cancel: threading.Event | None = None,
) -> CopiedFiles:
    """Copy a file or a folder of a job to this machine.

    Args:
        access: the learner.
        path: what is copied, as ``fabric cp`` names it.
        target: where it goes; into it if it is a folder, or ends with a slash.
        force: whether what is there is replaced.
        report: takes what is left out.
        cancel: ends the copy once it is set.

    Raises:
        InputMissing: there is no such file.
        CannotWrite: something is there already, or the disk takes no more.
        Cancelled: ``cancel`` was set.
    """
    is_single = _is_single_file(access, path)
    to = Path(target)
    if to.is_dir() or target.endswith("/"):
        to /= PurePosixPath(path).name or "code"
    if is_single:
        return _write_file(access, path, to, force, cancel)
    return _write_folder(access, path, to, force, report, cancel)


def copy_to_job(
    access: LearnerAccess,
    source: Path,
    path: str,
    *,
    force: bool = False,
    cancel: threading.Event | None = None,
) -> CopiedFiles:
    """Copy a file or a folder from this machine into a job.

    Args:
        access: the learner.
        source: what is copied.
        path: where it goes; into it if it is a folder, ends with a slash or is empty.
        force: whether what is there is replaced.
        cancel: ends the copy once it is set.

    Raises:
        InputMissing: the source does not exist, or cannot be read.
        CannotWrite: something is there already.
        Cancelled: ``cancel`` was set.
    """
    if not source.exists():
        raise InputMissing(f"{source} does not exist")
    to = path
    existing = access.runner.files(access.ref, path) if path else ()
    if not path or path.endswith("/") or (existing and existing[0].kind == "folder"):
        to = f"{path.rstrip('/')}/{source.resolve().name}" if path else source.resolve().name
        existing = access.runner.files(access.ref, to)
    if existing and not force:
        raise CannotWrite(f"{to} already exists", hint="--force replaces it")
    files = [source] if source.is_file() else sorted(each for each in source.rglob("*") if each.is_file())
    size_bytes = 0
    for file in files:
        name = to if source.is_file() else f"{to}/{file.relative_to(source).as_posix()}"
        size_bytes += _put_file(access, file, name, cancel)
    return CopiedFiles(access.row.id, f"{short_id(access.row.id)}:{to}", len(files), size_bytes)


def _is_single_file(access: LearnerAccess, path: str) -> bool:
    entries = access.runner.files(access.ref, path)
    if not entries:
        name = short_id(access.row.id)
        raise InputMissing(f"{name} has no {path or 'such file'}", hint=f"fabric files {name}")
    return len(entries) == 1 and entries[0].kind == "file"


def _write_file(
    access: LearnerAccess, path: str, to: Path, force: bool, cancel: threading.Event | None
) -> CopiedFiles:
    """Write a file under another name, and rename it when it is whole."""
    from workbench.services.transfer.extract import receive_file

    def receive(stream: BinaryIO) -> None:
        sizes.append(receive_file(cancellable_stream(stream, cancel), file).size_bytes)

    if os.path.lexists(to) and (to.is_dir() or not force):
        hint = "--force replaces it" if not to.is_dir() else ""
        raise CannotWrite(f"{to} already exists", hint=hint)
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    sizes: list[int] = []
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            access.runner.fetch(access.ref, path, receive)
        check_cancelled(cancel)
        temporary.rename(to)
    except OSError as error:
        raise CannotWrite(f"cannot write {to}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return CopiedFiles(access.row.id, str(to), 1, sum(sizes))


def _write_folder(
    access: LearnerAccess,
    path: str,
    to: Path,
    force: bool,
    report: Report,
    cancel: threading.Event | None,
) -> CopiedFiles:
    from workbench.services.transfer.extract import Received, receive_folder, write_folder

    received: list[Received] = []

    def fill(folder: Path) -> None:
        access.runner.fetch(
            access.ref,
            path,
            lambda stream: received.append(receive_folder(cancellable_stream(stream, cancel), folder)),
        )
        check_cancelled(cancel)

    write_folder(to, fill, force=force)
    for name in (name for each in received for name in each.left_out):
        report(SkippedFile(name))
    return CopiedFiles(
        access.row.id,
        str(to),
        sum(each.files for each in received),
        sum(each.size_bytes for each in received),
    )


def _put_file(access: LearnerAccess, file: Path, name: str, cancel: threading.Event | None) -> int:
    """Write one file into the job; return its size."""
    check_cancelled(cancel)
    try:
        with file.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            mode = 0o755 if facts.st_mode & EXECUTABLE else 0o644
            access.runner.put(access.ref, name, cancellable_stream(stream, cancel), mode=mode)
    except OSError as error:
        raise InputMissing(f"{file} cannot be read: {error.strerror or error}") from error
    return facts.st_size
