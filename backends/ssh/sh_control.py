"""Shells for what must not wait on a host that has only a shell: stops, and how learners are.

A shell does one thing after another, so a script that hangs holds up all behind it until its time is over. A stop runs
in a shell of its own therefore, on a session more of the same connection. Where the host gives none it waits its turn.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from backends.ssh.connection import Pipe
from backends.ssh.sh_client import ANSWER_SECONDS, ScriptResult, ShellClient
from workbench.errors import FabricError

SHELL: Final = "exec sh"
"""The command of a session; what the login shell prints before is passed over."""
START_SECONDS: Final = 10.0
KEPT: Final = 1
"""So many shells wait for the next script; more are closed: hosts allow few sessions."""
REFUSED_SECONDS: Final = 60.0
"""So long a host that gave no session is not asked for one."""

OpenShell = Callable[[], Pipe]
"""Starts one more shell there; raises a FabricError where the host gives no session."""


class ControlShells(ShellClient):
    """Runs each script in a shell that nobody uses, one more where there is none; thread-safe."""

    def __init__(self, main: ShellClient, another: OpenShell) -> None:
        super().__init__(main.pipe)
        self._main = main
        self._another = another
        self._idle: list[ShellClient] = []
        self._is_closed = False
        self._refused_at = -REFUSED_SECONDS
        self._changing = threading.Lock()

    def sh(self, script: str, *, seconds: float = ANSWER_SECONDS, bulk: bool = False) -> ScriptResult:
        """Run a script, beside all others, and return what it printed.

        Raises:
            BackendUnreachable: the connection is lost, or there was no answer in time.
        """
        with self._shell() as shell:
            return shell.sh(script, seconds=seconds, bulk=bulk)

    def close(self) -> None:
        """End the shells that wait; one that is used ends when its script has."""
        with self._changing:
            self._is_closed = True
            left, self._idle = self._idle, []
        for shell in left:
            shell.pipe.close()

    @contextlib.contextmanager
    def _shell(self) -> Iterator[ShellClient]:
        shell = self._take()
        try:
            yield shell
        finally:
            self._give_back(shell)

    def _take(self) -> ShellClient:
        with self._changing:
            if self._idle:
                return self._idle.pop()
            if self._is_closed or time.monotonic() < self._refused_at + REFUSED_SECONDS:
                return self._main
        pipe: Pipe | None = None
        try:
            pipe = self._another()
            shell = ShellClient(pipe)
            shell.sh("true", seconds=START_SECONDS)
        except FabricError:
            self._refused_at = time.monotonic()
            if pipe is not None:
                pipe.close()
            return self._main
        return shell

    def _give_back(self, shell: ShellClient) -> None:
        if shell is self._main:
            return
        with self._changing:
            if not shell.lost and not self._is_closed and len(self._idle) < KEPT:
                self._idle.append(shell)
                return
        shell.pipe.close()
