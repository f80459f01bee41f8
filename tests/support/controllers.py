"""Real controllers of a home, seen from outside; none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import ended, until
from workbench.controller.client.connect import ControllerStatus, status, stop_controller
from workbench.paths import Home

_started: list[subprocess.Popen[bytes]] = []

ROOT = Path(__file__).resolve().parents[2]


def controller(home: Home, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a controller as a client would, but as our child, so that its end can be waited for."""
    main = ROOT / "workbench" / "controller" / "__main__.py"
    environment = {**os.environ, **options.pop("env", {})}
    started = subprocess.Popen(
        [sys.executable, "-P", str(main), "--home", str(home.path), *arguments],
        stdin=subprocess.DEVNULL,
        env=environment,
        **options,
    )
    _started.append(started)
    return started


def forked_controller(home: Home) -> int:
    """Start a controller without the start of a Python, for tests that kill several; return its process.

    A client starts the next one ever later where those before it have ended soon; here nobody counts them.
    """
    main = ROOT / "workbench" / "controller" / "__main__.py"
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(home.controller_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    argv = [sys.executable, "-P", str(main), "--home", str(home.path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True)


def answers(home: Home) -> ControllerStatus:
    """Wait until a controller answers; return what it says."""
    found: list[ControllerStatus] = []

    def there() -> bool:
        found_status = status(home)
        if found_status is not None:
            found.append(found_status)
        return found_status is not None

    until(there, lambda: log_of(home))
    return found[-1]


def log_of(home: Home) -> str:
    """Read what the controllers of a home had to say."""
    return home.controller_log.read_text() if home.controller_log.exists() else ""


def end_all(home: Home) -> None:
    """End whatever controller a home has, and wait for its end."""
    running = status(home)
    if running is not None:
        stop_controller(home)
        until(lambda: not alive(running.pid), lambda: log_of(home))
    while _started:
        ended(_started.pop(), lambda: log_of(home))


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet buried does not."""
    for started in _started:
        if started.pid == pid:
            return started.poll() is None
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def still_of(folder: Path, pid: int | None) -> int | None:
    """Return a pid that some file has, if it is still that of a process of a folder: by now it may be another's."""
    with contextlib.suppress(OSError):
        if pid and os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone; one that has ended is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
