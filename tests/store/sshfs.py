"""A folder that is mounted by sshfs, as people mount a server's: every write passes, and it can end and come back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import ended, until

SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")


class SshfsMount:
    """A folder behind a mount point; what it holds outlives the mount.

    The server's end is OpenSSH's, started by sshfs itself: there is no network between them.
    """

    def __init__(self, point: Path, kept: Path) -> None:
        self.point = point
        self.kept = kept
        self._connect = kept.with_name(f"{kept.name}-connect")
        self._connect.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
        self._connect.chmod(0o700)
        self._server: subprocess.Popen[bytes] | None = None

    def mount(self, *options: str) -> None:
        """Mount it."""
        more = [word for option in options for word in ("-o", option)]
        self._server = subprocess.Popen(
            [
                "sshfs",
                "-f",
                f"server:{self.kept}",
                str(self.point),
                "-o",
                f"ssh_command={self._connect}",
                *more,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self.kept.parent)},
        )
        until(self._is_mounted_or_failed, "the folder to be mounted")

    def end(self) -> None:
        """Let its server die: every call that needs the mount fails from now on (ENOTCONN)."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL)
            ended(self._server)
            self._server = None

    def lose_connection(self) -> None:
        """Let the server's end die; with the option ``reconnect`` the mount comes back by itself."""
        assert self._server is not None
        for process in psutil.Process(self._server.pid).children():
            process.kill()

    def unmount(self) -> None:
        """Leave the bare mount point; files that are open fail from now on."""
        subprocess.run(["fusermount3", "-u", "-z", str(self.point)], capture_output=True, check=False)
        until(lambda: not self._is_mounted(), "the mount to be gone")
        self.end()

    def _is_mounted_or_failed(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, "sshfs ended"
        return self._is_mounted()

    def _is_mounted(self) -> bool:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return str(self.point) in (line.split()[1] for line in lines)


@contextmanager
def sshfs_mount(point: Path) -> Iterator[SshfsMount]:
    """Mount a folder by sshfs; skips, aloud, where that is not possible."""
    if not Path("/dev/fuse").exists() or shutil.which("sshfs") is None or not SFTP_SERVER.exists():
        pytest.skip(f"sshfs is not here (/dev/fuse, sshfs, {SFTP_SERVER})")
    kept = point.with_name(f"{point.name}-kept")
    for folder in (point, kept):
        folder.mkdir(mode=0o700)
    mount = SshfsMount(point, kept)
    try:
        mount.mount()
        yield mount
    finally:
        mount.unmount()
