"""Lists the files that a job has left or is writing, at its backend or in its folder here, and reads one of them."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from workbench.errors import InputMissing
from workbench.job import short_id
from workbench.services.backends.learner_access import reached
from workbench.services.cancel import call
from workbench.services.transfer.job_copy import copy_from_job
from workbench.values import dataclass

if TYPE_CHECKING:
    from runners.interface import FileEntry
    from workbench.paths import Home, JobFolder

LISTED: Final = ("results", "checkpoints", "logs")
"""The folders that are listed where none is named."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file or a folder of a job."""

    path: str
    """As ``fabric cp`` takes it behind the job: ``results/model.pt``."""
    kind: Literal["file", "folder", "link"]
    size_bytes: int
    modified_us: int
    target: str = ""
    """Where a link leads."""
    is_asked: bool = False
    """Whether it is the very path that was asked for, and not below it."""


@dataclass(frozen=True, slots=True)
class LearnerFiles:
    """The files of a learner."""

    job_id: str
    attempt: int
    learner: int
    files: tuple[ListedFile, ...]


@dataclass(frozen=True, slots=True)
class FileBeginning:
    """The first bytes of a file."""

    data: bytes
    size_bytes: int
    """Of the whole file."""


def list_files(
    job: str,
    path: str = "",
    *,
    learner: int = 1,
    attempt: int | None = None,
    cancel: threading.Event | None = None,
) -> LearnerFiles:
    """Ask a job's backend for the files of a learner, also while it runs.

    Args:
        job: the job, as a person names it.
        path: what is listed, as ``fabric cp`` names it; empty for results, checkpoints and logs.
        learner: its number.
        attempt: the last one, unless another is named.
        cancel: ends the call once it is set.

    Raises:
        InputMissing: the job has no such path.
        BackendUnreachable: the backend does not answer.
        Cancelled: ``cancel`` was set.
    """

    def ask() -> LearnerFiles:
        with reached(job, learner, attempt) as access:
            files = tuple(
                _job_file(asked, entry)
                for asked in ([path] if path else LISTED)
                for entry in access.runner.files(access.ref, asked)
            )
        if path and not files:
            name = short_id(access.row.id)
            raise InputMissing(f"{name} has no {path}", hint=f"fabric files {name}")
        return LearnerFiles(access.row.id, access.ref.attempt, access.ref.learner, files)

    return call(ask, cancel)


def _job_file(asked: str, entry: FileEntry) -> ListedFile:
    path = f"{asked.rstrip('/')}/{entry.path}" if entry.path else asked
    return ListedFile(
        path, entry.kind, entry.size_bytes, entry.modified_us, entry.target, is_asked=not entry.path
    )


def files_here(folder: JobFolder, most: int) -> list[ListedFile]:
    """Return results and checkpoints in a job's folder of this machine; of many in a folder, some."""
    below = (folder.results, folder.checkpoints)
    return [file for each in below for file in _below(folder.path, each, most)]


def _below(root: Path, folder: Path, most: int) -> Iterator[ListedFile]:
    entries = 0
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where) / name
            try:
                state = path.lstat()
            except OSError:  # removed meanwhile
                continue
            yield ListedFile(str(path.relative_to(root)), "file", state.st_size, state.st_mtime_ns // 1000)
            entries += 1
            if entries >= most:
                return


def read_beginning(
    home: Home, job_id: str, path: str, most: int, *, cancel: threading.Event | None = None
) -> FileBeginning:
    """Read the first bytes of a job's file, here or else from the job's backend.

    Args:
        home: where the job is.
        job_id: the job.
        path: the file, as ``fabric cp`` names it.
        most: so many bytes are returned.
        cancel: ends the call once it is set.

    Raises:
        InputMissing: it is not there, or cannot be read.
        FabricError: the backend does not answer.
        Cancelled: ``cancel`` was set.
    """
    here = home.job(job_id).path / path
    if here.is_file():
        return _beginning(here, most)
    return call(partial(_beginning_there, job_id, path, most, cancel), cancel)


def _beginning_there(job_id: str, path: str, most: int, cancel: threading.Event | None) -> FileBeginning:
    with tempfile.TemporaryDirectory() as scratch, reached(job_id, 1) as access:
        file = Path(scratch) / "file"
        copy_from_job(access, path, str(file), cancel=cancel)
        return _beginning(file, most)


def _beginning(file: Path, most: int) -> FileBeginning:
    try:
        with file.open("rb") as stream:
            return FileBeginning(stream.read(most), os.fstat(stream.fileno()).st_size)
    except OSError as error:
        raise InputMissing(f"cannot read {file.name}: {error.strerror}") from error
