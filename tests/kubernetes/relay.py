"""A way to the API server that can be cut: every connection at once, or all for a while."""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class Relay:
    """Listens on loopback and passes bytes on to one server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ended = False
        self._passes = threading.Event()
        self._passes.set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Cut every connection that there is; return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def hold(self) -> None:
        """Pass nothing on any more, as a network that drops packets: who calls is accepted and not answered."""
        self._passes.clear()

    def release(self) -> None:
        """Pass on again; what was held is cut."""
        self.cut()
        self._passes.set()

    def end(self) -> None:
        """Listen no more, and cut what there is."""
        self._ended = True
        self._passes.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self._thread.join()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.add((near, far))
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            try:
                while True:
                    ready, _, _ = select.select([near, far], [], [])
                    self._passes.wait()
                    for end in ready:
                        data = end.recv(1 << 16)
                        if not data:
                            return
                        (far if end is near else near).sendall(data)
            except (OSError, ValueError):
                return
            finally:
                with self._lock:
                    self._pairs.discard((near, far))
