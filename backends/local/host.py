"""This machine as a place: the operations of ``workbench.learner.host.operations``, called directly."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

from backends.contract.errors import translated
from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, Lock, skip
from workbench.learner.host import trees
from workbench.learner.host.operations import HostOperations
from workbench.learner.platform import files, leases
from workbench.learner.platform import run as host_processes
from workbench.learner.platform.files import CHUNK_BYTES, Upload
from workbench.paths import Home, default_home


class LocalHost(Host):
    """This machine; jobs lie in ``home``, the one that the environment names unless it is given."""

    here: ClassVar[bool] = True

    def __init__(self, home: Home | None = None, *, engine: str = "") -> None:
        self._home = home or Home(default_home())
        self.engine = engine
        """The container engine's address, where jobs were given to a certain one."""
        self._operations = HostOperations()

    def identity(self) -> HostIdentity:
        """Say which machine this is."""
        found = self.call("identity")
        found.pop("now_us")
        return HostIdentity(**found)

    def folder(self, home_uuid: str) -> str:
        """Return the home itself: here the journal is the job's own folder."""
        with translated():
            files.make_folders([str(self._home.path)])
        return str(self._home.path)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        deadline_seconds: float = 30.0,
    ) -> Completed:
        """Run a command to its end."""
        with translated():
            return Completed(*host_processes.run(argv, stdin, env, cwd, deadline_seconds))

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: str,
        holding: Sequence[Lock] = (),
    ) -> int:
        """Start a process that outlives us."""
        held = [lock for lock in holding if isinstance(lock, leases.Lease)]
        descriptors = [descriptor for lock in held for descriptor in lock.descriptors()]
        with translated():
            return host_processes.spawn(argv, env, cwd, output, descriptors)

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file, whole or not at all."""
        with translated(), Upload(path, sha256, mode, within) as upload:
            if upload.offset < 0:
                return
            skip(stream, upload.offset)
            while data := stream.read(CHUNK_BYTES):
                upload.write(data)
            upload.finish()

    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Read files from offsets on, up to their published end."""
        with translated():
            return {path: Chunk(*found) for path, found in files.read(offsets, limit_bytes).items()}

    def follow(
        self,
        subscriber: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Say what is new in the journals of learners, and wait until something is."""
        with translated():
            news = self._operations.followers.of(subscriber).follow(known, timeout_seconds)
        return {
            folder: {name: Chunk(*part) for name, part in parts.items()} for folder, parts in news.items()
        }

    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Have files of a folder sent as one tar stream."""
        with tempfile.TemporaryFile() as stream:
            with translated():
                trees.send_files(folder, paths, stream, within)
            stream.seek(0)
            receive(stream)

    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Block until one of these files changes."""
        with translated():
            return self._operations.watches.wait(paths, timeout_seconds)

    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Take all of these locks or none."""
        with translated():
            return leases.take(names, folder, text)

    def call(self, operation: str, **arguments: Any) -> Any:
        """Do one of the operations of ``workbench.learner.host.operations``."""
        with translated():
            return self._operations.call(operation, arguments)

    def connect(self, path: str) -> socket.socket:
        """Open a stream to a unix socket."""
        stream = socket.socket(socket.AF_UNIX)
        try:
            with translated():
                stream.connect(path)
        except BaseException:
            stream.close()
            raise
        return stream

    def close(self) -> None:
        """Give everything back."""
        self._operations.close()
