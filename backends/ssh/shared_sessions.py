"""Sessions on a connection that another process holds: where logging in takes a person, one login serves them all."""

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
    """An open place that runs commands for others on its connection."""

    def session(self, command: str) -> Pipe:
        """Run a command for somebody else; it ends with the connection.

        Raises:
            PlaceUnreachable: the place gives no more sessions.
        """


class SessionProvider(Protocol):
    """Whoever holds connections to places."""

    def holds(self, options: BackendOptions) -> bool:
        """Say whether a connection to a place stands."""

    def session(self, options: BackendOptions, command: str) -> Pipe | None:
        """Run a command on it; None where none stands, or the place gives no more sessions."""


class SessionSharing:
    """Who lends to this process; to one that holds the connections itself, nobody does."""

    def __init__(self) -> None:
        self._lender: SessionProvider | None = None

    def lend_by(self, lender: SessionProvider) -> None:
        """Name who lends from now on."""
        self._lender = lender

    def is_connected(self, options: BackendOptions) -> bool:
        """Say whether a place can be reached without a connection of our own."""
        return self._lender is not None and self._lender.holds(options)

    def session(self, options: BackendOptions, command: str) -> Pipe | None:
        """Run a command at a place on a connection that is lent; None where nobody lends one."""
        return None if self._lender is None else self._lender.session(options, command)


SESSION_SHARING: Final = SessionSharing()
"""This process's."""


def connection_of(options: BackendOptions) -> tuple[str, str, str]:
    """Name all that decides to whom a connection leads; what is run there is another matter."""
    return options.type, options.address or options.name, str(options.options.get("config", ""))


class SharedPipe:
    """A command's stdin and stdout, over a socket that leads to who holds the connection."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self.reader = cast(BinaryIO, stream.makefile("rb"))
        self.writer = cast(BinaryIO, _Writer(stream))

    def explain(self) -> str:
        """Return nothing: what the command complained about stays where its connection is."""
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
    """Carry a command's stdin and stdout over a socket, until the command or who borrowed it has ended."""
    outgoing = threading.Thread(target=_relay_out, args=(pipe, stream), name="lent", daemon=True)
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
