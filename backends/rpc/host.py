"""A host whose agent is called by frames, over any transport: a pipe, an SSH channel, an exec."""

from __future__ import annotations

import contextlib
import io
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Final

from backends.contract.host import Chunk, Completed, EarlyBytes, Host, HostIdentity, HostStream, Lock, skip
from backends.rpc.client import SLACK_SECONDS, FrameClient
from backends.rpc.streams import FrameStream, Incoming, read_journal_feed, relayed_socket
from workbench.errors import BackendUnreachable
from workbench.learner.platform import frames

LONG_SECONDS: Final[Mapping[str, float]] = {
    "unpack": 3600.0,
    "keep_code": 3600.0,
    "place_code": 3600.0,
    "remove": 600.0,
    "end_marked": 60.0,
}
"""Operations whose reply may take longer than ``SLACK_SECONDS``, with their limits."""

ONE_WAY: Final = frozenset(
    ("interrupt", "forget", "interrupt_follow", "forget_follow", "expire_code_sometimes")
)
"""Operations that have no reply: their callers must not wait for a host that hangs."""


class FrameHost(Host):
    """A host whose agent is called through a :class:`FrameClient`, whatever the connection.

    Args:
        client: the connection.
        root: the folder on the host that contains homes; empty for ``~/.fabric``.
    """

    def __init__(self, client: FrameClient, *, root: str = "") -> None:
        self._client = client
        self._root = root

    def identity(self) -> HostIdentity:
        """Say which machine this is, its clock compared with ours."""
        begun = time.time()
        return HostIdentity.from_reply(self.call("identity"), (begun + time.time()) / 2)

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
        arguments = {
            "argv": list(argv),
            "env": None if env is None else dict(env),
            "cwd": cwd,
            "deadline_seconds": deadline_seconds,
        }
        seconds = deadline_seconds + SLACK_SECONDS
        answer, data = self._client.exchange("run", arguments, seconds=seconds, stdin=stdin)
        stdout_size = answer["stdout_bytes"]
        return Completed(answer["exit_code"], data[:stdout_size], data[stdout_size:])

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
        held = [lock.number for lock in holding if isinstance(lock, PipeLock)]
        arguments = {"argv": list(argv), "env": dict(env), "cwd": cwd, "output": output, "holding": held}
        return int(self._client.request("spawn", arguments, seconds=SLACK_SECONDS))

    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file, whole or not at all; an interrupted upload continues where it stopped."""
        arguments: dict[str, Any] = {"path": path, "sha256": sha256, "mode": mode}
        if within:
            arguments["within"] = within
        call = self._client.open("put", arguments, seconds=SLACK_SECONDS)
        offset = call.hello()["offset"]
        if offset >= 0:
            try:
                skip(stream, offset)
                while data := stream.read(call.chunk_bytes):
                    call.send(data)
                call.end()
            except BaseException:
                call.cancel()  # the agent keeps what has arrived for the next try
                raise
        call.result()

    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Read files from offsets on, up to their published end."""
        arguments = {"offsets": dict(offsets), "limit_bytes": limit_bytes}
        sizes, data = self._client.exchange("read", arguments, seconds=SLACK_SECONDS)
        chunks, start = {}, 0
        for path, (length, offset, end) in sizes.items():
            chunks[path] = Chunk(data[start : start + length], offset, end)
            start += length
        return chunks

    def follow(
        self,
        subscriber: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it."""
        arguments = {"asker": subscriber, "known": known, "timeout_seconds": timeout_seconds}
        call = self._client.open("follow", arguments, seconds=timeout_seconds + SLACK_SECONDS)
        call.end()
        try:
            return read_journal_feed(call, early)
        finally:
            call.forget()

    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Send files of a folder as one tar stream to ``receive``."""
        arguments: dict[str, Any] = {"folder": folder, "paths": list(paths)}
        if within:  # agents of older versions do not know it
            arguments["within"] = within
        call = self._client.open("fetch", arguments, seconds=SLACK_SECONDS)
        with io.BufferedReader(Incoming(call), frames.CHUNK_BYTES) as stream:
            try:
                receive(stream)
                while stream.read(frames.CHUNK_BYTES):
                    pass
            except BaseException:
                call.cancel()
                raise

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._client.lost

    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Wait until one of these files changes."""
        changed: list[str] = self.call("watch", paths=list(paths), timeout_seconds=timeout_seconds)
        return changed

    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Take all of these locks or none."""
        arguments = {"names": list(names), "folder": folder, "text": text}
        number = self._client.request("lock", arguments, seconds=SLACK_SECONDS)
        return None if number is None else PipeLock(self._client, number, names)

    def call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation of ``workbench.learner.host.operations``."""
        if operation in ONE_WAY:
            self._client.notify(operation, arguments)
            return None
        limit_seconds = float(arguments.get("timeout_seconds", 0)) + float(arguments.get("grace_seconds", 0))
        seconds = limit_seconds + max(SLACK_SECONDS, LONG_SECONDS.get(operation, 0.0))
        return self._client.request(operation, arguments, seconds=seconds)

    def connect(self, path: str) -> socket.socket:
        """Connect to a unix socket on the host; its bytes are relayed through the pipe."""
        call = self._client.open("connect", {"path": path}, seconds=SLACK_SECONDS)
        call.hello()
        return relayed_socket(call)

    def exec(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, terminal: bool) -> HostStream:
        """Start a command that is attached to a stream here."""
        return FrameStream(self._client, argv, env=env, cwd=cwd, terminal=terminal)

    def close(self) -> None:
        """Close the connection; subclasses that own it override this."""


class PipeLock:
    """Locks that the agent holds for this client while the connection lasts."""

    def __init__(self, client: FrameClient, number: int, names: Sequence[str]) -> None:
        self._client = client
        self._names = tuple(names)
        self.number = number
        """The agent's number of the lock."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the lock files that are held."""
        return self._names

    def part(self, names: Sequence[str]) -> Lock:
        """Return a lock of some of these names."""
        number = self._client.request(
            "part", {"lock": self.number, "names": list(names)}, seconds=SLACK_SECONDS
        )
        self._names = tuple(name for name in self._names if name not in names)
        return PipeLock(self._client, number, names)

    def write(self, text: str) -> None:
        """Replace the text that names the holder."""
        self._client.request("write_lock", {"lock": self.number, "text": text}, seconds=SLACK_SECONDS)

    def release(self) -> None:
        """Release the locks; a lost connection has released them already."""
        with contextlib.suppress(BackendUnreachable):
            self._client.request("release", {"lock": self.number}, seconds=SLACK_SECONDS)
