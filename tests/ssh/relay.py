"""A process between us and a host: it delays, it can be frozen, and it can hang up on everybody."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys

from tests.support.ports import free_port
from tests.support.sshd import Daemon
from tests.support.waiting import until

PROGRAM = """
import asyncio, sys
port, host, there, delay = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            if delay:
                await asyncio.sleep(delay)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def serve(reader, writer):
    try:
        from_there, to_there = await asyncio.open_connection(host, there)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, to_there), pump(from_there, writer))
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()
asyncio.run(main())
"""


class Relay:
    """The relay to one host, on a port of its own."""

    def __init__(self, daemon: Daemon, *, delay_seconds: float = 0.0) -> None:
        self.port = free_port()
        there = [str(self.port), daemon.address, str(daemon.port), str(delay_seconds)]
        self._argv = [sys.executable, "-c", PROGRAM, *there]
        self._start()

    def freeze(self) -> None:
        """Let nothing through; the kernel still acknowledges."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let all through again, what waited too."""
        self._process.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        """Hang up on both sides, and take nobody any more."""
        self.end()

    def join(self) -> None:
        """Take connections again."""
        self._start()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._argv, stderr=subprocess.DEVNULL)
        until(self._listens, "the relay to listen")

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
