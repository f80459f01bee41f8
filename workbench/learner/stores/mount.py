"""Mounts a store's data instead of copying it (FUSE), where that is requested and possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from workbench.learner.stores.errors import TransferError, explain

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from workbench.learner.stores.rclone import RcloneClient

DEVICE = "/dev/fuse"
BEGIN_SECONDS = 30.0
END_SECONDS = 5.0
_POLL_SECONDS = 0.05


class Mount:
    """One mounted container; it ends with the process that made it."""

    def __init__(self, point: str, child: subprocess.Popen[bytes]) -> None:
        self.point = point
        self.pid = child.pid
        self._child = child

    def end(self) -> None:
        """Take it away; what still has a file of it open keeps that until it ends."""
        self._child.terminate()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if os.path.ismount(self.point):
            program = shutil.which("fusermount3") or shutil.which("fusermount") or "umount"
            flags = ["-l"] if program == "umount" else ["-uz"]
            subprocess.call([program, *flags, self.point], stderr=subprocess.DEVNULL)
        if self._child.stderr is not None:
            self._child.stderr.close()


def missing_support() -> str:
    """Return what this machine lacks for mounting; empty where it can."""
    if not os.path.exists(DEVICE):
        return "this machine has no %s" % DEVICE
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return "%s may not be used" % DEVICE
    if not shutil.which("fusermount3") and not shutil.which("fusermount"):
        return "fusermount (the package fuse3) is not installed"
    return ""


def mount(
    point: str, store: Mapping[str, Any], rclone: RcloneClient, check_stop: Callable[[], None]
) -> Mount:
    """Mount a store's data in a folder, read-only.

    Raises:
        StoreTrouble: it cannot be mounted.
    """
    os.makedirs(point, mode=0o755, exist_ok=True)
    arguments = [
        "mount",
        "%s:%s" % (store["remote"], store["path"]),
        point,
        "--read-only",
        "--use-server-modtime",
    ]
    arguments += ["--vfs-cache-mode", "off", "--log-level", "ERROR"]
    if store.get("others"):
        arguments.append("--allow-other")  # a container's user is another one
    child = rclone.start(arguments)
    made = Mount(point, child)
    give_up = time.monotonic() + BEGIN_SECONDS
    try:
        while not os.path.ismount(point):
            check_stop()
            if child.poll() is not None or time.monotonic() > give_up:
                stderr = b"" if child.poll() is None or child.stderr is None else child.stderr.read(65536)
                lines = stderr.decode("utf-8", "replace").splitlines()
                error = explain(lines, store=store["id"], address=store["address"])
                raise TransferError("%s cannot be mounted: %s" % (store["path"], error.text), error.code)
            time.sleep(_POLL_SECONDS)
    except BaseException:
        made.end()
        raise
    return made
