"""A host that has only a shell: runs process jobs, under an agent that is a shell script."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, BinaryIO, Final

from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, Lock
from backends.ssh.connection import Pipe, SshConnection, session_on
from backends.ssh.sh_client import ShellClient, assignments, quoted, quoted_all
from backends.ssh.sh_control import ControlShells, OpenShell
from backends.ssh.sh_operations import POLL_SECONDS, ShellOperations
from workbench.errors import BackendError, BackendUnreachable

PIECE_BYTES: Final = 1 << 20
TAR_FD: Final = 9
"""The shell's descriptor of what a tar prints: shells promise no higher ones."""
TAR_BYTES: Final = 1 << 15
TAR_SECONDS: Final = 3600.0
"""How long a tar may be silent."""
LOGS: Final = {"output": "output.log", "setup": "setup.log"}
ONCE: Final = {"launch": "launch.json", "launch_sh": "launch.sh"}
"""What a reader needs besides such a journal to make its index."""


class ShellHost(Host):
    """A host behind a shell that SSH started."""

    def __init__(
        self,
        pipe: Pipe,
        root: str,
        connection: SshConnection | None = None,
        *,
        another: OpenShell | None = None,
    ) -> None:
        """Take a shell.

        Args:
            pipe: Its stdin and stdout.
            root: Where the folders of homes are; empty for the user's home folder.
            connection: What carries it, where this process holds that.
            another: Starts one more shell there; without it stops wait for what else runs.
        """
        self._pipe = pipe
        self._connection = connection
        self._root = root
        self._client = ShellClient(pipe)
        self._control = None if another is None else ControlShells(self._client, another)
        self._operations = ShellOperations(self._client, self._control)
        self._described: set[str] = set()
        self._fetching = threading.Lock()

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._client.lost

    def identity(self) -> HostIdentity:
        """Say which machine this is, its clock compared with ours; there it goes by the second."""
        return HostIdentity.from_reply(self._operations.identity(), time.time())

    def folder(self, home_uuid: str) -> str:
        """Return that home's folder on the host."""
        return str(self.call("folder", home_uuid=home_uuid, root=self._root))

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
        folder = self._client.lines("umask 077; mktemp -d")[0]
        try:
            self._client.write(f"{folder}/in", [stdin], 0o600)
            with_env = "" if env is None else f"env -i {assignments(env)} "
            go = f"cd {quoted(cwd)} && " if cwd else ""
            code = self._client.sh(
                f"({go}{with_env}{quoted_all(argv)}) <{folder}/in >{folder}/out 2>{folder}/err",
                seconds=deadline_seconds + 30.0,
            ).exit_code
            out, err = self._client.pieces([(f"{folder}/{name}", 0, PIECE_BYTES) for name in ("out", "err")])
            return Completed(code, out.data if out else b"", err.data if err else b"")
        finally:
            self._client.sh(f"rm -rf {folder}")

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: str,
        holding: Sequence[Lock] = (),
    ) -> int:
        """Start a process that outlives the connection."""
        folder = output.rpartition("/")[0]
        command = f"env -i {assignments(env)} {quoted_all(argv)}"
        (pid,) = self._client.lines(
            f"umask 077; mkdir -p {quoted(folder)} && cd {quoted(cwd)} && s=$(command -v setsid); "
            f"trap '' HUP; $s {command} </dev/null >>{quoted(output)} 2>&1 {TAR_FD}<&- & echo $!"
        )
        return int(pid)

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file, whole or not at all; one that is named by its content is not sent again."""
        del within  # no container runs here, and a process is its user anyway
        if sha256 and path.rpartition("/")[2].startswith(sha256) and self.call("existing", paths=[path]):
            return
        self._client.write(path, _parts(stream), mode)

    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Read files from offsets on."""
        read = {path: self._read(path, offset, limit_bytes) for path, offset in offsets.items()}
        return {path: chunk for path, chunk in read.items() if chunk is not None}

    def follow(
        self,
        subscriber: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Say what is new in the journals of learners, and wait until something is."""
        until, wake = time.monotonic() + timeout_seconds, self._operations.waits(f"{subscriber}/follow")
        while True:
            news = {folder: parts for folder, at in known.items() if (parts := self._new_in(folder, at))}
            left = until - time.monotonic()
            if news or left <= 0 or wake.is_set():
                wake.clear()
                return news
            wake.wait(min(POLL_SECONDS, left))

    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Have files of a folder sent as one tar stream."""
        del within
        arguments = quoted_all(f"./{path}" if path.startswith("-") else path for path in paths)
        with self._fetching, closing(TarStream(self._client, f"-C {quoted(folder)} {arguments}")) as stream:
            receive(io.BufferedReader(stream))
            stream.finish()

    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Block until one of these files changes."""
        raise BackendError("Files are not watched on a host without Python.", hint="install python3 there")

    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Take locks that nobody else sees: a shell has none. GPUs are not given there for that."""
        return UnseenLock(names)

    def call(self, operation: str, **arguments: Any) -> Any:
        """Do one of the operations of ``workbench.learner.host.operations``."""
        return self._operations.call(operation, arguments)

    def connect(self, path: str) -> socket.socket:
        """Refuse: a shell opens no sockets."""
        raise BackendError(
            "Containers cannot run on a host without Python.",
            hint="install python3 there, or --runner process",
        )

    def session(self, command: str) -> Pipe:
        """Run a command for somebody else on the same connection; it ends with that.

        Raises:
            BackendUnreachable: the host gives no more sessions.
        """
        return session_on(self._connection, command)

    def close(self) -> None:
        """Hang up; what was spawned lives on."""
        if self._control is not None:
            self._control.close()
        self._pipe.close()
        if self._connection is not None:
            self._connection.close()

    def _read(self, path: str, offset: int, limit_bytes: int) -> Chunk | None:
        data, size = bytearray(), None
        while size is None or len(data) < min(limit_bytes, size - offset):
            at, most = offset + len(data), min(limit_bytes - len(data), self._client.piece_bytes)
            (piece,) = self._client.pieces([(path, at, most)], bulk=True)
            if piece is None:
                return None if size is None else Chunk(bytes(data), offset, size)
            data += piece.data
            size = piece.size
            if not piece.data:
                break
        return Chunk(bytes(data), offset, size)

    def _new_in(self, folder: str, known: Mapping[str, int]) -> dict[str, Chunk]:
        """Return what is new in one journal; the state comes with the last of all."""
        most = self._client.piece_bytes
        logs = [(f"{folder}/{file}", known.get(name, 0), most) for name, file in LOGS.items()]
        once = (
            []
            if folder in self._described
            else [(f"{folder}/{file}", 0, PIECE_BYTES) for file in ONCE.values()]
        )
        wanted = [(f"{folder}/state.json", 0, PIECE_BYTES), *logs, *once]
        state, *pieces = self._client.pieces(wanted, bulk=True)
        found: dict[str, Chunk] = {}
        whole = True
        for name, piece in zip(LOGS, pieces, strict=False):
            if piece is not None and piece.data:
                at = known.get(name, 0)
                found[name] = Chunk(piece.data, at, piece.size)
                whole = whole and at + len(piece.data) >= piece.size
        for name, piece in zip(ONCE, pieces[len(LOGS) :], strict=False):
            if piece is not None:
                found[name] = Chunk(piece.data, 0, piece.size)
        if once and all(name in found for name in ONCE):
            self._described.add(folder)
        if state is not None and whole and state.data and _checksum(state.data) != known.get("state", 0):
            found["state"] = Chunk(state.data, 0, state.size)
        return found


class TarStream(io.RawIOBase):
    """Files as a tar archive, fetched piece by piece: a tar runs there, and waits while nothing is read.

    There is one at a time: the shell holds its output as one descriptor.
    """

    def __init__(self, client: ShellClient, arguments: str) -> None:
        self._client = client
        self._folder = client.lines("umask 077; mktemp -d")[0]
        pipe = f"{self._folder}/tar"
        # A redirection of exec that fails would end the shell.
        client.check(
            f"if mkfifo {pipe}; then tar -c --no-recursion -f - {arguments} >{pipe} & fabric_tar=$!; "
            f"exec {TAR_FD}<{pipe}; else rm -rf {self._folder}; false; fi"
        )
        self._rest = b""

    def readable(self) -> bool:
        """Say that it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; none at its end."""
        if not self._rest:
            count = max(1, self._client.piece_bytes // TAR_BYTES)
            script = f"dd bs={TAR_BYTES} count={count} <&{TAR_FD}"
            self._rest = self._client.check(script, seconds=TAR_SECONDS, bulk=True)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def finish(self) -> None:
        """See that all of it was well.

        Raises:
            BackendError: the tar there failed.
        """
        self._client.check(f"cat <&{TAR_FD} >/dev/null; wait $fabric_tar", seconds=TAR_SECONDS, bulk=True)

    def close(self) -> None:
        """End the tar there."""
        if not self.closed:
            with contextlib.suppress(BackendUnreachable):
                self._client.sh(f"exec {TAR_FD}<&-; rm -rf {self._folder}")
        super().close()


class UnseenLock:
    """A lock in name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    @property
    def names(self) -> Sequence[str]:
        """What is held."""
        return self._names

    def part(self, names: Sequence[str]) -> Lock:
        """Return a lock of some of these names."""
        self._names = tuple(name for name in self._names if name not in names)
        return UnseenLock(names)

    def write(self, text: str) -> None:
        """Tell nobody."""

    def release(self) -> None:
        """Let go of nothing."""


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    while data := stream.read(PIECE_BYTES):
        yield data


def _checksum(data: bytes) -> int:
    return zlib.crc32(data)
