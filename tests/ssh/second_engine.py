"""A Docker engine of the tests' own beside the machine's: empty, with a socket of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ssh.daemon import User, wait_until


@contextmanager
def second_engine(folder: Path, user: User) -> Iterator[Path]:
    """Start it, and give its socket, which a user may use."""
    folder.mkdir()
    socket = folder / "engine.sock"
    told = [
        *("--host", f"unix://{socket}", "--data-root", str(folder / "data")),
        *("--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")),
        *("--bridge=none", "--iptables=false", "--ip-masq=false", "--storage-driver=vfs"),
    ]
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["dockerd", *told], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        wait_until(lambda: _answers(socket), f"the engine to answer; {log}", 60)
        os.chown(socket, user.uid, 0)
        yield socket
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(socket: Path) -> bool:
    argv = ["docker", "-H", f"unix://{socket}", "version"]
    return subprocess.run(argv, capture_output=True).returncode == 0
