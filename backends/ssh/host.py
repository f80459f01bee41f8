"""An SSH host: one connection, one session, and all operations as frames on it."""

from __future__ import annotations

import contextlib
from typing import Final

from backends.rpc.client import FrameClient
from backends.rpc.heartbeat import SILENT_SECONDS, Heartbeat
from backends.rpc.host import FrameHost
from backends.ssh.bootstrap import AgentRequest
from backends.ssh.connection import Pipe, SshConnection, session_on

GREETING_SECONDS: Final = 30.0
KEEP_CODE_DAYS: Final = 14.0


class SshHost(FrameHost):
    """A host behind a pipe that SSH made.

    Args:
        pipe: the stdin and stdout of the command that starts the agent.
        request: which agent runs there.
        connection: the pipe's SSH connection, which is closed with it.
        silent_seconds: how long nothing may come after a ping before the connection counts as lost.
        engine: the socket of its container engine; empty searches for one.
        name: what to call it.
        keep_code_days: how long code stays there that no job uses.
        secrets_at_host: whether values of secrets may lie on its disk while a job waits there.
        share_names: whether others there may read the names of this person's jobs.
    """

    def __init__(
        self,
        pipe: Pipe,
        request: AgentRequest,
        connection: SshConnection | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
        engine: str = "",
        name: str = "",
        keep_code_days: float = KEEP_CODE_DAYS,
        secrets_at_host: bool = False,
        share_names: bool = False,
    ) -> None:
        self.secrets_at_host = secrets_at_host
        self.share_names = share_names
        self.engine = engine
        self.keep_code_seconds = keep_code_days * 86400
        self._pipe = pipe
        self._connection = connection
        super().__init__(FrameClient(pipe.reader, pipe.writer, pipe.explain, name), root=request.root)
        try:
            self._client.await_greeting(GREETING_SECONDS)
        except BaseException:
            self._disconnect()
            raise
        self._heartbeat = Heartbeat(self._client, self._hang_up, silent_seconds=silent_seconds)

    def close(self) -> None:
        """Close the connection; processes that were spawned keep running."""
        self._heartbeat.end()
        self._disconnect()

    def session(self, command: str) -> Pipe:
        """Run a command for another process on the same connection; it ends with the connection.

        Raises:
            BackendUnreachable: the host gives no more sessions.
        """
        return session_on(self._connection, command)

    def _disconnect(self) -> None:
        self._hang_up()
        self._client.join(5)
        with contextlib.suppress(OSError, ValueError):
            self._pipe.reader.close()

    def _hang_up(self) -> None:
        self._pipe.close()
        if self._connection is not None:
            self._connection.close()
