"""A command at the other end of an SSH connection, as two ordinary byte streams."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

READ_BYTES: Final = 1 << 20
SEND_BYTES: Final = 1 << 15
_COMPLAINT_BYTES: Final = 4096


class ChannelPipe:
    """A command's stdin and stdout; what it complains about is kept, the end of it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.reader = cast(BinaryIO, io.BufferedReader(_Reader(channel), READ_BYTES))
        self.writer = cast(BinaryIO, _Writer(channel))

    def explain(self) -> str:
        """Return the last line that the command complained with, or how it ended."""
        said = b""
        with contextlib.suppress(Exception):  # a channel that is closed in the middle may say anything
            while self._channel.recv_stderr_ready():
                said = (said + self._channel.recv_stderr(READ_BYTES))[-_COMPLAINT_BYTES:]
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip().rstrip(".") if lines else ""

    def close(self) -> None:
        """End it: it sees the end of its stdin."""
        with contextlib.suppress(Exception):  # as above
            self._channel.close()


class _Reader(io.RawIOBase):
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Read what is there, at most so much, without a buffer in between that is made for each call."""
        with _as_streams_say():
            data: bytes = self._channel.recv(size if size >= 0 else READ_BYTES)
        return data

    def readinto(self, buffer: Any) -> int:  # a writable buffer has no name in typing
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        start = 0
        while start < len(view):
            with _as_streams_say():
                sent = self._channel.send(bytes(view[start : start + SEND_BYTES]))
            if not sent:
                raise BrokenPipeError("the channel is closed")
            start += sent
        return len(view)


@contextlib.contextmanager
def _as_streams_say() -> Iterator[None]:
    """Raise as a stream does whose other end is gone: paramiko says EOFError to who sends, and others of its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise BrokenPipeError(f"the connection is gone: {error or 'it was closed'}") from error
