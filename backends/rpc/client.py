"""The client of the frame protocol: sends calls to an agent over a pipe and hands out the replies."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from backends.contract.errors import error_of
from workbench.errors import BackendError, BackendUnreachable, FabricError
from workbench.learner.platform import frames

SLACK_SECONDS: Final = 30.0
"""Added to an operation's own time limit: how much longer its reply may take."""

BACKLOG_SECONDS: Final = 10.0
"""An agent that serves first come, first served is not late while bulk data has come for so long ago at most."""

LATEST_SECONDS: Final = 600.0
"""How long such an agent's reply is waited for at all."""


class FrameClient:
    """Multiplexes calls to an agent over one pair of streams. Thread-safe.

    Args:
        reader: the stream that the agent writes to.
        writer: the stream that the agent reads from.
        explain: returns why the connection ended, as a sentence.
        name: what to call the host where a disk there is full; empty for none.
    """

    def __init__(
        self, reader: BinaryIO, writer: BinaryIO, explain: Callable[[], str], name: str = ""
    ) -> None:
        self._name = name
        self._channel = frames.Channel(reader, writer)
        self._explain = explain
        self._lock = threading.Lock()
        self._pending: dict[int, PendingCall] = {}
        self._next = 1
        self._lost: FabricError | None = None
        self._bulk_at = -BACKLOG_SECONDS
        self._greeted = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True, name="agent replies")
        self._receiver.start()

    def await_greeting(self, deadline_seconds: float) -> None:
        """Wait for the agent's greeting.

        Raises:
            BackendUnreachable: no greeting came in time, or it is of another version.
        """
        if not self._greeted.wait(deadline_seconds):
            raise BackendUnreachable(f"The backend did not answer within {deadline_seconds:g} seconds.")
        if self._lost is not None:
            raise self._lost

    def request(self, do: str, arguments: Mapping[str, Any], *, seconds: float, stdin: bytes = b"") -> Any:
        """Make a call and return its JSON reply."""
        return self.exchange(do, arguments, seconds=seconds, stdin=stdin)[0]

    def notify(self, do: str, arguments: Mapping[str, Any]) -> None:
        """Make a call without waiting for its reply."""
        call = self.open(do, arguments, seconds=SLACK_SECONDS)
        self.forget(call.number)
        self.send(call.number, frames.END)

    def exchange(
        self, do: str, arguments: Mapping[str, Any], *, seconds: float, stdin: bytes = b""
    ) -> tuple[Any, bytes]:
        """Make a call with input bytes; return its JSON reply and the bytes that came before it.

        Raises:
            BackendUnreachable: the connection is lost, or no reply came in time.
            FabricError: the operation failed on the host.
        """
        call = self.open(do, arguments, seconds=seconds)
        left = memoryview(stdin)
        while left:
            size = self.chunk_bytes
            call.send(bytes(left[:size]))
            left = left[size:]
        call.end()
        return call.result()

    def open(self, do: str, arguments: Mapping[str, Any], *, seconds: float) -> PendingCall:
        """Begin a call whose frames are exchanged one by one; each reply must come within ``seconds``."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            number, self._next = self._next, self._next % 0xFFFFFFFF + 1
            call = PendingCall(self, number, do, seconds)
            self._pending[number] = call
        self.send(number, frames.CALL, json.dumps({"do": do, "with": dict(arguments)}).encode())
        return call

    def send(self, call: int, kind: int, payload: bytes = b"") -> None:
        """Send one frame."""
        try:
            self._channel.send(call, kind, payload)
        except (OSError, ValueError) as error:
            raise self._lose(error) from error

    def forget(self, call: int) -> None:
        """Ignore further replies to a call."""
        with self._lock:
            self._pending.pop(call, None)

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    @property
    def heard_at(self) -> float:
        """When the last byte came, on the monotonic clock."""
        return self._channel.heard_at

    @property
    def chunk_bytes(self) -> int:
        """How much of a stream should go in one frame."""
        return self._channel.chunk_bytes

    @property
    def is_behind(self) -> bool:
        """Whether replies may be on their way behind bulk data: the agent is an older one, and sends such data."""
        is_busy = time.monotonic() < self._bulk_at + BACKLOG_SECONDS
        return is_busy and not self._channel.window.is_paced

    def failure(self, document: Mapping[str, str]) -> FabricError:
        """Return the error that the agent has sent; a disk that takes no more is the host's, not this machine's."""
        kind, message, hint = document["kind"], document["message"], document["hint"]
        if kind == "cannot_write" and self._name:
            return error_of(kind, f"On {self._name}: {message}", hint or f"make room on {self._name}")
        return error_of(kind, message, hint)

    def join(self, seconds: float) -> None:
        """Wait for the receiving thread, which ends with the stream."""
        self._receiver.join(seconds)

    def _receive(self) -> None:
        try:
            self._channel.await_greeting()
            hello = self._channel.receive()
            if hello is None or hello.json().get("format") != frames.FORMAT:
                raise frames.FrameError("the agent there is of another version")
            if hello.json().get(frames.ACKNOWLEDGES):
                self._channel.acknowledge()
            self._greeted.set()
            while (frame := self._channel.receive()) is not None:
                if frame.kind == frames.DATA:
                    self._bulk_at = time.monotonic()
                with self._lock:
                    call = self._pending.get(frame.call)
                if call is not None:
                    call.take(frame)
            self._lose(None)
        except (frames.FrameError, OSError, ValueError) as error:
            self._lose(error)
        finally:
            self._channel.close()
            self._greeted.set()

    def _lose(self, error: Exception | None) -> FabricError:
        reason = self._explain() or str(error or "")
        with self._lock:
            if self._lost is None:
                suffix = f": {reason}" if reason else ""
                self._lost = BackendUnreachable(f"The connection to the backend was lost{suffix}.")
            pending, self._pending = list(self._pending.values()), {}
        for call in pending:
            call.fail(self._lost)
        return self._lost


class PendingCall:
    """A call that waits for replies."""

    def __init__(self, client: FrameClient, number: int, do: str, seconds: float) -> None:
        self._client = client
        self._number = self.number = number
        self._do = do
        self._seconds: float | None = seconds
        self._frames: queue.SimpleQueue[frames.Frame | FabricError] = queue.SimpleQueue()
        self._window = threading.Semaphore(frames.WINDOW_CHUNKS)
        self._has_failed = False

    def take(self, frame: frames.Frame) -> None:
        """Add a received frame; called by the receiving thread."""
        if frame.kind == frames.CREDIT:
            self._window.release()
            return
        self._frames.put(frame)
        if frame.kind == frames.ERROR:
            self._has_failed = True
            self._window.release()  # who sends waits for credit that does not come any more

    def fail(self, error: FabricError) -> None:
        """End the call with an error; called when the connection is lost."""
        self._frames.put(error)
        self._has_failed = True
        self._window.release()

    def send(self, data: bytes) -> None:
        """Send a chunk of the stream that goes with the call, as fast as the other end takes them.

        Raises:
            BackendUnreachable: the other end does not take it in time.
            FabricError: the call has failed there.
        """
        if not self._window.acquire(timeout=self._seconds):
            raise self._late()
        if self._has_failed:
            self._window.release()
            self.next()
        self._client.send(self._number, frames.DATA, data)

    @property
    def chunk_bytes(self) -> int:
        """How much of a stream should go in one chunk."""
        return self._client.chunk_bytes

    def end(self) -> None:
        """End the input stream."""
        self._client.send(self._number, frames.END)

    def credit(self) -> None:
        """Allow the agent to send one more chunk."""
        self._client.send(self._number, frames.CREDIT)

    def wait_without_end(self) -> None:
        """Remove the time limit for replies: the stream may be silent for long."""
        self._seconds = None

    def forget(self) -> None:
        """Ignore further replies."""
        self._client.forget(self._number)

    def cancel(self) -> None:
        """Cancel the call on the host, too."""
        self.forget()
        self._client.send(self._number, frames.CANCEL)

    def next(self) -> frames.Frame:
        """Wait for the next answer.

        Raises:
            BackendUnreachable: it did not come in time.
            FabricError: the call failed there.
        """
        frame = self._await_frame()
        if isinstance(frame, FabricError):
            raise frame
        if frame.kind == frames.ERROR:
            self.forget()
            raise self._client.failure(frame.json())
        return frame

    def _await_frame(self) -> frames.Frame | FabricError:
        begun = time.monotonic()
        while True:
            try:
                return self._frames.get(timeout=self._seconds)
            except queue.Empty:
                if self._client.is_behind and time.monotonic() < begun + LATEST_SECONDS:
                    continue
                self.cancel()
                raise self._late() from None

    def hello(self) -> Any:
        """Wait until the agent is ready for the stream, and return its JSON reply."""
        frame = self.next()
        if frame.kind != frames.HELLO:
            raise BackendError(f"The backend sent an invalid answer to {self._do}.")
        return frame.json()

    def result(self) -> tuple[Any, bytes]:
        """Wait for the JSON reply; return it with the bytes that come before it."""
        data = []
        while (frame := self.next()).kind == frames.DATA:
            data.append(frame.payload)
        self.forget()
        return frame.json(), b"".join(data)

    def _late(self) -> BackendUnreachable:
        return BackendUnreachable(
            f"The backend did not answer {self._do} within {self._seconds or 0:g} seconds."
        )
