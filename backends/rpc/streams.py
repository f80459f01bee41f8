"""A command at the other end of a pipe with somebody in front of it here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from backends.rpc.client import SLACK_SECONDS, FrameClient
from workbench.errors import FabricError
from workbench.learner.platform import frames


class FrameStream:
    """One such command; it has begun when this is made."""

    def __init__(
        self,
        client: FrameClient,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        terminal: bool,
    ) -> None:
        arguments = {"argv": list(argv), "env": dict(env), "cwd": cwd, "terminal": terminal}
        self._client = client
        self._call = client.open("exec", arguments, seconds=SLACK_SECONDS)
        self._number: int = self._call.hello()["session"]
        self._call.wait_without_end()
        self._exit_code: int | None = None

    def read(self) -> tuple[int, bytes] | None:
        """Wait for output; None once the command has ended."""
        while self._exit_code is None:
            frame = self._call.next()
            if frame.kind == frames.DATA:
                self._call.credit()
                return frame.payload[0], frame.payload[1:]
            if frame.kind == frames.RESULT:
                self._call.forget()
                self._exit_code = int(frame.json()["exit_code"])
        return None

    def write(self, data: bytes) -> None:
        """Give it input."""
        self._call.send(data)

    def close_input(self) -> None:
        """Say that no more input comes."""
        self._call.end()

    def resize(self, rows: int, columns: int) -> None:
        """Say how large the terminal is."""
        self._client.tell("resize", {"session": self._number, "rows": rows, "columns": columns})

    def wait(self) -> int:
        """Return its exit code, once it has ended."""
        while self.read() is not None:
            pass
        assert self._exit_code is not None
        return self._exit_code

    def close(self) -> None:
        """Leave it; if it has not ended it is ended."""
        if self._exit_code is None:
            with contextlib.suppress(FabricError):  # a place that is lost has ended it
                self._call.cancel()
