"""Forks the agents of learners from one process that has imported all they need.

A Python that starts takes most of the time between two jobs. So who starts several agents, a waiter or a controller,
has one more process, which holds no secrets and no locks: it forks an agent for each request. The agent answers with
its pid, and begins only when that answer is confirmed, so that a request without an answer starts nothing.

Agents, and the cached environments that they need, are known by variables of their environment, as the kernel shows it.
It shows the memory in which a program finds its first environment: there is room for these variables, and the agent
writes them there.
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
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workbench.learner.journal.state import LOCK_VARIABLE
from workbench.learner.platform import descriptors, run, system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders

COMMAND = "fork-server"

NAME = "fabric-forks"
"""What the process is called that forks, once it is ready to."""

MARKER = "FABRIC_GUARD"
"""The variable by which an agent is known."""

SHOWN = (MARKER, "FABRIC_ENVIRONMENT")
"""The variables that the kernel has to show of an agent."""

_ROOM = "FABRIC_GUARD_ROOM"
_ROOM_CHARACTERS = 400
"""What is longer has no room, and its agent is started otherwise."""

IMPORT_SECONDS = 0.5
"""How long to wait, from its start, for a server that imports: a Python started instead would slow it down, and be no
faster itself."""

ANSWER_SECONDS = 5.0
"""How long a fork may take."""

_LIMIT_BYTES = 128 * 1024
"""A longer request does not fit into one message."""

_DESCRIPTORS = 64
_GO = b"g"


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
            if idle_seconds and not _has_message(requests, idle_seconds):
                return 0
            request, held = _receive(requests)
            if request is None:
                return 0
            if not os.fork():
                _rename(name)
                # Who sees its pid counts it, as every agent, by its marker.
                room.write(_shown(request["environment"]))
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
    os.environ.clear()
    os.environ.update(request["environment"])
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

    def write(self, shown: bytes) -> None:
        """Have the kernel show variables as the agent's."""
        memory = self._open()
        try:
            os.pwrite(memory, shown.ljust(self._size, b"\0"), self._at)
        finally:
            os.close(memory)

    def _open(self) -> int:
        return os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)


def _shown(environment: Mapping[str, str]) -> bytes:
    """Return those variables of an environment that the kernel has to show, as it shows them."""
    return b"\0".join(f"{name}={environment[name]}".encode() for name in SHOWN if name in environment)


