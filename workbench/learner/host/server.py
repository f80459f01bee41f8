"""Serves calls that arrive as frames on stdin, each in a thread of its own, and answers on stdout."""

from __future__ import annotations

import io
import os
import queue
import socket
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, Union

from workbench.learner.host import journals
from workbench.learner.host.agent_forks import AgentForks
from workbench.learner.host.operations import HostOperations, guarded
from workbench.learner.platform import files, frames, leases
from workbench.learner.platform import run as host_processes
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import Upload

FIRST_CALL_SECONDS = 600.0
"""How long a client may say nothing at all after the agent has started."""

SESSION_FACTOR = 30
"""How much longer a client may be silent while a command is attached: it may be stopped, as by ctrl-z."""

END_SECONDS = 10.0
"""How long the end of an abandoned agent may take before it ends anyway."""

Answer = Tuple[
    Any, Union[bytes, List[bytes]]
]  # JSON, and the bytes that go before it, in pieces where they are large


NoteOffsets = Callable[[Dict[str, int]], None]


def serve(stdin: BinaryIO, stdout: BinaryIO, note_offsets: Optional[NoteOffsets] = None) -> int:
    """Answer the calls on stdin until it ends; return the exit code of ``python agent.pyz host``.

    Args:
        stdin: where the calls come from.
        stdout: where the answers go.
        note_offsets: takes, of each learner, from which offset of each file a reader goes on: what it has on its disk.
    """
    return FrameServer(stdin, stdout, note_offsets).run()


