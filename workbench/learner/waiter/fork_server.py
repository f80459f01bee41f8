"""Forks the agents of learners whose turn has come from one process that has imported all they need.

A Python that starts takes most of the time between two jobs. So a waiter of several attempts has one more process,
which holds no secrets and no locks: it forks an agent for each request. The agent lets the waiter know its pid first
and begins once it is told to, so that a request without an answer starts nothing.

Agents are known by a variable of their environment, as the kernel shows it. It shows the memory in which a program
finds its first environment: there is room for that variable, and the agent writes it there.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workbench.learner.journal.state import LOCK_VARIABLE
from workbench.learner.platform import descriptors, run, system
from workbench.learner.platform.errors import Failure

COMMAND = "fork-server"

NAME = "fabric-forks"
"""What the process is called that forks, once it is ready to."""

MARKER = "FABRIC_GUARD"
"""The variable by which an agent is known."""

_ROOM = "FABRIC_GUARD_ROOM"
_ROOM_CHARACTERS = 300
"""A longer marker has no room, and its agent is started otherwise."""

ANSWER_SECONDS = 5.0
"""How long a fork may take."""

_LIMIT_BYTES = 128 * 1024
"""A longer request does not fit into one message."""

_DESCRIPTORS = 64
_GO = b"g"


def serve(number: int, guard: Callable[[str], int]) -> int:
    """Fork an agent for each request that comes by a socket, until that is closed; in an agent return its exit code.

    Args:
        number: the descriptor of the socket.
        guard: keeps the learner of a folder, and returns the exit code; all that it needs is imported.
    """
    system.keep_descriptors_from_children()
    descriptors.restore_limit()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the agents that end
    for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(other, signal.SIG_DFL)
    os.chdir("/")
    with socket.socket(fileno=number) as requests:
        room = _Room()
        requests.sendall(b"ready" if room.is_usable else b"unusable")
        if not room.is_usable:
            return 0
        gc.collect()
        gc.freeze()
        name = system.read_text("/proc/self/comm").strip()
        _rename(NAME)
        while True:
            request, held = _receive(requests)
            if request is None:
                return 0
            if not os.fork():
                _rename(name)
                # Who sees its pid counts it, as every agent, by its marker.
                room.write(str(request["marker"]))
                with contextlib.suppress(OSError):  # the waiter has given up: it tells nobody to begin
                    requests.sendall(b"%d" % os.getpid())
                break
            for descriptor in held:
                os.close(descriptor)
    _become_agent(request, held)
    if not os.read(held[0], 1):
        return 0
    os.close(held[0])
    return guard(os.path.abspath(str(request["folder"])))


def _rename(name: str) -> None:
    """Have ``ps`` and ``top`` show this process by another name."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)


def _become_agent(request: Mapping[str, Any], held: Sequence[int]) -> None:
    """Make a forked process what one is that was started: its session, its streams, and its environment.

    Args:
        request: what the waiter has sent.
        held: the descriptors that came with it: the pipe by which it is told to begin, then the learner's lock.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    output = os.open(str(request["output"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)
    os.environ.clear()
    os.environ.update({**request["environment"], MARKER: str(request["marker"])})
    os.environ[LOCK_VARIABLE] = str(held[1])


class _Room:
    """The part of this process's first environment that is kept for the marker of an agent."""

    def __init__(self) -> None:
        self._at = 0
        self._size = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Fields 50 and 51, counted from 1, of which the first two end with the last bracket.
            fields = system.read_text("/proc/self/stat").rpartition(")")[2].split()
            start, end = int(fields[47]), int(fields[48])
            memory = self._open()
            try:
                content = os.pread(memory, end - start, start)
                name = b"%s=" % _ROOM.encode()
                offset = content.index(b"\0" + name) + 1 if not content.startswith(name) else 0
                self._at, self._size = start + offset, content.index(b"\0", offset) - offset
                os.pwrite(
                    memory, content[offset : offset + 1], self._at
                )  # where that is forbidden there is none
            finally:
                os.close(memory)

    @property
    def is_usable(self) -> bool:
        """Whether there is such a part, and it can be written to."""
        return self._size > 0

    def write(self, marker: str) -> None:
        """Have the kernel show a marker as the agent's."""
        text = ("%s=%s" % (MARKER, marker)).encode()
        memory = self._open()
        try:
            os.pwrite(memory, text.ljust(self._size, b"\0"), self._at)
        finally:
            os.close(memory)

    def _open(self) -> int:
        return os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)


