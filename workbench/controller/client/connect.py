"""How the controller is reached: a word on its socket, and a new one where none answers.

Imports next to nothing, since a command that starts a job starts the controller before it does anything else.
Nothing here blocks on a controller: a slow or stopped one stops no client. One that hangs is named; who stops a job, or
is asked to, ends it and starts another.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workbench.clock import elapsed_seconds
from workbench.controller.client import hang
from workbench.controller.runtime.lock import read_lock
from workbench.errors import CannotWrite, FabricError, TryAgain
from workbench.paths import Home
from workbench.store.db.home_folder import is_home, require_home
from workbench.values import dataclass
from workbench.version import VERSION

if TYPE_CHECKING:
    from workbench.store.db.rows import TargetRef

ANSWER_SECONDS: Final = 2.0
"""How long a controller that is there may take to answer."""

START_SECONDS: Final = 5.0
"""A controller that was started so shortly before is given the time to answer before another is started."""

PREWARM_SECONDS: Final = 5.0
"""A controller that is just being started is told about a job that comes until so long has passed."""

_PREWARM_AGAIN_SECONDS: Final = 0.01

_CROWDED_SECONDS: Final = 0.05
"""The pause before the next try where a controller takes no more clients."""

_LEAST_SECONDS: Final = 0.05
"""What is left at least to read an answer."""

ENDS_WITHIN_SECONDS: Final = 10.0
"""How long a controller that was asked to end is waited for."""

RESTART_SECONDS: Final = 15.0
"""How long a controller that follows another may take to answer."""

_spawned: list[int] = []
"""Controllers that this process started: they are its children and are reaped when it asks the next time."""

_starting: dict[Path, float] = {}
"""Homes whose controller this process started and that has not answered yet, and when that was."""

AGAIN_SECONDS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""How long nobody starts another controller after so many in a row that ended before they answered."""