class FrameServer:
    """Serves one connection. Its locks are released when it ends, except by processes that inherited them."""

    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, note_offsets: Optional[NoteOffsets] = None) -> None:
        self._channel = frames.Channel(stdin, stdout)
        self._note_offsets = note_offsets
        self._operations = HostOperations()
        self._agent_forks = AgentForks()
        self._calls: Dict[int, _Call] = {}
        self._locks: Dict[int, leases.Lease] = {}
        self._next_lock = 1
        self._handlers: Dict[str, Callable[[_Call], Answer]] = {
            "run": self._run,
            "spawn": self._spawn,
            "put": self._put,
            "read": self._read,
            "follow": self._follow,
            "fetch": self._fetch,
            "lock": self._lock,
            "part": self._part,
            "write_lock": self._write_lock,
            "release": self._release,
            "connect": self._connect,
            "exec": self._exec,
            "resize": self._resize,
            "expect_pings": self._expect_pings,
        }
        self._was_called = False
        self._silent_seconds = float("inf")  # a client that promises no pings may be silent
        self._silence_changed = threading.Condition()
        self._sessions: Dict[int, Any] = {}
        self._sessions_lock = threading.Lock()
        self._has_ended = False

    def run(self) -> int:
        """Serve until the other side closes."""
        self._channel.greet()
        self._channel.send_json(0, frames.HELLO, {"format": frames.FORMAT, frames.ACKNOWLEDGES: True})
        threading.Thread(target=self._end_when_abandoned, daemon=True, name="silence").start()
        try:
            while True:
                frame = self._channel.receive()
                if frame is None:
                    return 0
                self._dispatch(frame)
        except frames.FrameError:
            return 1
        finally:
            self._end()

    def _end(self) -> None:
        self._channel.close()
        for call in list(self._calls.values()):
            call.cancel()
        host_processes.end_running()
        with self._sessions_lock:
            self._has_ended = True
            sessions = list(self._sessions.values())
        for session in sessions:
            session.hang_up()
        self._operations.close()

    def _end_when_abandoned(self) -> None:
        """End this process when the client has been silent for too long: a link may be cut without a word.

        The main thread cannot: it waits for bytes that never come.
        """
        with self._silence_changed:
            while (left := self._silence_left()) > 0:
                self._silence_changed.wait(min(left, FIRST_CALL_SECONDS))
        timer = threading.Timer(END_SECONDS, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self._end()
        os._exit(1)

    def _silence_left(self) -> float:
        limit_seconds = self._silent_seconds if self._was_called else FIRST_CALL_SECONDS
        factor = SESSION_FACTOR if self._sessions else 1
        return self._channel.heard_at + limit_seconds * factor - time.monotonic()

    def _expect_pings(self, call: _Call) -> Answer:
        """Take the client's promise that it sends something more often than that."""
        with self._silence_changed:
            self._silent_seconds = float(call.arguments["silent_seconds"])
            self._silence_changed.notify_all()
        return None, b""

    def _dispatch(self, frame: frames.Frame) -> None:
        self._was_called = True
        if frame.kind == frames.CALL:
            call = _Call(frame, self._channel)
            self._calls[frame.call] = call
            threading.Thread(target=self._answer, args=(call,), daemon=True, name=call.name).start()
        elif frame.call in self._calls:
            self._calls[frame.call].take(frame)

    def _answer(self, call: _Call) -> None:
        try:
            handler = self._handlers.get(call.name)
            if handler is not None:
                answer, data = guarded(handler, call)
            else:
                answer, data = self._operations.call(call.name, call.arguments), b""
            for piece in data if isinstance(data, list) else [data]:
                self._send_bytes(call, piece)
            self._channel.send_json(call.number, frames.RESULT, answer)
        except (BrokenPipeError, ValueError) as error:
            if not isinstance(error, BrokenPipeError):
                self._send_error(call, Failure("bad_input", f"{call.name}: {error}"))
        except Failure as error:
            self._send_error(call, error)
        except Exception as error:  # whatever it is, the caller gets it and the others are served
            self._send_error(call, Failure("failed", f"{call.name} failed: {type(error).__name__}: {error}"))
        finally:
            self._calls.pop(call.number, None)

    def _send_bytes(self, call: _Call, data: bytes) -> None:
        left = memoryview(data)
        while left:
            if call.cancelled:
                raise BrokenPipeError("nobody wants the rest")
            size = self._channel.chunk_bytes
            self._channel.send(call.number, frames.DATA, left[:size])
            left = left[size:]

    def _send_error(self, call: _Call, error: Failure) -> None:
        document = {"kind": error.kind, "message": error.message, "hint": error.hint}
        try:
            self._channel.send_json(call.number, frames.ERROR, document)
        except (OSError, ValueError):
            return  # nobody listens any more

    def _run(self, call: _Call) -> Answer:
        stdin = b"".join(call.stream())
        code, stdout, stderr = host_processes.run(stdin=stdin, **call.arguments)
        return {"exit_code": code, "stdout_bytes": len(stdout)}, stdout + stderr

    def _spawn(self, call: _Call) -> Answer:
        arguments = dict(call.arguments)
        locks = [self._locks[number] for number in arguments.pop("holding")]
        holding = [descriptor for lock in locks for descriptor in lock.descriptors()]
        return self._agent_forks.spawn(holding=holding, **arguments), b""

    def _put(self, call: _Call) -> Answer:
        with Upload(**call.arguments) as upload:
            self._channel.send_json(call.number, frames.HELLO, {"offset": upload.offset})
            if upload.offset < 0:
                return None, b""
            for chunk in call.stream():
                upload.write(chunk)
            upload.finish()
        return None, b""

    def _read(self, call: _Call) -> Answer:
        found = files.read(**call.arguments)
        sizes = {path: [len(data), offset, end] for path, (data, offset, end) in found.items()}
        return sizes, b"".join(data for data, _, _ in found.values())

    def _follow(self, call: _Call) -> Answer:
        arguments = dict(call.arguments)
        if self._note_offsets is not None:
            for offsets in arguments["known"].values():
                self._note_offsets(offsets)
        follower = self._operations.followers.of(arguments.pop("asker"))
        news = follower.follow(**arguments, budget_bytes=self._budget_bytes)
        self._channel.send_json(call.number, frames.HELLO, journals.sizes_of(news))
        return None, [part[0] for parts in news.values() for part in parts.values()]

    def _budget_bytes(self) -> int:
        """Return how much one answer may hold: what the link carries in a second, so that the next is not far."""
        window = self._channel.window
        return window.bytes_per_second if window.is_paced else journals.ANSWER_BYTES

    def _fetch(self, call: _Call) -> Answer:
        from workbench.learner.host.trees import send_files

        with io.BufferedWriter(_Outgoing(call, self._channel), frames.CHUNK_BYTES) as stream:
            send_files(
                call.arguments["folder"], call.arguments["paths"], stream, call.arguments.get("within", "")
            )
        return None, b""

    def _lock(self, call: _Call) -> Answer:
        lease = leases.take(**call.arguments)
        return (None if lease is None else self._keep(lease)), b""

    def _part(self, call: _Call) -> Answer:
        return self._keep(self._locks[call.arguments["lock"]].part(call.arguments["names"])), b""

    def _write_lock(self, call: _Call) -> Answer:
        self._locks[call.arguments["lock"]].write(call.arguments["text"])
        return None, b""

    def _release(self, call: _Call) -> Answer:
        lease = self._locks.pop(call.arguments["lock"], None)
        if lease is not None:
            lease.release()
        return None, b""

    def _keep(self, lease: leases.Lease) -> int:
        number, self._next_lock = self._next_lock, self._next_lock + 1
        self._locks[number] = lease
        return number

    def _connect(self, call: _Call) -> Answer:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(call.arguments["path"])
            self._channel.send_json(call.number, frames.HELLO, {})
            sender = threading.Thread(target=self._send_from, args=(call, stream), daemon=True)
            sender.start()
            for chunk in call.stream():
                stream.sendall(chunk)
            stream.shutdown(socket.SHUT_WR)
            sender.join()
        return None, b""

    def _exec(self, call: _Call) -> Answer:
        from workbench.learner.host.exec import CommandSession

        with self._sessions_lock:  # so that none is begun and not yet known when all are to be ended
            if self._has_ended:
                raise Failure("failed", "The connection is being closed.")
            session = self._sessions[call.number] = CommandSession(**call.arguments)
        try:
            self._channel.send_json(call.number, frames.HELLO, {"session": call.number})
            threading.Thread(target=self._feed, args=(call, session), daemon=True).start()

            def take(stream: int, data: bytes) -> None:
                left = memoryview(data)
                while left:
                    call.window.acquire()
                    if call.cancelled:
                        return
                    size = self._channel.chunk_bytes
                    self._channel.send(call.number, frames.DATA, b"".join((bytes((stream,)), left[:size])))
                    left = left[size:]

            return {"exit_code": session.relay(take, lambda: call.cancelled)}, b""
        finally:
            self._sessions.pop(call.number, None)
            session.hang_up()
            session.close()

    def _feed(self, call: _Call, session: Any) -> None:
        try:
            for chunk in call.stream():
                session.write(chunk)
            session.end_input()
        except Failure:
            return  # whoever sat in front of it is gone, which is noticed where its output is carried

    def _resize(self, call: _Call) -> Answer:
        session = self._sessions.get(call.arguments["session"])
        if session is not None:
            session.resize(call.arguments["rows"], call.arguments["columns"])
        return None, b""

    def _send_from(self, call: _Call, stream: socket.socket) -> None:
        try:
            while call.window.acquire():
                data = stream.recv(self._channel.chunk_bytes)
                self._channel.send(call.number, frames.DATA if data else frames.END, data)
                if not data:
                    return
        except OSError:
            call.cancel()


class _Call:
    """One call in progress, and the stream of bytes that comes with it."""

    def __init__(self, frame: frames.Frame, channel: frames.Channel) -> None:
        document = frame.json()
        self.number = frame.call
        self.name = str(document["do"])
        self.arguments: Dict[str, Any] = document.get("with") or {}
        self.window = threading.Semaphore(frames.WINDOW_CHUNKS)
        self._channel = channel
        self._incoming: "queue.Queue[Optional[bytes]]" = queue.Queue()
        self._cancelled = False

    def take(self, frame: frames.Frame) -> None:
        """Take a frame that belongs to this call."""
        if frame.kind == frames.DATA:
            self._incoming.put(frame.payload)
        elif frame.kind == frames.END:
            self._incoming.put(None)
        elif frame.kind == frames.CREDIT:
            self.window.release()
        elif frame.kind == frames.CANCEL:
            self.cancel()

    def stream(self) -> "_Incoming":
        """Return the bytes that come with this call, in chunks."""
        return _Incoming(self)

    def cancel(self) -> None:
        """End the stream: the other side has given the call up, or is gone."""
        self._cancelled = True
        self._incoming.put(None)
        self.window.release()

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the rest."""
        return self._cancelled

    def next_chunk(self) -> Optional[bytes]:
        """Return the next chunk, None at the end.

        Raises:
            Failure: the stream was cut off.
        """
        chunk = self._incoming.get()
        if chunk is None:
            if self._cancelled:
                raise Failure("failed", f"{self.name} was cut off.")
            return None
        self._channel.send(self.number, frames.CREDIT)
        return chunk


class _Incoming:
    def __init__(self, call: _Call) -> None:
        self._call = call

    def __iter__(self) -> "_Incoming":
        return self

    def __next__(self) -> bytes:
        chunk = self._call.next_chunk()
        if chunk is None:
            raise StopIteration
        return chunk


class _Outgoing(io.RawIOBase):
    """Bytes that go with the answer, no faster than the other side takes them."""

    def __init__(self, call: _Call, channel: frames.Channel) -> None:
        self._call = call
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = view = memoryview(data)
        while left:
            self._call.window.acquire()
            if self._call.cancelled:
                raise BrokenPipeError("nobody wants the rest")
            size = self._channel.chunk_bytes
            self._channel.send(self._call.number, frames.DATA, bytes(left[:size]))
            left = left[size:]
        return len(view)
