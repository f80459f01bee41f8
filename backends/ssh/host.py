"""An SSH host as a place: one connection, one session, and all that is done there in frames on it."""

from __future__ import annotations

import contextlib
from typing import Final

from backends.rpc.client import FrameClient
from backends.rpc.heartbeat import SILENT_SECONDS, Heartbeat
from backends.rpc.host import FrameHost
from backends.ssh.bootstrap import AgentRequest
from backends.ssh.connection import Pipe, SshConnection, session_on

GREETING_SECONDS: Final = 30.0


class SshHost(FrameHost):
    """A host behind a pipe that SSH made.

    Args:
        pipe: the command's stdin and stdout; the agent is about to speak there.
        wanted: what is to run there.
        connection: what the pipe is on, to be closed with it.
        silent_seconds: how long it may say nothing though it was asked, before it counts as lost.
        engine: the socket of its container engine; empty looks for one.
    """

    def __init__(
        self,
        pipe: Pipe,
        wanted: AgentRequest,
        connection: SshConnection | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
        engine: str = "",
    ) -> None:
        self.engine = engine
        self._pipe = pipe
        self._connection = connection
        super().__init__(FrameClient(pipe.reader, pipe.writer, pipe.explain), root=wanted.root)
        try:
            self._client.await_greeting(GREETING_SECONDS)
        except BaseException:
            self._let_go()
            raise
        self._pulse = Heartbeat(self._client, self._hang_up, silent_seconds=silent_seconds)

    def close(self) -> None:
        """Hang up; what was spawned lives on."""
        self._pulse.end()
        self._let_go()

    def session(self, command: str) -> Pipe:
        """Run a command for somebody else on the same connection; it ends with that.

        Raises:
            BackendUnreachable: the host gives no more sessions.
        """
        return session_on(self._connection, command)

    def _let_go(self) -> None:
        self._hang_up()
        self._client.join(5)
        with contextlib.suppress(OSError, ValueError):
            self._pipe.reader.close()

    def _hang_up(self) -> None:
        self._pipe.close()
        if self._connection is not None:
            self._connection.close()