STEADY_SECONDS: Final = 60.0
"""A controller that fails within this time counts as one of a row, though it has answered before."""
_FAULTS: Final = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""Signals by which a process fails by itself, as where a library gets no memory. Others are sent by somebody."""

_LOG_BYTES: Final = 4096
"""So much of what a controller that has failed wrote is read for its last line."""


@dataclass(frozen=True, slots=True)
class _Spawn:
    """A controller that this process started, and where its part of the log begins."""

    home: Home
    log_bytes: int
    began: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """Controllers of a home that failed one after the other before they answered."""

    count: int
    again_at: float
    exit_code: int
    why: str


_spawns: dict[int, _Spawn] = {}
"""What is known of the children of :data:`_spawned`, by their pid."""

_failures: dict[Path, _Failure] = {}
_failed_before: dict[Path, int] = {}
"""How many had failed in a row before the one that answers now."""


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
    untidy: str = ""
    """Why it could not repair what a crash left, until it can."""


def ensure_controller(home: Home) -> str:
    """Wake the controller; start one where none answers, or an older version's. Returns at once.

    Returns what keeps jobs from moving on: a controller that hangs, or that cannot write down what happens; or empty.

    Raises:
        HomeNotBound: the home is a copy, whose jobs another home's controller looks after.
    """
    require_home(home)
    reap()
    answer = send_message(home, "wake")
    if answer is None:
        # Another one would wait for the lock of one that is there, in vain.
        if not hang.unanswering(home) and not hang.is_silent(home):
            _start(home)
        return _why_unheard(home)
    if not answer.get("ok"):
        _spawn(home, wait=True)  # it is about to end
    elif _version(str(answer.get("version"))) < _version(VERSION):
        send_message(home, "stop")
        _spawn(home, wait=True)
    else:
        return str(answer.get("trouble") or "")
    return ""


def is_unheard(home: Home) -> bool:
    """Say whether no controller hears anything, as far as this process knows: one hangs, or they end at once.

    Those that end since the home takes no more do not count: that is the store's trouble.
    """
    failure = _failures.get(home.path)
    return bool(_why_unheard(home)) and (failure is None or failure.exit_code != CannotWrite.exit_code)


def _why_unheard(home: Home) -> str:
    if found := hang.unanswering(home):
        return found.advice
    failure = _failures.get(home.path)
    # The first may have been killed by chance, and the next one is started at once.
    return f"controllers end at once: {failure.why}" if failure is not None and failure.count > 1 else ""


def _start(home: Home) -> None:
    """Start a controller, unless one has just been started, or the last ones have failed."""
    failure = _failures.get(home.path)
    if not _is_starting(home) and (failure is None or time.monotonic() >= failure.again_at):
        _spawn(home)


def ensure_heard(home: Home, say: Callable[[str], None]) -> bool:
    """Have a controller hear that jobs are to stop: one that hangs is ended, and another one is started.

    Blocks for as long as it takes to see whether one hangs. Returns False where one does that cannot be ended; ``say``
    gets what is done about it.

    Raises:
        HomeNotBound: the home is a copy.
    """
    while True:
        ensure_controller(home)
        if found := hang.unanswering(home):
            return replace_controller(home, found, say)
        if not hang.is_silent(home):
            return True


def replace_controller(home: Home, found: hang.UnansweringController, say: Callable[[str], None]) -> bool:
    """End a controller that does not answer, if that may be, and start another; return whether that was done."""
    if not found.may_be_ended:
        say(found.text)
        return False
    say(f"{found.text}: it is ended, and another one is started")
    if not hang.end_process(found):
        say(f"controller {found.pid} cannot be ended")
        return False
    hang.end_silence(home)
    reap()
    _spawn(home, wait=True)
    return True


def nudge_or_start(home: Home) -> None:
    """Wake the controller without waiting for its answer; start one where nobody listens."""
    require_home(home)
    reap()
    try:
        connection = _dial(home, "wake", patience=0.0)
    except TimeoutError:
        return  # one is there, and as many wait for it as can
    if connection is not None:
        connection.close()
        _note_answer(home)
    else:
        _start(home)


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
        untidy=str(answer.get("untidy") or ""),
    )


def stop_controller(home: Home) -> bool:
    """Ask the controller to end; return whether there was one. Learners run on."""
    answer = send_message(home, "stop")
    return answer is not None and bool(answer.get("ok"))


def end_controller(home: Home, say: Callable[[str], None]) -> bool:
    """End the controller, whether it answers or not; return whether there was one. Learners run on.

    One that answers is gone when this returns, with nothing of the store open, so that the home may be moved; one that
    takes longer than :data:`ENDS_WITHIN_SECONDS` is named.

    Raises:
        TryAgain: it does not answer, and does not die.
    """
    held = read_lock(home)
    while not stop_controller(home):
        if found := hang.unanswering(home):
            say(f"{found.text}: it is ended")
            if not hang.end_process(found):
                raise TryAgain(
                    f"controller {found.pid} cannot be ended" + (f": it {found.why}" if found.why else ""),
                    hint="jobs that run go on; it ends as soon as it is able to",
                )
            hang.end_silence(home)
            return True
        if not hang.is_silent(home):
            return False
    if held is None or not held.start_ticks:
        return True  # an older one does not say when it was started
    if not hang.ends_within(held.pid, held.start_ticks, ENDS_WITHIN_SECONDS):
        say(f"controller {held.pid} is ending: what it does now is not done yet")
    return True


def restart_controller(home: Home, say: Callable[[str], None]) -> ControllerStatus:
    """End the controller, whether it answers or not, and start another; return what that one says. Learners run on.

    Raises:
        HomeNotBound: the home is a copy.
        TryAgain: the old one does not end, or the new one does not answer.
    """
    require_home(home)
    end_controller(home, say)
    _failures.pop(home.path, None)
    _failed_before.pop(home.path, None)
    _spawn(home, wait=True)
    until = time.monotonic() + RESTART_SECONDS
    while (found := status(home)) is None:
        reap()
        failure = _failures.get(home.path)
        if failure is not None or time.monotonic() > until:
            why = f": {failure.why}" if failure is not None else ""
            raise TryAgain(f"no controller answers{why}", hint=f"its log is {home.controller_log}")
        time.sleep(_CROWDED_SECONDS)
    return found


def request_prewarm(home: Home, target: TargetRef) -> None:
    """Tell the controller, in the background, that a job for a target is about to come."""
    message = asdict(target)

    def send() -> None:
        until = time.monotonic() + PREWARM_SECONDS
        while send_message(home, "expect", place=message) is None and time.monotonic() < until:
            time.sleep(_PREWARM_AGAIN_SECONDS)

    threading.Thread(target=send, name="request prewarm", daemon=True).start()


def send_message(home: Home, what: str, **more: Any) -> Mapping[str, Any] | None:
    """Send the controller a command (``what``) with its arguments; return its answer, None when none answers."""
    began = elapsed_seconds()
    try:
        connection = _dial(home, what, **more)
        answer = None if connection is None else _read_answer(connection)
    except TimeoutError:
        hang.count_silence(home, began, ANSWER_SECONDS)
        return None
    hang.end_silence(home)
    if answer is not None:
        _starting.pop(home.path, None)
        _note_answer(home)
    return answer


def pid_at(address: str) -> int | None:
    """Return the process of the controller that answers on a socket, of whichever folder; None where none does."""
    try:
        connection = _connect(address, "status")
        answer = None if connection is None else _read_answer(connection)
    except TimeoutError:
        return None
    return int(answer["pid"]) if answer and "pid" in answer else None


def dial(home: Home, what: str, **more: Any) -> socket.socket | None:
    """Say a word to the controller and return the socket on which it answers; None when none is there."""
    try:
        return _dial(home, what, **more)
    except TimeoutError:
        return None


def _dial(home: Home, what: str, *, patience: float | None = None, **more: Any) -> socket.socket | None:
    if not is_home(home):
        return None  # a lock file that was copied names the socket of the original's controller
    held = read_lock(home)
    if held is None or not held.socket:
        return None
    return _connect(held.socket, what, patience=patience, **more)


def _connect(address: str, what: str, *, patience: float | None = None, **more: Any) -> socket.socket | None:
    """Say a word on a socket; what is read from it comes within the rest of the time.

    ``patience`` is how long to try where it takes no more clients; :data:`ANSWER_SECONDS` if not given.

    Raises:
        TimeoutError: somebody listens there, and takes nothing.
    """
    until = time.monotonic() + (ANSWER_SECONDS if patience is None else patience)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_SECONDS)
        while not _is_connected(connection, address):
            if time.monotonic() >= until:
                raise TimeoutError
            time.sleep(_CROWDED_SECONDS)
        connection.sendall(json.dumps({"do": what, **more}).encode() + b"\n")
        connection.settimeout(max(_LEAST_SECONDS, until - time.monotonic()))
    except OSError as error:
        connection.close()
        if isinstance(error, TimeoutError):
            raise
        return None
    return connection


def _is_connected(connection: socket.socket, address: str) -> bool:
    """Connect; return False where as many wait there already as may."""
    try:
        connection.connect(address)
    except BlockingIOError:
        return False
    return True


def _read_answer(connection: socket.socket) -> Mapping[str, Any] | None:
    """Read an answer; None where there is none.

    Raises:
        TimeoutError: it does not come.
    """
    data = b""
    try:
        with connection:
            while not data.endswith(b"\n"):
                part = connection.recv(65536)
                if not part:
                    return None
                data += part
        answer = json.loads(data)
    except (OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise
        return None
    return answer if isinstance(answer, dict) else None


def _is_starting(home: Home) -> bool:
    since = _starting.get(home.path)
    if since is None or time.monotonic() - since >= START_SECONDS:
        return False
    return any(spawn.home.path == home.path for pid, spawn in list(_spawns.items()) if pid in _spawned)


def _spawn(home: Home, *, wait: bool = False) -> None:
    """Start a controller that belongs to nobody: own session, no terminal, its output in its log."""
    # As a file, since -m costs the import of runpy. -P and no PYTHONPATH: a folder of the user's that is
    # called runners must not be imported instead of ours.
    main = str(Path(__file__).parents[1] / "__main__.py")
    arguments = [sys.executable, "-P", main, "--home", str(home.path), *(["--wait"] if wait else [])]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    log = str(home.controller_log)
    begins = _size(log)
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
    _spawns[pid] = _Spawn(home, begins, time.monotonic())
    _spawned.append(pid)
    _starting[home.path] = time.monotonic()


def reap() -> None:
    """Bury controllers that this process started and that have ended: until then they seem to be alive."""
    for pid in list(_spawned):
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        else:
            if ended and (spawn := _spawns.pop(pid, None)) and status:
                _note_failure(spawn, os.waitstatus_to_exitcode(status))
        if ended:
            with contextlib.suppress(ValueError):  # another thread has buried it meanwhile
                _spawned.remove(pid)


def _note_answer(home: Home) -> None:
    """Remember that a controller answers, and how many had failed before it: it may be the next one of the row."""
    if (failure := _failures.pop(home.path, None)) is not None:
        _failed_before[home.path] = failure.count


def _note_failure(spawn: _Spawn, exit_code: int) -> None:
    """Remember that a controller has failed.

    One that had answered counts where it failed by itself soon after its start: it would do so again and again. One
    that somebody killed is another matter.
    """
    path = spawn.home.path
    has_answered = path not in _starting
    was_killed = exit_code < 0 and -exit_code not in _FAULTS
    if has_answered and (was_killed or time.monotonic() - spawn.began >= STEADY_SECONDS):
        _failed_before.pop(path, None)
        return
    known = _failures.get(path)
    count = (known.count if known is not None else _failed_before.get(path, 0)) + 1
    again_at = time.monotonic() + AGAIN_SECONDS[min(count, len(AGAIN_SECONDS)) - 1]
    why = _last_line(spawn) or (f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}")
    _failures[path] = _Failure(count, again_at, exit_code, why)


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size  # noqa: PTH116 - every start of a controller asks
    except OSError:
        return 0


def _last_line(spawn: _Spawn) -> str:
    """Return the last line that a controller wrote into its log; empty where it wrote none."""
    from workbench.learner.texts import clean

    try:
        with spawn.home.controller_log.open("rb") as log:
            log.seek(max(spawn.log_bytes, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            lines = log.read(_LOG_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    stamp, _, text = last.partition("] ")
    return clean(text if "Z [" in stamp else last, 200)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
