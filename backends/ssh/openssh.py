"""Reaches a host by the system's ``ssh``, for what paramiko cannot do: FIDO keys, Kerberos, certificates."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from backends.ssh.config import Address
from workbench.errors import BackendError

_NOISE_BYTES = 4096

_AFTERMATH = (
    "kex_exchange_identification: ",
    "banner exchange: Connection to UNKNOWN port",
    "Connection closed by UNKNOWN port",
)
"""What ssh adds once its ProxyCommand has ended, which has printed the reason before."""


class OpenSshPipe:
    """A command that ``ssh`` runs at a host."""

    def __init__(self, address: Address, command: str, *, config: Path | None = None) -> None:
        argv = ["ssh", "-T", "-oBatchMode=yes", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"]
        argv += [f"-F{config}"] if config else []
        argv += [f"-p{address.port}"] if address.port else []
        argv += [f"-l{address.user}"] if address.user else []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the connection
        try:
            self._process = subprocess.Popen(
                [*argv, "--", address.host, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise BackendError(
                f"ssh cannot be started: {error.strerror}.", hint="install OpenSSH's client"
            ) from error
        self.reader = cast(BinaryIO, self._process.stdout)
        self.writer = cast(BinaryIO, self._process.stdin)

    def explain(self) -> str:
        """Return the last line of ssh's stderr that says something."""
        with contextlib.suppress(OSError, ValueError):
            size = self._complaints.seek(0, 2)
            self._complaints.seek(max(0, size - _NOISE_BYTES))
            lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
            telling = [line for line in lines if not line.startswith(_AFTERMATH)] or lines
            return telling[-1].strip().rstrip(".") if telling else ""
        return ""

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError, ValueError):
            self.writer.close()
        self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._complaints.close()
