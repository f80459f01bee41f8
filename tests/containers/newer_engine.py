"""The machine's engine as Docker 29 is: it takes no version of its API below 1.44 (its release notes, November 2025).

The engines of today's distributions are older. A relay in front of this machine's refuses what that one refuses, and
translates the version; all else is the real engine's.
"""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from backends.contract.container_engines import SOCKET

OLDEST = "1.44"
NEWEST = "1.52"
SPOKEN = "1.41"
"""A version that the engine behind it takes, of the same length."""
_REQUEST = re.compile(rb"[A-Z]+ /(?:v([0-9.]+)/)?(\S*)")


class NewerEngine:
    """The relay; ``is_new`` may be set while it runs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_new = True
        self.refused = 0
        """How many requests it refused for their version."""
        self._server = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = [self._server]
        self._is_ended = False
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """What ``DOCKER_HOST`` names."""
        return f"unix://{self.path}"

    def start(self) -> None:
        """Listen."""
        self._server.bind(self.path)
        self._server.listen(64)
        self._thread(self._accept)

    def end(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_ended = True
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._keep(client):
                self._thread(self._serve, client)

    def _keep(self, one: socket.socket) -> bool:
        """Have a connection closed at the end; one that comes after it is closed at once."""
        with self._lock:
            if self._is_ended:
                one.close()
            else:
                self._open.append(one)
            return not self._is_ended

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it may be closed at any time
            self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        head = client.recv(65536)
        request = _REQUEST.match(head)
        if request is None:
            client.close()
            return
        version, target = request[1], request[2]
        if self.is_new and version is not None and version < OLDEST.encode():
            self.refused += 1
            text = f"client version {version.decode()} is too old. Minimum supported API version is {OLDEST}"
            body = f'{{"message": "{text}"}}'.encode()
            client.sendall(
                b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            )
            client.sendall(body)
            client.close()
            return
        engine = socket.socket(socket.AF_UNIX)
        if not self._keep(engine):
            return
        engine.connect(SOCKET)
        engine.sendall(self._translated(head))
        self._thread(self._pass_on, client, engine, True)
        self._pass_on(engine, client, False, tells_version=target in (b"version", b"_ping"))

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, to_engine: bool, tells_version: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if to_engine:
                    data = self._translated(data)
                elif tells_version and self.is_new:
                    data = re.sub(rb"(Api-Version: )1\.\d\d", rb"\g<1>%s" % NEWEST.encode(), data)
                    data = re.sub(rb'("MinAPIVersion":)"1\.\d\d"', rb'\1"%s"' % OLDEST.encode(), data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _translated(self, data: bytes) -> bytes:
        return data.replace(b"/v%s/" % OLDEST.encode(), b"/v%s/" % SPOKEN.encode())

    def _thread(self, run: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=run, args=arguments, daemon=True).start()


@contextlib.contextmanager
def newer_engine() -> Iterator[NewerEngine]:
    """Give the machine's engine, as if it were newer."""
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        engine = NewerEngine(str(Path(folder) / "engine.sock"))
        engine.start()
        try:
            yield engine
        finally:
            engine.end()
