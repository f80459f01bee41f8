"""Lends sessions on the connections that a person has logged in to: the user's commands need no login of their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from backends.contract.host import BackendOptions
from backends.ssh.shared_sessions import SharesSessions, connection_of, relay
from workbench.controller.runtime.login_server import LOGINS
from workbench.errors import FabricError


def share_session(said: Mapping[str, Any], stream: socket.socket) -> None:
    """Run the ``command`` of a client at a ``place``, and be its streams until either has ended.

    The client is told in a line whether a connection stands, and in a second one that the command runs; after that
    come the command's own bytes. An empty command asks only for the first.
    """
    place = LOGINS.place(connection_of(BackendOptions(**said["place"])))
    command = str(said["command"])
    _tell(stream, ok=isinstance(place, SharesSessions))
    if not isinstance(place, SharesSessions) or not command:
        return
    try:
        pipe = place.session(command)
    except FabricError:
        return  # who would borrow makes a connection of its own
    _tell(stream, ok=True)
    stream.settimeout(None)
    relay(pipe, stream)


def _tell(stream: socket.socket, *, ok: bool) -> None:
    stream.sendall(json.dumps({"ok": ok}).encode() + b"\n")
