"""A folder that is mounted by rclone: no hard links, no modes, and it can end, or come back, at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import ended, until
from workbench.data.stores.rclone import find_rclone
from workbench.errors import FabricError


class RcloneMount:
    """A folder behind a mount point; as with a network's, what it holds outlives the mount."""

    def __init__(self, point: Path, kept: Path, rclone: str) -> None:
        self.point = point
        self.kept = kept
        self._rclone = rclone
        self._server: subprocess.Popen[bytes] | None = None

    def mount(self, *words: str) -> None:
        """Mount it."""
        options = ("--vfs-cache-mode", "full", *words)
        cache = str(self.kept.with_name(f"{self.kept.name}-cache"))
        self._server = subprocess.Popen(
            [self._rclone, "mount", str(self.kept), str(self.point), "--cache-dir", cache, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self.kept.parent), "RCLONE_CONFIG": ""},
        )
        until(self._is_mounted_or_failed, "the folder to be mounted")

    def end(self) -> None:
        """Let its server die: every call that needs the mount fails from now on (ENOTCONN)."""
        if self._server is not None:
            self._server.send_signal(signal.SIGKILL)
            ended(self._server)
            self._server = None

    def unmount(self) -> None:
        """Leave the bare mount point; files that are open fail from now on."""
        subprocess.run(["fusermount3", "-u", "-z", str(self.point)], capture_output=True, check=False)
        until(lambda: not self._is_mounted(), "the mount to be gone")
        self.end()

    def _is_mounted_or_failed(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, "rclone ended"
        return self._is_mounted()

    def _is_mounted(self) -> bool:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return str(self.point) in (line.split()[1] for line in lines)


@contextmanager
def rclone_mount(point: Path) -> Iterator[RcloneMount]:
    """Mount a folder by rclone; skips, aloud, where that is not possible."""
    if not Path("/dev/fuse").exists() or shutil.which("fusermount3") is None:
        pytest.skip("FUSE is not here (/dev/fuse, fusermount3)")
    try:
        rclone = find_rclone().path
    except FabricError as error:
        pytest.skip(f"rclone is not here: {error}")
    kept = point.with_name(f"{point.name}-kept")
    for folder in (point, kept):
        folder.mkdir(mode=0o700)
    mount = RcloneMount(point, kept, rclone)
    try:
        mount.mount()
        yield mount
    finally:
        mount.unmount()
