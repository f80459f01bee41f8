"""This machine as a host: the operations of ``workbench.learner.host.operations``, called directly."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

from backends.contract.errors import translated
from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, Lock, skip
from workbench.learner.host import trees
from workbench.learner.host.operations import HostOperations
from workbench.learner.platform import files, leases
from workbench.learner.platform import run as host_processes
from workbench.learner.platform.files import CHUNK_BYTES, Upload
from workbench.learner.queue.home_waiter import WAITER_LOG
from workbench.learner.waiter.fork_server import ForkServer
from workbench.paths import Home, default_home

BURST_SECONDS: Final = 2.0
"""Agents that are started so soon after one another are the first of many."""

IDLE_SECONDS: Final = 30.0
"""How long a process that forks agents waits for the next one to be wanted."""


class AgentForks:
    """Forks agents from one process, once several are started one soon after the other: a Python takes long to start.

    Args:
        log: the file in which that process says what goes wrong.
    """

    def __init__(self, log: str) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self._started_at = -BURST_SECONDS

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: str, held: Sequence[int]
    ) -> int:
        """Start what is an agent of a learner and return its pid; 0 where it is to be started otherwise."""
        if argv[-2:-1] != ["guard"] or cwd != "/":
            return 0
        with self._lock:
            now = time.monotonic()
            is_first, self._started_at = now - self._started_at > BURST_SECONDS, now
            if self._server is not None and self._server.program != list(argv[:-2]):
                self._server.close()
                self._server = None
            if self._server is None:
                if is_first:
                    return 0
                self._server = ForkServer(self._log, argv[:-2], IDLE_SECONDS)
            if not is_first:
                self._server.warm()
            files.make_folders([str(Path(output).parent)])
            return self._server.start(argv, env, output, held)

    def close(self) -> None:
        """Let the process end; agents that it has forked go on."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


class LocalHost(Host):
    """This machine; jobs are in ``home``, by default the home that the environment names."""

    here: ClassVar[bool] = True

    def __init__(self, home: Home | None = None, *, engine: str = "") -> None:
        self._home = home or Home(default_home())
        self.engine = engine
        """The address of the container engine that jobs use; empty for the default one."""
        self._operations = HostOperations()
        self._agent_forks = AgentForks(str(self._home.path / WAITER_LOG))

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
            forked = self._agent_forks.start(argv, env, cwd, output, descriptors)
            return forked or host_processes.spawn(argv, env, cwd, output, descriptors)

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
