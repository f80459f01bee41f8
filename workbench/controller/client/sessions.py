"""Loads backends for clients: what the controller is logged in to is reached over its connection."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import asdict
from typing import Final

from backends.contract.host import Backend, BackendOptions
from backends.ssh.shared_sessions import SESSION_SHARING, SharedPipe
from workbench.controller.client.connect import dial
from workbench.paths import Home, default_home
from workbench.values import dataclass

SESSION_SECONDS: Final = 15.0
"""How long a host may take to begin a session on an open connection."""


def load_client_backend(options: BackendOptions) -> Backend:
    """Load a backend in a client's process; nothing is reached yet."""
    from backends.registry import load_backend

    SESSION_SHARING.use(ControllerSessions(Home(default_home())))
    return load_backend(options)


@dataclass(frozen=True, slots=True)
class ControllerSessions:
    """Sessions on the connections that a home's controller has logged in to."""

    home: Home

    def holds(self, options: BackendOptions) -> bool:
        """Say whether a connection to this backend is open."""
        stream = self._ask(options, "")
        if stream is None:
            return False
        stream.close()
        return True

    def session(self, options: BackendOptions, command: str) -> SharedPipe | None:
        """Run a command over the open connection; None where none is open, or the host allows no more sessions."""
        stream = self._ask(options, command)
        if stream is None:
            return None
        stream.settimeout(SESSION_SECONDS)
        if not _says_ok(stream):
            stream.close()
            return None
        stream.settimeout(None)
        return SharedPipe(stream)

    def _ask(self, options: BackendOptions, command: str) -> socket.socket | None:
        stream = dial(self.home, "lend", place=asdict(options), command=command)
        if stream is not None and not _says_ok(stream):
            stream.close()
            return None
        return stream


def _says_ok(stream: socket.socket) -> bool:
    """Read one line, and nothing of what follows it."""
    line = b""
    with contextlib.suppress(OSError, ValueError):
        while not line.endswith(b"\n"):
            byte = stream.recv(1)
            if not byte:
                return False
            line += byte
        return bool(json.loads(line).get("ok"))
    return False
