"""The controller's socket: clients send one JSON line with a command such as ``wake``; a line or a stream answers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from workbench.errors import CannotWrite, NoSpaceLeft, NotAllowed
from workbench.paths import runtime_folder
from workbench.store.db.errors import FULL, write_failure

PATH_BYTES: Final = 100
"""What a unix socket's path may have everywhere (104 on macOS, 108 on Linux)."""

PATIENCE_SECONDS: Final = 2.0
"""How long a client may take to send its line."""

ACCEPT_AGAIN_SECONDS: Final = 0.2
"""How long to wait where no connection can be accepted."""

LINE_BYTES: Final = 65536

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the answer to a message: ``do`` is the command, the other keys are its arguments."""


def socket_path(uuid: str) -> Path:
    """Return where a home's socket lies; its folder is made, 0700, where it is missing.

    Raises:
        NotAllowed: the folder is another's, or open to others.
        CannotWrite: it cannot be made.
    """
    name = f"controller-{uuid}.sock"
    folder = runtime_folder()
    if len(os.fsencode(folder / name)) > PATH_BYTES:
        folder = Path(f"/tmp/fabric-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise write_failure(error, folder) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotAllowed(
            f"{folder} is not a folder of yours alone, so no socket is put there",
            hint="remove it, or let XDG_RUNTIME_DIR name another",
        )
    return folder / name


StreamHandler = Callable[[Mapping[str, Any], socket.socket], None]
"""Handles a message for as long as it needs; the connection is closed when it returns."""


class ControllerServer:
    """Answers clients in a thread of its own. Only the holder of the controller lock makes one.

    Args:
        path: where its socket is made.
        answer: answers a client at once.
        streaming: handlers of the commands that keep the connection, each called in a thread of its own.
    """

    def __init__(
        self, path: Path, answer: Answer, streaming: Mapping[str, StreamHandler] | None = None
    ) -> None:
        self.path = path
        self._answer = answer
        self._streaming = streaming or {}
        self._listener = _listen(path)
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="socket", daemon=True)

    def start(self) -> None:
        """Begin to answer; who connected before is answered now."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and remove the socket."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else accept would go on blocking
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(ACCEPT_AGAIN_SECONDS)  # no descriptor is left; clients wait in the backlog
                continue
            if not self._serve_client(connection):
                connection.close()

    def _serve_client(self, connection: socket.socket) -> bool:
        """Answer a client; return whether another thread took over its connection."""
        # Whatever one client says, and however little memory there is: the others are answered.
        with contextlib.suppress(Exception):
            connection.settimeout(PATIENCE_SECONDS)
            document = json.loads(_line(connection))
            if handler := self._streaming.get(_command(document)):
                threading.Thread(target=_stream, args=(handler, document, connection), daemon=True).start()
                return True
            connection.sendall(json.dumps(self._reply(document)).encode() + b"\n")
        return False

    def _reply(self, document: Any) -> Mapping[str, Any]:
        if not _command(document):
            return {"ok": False, "error": 'send one JSON object such as {"do": "wake"}'}
        return self._answer(document)


def _command(document: Any) -> str:
    """Return the command of a message; empty where it has none."""
    command = document.get("do") if isinstance(document, dict) else None
    return command if isinstance(command, str) else ""


def _stream(handler: StreamHandler, document: Mapping[str, Any], connection: socket.socket) -> None:
    # A client that sends a wrong message, or has gone, ends its own connection and nothing else.
    with connection, contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        handler(document, connection)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)  # what a killed controller left
        listener.bind(str(path))
        listener.listen(64)
    except OSError as error:
        listener.close()
        kind = NoSpaceLeft if error.errno in FULL else CannotWrite
        raise kind(f"cannot make the socket {path}: {error.strerror or error}") from error
    finally:
        os.umask(mask)
    return listener


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LINE_BYTES:
        more = connection.recv(LINE_BYTES)
        if not more:
            break
        data += more
    return data
