"""An interactive command in a learner's container, by the engine's exec API."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

from runners.container.engine import Engine
from runners.container.environment import MODEL
from workbench.errors import BackendUnreachable, NotRunning, RunnerError
from workbench.learner.guard.container_creation import NOT_FOUND
from workbench.learner.platform.engine_client import EngineRefused

_CHUNK_BYTES: Final = 65536
_FRAME_HEAD: Final = 8
"""The size of the header before each piece of output without a terminal: stream number and length."""

_CONFLICT: Final = 409


class EngineStream:
    """An interactive command in a container; making one starts it."""

    def __init__(self, engine: Engine, name: str, argv: Sequence[str], *, terminal: bool) -> None:
        self._engine = engine
        self._terminal = terminal
        body = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": terminal,
            "Cmd": list(argv),
            "WorkingDir": MODEL,
            "Env": [f"TERM={os.environ.get('TERM', 'xterm')}"] if terminal else [],
        }
        try:
            self._id: str = engine.ask("POST", f"containers/{name}/exec", body)["Id"]
        except EngineRefused as error:
            if error.status in (NOT_FOUND, _CONFLICT):
                raise NotRunning("The job is not running.", hint="See its state: fabric show JOB") from error
            raise RunnerError(f"The command cannot be run: {error.message}") from error
        self._stream = engine.host.connect(engine.path)
        self._received = _hijack(self._stream, self._id, engine.version, terminal=terminal)

    def read(self) -> tuple[int, bytes] | None:
        """Wait for output; None once the command has ended.

        Raises:
            BackendUnreachable: the connection broke.
        """
        while (part := self._part()) is None:
            try:
                data = self._stream.recv(_CHUNK_BYTES)
            except OSError as error:
                raise BackendUnreachable("The connection to the container engine was lost.") from error
            if not data:
                return None
            self._received += data
        return part

    def write(self, data: bytes) -> None:
        """Send input to the command; ignored once it has ended."""
        with contextlib.suppress(OSError):
            self._stream.sendall(data)

    def close_input(self) -> None:
        """Close the command's standard input."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the command's terminal."""
        with contextlib.suppress(EngineRefused):  # it has ended
            self._engine.ask("POST", f"exec/{self._id}/resize?h={rows}&w={columns}")

    def wait(self) -> int:
        """Return its exit code, once it has ended.

        Raises:
            NotRunning: its container is gone, and the engine has forgotten how the command ended.
        """
        try:
            found: dict[str, Any] = self._engine.ask("GET", f"exec/{self._id}/json")
        except EngineRefused as error:
            if error.status != NOT_FOUND:
                raise RunnerError(f"How the command ended is not known: {error.message}") from error
            raise NotRunning(
                "The learner ended while the command ran; how that ended is not known.",
                hint="See the job's state: fabric show JOB",
            ) from error
        return int(found.get("ExitCode") or 0)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def _part(self) -> tuple[int, bytes] | None:
        """Return the next complete piece of the received bytes, None if there is none."""
        data = self._received
        if self._terminal:
            self._received = b""
            return (1, data) if data else None
        size = int.from_bytes(data[4:_FRAME_HEAD], "big") if len(data) >= _FRAME_HEAD else len(data)
        if len(data) < _FRAME_HEAD + size:
            return None
        self._received = data[_FRAME_HEAD + size :]
        return (2 if data[0] == 2 else 1), data[_FRAME_HEAD : _FRAME_HEAD + size]


def _hijack(stream: socket.socket, exec_id: str, version: str, *, terminal: bool) -> bytes:
    """Start the command and turn the connection into its streams; return the first bytes of output.

    Raises:
        RunnerError: the command cannot be started.
    """
    body = json.dumps({"Detach": False, "Tty": terminal}).encode()
    head = (
        f"POST /v{version}/exec/{exec_id}/start HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    stream.sendall(head.encode() + body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = stream.recv(_CHUNK_BYTES)
        if not data:
            raise RunnerError("The container engine ended the connection.")
        answer += data
    answer_head, _, received = answer.partition(b"\r\n\r\n")
    if answer_head.split(None, 2)[1] not in (b"101", b"200"):
        raise RunnerError(f"The command cannot be started: {received.decode('utf-8', 'replace').strip()}")
    return received
