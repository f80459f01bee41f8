"""Files of a pod's learner: from its containers while they run, afterwards from the downloaded copies."""

from __future__ import annotations

import contextlib
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Protocol

from backends.contract.cluster import Absent, Cluster, Invalid
from runners.interface import AttemptRef, FileEntry, LearnerRef
from runners.pod.container_host import open_host
from runners.pod.names import LEARNER, SIDE_CAR, ref_of, selector
from runners.pod.sh_files import ShellFiles
from runners.pod.status import is_learner_running, is_over, is_side_car_running
from runners.shared.job_files import ROOTS, WORKING, JobFiles, JobPath, JobRoot, split
from workbench.errors import BackendUnreachable, NotAllowed, NotRunning, UsageError
from workbench.learner.pod import config
from workbench.learner.pod.config import NO_PYTHON
from workbench.paths import Home, default_home

MOUNTS: Final = {
    "results": config.RESULTS,
    "checkpoints": config.CHECKPOINTS,
    "logs": config.LOGS,
    "data": config.DATA,
    "job": config.STATE_DIR,
    WORKING: config.MODEL,
}
"""The paths of the job's folders in its pods."""

KEPT: Final = ("results", "checkpoints", "logs")
"""The folders that are downloaded when a pod has ended."""

_OF_LEARNER: Final = ("data",)
"""The folders that the side-car does not mount."""

_ELSEWHERE: Final = "elsewhere"
END_SECONDS: Final = 20.0
"""How long a pod's status may lag behind the end of its container."""

BEGIN_SECONDS: Final = 5.0
"""How long a pod's status may lag behind the beginning of its container: its output comes before that."""

_LOOK_SECONDS: Final = 0.3


class PodFileAccess(Protocol):
    """Access to files by :class:`JobPath`, with or without Python in the container."""

    def list_files(self, job_path: JobPath) -> Sequence[FileEntry]:
        """List a path and everything below it."""

    def fetch(self, job_path: JobPath, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path as one tar stream."""

    def put(self, job_path: JobPath, stream: BinaryIO, mode: int) -> object:
        """Write a file."""


class PodFiles:
    """The files of a learner in a pod."""

    def __init__(self, cluster: Cluster, ref: LearnerRef) -> None:
        self._cluster = cluster
        self._ref = ref

    def list_files(self, path: str) -> Sequence[FileEntry]:
        """List a path and everything below it."""
        with self._reached(path) as (files, job_path):
            return files.list_files(job_path)

    def fetch(self, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path as one tar stream to ``receive``."""
        with self._reached(path) as (files, job_path):
            files.fetch(job_path, receive)

    def put(self, path: str, stream: BinaryIO, mode: int) -> None:
        """Write one file.

        Raises:
            NotRunning: the learner does not run.
        """
        with self._reached(path, writes=True) as (files, job_path):
            files.put(job_path, stream, mode)

    @contextmanager
    def _reached(self, path: str, *, writes: bool = False) -> Iterator[tuple[PodFileAccess, JobPath]]:
        job_path = split(path, MOUNTS)
        folders: Mapping[str, str] = MOUNTS
        if job_path is None:
            parent, name = posixpath.split(posixpath.normpath(path))
            job_path, folders = JobPath(_ELSEWHERE, name), {_ELSEWHERE: parent}
        with contextlib.ExitStack() as stack:
            container = LEARNER if job_path.root in (*_OF_LEARNER, _ELSEWHERE) else SIDE_CAR
            files = self._inside(container, folders, stack)
            if files is None and job_path.root in KEPT and not writes:
                from backends.local.host import LocalHost

                files = JobFiles(LocalHost(), _plain(self._home()))
            if files is None:
                hint = "" if writes else f"Kept paths begin with {', '.join(KEPT)}"
                raise NotRunning(f"{path} cannot be read: the learner's pod is not running.", hint=hint)
            yield files, job_path

    def _inside(
        self, container: str, folders: Mapping[str, str], stack: contextlib.ExitStack
    ) -> PodFileAccess | None:
        """Connect to a container; None if it does not run."""
        runs = is_learner_running if container == LEARNER else is_side_car_running
        began = time.monotonic()
        while (pod := self._pod()) is not None:
            if not runs(pod):
                if is_over(pod) or not is_side_car_running(pod) or time.monotonic() > began + BEGIN_SECONDS:
                    return None
                time.sleep(_LOOK_SECONDS)
                continue
            name = pod["metadata"]["name"]
            try:
                host = open_host(self._cluster, name, container=container)
                stack.callback(host.close)
                host.call("existing", paths=[])  # fails if the container is ending
                return JobFiles(host, _plain(folders))
            except (BackendUnreachable, Absent, Invalid) as error:
                if NO_PYTHON in error.message:
                    return _ShellFiles(ShellFiles(self._cluster, name, container), folders)
                if time.monotonic() > began + END_SECONDS:
                    raise
                time.sleep(_LOOK_SECONDS)
        return None

    def _pod(self) -> Mapping[str, Any] | None:
        attempt = AttemptRef(self._ref.home, self._ref.job_id, self._ref.attempt, 0)
        pods = self._cluster.list("Pod", selector(attempt)).items
        return next((pod for pod in pods if ref_of(pod) == self._ref), None)

    def _home(self) -> dict[str, str]:
        job = Home(default_home()).job(self._ref.job_id)
        logs = job.attempt(self._ref.attempt).logs
        own = logs if self._ref.learner == 1 else logs.with_name(f"logs-{self._ref.learner}")
        return {"results": str(job.results), "checkpoints": str(job.checkpoints), "logs": str(own)}


def _plain(folders: Mapping[str, str]) -> dict[str, JobRoot]:
    return {root: JobRoot(path) for root, path in folders.items()}


class _ShellFiles:
    """Access to files in a container without Python."""

    def __init__(self, files: ShellFiles, folders: Mapping[str, str]) -> None:
        self._files = files
        self._folders = folders

    def list_files(self, job_path: JobPath) -> Sequence[FileEntry]:
        """List a path and everything below it."""
        return self._files.list_files(self._path(job_path))

    def fetch(self, job_path: JobPath, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path as one tar stream."""
        self._files.fetch(self._path(job_path), receive)

    def put(self, job_path: JobPath, stream: BinaryIO, mode: int) -> None:
        """Write a file."""
        if job_path.root == "data":
            raise NotAllowed(
                "data cannot be written: other jobs may share it",
                hint="put the file into results, checkpoints or the working folder",
            )
        if not job_path.path:
            raise UsageError(f"{job_path.root} is a folder", hint=f"a path begins with {', '.join(ROOTS)}")
        self._files.put(self._path(job_path), stream, mode)

    def _path(self, job_path: JobPath) -> str:
        return posixpath.join(self._folders[job_path.root], job_path.path).rstrip("/") or "/"
