"""Starts agents of learners: forked from one process that is ready to (``fork_server``), or else each by itself."""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import threading
from typing import List, Mapping, Optional, Sequence

from workbench.learner.host.fork_server import (
    COMMAND,
    GO,
    LIMIT_BYTES,
    MARKER,
    MOST_DESCRIPTORS,
    ROOM_CHARACTERS,
    ROOM_VARIABLE,
    SHOWN,
    has_message,
    shown,
)
from workbench.learner.journal.state import LOCK_VARIABLE
from workbench.learner.platform import run, system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders

IMPORT_SECONDS = 0.5
"""How long to wait, from its start, for a server that imports: a Python started instead would slow it down, and be no
faster itself."""

ANSWER_SECONDS = 5.0
"""How long a fork may take."""


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
                {**own, ROOM_VARIABLE: "x" * ROOM_CHARACTERS},
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
        if len(shown(environment)) >= ROOM_CHARACTERS:
            return 0
        request = {
            "folder": folder,
            "environment": dict(environment),
            "lock": list(held).index(int(environment[LOCK_VARIABLE])) + 2
            if LOCK_VARIABLE in environment
            else 0,
        }
        data = json.dumps(request).encode()
        if len(data) > LIMIT_BYTES or len(held) + 2 > MOST_DESCRIPTORS:
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
            if not self._is_ready and not has_message(requests, max(0.0, imports_seconds)):
                return 0  # it still imports
            if not self._is_ready and requests.recv(16) != b"ready":
                raise ConnectionAbortedError
            self._is_ready = True
            rights = array.array("i", [wait, *held])
            requests.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            pid = int(requests.recv(16))
            os.write(go, GO)
            self._used_at = system.elapsed_seconds()
        except (OSError, ValueError):
            # Whatever it has forked never begins; with it go the locks and leases that it was sent.
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
