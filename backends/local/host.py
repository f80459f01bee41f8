"""This machine as a host: the operations of ``workbench.learner.host.operations``, called directly."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

from backends.contract.errors import translated
from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, Lock, skip
from workbench.learner.host import trees
from workbench.learner.host.agent_forks import AgentForks
from workbench.learner.host.operations import HostOperations
from workbench.learner.platform import files, leases
from workbench.learner.platform import run as host_processes
from workbench.learner.platform.files import CHUNK_BYTES, Upload
from workbench.paths import Home, default_home


class LocalHost(Host):
    """This machine; jobs are in ``home``, by default the home that the environment names."""

    here: ClassVar[bool] = True

    def __init__(self, home: Home | None = None, *, engine: str = "", share_names: bool = False) -> None:
        self._home = home or Home(default_home())
        self.engine = engine
        """The address of the container engine that jobs use; empty for the default one."""
        self.share_names = share_names
        self._operations = HostOperations()
        self._agent_forks = AgentForks()

    def identity(self) -> HostIdentity:
        """Return which machine this is."""
        found = self.call("identity")
        found.pop("now_us")
        return HostIdentity(**found)

    def folder(self, home_uuid: str) -> str:
        """Return the home itself: journals are written into the jobs' own folders."""
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
        """Start a process that outlives this one; return its pid."""
        held = [lock for lock in holding if isinstance(lock, leases.Lease)]
        descriptors = [descriptor for lock in held for descriptor in lock.descriptors()]
        with translated():
            return self._agent_forks.spawn(argv, env, cwd, output, descriptors)

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file atomically."""
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
        """Wait until journals of learners have new content, and return it."""
        with translated():
            news = self._operations.followers.of(subscriber).follow(known, timeout_seconds)
        return {
            folder: {name: Chunk(*part) for name, part in parts.items()} for folder, parts in news.items()
        }

    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Send files of a folder as one tar stream to ``receive``."""
        with tempfile.TemporaryFile() as stream:
            with translated():
                trees.send_files(folder, paths, stream, within)
            stream.seek(0)
            receive(stream)

    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Wait until one of these files changes."""
        with translated():
            return self._operations.watches.wait(paths, timeout_seconds)

    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Take all of these locks or none."""
        with translated():
            return leases.take(names, folder, text)

    def call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation of ``workbench.learner.host.operations``."""
        with translated():
            return self._operations.call(operation, arguments)

    def connect(self, path: str) -> socket.socket:
        """Connect to a unix socket."""
        stream = socket.socket(socket.AF_UNIX)
        try:
            with translated():
                stream.connect(path)
        except BaseException:
            stream.close()
            raise
        return stream

    def close(self) -> None:
        """End watches and subscriptions."""
        self._operations.close()
        self._agent_forks.close()
