"""Folders that are mounted by FUSE, as people mount a network's, and that can end, or come back, at any moment.

rclone has no hard links and no modes, and uploads what is written later. By sshfs every write passes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import ended, patience, until
from workbench.data.stores.rclone import find_rclone
from workbench.errors import FabricError

SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")

MountCommand = Callable[[Path, Path], list[str]]
"""Returns the words that mount, in the foreground, a kept folder (the second) at a mount point (the first)."""


class FuseMount:
    """A folder behind a mount point; what it holds outlives the mount."""

    def __init__(self, point: Path, kept: Path, command: MountCommand) -> None:
        self.point = point
        self.kept = kept
        self._command = command
        self._server: subprocess.Popen[bytes] | None = None
        self._hidden: list[subprocess.Popen[bytes]] = []

    def mount(self, *args: str) -> None:
        """Mount it, with more words for its program."""
        self._server = subprocess.Popen(
            [*self._command(self.point, self.kept), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self.kept.parent), "RCLONE_CONFIG": ""},
        )
        until(self._is_mounted_or_failed, "the folder to be mounted")

    def end(self) -> None:
        """Let its server die: every call that needs the mount fails from now on (ENOTCONN).

        The far end of sshfs does what it has been sent before it ends, and nothing after this call.
        """
        if self._server is not None:
            far_ends = psutil.Process(self._server.pid).children() if self._server.poll() is None else []
            self._server.send_signal(signal.SIGKILL)
            self._await_its_end(self._server)
            self._server = None
            until(lambda: not any(each.is_running() for each in far_ends), "the far end to be over")

    def _await_its_end(self, server: subprocess.Popen[bytes]) -> None:
        """Wait until the server is gone, and break its connection where it cannot go.

        One that tells the kernel of a changed file waits for a folder's lock. Who holds that may wait for the server.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(patience(2))
            return
        subprocess.run(["umount", "-f", str(self.point)], capture_output=True, check=False)
        ended(server)

    def lose_connection(self) -> None:
        """Let the far end of sshfs die; with the option ``reconnect`` the mount comes back by itself."""
        assert self._server is not None
        for process in psutil.Process(self._server.pid).children():
            process.kill()

    def unmount(self) -> None:
        """Leave the bare mount point; files that are open fail from now on."""
        self._take_away()
        self.end()

    def hide(self) -> None:
        """Leave the bare mount point, while the server still serves who has a file or folder of it open."""
        assert self._server is not None
        self._take_away()
        self._hidden.append(self._server)
        self._server = None

    def end_hidden(self) -> None:
        """Let the servers end that were hidden."""
        while self._hidden:
            server = self._hidden.pop()
            server.kill()
            server.wait()

    def _take_away(self) -> None:
        subprocess.run(["fusermount3", "-u", "-z", str(self.point)], capture_output=True, check=False)
        until(lambda: not self._is_mounted(), "the mount to be gone")

    def _is_mounted_or_failed(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, "the program that mounts it has ended"
        return self._is_mounted()

    def _is_mounted(self) -> bool:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return str(self.point) in (line.split()[1] for line in lines)


@contextmanager
def rclone_mount(point: Path) -> Iterator[FuseMount]:
    """Mount a folder by rclone; skips, aloud, where that is not possible."""
    _require("fusermount3")
    try:
        rclone = find_rclone().path
    except FabricError as error:
        pytest.skip(f"rclone is not here: {error}")

    def command(point: Path, kept: Path) -> list[str]:
        cache = str(kept.with_name(f"{kept.name}-cache"))
        return [rclone, "mount", str(kept), str(point), "--cache-dir", cache, "--vfs-cache-mode", "full"]

    with _mounted(point, command) as mount:
        yield mount


@contextmanager
def sshfs_mount(point: Path) -> Iterator[FuseMount]:
    """Mount a folder by sshfs; skips, aloud, where that is not possible.

    The server's end is OpenSSH's, started by sshfs itself: there is no network between them.
    """
    _require("fusermount3", "sshfs", str(SFTP_SERVER))
    connect = point.with_name(f"{point.name}-connect")
    connect.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
    connect.chmod(0o700)

    def command(point: Path, kept: Path) -> list[str]:
        return ["sshfs", "-f", f"server:{kept}", str(point), "-o", f"ssh_command={connect}"]

    with _mounted(point, command) as mount:
        yield mount


def _require(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing or not Path("/dev/fuse").exists():
        pytest.skip(f"FUSE is not here ({', '.join(missing) or '/dev/fuse'})")


@contextmanager
def _mounted(point: Path, command: MountCommand) -> Iterator[FuseMount]:
    kept = point.with_name(f"{point.name}-kept")
    for folder in (point, kept):
        folder.mkdir(mode=0o700)
    mount = FuseMount(point, kept, command)
    try:
        mount.mount()
        yield mount
    finally:
        mount.unmount()
        mount.end_hidden()
