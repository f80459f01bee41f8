"""Runs commands over an SSH connection that another process holds, so that one login serves all processes."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast, runtime_checkable

from backends.contract.host import BackendOptions

if TYPE_CHECKING:
    from backends.ssh.connection import Pipe

CHUNK_BYTES: Final = 1 << 16


@runtime_checkable
class SharesSessions(Protocol):
    """An open host whose connection other processes may run commands on."""

    def session(self, command: str) -> Pipe:
        """Run a command for another process; it ends with the connection.

        Raises:
            BackendUnreachable: the host allows no more sessions.
        """


class SessionProvider(Protocol):
    """Holds connections that this process may use: the controller, seen from a client."""

    def holds(self, options: BackendOptions) -> bool:
        """Say whether there is a connection to a host."""

    def session(self, options: BackendOptions, command: str) -> Pipe | None:
        """Run a command on it; None without a connection, or where the host allows no more sessions."""


class SessionSharing:
    """Where this process gets shared sessions from; nowhere, in the process that holds the connections."""

    def __init__(self) -> None:
        self._provider: SessionProvider | None = None

    def use(self, provider: SessionProvider) -> None:
        """Set the provider of shared sessions."""
        self._provider = provider

    def is_connected(self, options: BackendOptions) -> bool:
        """Say whether a host can be reached without a connection of this process's own."""
        return self._provider is not None and self._provider.holds(options)

    def session(self, options: BackendOptions, command: str) -> Pipe | None:
        """Run a command on a shared connection; None where there is none."""
        return None if self._provider is None else self._provider.session(options, command)


SESSION_SHARING: Final = SessionSharing()
"""This process's."""


def connection_of(options: BackendOptions) -> tuple[str, str, str]:
    """Return the key of a connection: equal where options lead to the same host by the same configuration."""
    return options.type, options.address or options.name, str(options.options.get("config", ""))


class SharedPipe:
    """A command's stdin and stdout, relayed by the process that holds the connection."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self.reader = cast(BinaryIO, stream.makefile("rb"))
        self.writer = cast(BinaryIO, _Writer(stream))

    def explain(self) -> str:
        """Return nothing: the command's stderr is with the process that holds the connection."""
        return ""

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()


class _Writer(io.RawIOBase):
    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.sendall(data)
        return len(data)


def relay(pipe: Pipe, stream: socket.socket) -> None:
    """Relay a command's stdin and stdout over a socket, until the command or the client ends."""
    outgoing = threading.Thread(target=_relay_out, args=(pipe, stream), name="relay", daemon=True)
    outgoing.start()
    with contextlib.suppress(OSError, ValueError):
        while data := stream.recv(CHUNK_BYTES):
            pipe.writer.write(data)
    pipe.close()
    outgoing.join()


def _relay_out(pipe: Pipe, stream: socket.socket) -> None:
    reader = getattr(pipe.reader, "raw", pipe.reader)
    with contextlib.suppress(OSError, ValueError):
        while data := reader.read(CHUNK_BYTES):
            stream.sendall(data)
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
