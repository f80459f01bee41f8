"""A TLS connection that one thread reads while another writes."""

from __future__ import annotations

import functools
import select
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from workbench.clock import elapsed_seconds

Result = TypeVar("Result")


class SharedTlsSocket(ssl.SSLSocket):
    """A TLS socket for two threads, once :meth:`share` was called.

    OpenSSL forbids two calls on one connection at the same time, and Python before 3.13 does not prevent them: of a
    read that found half a record while another thread began to write, Python says that the connection has ended. A call
    that waits must not keep the other from going on, so all calls are non-blocking and the waits lie between them.

    Contexts make it: set ``context.sslsocket_class``.
    """

    _lock: threading.Lock
    _wait_seconds: float | None = None

    def share(self, wait_seconds: float) -> None:
        """Let two threads use it; a call waits at most this long for the other side, then raises ``TimeoutError``."""
        self.setblocking(False)
        self._lock = threading.Lock()
        self._wait_seconds = wait_seconds

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Return some bytes, empty at the end."""
        return self._alone(functools.partial(super().recv, buflen, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of the bytes and return how many."""
        return self._alone(functools.partial(super().send, data, flags))

    def pending(self) -> int:
        """Return the count of bytes that were received and decrypted, but not read."""
        return self._alone(super().pending)

    def _alone(self, call: Callable[[], Result]) -> Result:
        """Do what does not wait while no other thread is in OpenSSL; wait outside, and do it again."""
        if self._wait_seconds is None:
            return call()
        deadline = elapsed_seconds() + self._wait_seconds
        while True:
            try:
                with self._lock:
                    return call()
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            waiting = select.poll()
            waiting.register(self, event)
            if not waiting.poll(max(0.0, deadline - elapsed_seconds()) * 1000):
                raise TimeoutError("the other side has not gone on")
