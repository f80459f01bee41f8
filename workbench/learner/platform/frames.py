"""The protocol on the pipe to an agent: one line of greeting, then frames with length, call and kind.

The line lets the other side skip what a login shell prints first. Both sides then say their format.
Many calls are under way at once; large data goes in chunks, so that none holds up the others.
"""

from __future__ import annotations

import json
import struct
import threading
from typing import Any, BinaryIO, List, NamedTuple, Optional, Union

FORMAT = 1
GREETING = b"\nfabric-host\n"
GREETING_LIMIT_BYTES = 256 * 1024
"""A login shell that prints more than this before us is not listened to."""

CHUNK_BYTES = 256 * 1024
WINDOW_CHUNKS = 32
"""How many chunks of a stream may be under way without an answer."""

HELLO, CALL, DATA, END, RESULT, ERROR, CREDIT, CANCEL = range(1, 9)

_HEADER = struct.Struct(">IIB")
_LIMIT_BYTES = 256 << 20


class FrameError(Exception):
    """The other side does not speak this protocol, or stopped in the middle of a frame."""


class Frame(NamedTuple):
    """One frame: which call it belongs to, what it is, and its bytes."""

    call: int
    kind: int
    payload: bytes

    def json(self) -> Any:  # JSON has no narrower type
        """Return the payload of a frame that carries JSON."""
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise FrameError("what arrived is not JSON") from error


class Channel:
    """Frames over a pair of streams. Many threads may send, one receives.

    Buffers of the streams are passed over: a thread that is dropped at the end of the process may hold their locks.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = getattr(reader, "raw", reader)
        self._writer = getattr(writer, "raw", writer)
        self._sending = threading.Lock()

    def greet(self) -> None:
        """Say that from here on frames follow."""
        with self._sending:
            self._write(GREETING)

    def await_greeting(self) -> bytes:
        """Skip what comes before the greeting, and return it.

        Raises:
            FrameError: the stream ended, or too much came before it.
        """
        noise = bytearray()
        while not noise.endswith(GREETING):
            byte = self._reader.read(1)
            if not byte or len(noise) > GREETING_LIMIT_BYTES:
                raise FrameError(noise.decode("utf-8", "replace").strip())
            noise += byte
        return bytes(noise[: -len(GREETING)])

    def send(self, call: int, kind: int, payload: Union[bytes, memoryview] = b"") -> None:
        """Send one frame; raises OSError or ValueError when the other side is gone."""
        # One piece: what is written alone crosses some links alone.
        frame = b"".join((_HEADER.pack(len(payload), call, kind), payload))
        with self._sending:
            self._write(frame)

    def send_json(self, call: int, kind: int, document: Any) -> None:
        """Send one frame that carries JSON."""
        self.send(call, kind, json.dumps(document, separators=(",", ":")).encode())

    def send_data(self, call: int, data: bytes) -> None:
        """Send bytes of any length, in chunks, so that other calls' frames get between them."""
        view = memoryview(data)
        for start in range(0, len(view), CHUNK_BYTES):
            self.send(call, DATA, view[start : start + CHUNK_BYTES])

    def receive(self) -> Optional[Frame]:
        """Wait for the next frame; None when the other side has closed.

        Raises:
            FrameError: the stream ended inside a frame, or holds no frames.
        """
        header = self._exactly(_HEADER.size, at_start=True)
        if not header:
            return None
        length, call, kind = _HEADER.unpack(header)
        if length > _LIMIT_BYTES or not HELLO <= kind <= CANCEL:
            raise FrameError("what arrived is no frame")
        return Frame(call, kind, self._exactly(length))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._writer.write(left) or 0 :]

    def _exactly(self, length: int, *, at_start: bool = False) -> bytes:
        parts: List[bytes] = []
        left = length
        while left:
            part = self._reader.read(left)
            if not part:
                if at_start and not parts:
                    return b""
                raise FrameError("the other side stopped in the middle of a frame")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
