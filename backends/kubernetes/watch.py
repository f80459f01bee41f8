"""Streams of the API: watches of objects and logs of containers; they can be closed from any thread."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

from backends.contract.cluster import Change
from backends.kubernetes.errors import ApiCall, no_answer, of_status_event
from backends.kubernetes.resources import ResourceKind

PIECE_BYTES: Final = 1 << 18


class _Body:
    """The body of a response as it arrives. One thread reads, any thread may close it."""

    def __init__(self, response: Any, call: ApiCall) -> None:
        self._response = response
        self._call = call
        self._reading = threading.Lock()
        self._closed = False
        # Kept here: the response drops it at its end.
        self._socket = getattr(getattr(response, "connection", None), "sock", None)

    def read(self) -> bytes:
        """Return some bytes, empty at the end and after close."""
        import urllib3

        with self._reading:
            data = b""
            try:
                data = b"" if self._closed else self._response.read1(PIECE_BYTES)
            except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as failure:
                if not self._closed:  # else another thread has closed it
                    raise no_answer(self._call, failure) from failure
            finally:
                if not data:
                    self._release()
            return data

    def close(self) -> None:
        """Close it; a blocked reader returns."""
        self._closed = True
        if isinstance(self._socket, socket.socket):
            # On the bare socket: response.close() waits for the reading thread, and a TLS shutdown would send data.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        if self._reading.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._reading.release()

    def _release(self) -> None:
        self._socket = None  # the pool may give it to another call now
        with contextlib.suppress(Exception):  # the response is over anyway
            self._response.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._closed


class ApiWatch:
    """Changes of one kind; see :class:`backends.contract.cluster.Watch`."""

    def __init__(self, response: Any, kind: ResourceKind, version: str, call: ApiCall) -> None:
        self._body = _Body(response, call)
        self._kind = kind
        self._call = call
        self._version = version
        self._lines: Iterator[bytes] = iter(())
        self._unread = b""

    @property
    def version(self) -> str:
        """The ``resourceVersion`` where the next watch continues."""
        return self._version

    def __iter__(self) -> ApiWatch:
        return self

    def __next__(self) -> Change:
        while True:
            for line in self._lines:
                if change := self._change(line):
                    return change
            data = self._body.read()
            if not data:
                raise StopIteration
            *lines, self._unread = (self._unread + data).split(b"\n")
            self._lines = iter(lines)

    def close(self) -> None:
        """End the stream, from any thread."""
        self._body.close()

    def _change(self, line: bytes) -> Change | None:
        if not line.strip():
            return None
        try:
            event = json.loads(line)
            type_, document = event["type"], event["object"]
        except (ValueError, KeyError, TypeError) as error:
            if self._body.closed:
                return None
            raise no_answer(self._call, ValueError("it speaks no JSON")) from error
        if type_ == "ERROR":
            self.close()
            raise of_status_event(self._call, document)
        self._version = str(document.get("metadata", {}).get("resourceVersion") or self._version)
        if type_ not in ("ADDED", "MODIFIED", "DELETED"):
            return None  # a bookmark
        # Objects of lists and watches do not always contain kind and apiVersion.
        document.setdefault("kind", self._kind.name)
        document.setdefault("apiVersion", self._kind.api_version)
        return Change(self._kind.name, type_, document)


class ApiLog:
    """A container's log as it arrives; see :class:`backends.contract.cluster.Log`."""

    def __init__(self, response: Any, call: ApiCall) -> None:
        self._body = _Body(response, call)

    def __iter__(self) -> ApiLog:
        return self

    def __next__(self) -> bytes:
        data = self._body.read()
        if not data:
            raise StopIteration
        return data

    def close(self) -> None:
        """End the stream, from any thread."""
        self._body.close()
