"""What goes over the frame protocol in streams: commands' input and output, sockets, files, and journals.

Of the reply to ``follow``, bytes of logs are passed on at once, all else when it is complete.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from backends.contract.host import Chunk, EarlyBytes
from backends.rpc.client import SLACK_SECONDS, FrameClient, PendingCall
from workbench.errors import BackendError, FabricError
from workbench.learner.host.journals import EARLY
from workbench.learner.platform import frames


class FrameStream:
    """An interactive command on a host; making one starts it."""

    def __init__(
        self,
        client: FrameClient,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        terminal: bool,
    ) -> None:
        arguments = {"argv": list(argv), "env": dict(env), "cwd": cwd, "terminal": terminal}
        self._client = client
        self._call = client.open("exec", arguments, seconds=SLACK_SECONDS)
        self._number: int = self._call.hello()["session"]
        self._call.wait_without_end()
        self._exit_code: int | None = None

    def read(self) -> tuple[int, bytes] | None:
        """Wait for output; None once the command has ended."""
        while self._exit_code is None:
            frame = self._call.next()
            if frame.kind == frames.DATA:
                self._call.credit()
                return frame.payload[0], frame.payload[1:]
            if frame.kind == frames.RESULT:
                self._call.forget()
                self._exit_code = int(frame.json()["exit_code"])
        return None

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        self._call.send(data)

    def close_input(self) -> None:
        """Close the command's stdin."""
        self._call.end()

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the command's terminal."""
        self._client.notify("resize", {"session": self._number, "rows": rows, "columns": columns})

    def wait(self) -> int:
        """Return its exit code, once it has ended."""
        while self.read() is not None:
            pass
        assert self._exit_code is not None
        return self._exit_code

    def close(self) -> None:
        """End the command if it still runs."""
        if self._exit_code is None:
            with contextlib.suppress(FabricError):  # a lost host has ended it already
                self._call.cancel()


def relayed_socket(call: PendingCall) -> socket.socket:
    """Return a local socket that is connected to the call's stream on the host; closing it ends the stream."""
    local, remote = socket.socketpair()
    call.wait_without_end()
    incoming = threading.Thread(target=_relay_in, args=(call, remote), daemon=True, name="carry-in")
    incoming.start()
    outgoing = threading.Thread(
        target=_relay_out, args=(call, remote, incoming), daemon=True, name="carry-out"
    )
    outgoing.start()
    return local


def _relay_out(call: PendingCall, stream: socket.socket, incoming: threading.Thread) -> None:
    with stream:
        try:
            while data := stream.recv(call.chunk_bytes):
                call.send(data)
            call.end()
        except (OSError, FabricError):
            with contextlib.suppress(FabricError):
                call.cancel()
        incoming.join()


def _relay_in(call: PendingCall, stream: socket.socket) -> None:
    try:
        while (frame := call.next()).kind != frames.RESULT:
            if frame.kind == frames.DATA:
                stream.sendall(frame.payload)
                call.credit()
            else:
                stream.shutdown(socket.SHUT_WR)
        call.forget()
    except (OSError, FabricError):
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)


class Incoming(io.RawIOBase):
    """The bytes that come before a call's reply, as a readable stream."""

    def __init__(self, call: PendingCall) -> None:
        self._call = call
        self._unread = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # a writable buffer has no name in typing
        """Read some bytes; none at the end."""
        while not self._unread and not self._ended:
            frame = self._call.next()
            if frame.kind == frames.DATA:
                self._unread = memoryview(frame.payload)
                self._call.credit()
            elif frame.kind == frames.RESULT:
                self._call.forget()
                self._ended = True
        count = min(len(buffer), len(self._unread))
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count


def read_journal_feed(call: PendingCall, early: EarlyBytes | None) -> Mapping[str, Mapping[str, Chunk]]:
    """Read the reply to ``follow``: the sizes first, then the bytes; older agents send the sizes last.

    Args:
        call: the call.
        early: called with each piece of a log as it arrives; None keeps all for the result.

    Raises:
        BackendUnreachable: the reply did not come in time; what ``early`` was given remains valid.
    """
    first = call.next()
    has_sizes_first = first.kind == frames.HELLO
    sizes, incoming = (first.json(), _CallBytes(call.next)) if has_sizes_first else _sizes_last(call, first)
    news: dict[str, dict[str, Chunk]] = {}
    for folder, parts in sizes.items():
        for name, (length, offset, end) in parts.items():
            kept: list[memoryview] = []
            reached = offset
            for piece in incoming.take(length):
                if early is None or name not in EARLY:
                    kept.append(piece)
                    continue
                early(folder, name, piece, reached)
                reached += len(piece)
            news.setdefault(folder, {})[name] = Chunk(b"".join(kept), reached, end)
    if has_sizes_first and call.next().kind != frames.RESULT:
        raise BackendError("The backend sent an invalid answer to follow.")
    return news


def _sizes_last(call: PendingCall, frame: frames.Frame) -> tuple[Any, _CallBytes]:
    """Read the reply of an older agent, which a learner keeps that began with it: bytes, then their sizes."""
    kept = []
    while frame.kind == frames.DATA:
        kept.append(frame)
        frame = call.next()
    if frame.kind != frames.RESULT:
        raise BackendError("The backend sent an invalid answer to follow.")
    return frame.json(), _CallBytes(iter([*kept, frame]).__next__)


class _CallBytes:
    """The bytes of a call as they arrive; like :class:`Incoming`, without copies and flow control."""

    def __init__(self, next_frame: Callable[[], frames.Frame]) -> None:
        self._next_frame = next_frame
        self._left = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        """Yield ``count`` bytes in pieces."""
        while count:
            if not self._left:
                frame = self._next_frame()
                if frame.kind != frames.DATA:
                    raise BackendError("The backend sent an incomplete answer to follow.")
                self._left = memoryview(frame.payload)
            piece, self._left = self._left[:count], self._left[count:]
            count -= len(piece)
            yield piece
