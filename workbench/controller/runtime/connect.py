"""How the controller is reached: a word on its socket, and a new one where none answers.

Imports next to nothing, since a command that starts a job starts the controller before it does anything else.
Nothing here blocks on a controller: a slow or stopped one stops no client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from workbench.controller.runtime.lock import read_lock
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.home_folder import is_home, require_home
from workbench.values import dataclass
from workbench.version import VERSION

ANSWER_SECONDS: Final = 2.0
"""How long a controller that is there may take to answer."""

START_SECONDS: Final = 5.0
"""A controller that was started so shortly before is given the time to answer before another is started."""

_spawned: list[int] = []
"""Controllers that this process started: they are its children and are reaped when it asks the next time."""

_starting: dict[Path, float] = {}
"""Homes whose controller this process started and that has not answered yet, and when that was."""


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What a controller that answers says of itself."""

    pid: int
    version: str
    home: str
    """The uuid of its home."""
    open_jobs: int
    started_us: int
    socket: str
    log: str
    trouble: str = ""
    """Why it cannot write down what happens, as long as that is so."""


def ensure_controller(home: Home) -> str:
    """Wake the controller; start one where none answers, or an older version's. Returns at once.

    Returns why the controller that answers cannot write down what happens, or empty.

    Raises:
        HomeNotBound: the home is a copy, whose jobs another home's controller looks after.
    """
    require_home(home)
    reap()
    answer = send_message(home, "wake")
    if answer is None:
        if not _is_starting(home):
            _spawn(home)
    elif not answer.get("ok"):
        _spawn(home, wait=True)  # it is about to end
    elif _version(str(answer.get("version"))) < _version(VERSION):
        send_message(home, "stop")
        _spawn(home, wait=True)
    else:
        return str(answer.get("trouble") or "")
    return ""


def nudge_or_start(home: Home) -> None:
    """Wake the controller without waiting for its answer; start one where nobody listens."""
    require_home(home)
    connection = dial(home, "wake")
    if connection is not None:
        connection.close()
    elif not _is_starting(home):
        _spawn(home)


def wake(home: Home) -> bool:
    """Tell the controller that there is something new; return whether one is there to hear it."""
    answer = send_message(home, "wake")
    return answer is not None and bool(answer.get("ok"))


def status(home: Home) -> ControllerStatus | None:
    """Ask the controller how it is; None when none answers."""
    answer = send_message(home, "status")
    if answer is None or not answer.get("ok"):
        return None
    held = read_lock(home)
    return ControllerStatus(
        pid=int(answer["pid"]),
        version=str(answer["version"]),
        home=str(answer["home"]),
        open_jobs=int(answer.get("open_jobs", 0)),
        started_us=int(answer.get("started_us", 0)),
        socket=held.socket if held else "",
        log=str(home.controller_log),
        trouble=str(answer.get("trouble") or ""),
    )


def stop_controller(home: Home) -> bool:
    """Ask the controller to end; return whether there was one. Learners run on."""
    answer = send_message(home, "stop")
    return answer is not None and bool(answer.get("ok"))


def send_message(home: Home, what: str, **more: Any) -> Mapping[str, Any] | None:
    """Send the controller a command (``what``) with its arguments; return its answer, None when none answers."""
    connection = dial(home, what, **more)
    answer = None if connection is None else _read_answer(connection)
    if answer is not None:
        _starting.pop(home.path, None)
    return answer


def pid_at(address: str) -> int | None:
    """Return the process of the controller that answers on a socket, of whichever folder; None where none does."""
    connection = _connect(address, "status")
    answer = None if connection is None else _read_answer(connection)
    return int(answer["pid"]) if answer and "pid" in answer else None


def dial(home: Home, what: str, **more: Any) -> socket.socket | None:
    """Say a word to the controller and return the socket on which it answers; None when none is there."""
    if not is_home(home):
        return None  # a lock file that was copied names the socket of the original's controller
    held = read_lock(home)
    if held is None or not held.socket:
        return None
    return _connect(held.socket, what, **more)


def _connect(address: str, what: str, **more: Any) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(address)
        connection.sendall(json.dumps({"do": what, **more}).encode() + b"\n")
    except OSError:
        connection.close()
        return None
    return connection


def _read_answer(connection: socket.socket) -> Mapping[str, Any] | None:
    with contextlib.suppress(OSError, ValueError), connection:
        data = b""
        while not data.endswith(b"\n"):
            part = connection.recv(65536)
            if not part:
                return None
            data += part
        answer = json.loads(data)
        return answer if isinstance(answer, dict) else None
    return None


def _is_starting(home: Home) -> bool:
    since = _starting.get(home.path)
    return since is not None and bool(_spawned) and time.monotonic() - since < START_SECONDS


def _spawn(home: Home, *, wait: bool = False) -> None:
    """Start a controller that belongs to nobody: own session, no terminal, its output in its log."""
    # As a file, since -m costs the import of runpy. -P and no PYTHONPATH: a folder of the user's that is
    # called runners must not be imported instead of ours.
    main = str(Path(__file__).parents[1] / "__main__.py")
    arguments = [sys.executable, "-P", main, "--home", str(home.path), *(["--wait"] if wait else [])]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    log = str(home.controller_log)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    spawn = partial(
        os.posix_spawn,
        sys.executable,
        arguments,
        environment,
        file_actions=actions,
        setsigmask=(),
        setsigdef=sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}),
    )
    try:
        try:
            pid = spawn(setsid=True)
        except NotImplementedError:  # it makes its own session then, a moment later
            pid = spawn()
    except OSError as error:
        raise FabricError(f"the controller could not be started: {error.strerror or error}") from error
    _spawned.append(pid)
    _starting[home.path] = time.monotonic()


def reap() -> None:
    """Bury controllers that this process started and that have ended: until then they seem to be alive."""
    for pid in list(_spawned):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            with contextlib.suppress(ValueError):  # another thread has buried it meanwhile
                _spawned.remove(pid)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
