"""A minimal client of a container engine's API over its socket, without a library."""

from __future__ import annotations

import json
import socket

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VERSION = "1.40"
"""The oldest version of the engine's API that offers all that is asked (Docker 19.03)."""

UNVERSIONED = ""
"""For requests that every engine answers: ``_ping`` and ``version``."""

_CHOOSES_OLDEST = (1, 44)
"""The first version of the API whose engines (Docker 25) may refuse versions that are newer than ours."""

_CHUNK_BYTES = 65536
_OK = 200
"""The status of answers that have content."""
_NOT_FOUND = 404
_SERVER_ERROR = 500


class EngineRefused(Exception):
    """The engine answered with an HTTP error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EngineRequest:
    """A request that was sent; its answer can be waited for and read later."""

    def __init__(
        self, stream: socket.socket, method: str, target: str, body: Any = None, *, version: str = VERSION
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        # Of HTTP/1.0 the answer is not cut into chunks and ends with the connection.
        head = "%s %s/%s HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        prefix = "/v" + version if version else ""
        self.headers: dict[str, str] = {}
        """Those of the answer by their names in lower case, once it was read."""
        self._stream = stream
        self._parts: list[bytes] = []
        try:
            self._stream.sendall((head % (method, prefix, target, len(content))).encode() + content)
        except BaseException:
            self._stream.close()
            raise

    def fileno(self) -> int:
        """Return what can be waited for."""
        return self._stream.fileno()

    def receive(self) -> bool:
        """Read what has arrived of the answer, without blocking; return whether it is complete."""
        self._stream.setblocking(False)
        try:
            return self._receive()
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._stream.setblocking(True)

    def _receive(self) -> bool:
        part = self._stream.recv(_CHUNK_BYTES)
        self._parts.append(part)
        return not part

    def answer(self) -> Any:
        """Read the answer: JSON as a value, anything else as text.

        Raises:
            EngineRefused: the engine answered with an error.
            OSError: the connection failed, or ended before the answer did.
        """
        with self._stream:
            while not self._receive():
                pass
        head, blank, body = b"".join(self._parts).partition(b"\r\n\r\n")
        parts = head.split(None, 2)
        if len(parts) < 2 or not parts[1].isdigit():
            raise ConnectionError("the engine ended the connection")
        status, text = int(parts[1]), body.decode("utf-8", "replace")
        self.headers = headers = _headers_of(head)
        kind = headers.get("content-type", "json" if text.lstrip()[:1] in ("{", "[") else "")
        value, is_read = _value_of(text, is_json="json" in kind)
        length = headers.get("content-length", "")
        is_whole = bool(blank) and (not length.isdigit() or len(body) >= int(length))
        if not is_whole or (status == _OK and not is_read):
            raise ConnectionError("its answer was cut off")
        if status >= 400:
            message = str(value.get("message", "")) if isinstance(value, dict) else text
            raise EngineRefused(_NOT_FOUND if _names_no_container(status, message) else status, message)
        return value

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()


def _names_no_container(status: int, message: str) -> bool:
    """Say whether an error stands for 404: podman says 500 of a container that is made or removed at that instant."""
    return status == _SERVER_ERROR and message.lower().endswith("no such container")


def _headers_of(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").lower().split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _value_of(text: str, *, is_json: bool) -> tuple[Any, bool]:
    """Return what an answer says, and whether it is whole as far as its form shows; ``is_json``: it should be JSON."""
    if not text.strip():
        return None, not is_json
    try:
        return json.loads(text), True
    except ValueError:
        return text, not is_json or _is_series(text)


def _is_series(text: str) -> bool:
    """Say whether a text is a series of JSON values, a line each: what an engine does, as it does it."""
    try:
        for line in text.splitlines():
            if line.strip():
                json.loads(line)
    except ValueError:
        return False
    return True


def connected(path: str, timeout_seconds: float | None = None) -> socket.socket:
    """Connect to an engine's socket.

    Raises:
        OSError: nothing answers there.
    """
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(timeout_seconds)
        stream.connect(path)
    except BaseException:
        stream.close()
        raise
    return stream


def newest_version(connect: Callable[[], socket.socket]) -> tuple[int, ...]:
    """Ask an engine for the newest version of its API; () if it does not say.

    A ping says it at once. For ``version`` an engine starts each of its parts to ask for theirs: podman takes 0.4 s.

    Raises:
        EngineRefused: it answered with an error.
        OSError: it does not answer.
    """
    request = EngineRequest(connect(), "GET", "_ping", version=UNVERSIONED)
    request.answer()
    return version_numbers(request.headers.get("api-version", ""))


def version_to_speak(connect: Callable[[], socket.socket]) -> str:
    """Ask an engine for the version of its API that requests are to name: ours, or the oldest that it takes.

    Docker 29 takes none below 1.44 (its release notes, November 2025).

    Raises:
        EngineRefused: it answered with an error.
        OSError: it does not answer.
    """
    newest = newest_version(connect)
    if newest and newest < _CHOOSES_OLDEST:
        return VERSION
    about = EngineRequest(connect(), "GET", "version", version=UNVERSIONED).answer()
    oldest = about.get("MinAPIVersion") if isinstance(about, dict) else None
    return max(VERSION, str(oldest or VERSION), key=version_numbers)


def is_version_refused(error: EngineRefused) -> bool:
    """Say whether an engine refused a request for its version alone: another engine has taken its place."""
    return error.status == 400 and "supported API version" in error.message


def version_numbers(version: str) -> tuple[int, ...]:
    """Return a version as what versions are compared by: 1.9 is older than 1.40."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


_versions: dict[str, str] = {}
"""The version to speak by socket, asked for once in a process."""


def version_at(path: str, timeout_seconds: float | None = 30.0) -> str:
    """Return the version of the API that requests to the engine at a socket are to name.

    Raises:
        EngineRefused: it answered with an error.
        OSError: it does not answer.
    """
    if path not in _versions:
        _versions[path] = version_to_speak(lambda: connected(path, timeout_seconds))
    return _versions[path]


def ask(
    path: str, method: str, target: str, body: Any = None, *, timeout_seconds: float | None = 30.0
) -> Any:
    """Ask the engine at a socket; return its answer.

    Raises:
        EngineRefused: it answered with an error.
        OSError: it does not answer.
    """
    version = version_at(path, timeout_seconds)
    try:
        stream = connected(path, timeout_seconds)
        return EngineRequest(stream, method, target, body, version=version).answer()
    except EngineRefused as error:
        if not is_version_refused(error):
            raise
        _versions.pop(path, None)
        version = version_at(path, timeout_seconds)
        stream = connected(path, timeout_seconds)
        return EngineRequest(stream, method, target, body, version=version).answer()
