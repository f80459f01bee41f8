"""Shares the connections that a person has logged in to: the user's commands need no login of their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from backends.contract.host import BackendOptions
from backends.ssh.shared_sessions import SharesSessions, connection_of, relay
from workbench.controller.runtime.login_server import LOGINS
from workbench.errors import FabricError


def share_session(message: Mapping[str, Any], stream: socket.socket) -> None:
    """Run a client's command over a connection that is open, and relay its streams until either side ends.

    The client gets a line that says whether a connection is open, and a second one once the command runs; the bytes
    of the command follow. An empty command asks only for the first line.

    Args:
        message: ``place`` has the fields of ``BackendOptions``, ``command`` is shell text.
        stream: the client's socket.
    """
    host = LOGINS.find(connection_of(BackendOptions(**message["place"])))
    command = str(message["command"])
    _reply(stream, ok=isinstance(host, SharesSessions))
    if not isinstance(host, SharesSessions) or not command:
        return
    try:
        pipe = host.session(command)
    except FabricError:
        return  # the client opens a connection of its own
    _reply(stream, ok=True)
    stream.settimeout(None)
    relay(pipe, stream)


def _reply(stream: socket.socket, *, ok: bool) -> None:
    stream.sendall(json.dumps({"ok": ok}).encode() + b"\n")