def _has_message(requests: socket.socket) -> bool:
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    return bool(poll.poll(0))


def _receive(requests: socket.socket) -> Tuple[Optional[Dict[str, Any]], List[int]]:
    """Return the next request, with the descriptors that came with it; None once there are no more."""
    numbers = array.array("i")
    data, sent, _, _ = requests.recvmsg(
        _LIMIT_BYTES, socket.CMSG_SPACE(_DESCRIPTORS * numbers.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, part in sent:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(part[: len(part) - len(part) % numbers.itemsize])
    return (json.loads(data) if data else None), list(numbers)


class ForkServer:
    """The waiter's side: the server is started when it is first wanted, and ends with the waiter."""

    def __init__(self, log: str) -> None:
        self._log = log
        """Where the server says what goes wrong."""
        self._requests: Optional[socket.socket] = None
        self._pid = self._ticks = 0
        self._is_ready = False
        self._is_given_up = False
        command = system.read_bytes("/proc/self/cmdline").split(b"\0")[:-1]
        self._program = [os.fsdecode(word) for word in command[:-3]]  # ``waiter`` and its two arguments

    def warm(self) -> None:
        """Have the server start, so that it is ready when it is wanted."""
        if self._requests is not None or self._is_given_up:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, _ROOM: "x" * _ROOM_CHARACTERS}
        try:
            self._pid = run.spawn(
                [*self._program, COMMAND, str(theirs.fileno())],
                environment,
                "/",
                self._log,
                [theirs.fileno()],
            )
        except (Failure, OSError, ValueError):
            self._is_given_up = True
            ours.close()
        else:
            self._ticks = system.start_ticks(self._pid)
            ours.settimeout(ANSWER_SECONDS)
            self._requests = ours
        finally:
            theirs.close()

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        output: str,
        held: Sequence[int],
    ) -> int:
        """Start an agent and return its pid; 0 where none was started, and it is to be started otherwise.

        Args:
            argv: the command that would start it.
            environment: its environment, with its marker.
            output: the file that what it says is appended to.
            held: the descriptors that it inherits; the first of them holds the lock of its learner.
        """
        marker, folder = str(environment.get(MARKER) or ""), argv[-1]
        is_ours = list(argv[:-2]) == self._program and argv[-2] == "guard"
        if self._requests is None or not is_ours or not marker or len(marker) >= _ROOM_CHARACTERS:
            return 0
        request = {
            "folder": folder,
            "marker": marker,
            "output": output,
            "environment": dict(environment),
        }
        data = json.dumps(request).encode()
        if len(data) > _LIMIT_BYTES or len(held) >= _DESCRIPTORS:
            return 0
        wait, go = os.pipe()
        try:
            if not self._is_ready and not _has_message(self._requests):
                return 0  # it still imports
            if not self._is_ready and self._requests.recv(16) != b"ready":
                raise ConnectionAbortedError
            self._is_ready = True
            rights = array.array("i", [wait, *held])
            self._requests.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            pid = int(self._requests.recv(16))
            os.write(go, _GO)
        except (OSError, ValueError):
            # Whatever it has forked is never told to begin; with it go the locks and leases that it was sent.
            self.close()
            self._is_given_up = True
            if system.start_ticks(self._pid) == self._ticks:  # the pid may be somebody else's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            return 0
        finally:
            os.close(wait)
            os.close(go)
        return pid

    def close(self) -> None:
        """Let the server end; agents that it has forked go on."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
