"""Sockets to an SSH host: TCP that notices when the link is dead, and a ProxyCommand's stdin and stdout."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from backends.ssh.config import Hop
from workbench import formats
from workbench.errors import BackendUnreachable

DEAD_AFTER_SECONDS: Final = 20
"""How long a link may acknowledge nothing before the connection counts as lost."""

KEEPALIVE_SECONDS: Final = 5

COMPLAINT_SECONDS: Final = 1.0
"""How long the last words of a ProxyCommand are waited for."""

_COMPLAINT_BYTES: Final = 4096
_HEARD_BYTES: Final = 200

PROMPT_BYTES: Final = 1 << 14
"""What is received before the session is open, and somewhat more."""


def connect(hop: Hop, timeout_seconds: float) -> socket.socket:
    """Open a stream to a host's SSH port, directly or through its ProxyCommand.

    Raises:
        BackendUnreachable: there is no connection; the message says why.
    """
    if hop.proxy_command:
        return _through_command(hop)
    try:
        stream = socket.create_connection((hop.host, hop.port), timeout_seconds)
    except OSError as error:
        raise unreachable(hop, error) from error
    _notice_death(stream)
    return _PromptSocket(stream)


def unreachable(hop: Hop, error: Exception) -> BackendUnreachable:
    """Return the error that says why a host cannot be reached."""
    where = f"{hop.host} port {hop.port}"
    match error:
        case socket.gaierror():
            return BackendUnreachable(
                f"There is no host {hop.host}: its name has no address.",
                hint="is it spelled right, and does ~/.ssh/config give its HostName?",
            )
        case ConnectionRefusedError():
            return BackendUnreachable(
                f"{where} refuses the connection.", hint="is sshd running there, and on that port?"
            )
        case TimeoutError():
            return BackendUnreachable(
                f"{where} does not answer.", hint="is the machine on, and the network there?"
            )
    return BackendUnreachable(f"{where} cannot be reached: {getattr(error, 'strerror', '') or error}.")


def _notice_death(stream: socket.socket) -> None:
    """Let the kernel detect that the other side is gone, also while nothing is sent."""
    options: list[tuple[int, str, int]] = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", KEEPALIVE_SECONDS),  # macOS's name for it
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", DEAD_AFTER_SECONDS // KEEPALIVE_SECONDS - 1),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_AFTER_SECONDS * 1000),
    ]
    for level, name, value in options:
        number = getattr(socket, name, None)
        if number is not None:
            with contextlib.suppress(OSError):
                stream.setsockopt(level, number, value)


def _through_command(hop: Hop) -> socket.socket:
    ours, theirs = socket.socketpair()
    command = hop.proxy_command
    for sign, value in (("%%", "%"), ("%h", hop.host), ("%p", str(hop.port)), ("%r", hop.user)):
        command = command.replace(sign, value)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise BackendUnreachable(
            f"The ProxyCommand of {hop.alias} cannot be started: {error.strerror}."
        ) from error
    finally:
        theirs.close()
    return _CommandSocket(ours, process)


class _PromptSocket(socket.socket):
    """A stream whose first bytes are acknowledged at once.

    Until a session is there, sshd sends its next small packet only when the last one was acknowledged, which the
    kernel puts off for 40 ms: a quarter of the time that a login takes.
    """

    def __init__(self, stream: socket.socket) -> None:
        timeout = stream.gettimeout()
        super().__init__(stream.family, stream.type, stream.proto, fileno=stream.detach())
        self.settimeout(timeout)
        self._option = getattr(socket, "TCP_QUICKACK", None)
        self._left_bytes = PROMPT_BYTES
        self.heard = b""
        """What came first."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read, and acknowledge at once."""
        data = super().recv(size, flags)
        if len(self.heard) < _HEARD_BYTES:
            self.heard += data[:_HEARD_BYTES]
        if self._option is not None and self._left_bytes > 0:
            self._left_bytes -= len(data)
            with contextlib.suppress(OSError):  # the kernel forgets it with each packet
                self.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return data


class _CommandSocket(socket.socket):
    """The stream of a command that ends with it."""

    def __init__(self, stream: socket.socket, process: subprocess.Popen[bytes]) -> None:
        super().__init__(stream.family, stream.type, stream.proto, fileno=stream.detach())
        self._process = process
        self._complaints = b""
        # It is read all the time: a command that complains a lot must not wait for a reader.
        self._listener = threading.Thread(target=self._listen, daemon=True, name="proxy command")
        self._listener.start()

    def explain(self, wait_seconds: float) -> str:
        """Return the last line of the command's stderr; its end is waited for at most so long."""
        self._listener.join(wait_seconds)
        return last_line(self._complaints)

    def close(self, *_: Any) -> None:
        """Close the stream, and end the command."""
        super().close()
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := os.read(stream.fileno(), _COMPLAINT_BYTES):
                self._complaints = (self._complaints + data)[-_COMPLAINT_BYTES:]


def explanation_of(stream: object, wait_seconds: float = 0.0) -> str:
    """Return what the command behind a stream complained about last; empty where there is none."""
    return stream.explain(wait_seconds) if isinstance(stream, _CommandSocket) else ""


def first_words_of(stream: object) -> str | None:
    """Return the first line that came on a stream; None of a stream of which that is not known."""
    if not isinstance(stream, _PromptSocket):
        return None
    lines = stream.heard.decode("utf-8", "replace").strip().splitlines()
    return formats.printable(lines[0].strip()) if lines else ""


def last_line(text: bytes) -> str:
    """Return the last line that says something, without the full stop."""
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else ""


READ_BYTES: Final = 1 << 20
SEND_BYTES: Final = 1 << 15


class ChannelPipe:
    """A command's stdin and stdout; the end of its stderr is kept."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.reader = cast(BinaryIO, io.BufferedReader(_Reader(channel), READ_BYTES))
        self.writer = cast(BinaryIO, _Writer(channel))

    def explain(self) -> str:
        """Return the last line of the command's stderr, else of the ProxyCommand's."""
        stderr = b""
        with contextlib.suppress(Exception):  # a channel that is being closed may raise anything
            while self._channel.recv_stderr_ready():
                stderr = (stderr + self._channel.recv_stderr(READ_BYTES))[-_COMPLAINT_BYTES:]
        if stderr:
            return last_line(stderr)
        return explanation_of(getattr(self._channel.get_transport(), "sock", None))

    def close(self) -> None:
        """Close it; the command reads the end of its stdin."""
        with contextlib.suppress(Exception):  # as above
            self._channel.close()


class _Reader(io.RawIOBase):
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read what is there, at most so much, without a buffer in between that is made for each call."""
        with _as_streams_say():
            data: bytes = self._channel.recv(size if size >= 0 else READ_BYTES)
        return data

    def readinto(self, buffer: Any) -> int:  # a writable buffer has no name in typing
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        start = 0
        while start < len(view):
            with _as_streams_say():
                sent = self._channel.send(bytes(view[start : start + SEND_BYTES]))
            if not sent:
                raise BrokenPipeError("the channel is closed")
            start += sent
        return len(view)


@contextlib.contextmanager
def _as_streams_say() -> Iterator[None]:
    """Raise what a closed stream raises: paramiko raises EOFError and others of its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise BrokenPipeError(f"the connection is gone: {error or 'it was closed'}") from error
