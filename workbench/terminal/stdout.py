"""Where a followed job's output goes: stdout, byte for byte, past Python's buffers."""

from __future__ import annotations

import os
import select

STDOUT = 1


def write_all(data: bytes | memoryview, descriptor: int = STDOUT) -> None:
    """Write every byte, however slowly somebody reads.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            # Another process that shares this file made it non-blocking.
            select.select([], [descriptor], [])


class Prefixed:
    """Puts ``[1] `` before each line of one of several learners, and holds back a line until it is whole."""

    LONGEST = 1 << 16
    """A line is broken there, so that one without an end holds nothing up."""

    def __init__(self, label: str) -> None:
        self._prefix = label.encode()
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """Return the whole lines that are there now, each with its prefix."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        whole = b"".join(b"%b%b\n" % (self._prefix, line) for line in lines)
        while len(self._rest) >= self.LONGEST:
            whole += b"%b%b\n" % (self._prefix, self._rest[: self.LONGEST])
            self._rest = self._rest[self.LONGEST :]
        return whole

    def finish(self) -> bytes:
        """Return what was printed without an end of line."""
        rest, self._rest = self._rest, b""
        return b"%b%b\n" % (self._prefix, rest) if rest else b""
