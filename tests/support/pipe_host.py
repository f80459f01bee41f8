"""A host reached through the stdin and stdout of a local command that runs ``agent.pyz host`` there."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final, cast

from backends.rpc.client import FrameClient
from backends.rpc.host import FrameHost
from workbench.errors import BackendError

CONNECT_SECONDS: Final = 30.0
_NOISE_BYTES: Final = 4096


class PipeHost(FrameHost):
    """A host that a command connects to: ``python agent.pyz host`` here, or the system's ``ssh`` with it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        root: str = "",
        env: Mapping[str, str] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the connection
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env=None if env is None else dict(env),
                # A key pressed on our terminal is not meant for it.
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise BackendError(f"{argv[0]} cannot be started: {error.strerror}.") from error
        self._reader = cast(BinaryIO, self._process.stdout)
        self._writer = cast(BinaryIO, self._process.stdin)
        super().__init__(FrameClient(self._reader, self._writer, self._explain), root=root)
        try:
            self._client.await_greeting(connect_seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; what was spawned lives on."""
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._client.join(5)
        self._reader.close()
        self._stderr.close()

    def _explain(self) -> str:
        """Return the last line of the command's stderr."""
        with contextlib.suppress(OSError, ValueError):
            size = self._stderr.seek(0, 2)
            self._stderr.seek(max(0, size - _NOISE_BYTES))
            lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            return lines[-1].strip().rstrip(".") if lines else ""
        return ""
