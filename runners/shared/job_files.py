"""Lists, fetches and writes a job's files on a host, by paths like ``results/model.pt``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final

from backends.contract.host import Host
from runners.interface import FileEntry, LearnerRef
from runners.shared.host_facts import HostFacts
from workbench.errors import InputMissing, NotAllowed, UsageError
from workbench.values import dataclass

WORKING: Final = "code"
ROOTS: Final = ("results", "checkpoints", "logs", "data", "job", WORKING)
"""The first part of a path; other paths are relative to the working folder."""

_READ_ONLY: Final = ("data",)
"""Roots that other jobs may share, and that cannot be written."""


@dataclass(frozen=True, slots=True)
class JobRoot:
    """A folder of a job on its host."""

    path: str
    within: str = ""
    """The folder, or a parent of it, that a container has mounted: links must not lead out of it. Empty if only the
    host's user writes into it."""


@dataclass(frozen=True, slots=True)
class JobPath:
    """A path within a job's folders."""

    root: str
    """One of :data:`ROOTS`."""
    path: str
    """Relative to the root; empty for the root itself."""


def split(path: str, roots: Mapping[str, str]) -> JobPath | None:
    """Split a path into root and rest; None for an absolute path outside of all roots.

    Args:
        path: a path as for ``Runner.files``.
        roots: each root's absolute path as the learner sees it.
    """
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    if ".." in parts:
        raise UsageError(f"'{path}' has .. in it", hint="name the file by its path in the job")
    if path.startswith("/"):
        whole = PurePosixPath(path)
        # The longest first: some roots are within others.
        for name, folder in sorted(roots.items(), key=lambda item: -len(item[1])):
            if whole.is_relative_to(folder):
                rest = str(whole.relative_to(folder))
                return JobPath(name, "" if rest == "." else rest)
        return None
    if path.startswith("./") or not parts or parts[0] not in ROOTS:
        return JobPath(WORKING, "/".join(parts))
    return JobPath(parts[0], "/".join(parts[1:]))


def folders_of(learner: LearnerRef, site: HostFacts) -> dict[str, JobRoot]:
    """Return the folder of each root of a learner on the host."""
    job = site.home.job(learner.job_id)
    attempt = job.attempt(learner.attempt)
    return {
        "results": JobRoot(str(job.results)),
        "checkpoints": JobRoot(str(job.checkpoints)),
        "logs": JobRoot(str(attempt.logs)),
        "data": JobRoot(str(job.data)),
        "job": JobRoot(str(attempt.job_state)),
        WORKING: JobRoot(str(attempt.model(learner.learner))),
    }


def mounted_folders_of(learner: LearnerRef, site: HostFacts) -> dict[str, JobRoot]:
    """Return the same for a container, which can write into all of them; its logs are within the job's state."""
    folders = folders_of(learner, site)
    state = folders["job"].path
    return {
        root: replace(folder, within=state if root == "logs" else folder.path)
        for root, folder in folders.items()
    }


class JobFiles:
    """The files of a learner on a host."""

    def __init__(self, host: Host, folders: Mapping[str, JobRoot]) -> None:
        self._host = host
        self._folders = folders

    def list_files(self, job_path: JobPath) -> Sequence[FileEntry]:
        """List a path and everything below it; empty if it does not exist."""
        found = self._locate(job_path)
        if not found:
            return ()
        itself = _entry("", found[1:])
        if itself.kind == "file":
            return (itself,)
        tree = self._tree(job_path, found[0])
        return (itself, *(_entry(path, tree[path]) for path in sorted(tree)))

    def fetch(self, job_path: JobPath, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path as one tar stream to ``receive``.

        Raises:
            InputMissing: the path does not exist.
        """
        found = self._locate(job_path)
        if not found:
            raise InputMissing(f"there is no {job_path.root}/{job_path.path}".rstrip("/"))
        path, within = PurePosixPath(found[0]), self._folders[job_path.root].within
        if found[1] == "file":
            self._host.fetch(str(path.parent), [path.name], receive, within=within)
        else:
            self._host.fetch(str(path), sorted(self._tree(job_path, str(path))), receive, within=within)

    def put(self, job_path: JobPath, stream: BinaryIO, mode: int, *, shared: bool = False) -> None:
        """Write a file; if it is ``shared``, any user of a container may change it and reach it.

        Raises:
            NotAllowed: the root cannot be written.
            UsageError: the path is a folder.
        """
        if job_path.root in _READ_ONLY:
            raise NotAllowed(
                f"{job_path.root} cannot be written: other jobs may share it",
                hint="put the file into results, checkpoints or the working folder",
            )
        found = self._locate(job_path)
        if not job_path.path or (found and found[1] != "file"):
            raise UsageError(f"{job_path.root}/{job_path.path} is a folder".replace("/ ", " "))
        # Writing must not follow a link: the parent folder is resolved first.
        parent = self._locate(JobPath(job_path.root, str(PurePosixPath(job_path.path).parent)))
        root = self._folders[job_path.root]
        folder = parent[0] if parent else f"{root.path}/{PurePosixPath(job_path.path).parent}"
        path = f"{folder}/{PurePosixPath(job_path.path).name}"
        self._host.put(stream, path, mode=mode, within=root.within)
        if shared:
            self._host.call("let_others_reach", path=path, within=root.within)

    def _locate(self, job_path: JobPath) -> Sequence[Any]:
        root = self._folders[job_path.root]
        found: Sequence[Any] = self._host.call(
            "locate", folder=root.path, path=job_path.path, within=root.within
        )
        return found

    def _tree(self, job_path: JobPath, folder: str) -> Mapping[str, Sequence[Any]]:
        found: Mapping[str, Sequence[Any]] = self._host.call(
            "list_tree", folder=folder, within=self._folders[job_path.root].within
        )
        return found


def _entry(path: str, fields: Sequence[Any]) -> FileEntry:
    kind, size, modified_ns, mode, target = fields
    return FileEntry(path, kind, size, modified_ns // 1000, mode, target)


def job_path_of(path: str, folders: Mapping[str, JobRoot]) -> JobPath:
    """Split a path into root and rest, for runners that reach only the job's folders.

    Raises:
        UsageError: the path is outside of the job's folders.
    """
    found = split(path, {root: folder.path for root, folder in folders.items()})
    if found is None:
        raise UsageError(
            f"{path} is outside of the job's folders", hint=f"a path begins with {', '.join(ROOTS)}"
        )
    return found
