"""Carries a stream through the frames of a call, behind an ordinary socket."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import Any

from backends.rpc.client import PendingCall
from workbench.errors import FabricError
from workbench.learner.platform import frames


def carried(call: PendingCall) -> socket.socket:
    """Return a socket whose other end is the stream at the place; closing it ends the stream."""
    ours, theirs = socket.socketpair()
    call.wait_without_end()
    incoming = threading.Thread(target=_carry_in, args=(call, theirs), daemon=True, name="carry-in")
    incoming.start()
    outgoing = threading.Thread(
        target=_carry_out, args=(call, theirs, incoming), daemon=True, name="carry-out"
    )
    outgoing.start()
    return ours


def _carry_out(call: PendingCall, stream: socket.socket, incoming: threading.Thread) -> None:
    with stream:
        try:
            while data := stream.recv(frames.CHUNK_BYTES):
                call.send(data)
            call.end()
        except (OSError, FabricError):
            with contextlib.suppress(FabricError):
                call.cancel()
        incoming.join()


def _carry_in(call: PendingCall, stream: socket.socket) -> None:
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
    """The bytes that come before a call's answer, as a stream."""

    def __init__(self, call: PendingCall) -> None:
        self._call = call
        self._rest = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # a writable buffer has no name in typing
        """Read some bytes; none at the end."""
        while not self._rest and not self._ended:
            frame = self._call.next()
            if frame.kind == frames.DATA:
                self._rest = memoryview(frame.payload)
                self._call.credit()
            elif frame.kind == frames.RESULT:
                self._call.forget()
                self._ended = True
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
