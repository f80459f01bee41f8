"""The socket of a home's waiter at a host, and how it is asked: a line of JSON there, a line of JSON back.

The socket has a name and no file (Linux's abstract names): nobody can remove it, and it is gone with its process. As
anybody may take a name, each side asks the kernel whose process the other one is, before it says a word.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from workbench.learner.platform import run, system
from workbench.learner.platform.errors import Failure

FORMAT = 3
"""The newest of requests that this waiter serves; one that is newer is refused."""

GATES_FORMAT = 2
"""Of a request with gates, or of an attempt that needs no GPUs or runs in containers."""

PLAIN_FORMAT = 1
"""Of a request that every waiter understands: processes that wait for GPUs, behind no gate."""

_OF_CONTAINERS = ("shell_secrets_suffix", "needs_port", "binds_cpus")
"""Keys of a ticket whose learners run in containers."""

LIMIT_BYTES = 16 << 20
"""A longer request is refused."""

REACH_SECONDS = 10.0
"""How long a waiter may take to begin, or to answer."""

POKE_SECONDS = 2.0
"""How long who only says that there is something to see waits for an answer."""

CONVERSATIONS = 64
"""So many are under way at once; others wait until one is over."""

REST_SECONDS = 0.5
"""How long nobody is let in after the system had no room for one more."""

STARTS = 3
"""How often a waiter is started that ends before it answers."""

BEGIN_SECONDS = 2.0
"""How long nobody starts another waiter while one that another thread has started begins."""

_PAUSE_SECONDS = 0.02
_REPLY_SECONDS = 2.0
_CHUNK_BYTES = 1 << 16
_INT = struct.Struct("i")
_DESCRIPTORS = 4
"""So many open files are taken from a client at once; one is used."""

_begun: Dict[str, Tuple[float, int]] = {}
"""When this process last started a waiter of a home, and which process that is."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


class NoWaiter(Failure):
    """Nobody answers: there is no waiter, or it has just ended."""

    def __init__(self, message: str, *, is_gone: bool) -> None:
        super().__init__("missing", message)
        self.is_gone = is_gone
        """Whether nobody has the name; else it is about to be free."""


def format_of(ticket: Mapping[str, Any]) -> int:
    """Return the oldest format of a request that a ticket can be sent with."""
    if ticket.get("limit") is not None:
        return FORMAT
    has_gates = ticket.get("begin_us") is not None or bool(ticket.get("after"))
    is_newer = has_gates or not ticket.get("each") or any(key in ticket for key in _OF_CONTAINERS)
    return GATES_FORMAT if is_newer else PLAIN_FORMAT


def is_possible() -> bool:
    """Say whether this system has names of sockets without files."""
    return sys.platform.startswith("linux")


def ask(
    home: str, request: Mapping[str, Any], timeout_seconds: float, descriptor: Optional[int] = None
) -> Dict[str, Any]:
    """Send a request to the waiter of a home, with an open file where there is one, and return its answer.

    Raises:
        NoWaiter: there is none, or it ended meanwhile.
        Failure: ``not_allowed``: another user has its name. ``timeout``: it does not answer. Any other is what the
            waiter says itself.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout_seconds)
            stream.connect(_address(home))
            person = _person(stream)
            if person != os.geteuid():
                raise Failure(
                    "not_allowed",
                    f"A process of {system.user_name(person)} has the name of this home's waiter.",
                    "Ask them to end it; jobs wait without the host's help until then.",
                )
            _send(stream, json.dumps(request).encode() + b"\n", descriptor)
            answer = _object(_received(stream))
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise NoWaiter("No waiter runs for this home.", is_gone=True) from error
    except socket.timeout as error:
        raise Failure("timeout", "The waiter at the host does not answer.") from error
    except (ConnectionError, BlockingIOError) as error:
        raise NoWaiter("The waiter at the host has just ended.", is_gone=False) from error
    if answer is None:
        raise NoWaiter("The waiter at the host has just ended.", is_gone=False)
    if "error" in answer:
        raise Failure(str(answer["error"]), str(answer.get("message")), str(answer.get("hint") or ""))
    return answer


def insist(
    home: str,
    request: Mapping[str, Any],
    argv: Sequence[str],
    env: Mapping[str, str],
    log: str,
    descriptor: Optional[int] = None,
) -> Dict[str, Any]:
    """Send a request to the waiter of a home, which is started where none runs, and return its answer.

    Args:
        home: the home's uuid.
        request: what may be sent twice: a waiter that ends meanwhile may have seen it.
        argv: the command that is a waiter.
        env: its environment.
        log: the file that its output is appended to.
        descriptor: an open file that the waiter is to have, too.

    Raises:
        Failure: it cannot be started, does not answer for too long, or refuses the request.
    """
    until = time.monotonic() + REACH_SECONDS
    started: List[int] = []
    while True:
        try:
            return ask(home, request, max(_PAUSE_SECONDS, until - time.monotonic()), descriptor)
        except NoWaiter as error:
            is_dead = not started or not system.start_ticks(started[-1])
            if time.monotonic() > until or (is_dead and len(started) == STARTS):
                raise _not_reached(log) from error
            if error.is_gone and is_dead and not _another_begins(home):
                _begun[home] = (time.monotonic(), os.getpid())  # until it is known which process that is
                try:
                    started.append(run.spawn(argv, env, "/", log, ()))
                except (Failure, OSError):
                    _begun.pop(home, None)
                    raise
                _begun[home] = (time.monotonic(), started[-1])
        time.sleep(_PAUSE_SECONDS)


def _another_begins(home: str) -> bool:
    """Say whether another thread of this process has just started a waiter of a home: of two one would end at once."""
    began_at, pid = _begun.get(home, (0.0, 0))
    return time.monotonic() - began_at < BEGIN_SECONDS and bool(pid and system.start_ticks(pid))


def poke(home: str) -> None:
    """Let the waiter of a home look at once for what has changed; nothing happens where there is none."""
    with contextlib.suppress(Failure, OSError):
        ask(home, {"act": "look"}, POKE_SECONDS)


def _not_reached(log: str) -> Failure:
    lines = system.read_text(log)[-4096:].strip().splitlines()
    why = f": {lines[-1]}" if lines else "."
    return Failure("failed", f"The waiter at the host could not be started{why}", f"See {log}.")


class Conversation:
    """One client that is connected: its request as far as it has come, and the way to answer it."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._data = bytearray()
        self.until = time.monotonic() + REACH_SECONDS
        """When it has taken too long, on the monotonic clock."""
        self._descriptors: List[int] = []
        stream.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is more."""
        return self._stream.fileno()

    def read(self) -> Optional[Dict[str, Any]]:
        """Take what has come; return the request once it is whole.

        Raises:
            Failure: it is no request, or too long.
            ConnectionError: the client is gone.
        """
        while b"\n" not in self._data[-_CHUNK_BYTES:]:
            try:
                data = self._receive()
            except BlockingIOError:
                return None
            if not data:
                raise ConnectionAbortedError
            self._data += data
            if len(self._data) > LIMIT_BYTES:
                raise Failure("bad_input", "What the waiter was sent is too long.")
        request = _object(bytes(self._data))
        if request is None:
            raise Failure("bad_input", "The waiter was sent something that it does not understand.")
        return request

    def _receive(self) -> bytes:
        data, sent, _, _ = self._stream.recvmsg(
            _CHUNK_BYTES, socket.CMSG_SPACE(_DESCRIPTORS * _INT.size), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, numbers in sent:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(numbers) - len(numbers) % _INT.size
                self._descriptors += [one for (one,) in _INT.iter_unpack(numbers[:whole])]
        return data

    def take_descriptor(self) -> Optional[int]:
        """Return the open file that came with the request, which is the caller's from now on; None without one."""
        return self._descriptors.pop() if self._descriptors else None

    def answer(self, document: Mapping[str, Any]) -> None:
        """Answer and close; a client that does not take the answer gets none."""
        with contextlib.suppress(OSError):
            self._stream.settimeout(_REPLY_SECONDS)
            self._stream.sendall(json.dumps(document).encode() + b"\n")
        self.close()

    def fail(self, error: Failure) -> None:
        """Answer that it did not work, and close."""
        self.answer({"error": error.kind, "message": error.message, "hint": error.hint})

    def close(self) -> None:
        """Close it without a word, and what came with it and was not taken."""
        self._stream.close()
        while self._descriptors:
            os.close(self._descriptors.pop())


