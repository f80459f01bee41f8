"""Forks the agents of learners from one process that has imported all they need.

A Python that starts takes most of the time between two jobs. So who starts several agents, a waiter or a controller,
has one more process, which holds no secrets and no locks: it forks an agent for each request. The agent answers with
its pid, and begins only when that answer is confirmed, so that a request without an answer starts nothing.

Agents, and the cached environments that they need, are known by variables of their environment, as the kernel shows it.
It shows the memory in which a program finds its first environment: there is room for these variables, and the agent
writes them there.

What this process imports is imported by each agent. ``threading`` and ``random`` have Python call them in every forked
process, where they write into 0.5 MB of pages that were shared until then: nothing here imports them. Who asks for
agents is in ``agent_forks``.
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
from workbench.learner.platform import descriptors, system

COMMAND = "fork-server"

NAME = "fabric-forks"
"""What the process is called that forks, once it is ready to."""

MARKER = "FABRIC_GUARD"
"""The variable by which an agent is known."""

SHOWN = (MARKER, "FABRIC_ENVIRONMENT")
"""The variables that the kernel has to show of an agent."""

ROOM_VARIABLE = "FABRIC_GUARD_ROOM"
ROOM_CHARACTERS = 400
"""What is longer has no room, and its agent is started otherwise."""

LIMIT_BYTES = 128 * 1024
"""A longer request does not fit into one message."""

MOST_DESCRIPTORS = 64
"""More do not come with one."""

GO = b"g"
"""Has an agent begin."""


def serve(number: int, idle_seconds: float, guard: Callable[[str], int]) -> int:
    """Fork an agent for each request that comes by a socket, until that is closed; in an agent return its exit code.

    Args:
        number: the descriptor of the socket.
        idle_seconds: ends, too, where so long no request has come; 0 for never.
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
            if idle_seconds and not has_message(requests, idle_seconds):
                return 0
            request, held = _receive(requests)
            if request is None:
                return 0
            if not os.fork():
                _rename(name)
                # Who sees its pid counts it, as every agent, by its marker.
                room.write(shown(request["environment"]))
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
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, name.encode())
        finally:
            os.close(descriptor)


def _become_agent(request: Mapping[str, Any], held: Sequence[int]) -> None:
    """Make a forked process what one is that was started: its session, its streams, and its environment.

    Args:
        request: what was sent.
        held: the descriptors that came with it: first the pipe by which it is told to begin, then its output.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for source, target in ((null, 0), (held[1], 1), (held[1], 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(held[1])
    environment = request["environment"]
    for name in [one for one in os.environ if one not in environment]:
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:  # most are the same, and what is not written to stays shared
            os.environ[name] = value
    if request["lock"]:
        os.environ[LOCK_VARIABLE] = str(held[request["lock"]])


class _Room:
    """The part of this process's first environment that is kept for what is to be shown of an agent."""

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
                name = b"%s=" % ROOM_VARIABLE.encode()
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

    def write(self, shown: bytes) -> None:
        """Have the kernel show variables as the agent's."""
        memory = self._open()
        try:
            os.pwrite(memory, shown.ljust(self._size, b"\0"), self._at)
        finally:
            os.close(memory)

    def _open(self) -> int:
        return os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)


def shown(environment: Mapping[str, str]) -> bytes:
    """Return those variables of an environment that the kernel has to show, as it shows them."""
    return b"\0".join(f"{name}={environment[name]}".encode() for name in SHOWN if name in environment)


def has_message(requests: socket.socket, wait_seconds: float = 0.0) -> bool:
    """Say whether a message is there, or comes in time."""
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    return bool(poll.poll(wait_seconds * 1000))


def _receive(requests: socket.socket) -> Tuple[Optional[Dict[str, Any]], List[int]]:
    """Return the next request, with the descriptors that came with it; None once there are no more."""
    numbers = array.array("i")
    data, sent, flags, _ = requests.recvmsg(
        LIMIT_BYTES, socket.CMSG_SPACE(MOST_DESCRIPTORS * numbers.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    if flags & socket.MSG_CTRUNC:
        return None, []  # there was no room for all descriptors: leases among them
    for level, kind, part in sent:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(part[: len(part) - len(part) % numbers.itemsize])
    return (json.loads(data) if data else None), list(numbers)
