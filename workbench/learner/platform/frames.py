"""The protocol on the pipe to an agent: one line of greeting, then frames with length, call and kind.

The line lets the other side skip what a login shell prints first. Both sides then say their format.
Many calls are under way at once. Bulk data (DATA frames) goes in chunks through a window, which bounds how long a frame
of another kind waits behind them. What has arrived of it is acknowledged by a CREDIT frame of call 0: a side that knows
nothing of that ignores it, and to one that acknowledges nothing all is sent at once.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from typing import Any, BinaryIO, List, NamedTuple, Optional, Union

from workbench.learner.platform.send_window import ACKNOWLEDGED_BYTES, SendWindow

FORMAT = 1
GREETING = b"\nfabric-host\n"
GREETING_LIMIT_BYTES = 256 * 1024
"""A login shell that prints more than this before us is not listened to."""

CHUNK_BYTES = 256 * 1024
WINDOW_CHUNKS = 32
"""How many chunks of a stream may be under way without an answer."""

HELLO, CALL, DATA, END, RESULT, ERROR, CREDIT, CANCEL = range(1, 9)

ACKNOWLEDGES = "acknowledges"
"""The key of HELLO by which the agent says that it acknowledges bulk data, and waits to be acknowledged."""

_HEADER = struct.Struct(">IIB")
_RECEIVED = struct.Struct(">Q")
_NO_CALL = 0
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
        self.window = SendWindow()
        """Bounds the bulk data that is on its way to the other side."""
        self.heard_at = time.monotonic()
        """When the last byte came, on the monotonic clock."""
        self._received = 0
        self._arrived = threading.Condition()
        self._acknowledging: Optional[threading.Thread] = None
        self._is_closed = False

    @property
    def chunk_bytes(self) -> int:
        """How much of bulk data should go in one frame."""
        return self.window.frame_bytes(CHUNK_BYTES)

    def acknowledge(self) -> None:
        """Begin to acknowledge bulk data, and to bound what is sent: the other side does so, too."""
        if self._acknowledging is None:
            self.window.pace()
            # The thread that receives must never wait to send: when both sides did, neither would receive.
            self._acknowledging = threading.Thread(target=self._acknowledge, daemon=True, name="acknowledge")
            self._acknowledging.start()

    def close(self) -> None:
        """Wake those who wait to send: the stream has ended."""
        self.window.close()
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()

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
        """Send one frame; raises OSError or ValueError when the other side is gone.

        Bulk data waits for the window; all else is sent at once.
        """
        if kind == DATA:
            self.window.reserve(len(payload))
        # One piece: what is written alone crosses some links alone.
        frame = b"".join((_HEADER.pack(len(payload), call, kind), payload))
        with self._sending:
            self._write(frame)

    def send_json(self, call: int, kind: int, document: Any) -> None:
        """Send one frame that carries JSON."""
        self.send(call, kind, json.dumps(document, separators=(",", ":")).encode())

    def receive(self) -> Optional[Frame]:
        """Wait for the next frame; None when the other side has closed.

        Raises:
            FrameError: the stream ended inside a frame, or holds no frames.
        """
        while True:
            header = self._exactly(_HEADER.size, at_start=True)
            if not header:
                return None
            length, call, kind = _HEADER.unpack(header)
            if length > _LIMIT_BYTES or not HELLO <= kind <= CANCEL:
                raise FrameError("what arrived is not a frame")
            frame = Frame(call, kind, self._exactly(length))
            if kind == DATA:
                self._count(length)
            if call != _NO_CALL or kind != CREDIT:
                return frame
            self._take_acknowledgement(frame.payload)

    def _count(self, length: int) -> None:
        with self._arrived:
            self._received += length
            self._arrived.notify_all()

    def _take_acknowledgement(self, payload: bytes) -> None:
        if len(payload) != _RECEIVED.size:
            raise FrameError("what arrived is not an acknowledgement")
        self.acknowledge()
        self.window.acknowledge(_RECEIVED.unpack(payload)[0])

    def _acknowledge(self) -> None:
        """Acknowledge what has arrived, first of all that nothing has: by that the other side knows of it."""
        sent = -ACKNOWLEDGED_BYTES
        while True:
            with self._arrived:
                while not self._is_closed and self._received - sent < ACKNOWLEDGED_BYTES:
                    self._arrived.wait()
                if self._is_closed:
                    return
                sent = self._received
            try:
                self.send(_NO_CALL, CREDIT, _RECEIVED.pack(sent))
            except (OSError, ValueError):
                return  # whoever receives finds out that the stream has ended

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
            self.heard_at = time.monotonic()
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