class WaiterSocket:
    """The waiter's side of the socket. It exists once for a user and a home at a host.

    Raises:
        OSError: another process has the name.
    """

    def __init__(self, home: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._conversations: Dict[int, Conversation] = {}
        self._accepts_at = 0.0
        try:
            self._listener.bind(_address(home))
            self._listener.listen(CONVERSATIONS)
            self._listener.setblocking(False)
        except OSError:
            self._listener.close()
            raise

    def register(self, poll: select.poll) -> None:
        """Have a poll return when somebody asks for something."""
        if len(self._conversations) < CONVERSATIONS and time.monotonic() >= self._accepts_at:
            poll.register(self._listener, select.POLLIN)
        for conversation in self._conversations.values():
            poll.register(conversation, select.POLLIN)

    @property
    def is_used(self) -> bool:
        """Whether somebody is connected."""
        return bool(self._conversations)

    def requests(self) -> List[Tuple[Conversation, Dict[str, Any]]]:
        """Return the requests that have come, each with the conversation in which it is to be answered."""
        self._accept()
        found: List[Tuple[Conversation, Dict[str, Any]]] = []
        for number, conversation in list(self._conversations.items()):
            try:
                request = conversation.read()
            except Failure as error:
                conversation.fail(error)
            except OSError:
                conversation.close()
            else:
                if request is not None:
                    found.append((conversation, request))
                elif time.monotonic() < conversation.until:
                    continue
                else:
                    conversation.close()
            del self._conversations[number]
        return found

    def close(self) -> None:
        """Give the name back; who is connected finds the connection closed."""
        self._listener.close()
        while self._conversations:
            self._conversations.popitem()[1].close()

    def _accept(self) -> None:
        while len(self._conversations) < CONVERSATIONS:
            try:
                stream, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # There is no descriptor for one more now: without a rest we would ask again and again.
                self._accepts_at = time.monotonic() + REST_SECONDS
                return
            try:
                is_ours = _person(stream) == os.geteuid()
            except OSError:
                is_ours = False
            if is_ours:
                self._conversations[stream.fileno()] = Conversation(stream)
            else:
                stream.close()


def _address(home: str) -> str:
    return "\0fabric-waiter-%d-%s" % (os.geteuid(), hashlib.sha256(home.encode()).hexdigest()[:16])


def _person(stream: socket.socket) -> int:
    """Return the user whose process is at the other end, as the kernel knows it."""
    found = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


def _send(stream: socket.socket, data: bytes, descriptor: Optional[int]) -> None:
    sent = 0
    if descriptor is not None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))
        sent = stream.sendmsg([data], [rights])
    if sent < len(data):  # else who was sent all may have answered and closed, and no bytes fail there, too
        stream.sendall(data[sent:])


def _received(stream: socket.socket) -> bytes:
    parts: List[bytes] = []
    while data := stream.recv(_CHUNK_BYTES):
        parts.append(data)
    return b"".join(parts)


def _object(data: bytes) -> Optional[Dict[str, Any]]:
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