def _has_message(requests: socket.socket, wait_seconds: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    return bool(poll.poll(wait_seconds * 1000))


def _receive(requests: socket.socket) -> Tuple[Optional[Dict[str, Any]], List[int]]:
    """Return the next request, with the descriptors that came with it; None once there are no more."""
    numbers = array.array("i")
    data, sent, flags, _ = requests.recvmsg(
        _LIMIT_BYTES, socket.CMSG_SPACE(_DESCRIPTORS * numbers.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    if flags & socket.MSG_CTRUNC:
        return None, []  # there was no room for all descriptors: leases among them
    for level, kind, part in sent:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(part[: len(part) - len(part) % numbers.itemsize])
    return (json.loads(data) if data else None), list(numbers)


def own_program() -> List[str]:
    """Return the words that start this agent's program, where this process is a waiter."""
    command = system.read_bytes("/proc/self/cmdline").split(b"\0")[:-1]
    return [os.fsdecode(word) for word in command[:-3]]  # ``waiter`` and its two arguments


class ForkServer:
    """The side of who starts agents: the server is started when it is first wanted, and ends with this process.

    Args:
        log: the file in which the server says what goes wrong.
        program: the words that start the agent's program.
        idle_seconds: the server ends before where so long nothing was asked of it; 0 for never.
    """

    def __init__(self, log: str, program: Sequence[str], idle_seconds: float = 0.0) -> None:
        self._log = log
        self._program = list(program)
        self._idle_seconds = idle_seconds
        self._used_at = self._warm_at = 0.0
        self._requests: Optional[socket.socket] = None
        self._pid = self._ticks = 0
        self._is_ready = False
        self._is_given_up = False

    @property
    def program(self) -> Sequence[str]:
        """The words that start the agent's program."""
        return self._program

    @property
    def is_given_up(self) -> bool:
        """Whether agents are started otherwise, since this did not work once."""
        return self._is_given_up

    def warm(self, environment: Mapping[str, str]) -> None:
        """Have the server start, so that it is ready when it is wanted.

        Args:
            environment: the server's, which the kernel shows of the agents, too.
        """
        self._close_idle()
        if self._requests is not None or self._is_given_up:
            return
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:  # no room for it, or no such sockets: macOS
            self._is_given_up = True
            return
        own = {name: value for name, value in environment.items() if name not in SHOWN}
        try:
            self._pid = run.spawn(
                [*self._program, COMMAND, str(theirs.fileno()), str(self._idle_seconds)],
                {**own, _ROOM: "x" * _ROOM_CHARACTERS},
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
            self._requests, self._is_ready = ours, False
            self._used_at = self._warm_at = system.elapsed_seconds()
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
            held: the descriptors that it inherits. Where one holds the lock of its learner, its environment says which.
        """
        self._close_idle()
        folder = argv[-1]
        is_ours = list(argv[:-2]) == self._program and argv[-2] == "guard"
        if self._requests is None or not is_ours or not environment.get(MARKER):
            return 0
        if len(_shown(environment)) >= _ROOM_CHARACTERS:
            return 0
        request = {
            "folder": folder,
            "environment": dict(environment),
            "lock": list(held).index(int(environment[LOCK_VARIABLE])) + 2
            if LOCK_VARIABLE in environment
            else 0,
        }
        data = json.dumps(request).encode()
        if len(data) > _LIMIT_BYTES or len(held) + 2 > _DESCRIPTORS:
            return 0
        run.reap()
        make_folders([os.path.dirname(output)])
        written = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return self._ask(self._requests, data, [written, *held])
        finally:
            os.close(written)

    def _ask(self, requests: socket.socket, data: bytes, held: Sequence[int]) -> int:
        """Have an agent forked, and tell it to begin; return its pid, 0 where there is none."""
        try:
            wait, go = os.pipe()
        except OSError:
            return 0
        try:
            imports_seconds = self._warm_at + IMPORT_SECONDS - system.elapsed_seconds()
            if not self._is_ready and not _has_message(requests, max(0.0, imports_seconds)):
                return 0  # it still imports
            if not self._is_ready and requests.recv(16) != b"ready":
                raise ConnectionAbortedError
            self._is_ready = True
            rights = array.array("i", [wait, *held])
            requests.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            pid = int(requests.recv(16))
            os.write(go, _GO)
            self._used_at = system.elapsed_seconds()
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

    def _close_idle(self) -> None:
        """Let go of a server that ends soon, or has ended, since nothing was asked of it."""
        if self._idle_seconds and system.elapsed_seconds() - self._used_at > self._idle_seconds / 2:
            self.close()

    def __del__(self) -> None:
        self.close()  # a connection that is shared is dropped, never closed

    def close(self) -> None:
        """Let the server end; agents that it has forked go on."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None


BURST_SECONDS = 2.0
"""Agents that are started so soon after one another are the first of many."""

IDLE_SECONDS = 30.0
"""How long a process that forks agents waits for the next one to be wanted."""

AGAIN_SECONDS = 60.0
"""After this another one is tried where one has failed."""


class AgentForks:
    """Starts processes; agents of learners are forked once several are started one soon after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: Optional[ForkServer] = None
        self._started_at = -BURST_SECONDS
        self._made_at = 0.0

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: str, holding: Sequence[int]
    ) -> int:
        """Start a process as :func:`run.spawn` does; return its pid."""
        forked = self._fork(list(argv), env, output, holding) if cwd == "/" else 0
        return forked or run.spawn(argv, env, cwd, output, holding)

    def _fork(self, argv: List[str], env: Mapping[str, str], output: str, holding: Sequence[int]) -> int:
        """Fork an agent and return its pid; 0 where it is to be started otherwise."""
        if argv[-2:-1] != ["guard"]:
            return 0
        with self._lock:
            now = system.elapsed_seconds()
            is_first, self._started_at = now - self._started_at > BURST_SECONDS, now
            server = self._server
            if server is not None and server.is_given_up and now - self._made_at > AGAIN_SECONDS:
                server = None
            if server is not None and server.program != argv[:-2]:
                server.close()
                server = None
            if server is None and not is_first:
                server, self._made_at = ForkServer(os.devnull, argv[:-2], IDLE_SECONDS), now
            self._server = server
            if server is None:
                return 0
            if not is_first:
                server.warm(env)
            return server.start(argv, env, output, holding)

    def close(self) -> None:
        """Let the process end that forks; agents go on."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None
