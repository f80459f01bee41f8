"""A command beside a learner in its container, joined to our own standard streams."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import Any, Final

from runners.container_engine import NOT_FOUND, Engine
from runners.container_paths import MODEL
from workbench.errors import RunnerError
from workbench.learner.engine import VERSION, EngineRefused

_CHUNK_BYTES: Final = 65536
_FRAME_HEAD: Final = 8
"""What the engine puts before output when there is no terminal: which stream, and how many bytes."""

_CONFLICT: Final = 409


class ContainerExec:
    """One command; it has begun when this is made."""

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
                raise RunnerError("The learner does not run.", hint="fabric show says how it is.") from error
            raise RunnerError(f"The command cannot be run: {error.message}") from error
        self._stream = engine.host.connect(engine.path)
        self._begun = _hijack(self._stream, self._id, terminal=terminal)

    def wait(self) -> int:
        """Carry input and output until the command has ended; return its exit code."""
        with self._stream, _raw(self._terminal), self._resized():
            self._carry()
        found: dict[str, Any] = self._engine.ask("GET", f"exec/{self._id}/json")
        return int(found.get("ExitCode") or 0)

    def _carry(self) -> None:
        waiting = self._begun
        sources: list[Any] = [self._stream, 0]
        while True:
            waiting = self._show(waiting)
            ready, _, _ = select.select(sources, (), ())
            if 0 in ready:
                data = os.read(0, _CHUNK_BYTES)
                if data:
                    self._stream.sendall(data)
                else:
                    sources.remove(0)
                    with contextlib.suppress(OSError):
                        self._stream.shutdown(socket.SHUT_WR)
            if self._stream in ready:
                data = self._stream.recv(_CHUNK_BYTES)
                if not data:
                    return
                waiting += data

    def _show(self, data: bytes) -> bytes:
        """Print what has come as far as it is whole; return the rest."""
        if self._terminal:
            _write(1, data)
            return b""
        while len(data) >= _FRAME_HEAD:
            size = int.from_bytes(data[4:_FRAME_HEAD], "big")
            if len(data) < _FRAME_HEAD + size:
                break
            _write(2 if data[0] == 2 else 1, data[_FRAME_HEAD : _FRAME_HEAD + size])
            data = data[_FRAME_HEAD + size :]
        return data

    @contextlib.contextmanager
    def _resized(self) -> Iterator[None]:
        """Tell the command how large the terminal is, now and whenever that changes."""
        if not self._terminal:
            yield
            return

        def tell(*_: object) -> None:
            columns, rows = shutil.get_terminal_size()
            with contextlib.suppress(EngineRefused):
                self._engine.ask("POST", f"exec/{self._id}/resize?h={rows}&w={columns}")

        before = signal.signal(signal.SIGWINCH, tell)
        tell()
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


def _hijack(stream: socket.socket, exec_id: str, *, terminal: bool) -> bytes:
    """Turn a connection into the command's streams; return what came with the answer.

    Raises:
        RunnerError: the command cannot be started.
    """
    body = json.dumps({"Detach": False, "Tty": terminal}).encode()
    head = (
        f"POST /{VERSION}/exec/{exec_id}/start HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    stream.sendall(head.encode() + body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = stream.recv(_CHUNK_BYTES)
        if not data:
            raise RunnerError("The container engine ended the connection.")
        answer += data
    said, _, rest = answer.partition(b"\r\n\r\n")
    if said.split(None, 2)[1] not in (b"101", b"200"):
        raise RunnerError(f"The command cannot be started: {rest.decode('utf-8', 'replace').strip()}")
    return rest


@contextlib.contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    """Pass every key on, where we have a terminal."""
    if not (terminal and sys.stdin.isatty()):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
