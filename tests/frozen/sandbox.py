"""A home and an environment of its own for what runs outside pytest: making the frozen home, renewing files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.cli.conftest import Fabric, wait_until


@contextmanager
def fresh(*, path: str = "") -> Iterator[Fabric]:
    """Give the command line in a clean environment and an empty home; nothing is left of it."""
    root = Path(tempfile.mkdtemp(prefix="fab-"))
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment(root, path=path or before["PATH"]))
    (root / "run").mkdir(mode=0o700)
    (root / "leases").mkdir(mode=0o1777)
    (root / "work").mkdir()
    try:
        yield Fabric(root / "work")
    finally:
        end_processes(root)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(root, ignore_errors=True)


def environment(root: Path, *, path: str) -> dict[str, str]:
    """Return the variables of a session whose folders all lie below one."""
    return {
        "PATH": path,
        "LANG": "C.UTF-8",
        "HOME": str(root),
        "USER": "ada",
        "LOGNAME": "ada",
        "SHELL": "/bin/sh",
        "TZ": "UTC",
        "FABRIC_HOME": str(root / "fabric"),
        "FABRIC_CONFIG": str(root / "config.toml"),
        "FABRIC_LEASES": str(root / "leases"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "DOCKER_HOST": f"unix://{root}/no-engine.sock",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }


def end_processes(root: Path) -> None:
    """Kill what was started with a folder in its environment or its words, ourselves and our parents left out."""
    for process in _processes(root):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    wait_until(lambda: not _processes(root), f"every process of {root} to be gone")


def _processes(root: Path) -> list[psutil.Process]:
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            said = Path(f"/proc/{process.pid}/environ").read_bytes() + "\0".join(process.cmdline()).encode()
            if process.pid not in ours and str(root).encode() in said and process.status() != "zombie":
                found.append(process)
    return found
