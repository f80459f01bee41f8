"""Files of a container's learner: the job's folders on the host, other paths by the engine while it runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, Final
from urllib.parse import quote

from runners.container.engine import Engine
from runners.container.environment import PROMISED
from runners.interface import FileEntry
from runners.shared.job_files import ROOTS, WORKING, JobFiles, JobPath, split
from workbench.errors import FabricError, InputMissing, NotAllowed, RunnerError
from workbench.learner.guard.container_creation import NOT_FOUND

MOUNTS: Final = {
    "results": PROMISED["RESULT_DIR"],
    "checkpoints": PROMISED["CHECKPOINT_DIR"],
    "logs": PROMISED["LOG_DIR"],
    "data": PROMISED["DATA_DIR"],
    "job": PROMISED["JOB_STATE_DIR"],
    WORKING: PROMISED["MODEL_DIR"],
}
"""The paths of the job's folders in the container."""

_CHUNK_BYTES: Final = 1 << 18
_OK: Final = 200


class ContainerFiles:
    """The files of a learner in a container."""

    def __init__(self, files: JobFiles, engine: Callable[[], Engine], name: str) -> None:
        self._files = files
        self._engine = engine
        self._name = name

    def list_files(self, path: str) -> Sequence[FileEntry]:
        """List a path and everything below it."""
        job_path = split(path, MOUNTS)
        if job_path is not None:
            return self._files.list_files(job_path)
        found: list[FileEntry] = []
        with contextlib.suppress(InputMissing):
            self._by_engine(path, lambda stream: found.extend(_entries(stream)))
        return found

    def fetch(self, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path as one tar stream to ``receive``."""
        job_path = split(path, MOUNTS)
        if job_path is None:
            self._by_engine(path, receive)
            return
        try:
            self._files.fetch(job_path, receive)
        except NotAllowed:
            # The file belongs to the container's user while it runs; the engine can read it.
            self._by_engine(_path_inside(job_path), receive)

    def put(self, path: str, stream: BinaryIO, mode: int) -> None:
        """Write a file; the container's user may change it, too."""
        job_path = split(path, MOUNTS)
        if job_path is None:
            self._put_by_engine(path, stream, mode)
            return
        try:
            self._files.put(job_path, stream, mode | 0o666, shared=True)
        except NotAllowed:
            if job_path.root == "data":
                raise
            stream.seek(0)
            self._put_by_engine(_path_inside(job_path), stream, mode | 0o666)

    def _by_engine(self, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Read a path of a running container through the engine.

        Raises:
            InputMissing: the path does not exist.
            RunnerError: the container does not run.
        """
        with tempfile.TemporaryFile() as spooled:
            with self._request("GET", path, b"", 0) as stream:
                _strip(stream, spooled)
            spooled.seek(0)
            receive(spooled)

    def _put_by_engine(self, path: str, stream: BinaryIO, mode: int) -> None:
        whole = PurePosixPath(path)
        with tempfile.TemporaryFile() as spooled, tempfile.TemporaryFile() as content:
            shutil.copyfileobj(stream, content)
            with tarfile.open(fileobj=spooled, mode="w") as tar:
                entry = tarfile.TarInfo(whole.name)
                entry.size, entry.mode = content.tell(), mode
                content.seek(0)
                tar.addfile(entry, content)
            size = spooled.tell()
            spooled.seek(0)
            with self._request("PUT", str(whole.parent), spooled, size):
                pass

    @contextmanager
    def _request(self, method: str, path: str, body: BinaryIO | bytes, size: int) -> Iterator[BinaryIO]:
        if not self._runs():
            raise _container_ended(path)
        engine = self._engine()
        target = f"/v{engine.version}/containers/{self._name}/archive?path={quote(path)}"
        head = (
            f"{method} {target} HTTP/1.0\r\nHost: engine\r\n"
            f"Content-Type: application/x-tar\r\nContent-Length: {size}\r\n\r\n"
        )
        try:
            with engine.host.connect(engine.path) as connection:
                connection.sendall(head.encode())
                if not isinstance(body, bytes):
                    while data := body.read(_CHUNK_BYTES):
                        connection.sendall(data)
                with connection.makefile("rb") as answer:
                    status, message = _head(answer)
                    if status != _OK:
                        raise self._refusal(path, status, message)
                    yield answer
        except (tarfile.TarError, ConnectionError) as error:
            raise self._refusal(path, 0, "it broke off") from error

    def _refusal(self, path: str, status: int, message: str) -> FabricError:
        # While a container is being removed, the engine answers that the file does not exist.
        if not self._runs():
            return _container_ended(path)
        if status == NOT_FOUND:
            return InputMissing(f"there is no {path} in the container")
        return RunnerError(f"The container engine does not copy {path}: {message}")

    def _runs(self) -> bool:
        """Return whether the container runs; an ended one may exist for a moment."""
        container = self._engine().inspect(self._name)
        return container is not None and bool(container["State"].get("Running"))


def _path_inside(job_path: JobPath) -> str:
    return f"{MOUNTS[job_path.root]}/{job_path.path}".rstrip("/")


def _container_ended(path: str) -> RunnerError:
    return RunnerError(
        f"{path} was removed with the container: the job is not running.",
        hint=f"Kept paths begin with {', '.join(ROOTS)}",
    )


def _head(answer: BinaryIO) -> tuple[int, str]:
    """Read the head of a response; return its status and, for an error status, the engine's message."""
    parts = answer.readline().split(None, 2)
    while answer.readline().strip():
        pass
    status = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    if status == _OK:
        return status, ""
    body = answer.read()
    try:
        return status, str(json.loads(body).get("message") or "")
    except (ValueError, AttributeError):
        return status, body.decode("utf-8", "replace").strip()


def _strip(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a tar stream; the first part of each name, the requested folder, is removed."""
    with (
        tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK_BYTES) as tar,
        tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as stripped,
    ):
        for number, member in enumerate(tar):
            first, _, rest = member.name.strip("/").partition("/")
            member.name = "." if number == 0 and member.isdir() else rest or first
            stripped.addfile(member, tar.extractfile(member) if member.isreg() else None)


def _entries(stream: BinaryIO) -> Iterator[FileEntry]:
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            modified = int(member.mtime * 1_000_000)
            if member.isreg():
                yield FileEntry(member.name, "file", member.size, modified, member.mode)
            elif member.isdir():
                yield FileEntry("" if member.name == "." else member.name, "folder", 0, modified, member.mode)
            elif member.issym():
                yield FileEntry(member.name, "link", 0, modified, member.mode, member.linkname)
