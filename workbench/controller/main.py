"""The controller's process: takes the lock, answers on its socket at once, and works until it may end."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.contract.prompts import CREDENTIALS
from workbench.clock import now_us
from workbench.controller.client.connect import status
from workbench.controller.decide.errors import sentence
from workbench.controller.runtime.lock import RETRY_SECONDS, ControllerLock
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.login_server import LOGINS, share_session
from workbench.controller.runtime.prewarm import preload_modules, prewarm
from workbench.controller.runtime.server import ControllerServer, socket_path
from workbench.errors import CannotWrite, FabricError, NoSpaceLeft, TryAgain, UsageError
from workbench.learner.platform.descriptors import raise_limit
from workbench.learner.platform.files import make_nothing_without
from workbench.learner.platform.login_session import leave_session
from workbench.paths import Home, default_home
from workbench.store.db.home_folder import refresh, require_home
from workbench.store.db.identity import home_uuid
from workbench.store.db.reserve import keep_reserve, with_reserve
from workbench.version import VERSION

if TYPE_CHECKING:
    from workbench.controller.loop.loop import Loop
    from workbench.store.db.database import Store

SUCCESSION_SECONDS: Final = 10.0
"""How long it waits for another controller that holds the lock and does not answer."""

LINGER_SECONDS: Final = 60.0

HOLDING_LINGER_SECONDS: Final = 8 * 3600.0
"""How long it stays while it holds what a person typed, which would have to be typed again."""

COMMANDS: Final = ("wake", "status", "stop", "ask", "hold", "recall", "expect", "login", "asked")
"""What clients may ask on the socket, which only the user reaches.

``ask`` is for a job that is to be stopped by a client that cannot write to the store. ``hold`` keeps ``answers`` in
memory, ``recall`` returns them; ``expect`` names a ``place`` that a job is about to need; ``login`` names one to log
in to, and the client then polls with ``asked``.
"""

STORE_AGAIN_SECONDS: Final = 0.5

STORE_SECONDS: Final = 60.0
"""How long it tries to open a store that cannot be written for anything but want of room, or is locked.

Whoever needs a controller later starts another, which finds the home as it is then.
"""

ENDS_WITHIN_SECONDS: Final = 30.0
"""One that hangs so long after a signal is ended by the system; a controller may be killed at any instant."""

EXIT_BUG: Final = 70


class ControllerProcess:
    """The state that the socket's thread, the signal handlers and the loop share."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._began_us = now_us()
        self._lock = threading.Lock()
        self._is_open = True
        self._ended = ""
        self.loop: Loop | None = None
        self.trouble = ""
        """Why the store cannot be opened yet."""

    def answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a client's message, whose ``do`` is one of :data:`COMMANDS`."""
        command = str(message["do"])
        about: dict[str, Any] = {"pid": os.getpid(), "version": VERSION, "home": self._uuid}
        with self._lock:
            if command not in COMMANDS:
                error = f"unknown command '{command}'; use one of {', '.join(COMMANDS)}"
                return {"ok": False, "error": error, **about}
            if not self._is_open:
                return {"ok": False, "error": "it is about to end", **about}
            if command == "stop":
                self._is_open = False
                self.end("a client asked for it")
            elif command == "wake" and self.loop is not None:
                self.loop.wake()
            elif command == "ask":
                if self.loop is None:
                    return {"ok": False, "error": "it has no store yet", **about}
                self.loop.ask(str(message.get("job")), str(message.get("kind")), str(message.get("who")))
            elif command == "hold":
                CREDENTIALS.update({str(key): str(value) for key, value in dict(message["answers"]).items()})
            elif command == "recall":
                about["answers"] = dict(CREDENTIALS.answers())
            elif command == "expect":
                prewarm(message["place"])
            elif command == "login":
                LOGINS.begin(str(message["name"]), message["place"], self._wake)
            elif command == "asked":
                about["login"] = LOGINS.poll(str(message["name"]), int(message["number"]), message["answer"])
            jobs = self.loop.open_jobs() if self.loop is not None else 0
            trouble = self.loop.trouble() if self.loop is not None else self.trouble
            return {
                "ok": True,
                **about,
                "open_jobs": jobs,
                "started_us": self._began_us,
                "trouble": trouble,
                "untidy": self.loop.untidy() if self.loop is not None else "",
            }

    def _wake(self) -> None:
        if self.loop is not None:
            self.loop.wake()

    def accept_clients(self, accepts: bool) -> None:
        """Accept clients, or send them away to start another controller."""
        with self._lock:
            self._is_open = accepts

    def end(self, why: str) -> None:
        """Have the loop end, even if it has not begun."""
        self._ended = why
        if self.loop is not None:
            self.loop.end(why)

    def set_loop(self, loop: Loop) -> None:
        """Pass messages to the loop from now on; it reads by itself what clients wrote before."""
        with self._lock:
            self.loop = loop
        if self._ended:
            loop.end(self._ended)

    @property
    def ended(self) -> str:
        """Why it is to end, or empty."""
        return self._ended


def main(arguments: Sequence[str]) -> int:
    """Be the controller of a home; return the exit code. The loser of a race for the lock ends with 0.

    It makes no home: one that was removed since the controller was started must not come back.
    """
    try:
        home, waits = _read(arguments)
        _detach(home)
        uuid = home_uuid(home, makes=False)
        require_home(home)
        lock = _take_lock(home, waits=waits)
    except FabricError as error:
        print(f"controller: {error}", file=sys.stderr)
        return error.exit_code
    if lock is None:
        return 0
    make_nothing_without(str(home.path), home.identity.name)
    refresh(home)
    keep_reserve(home)
    raise_limit()
    log = ControllerLog(home.controller_log)
    threading.excepthook = partial(_log_death, log)
    try:
        return _run(home, uuid, lock, log)
    except FabricError as error:
        log.say(f"ends: {error}")
        if not lock.is_ours():
            return 0  # the home was removed in the middle of its work, or is another controller's
        lock.write_address("", ended=error.message)
        return error.exit_code
    except Exception as error:
        log.bug("the controller, which ends", error)
        lock.write_address("", ended=sentence(error))
        return EXIT_BUG
    finally:
        lock.release()
        log.close()


def _log_death(log: ControllerLog, died: threading.ExceptHookArgs) -> None:
    name = died.thread.name if died.thread is not None else "a thread"
    if died.exc_value is not None and not isinstance(died.exc_value, SystemExit):
        log.bug(f"thread {name}, which ends", died.exc_value)


def _take_lock(home: Home, *, waits: bool) -> ControllerLock | None:
    """Take the lock; None when another controller has it and answers.

    One that does not answer may be about to end, or dead: a child that it was just starting holds the lock for a
    moment longer.
    """
    until = time.monotonic() + SUCCESSION_SECONDS
    while True:
        lock = ControllerLock.take(home)
        if lock is not None:
            return lock
        if not waits and status(home) is not None:
            return None
        if time.monotonic() >= until:
            return None
        time.sleep(RETRY_SECONDS)


def _run(home: Home, uuid: str, lock: ControllerLock, log: ControllerLog) -> int:
    process = ControllerProcess(uuid)
    # Clients that write after this can wake the loop; what they wrote before is read when the store is opened.
    server = _listen(home, socket_path(uuid), process)
    try:
        _end_by_signals(process)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # On a crash, or on SIGUSR1, the log shows where each thread is.
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
        lock.write_address(str(server.path))
        server.start()
        _load_paramiko_early(home)
        from workbench.controller.loop.loop import Loop, Settings

        store = _open(home, process, log, is_ours=lock.is_ours)
        if store is None:
            log.say(f"ends: {process.ended}")
            return 0
        with store:
            settings = Settings(
                linger=_linger,
                accept_clients=process.accept_clients,
                is_ours=lock.is_ours,
                beat=lock.beat,
                looked_us=lock.looked_us,
            )
            loop = Loop(home, store, log, settings)
            process.set_loop(loop)
            # What was imported stays, and is never looked at again.
            gc.freeze()
            gc.enable()
            preload_modules()
            log.say(f"version {VERSION} looks after {home.path}")
            why = loop.run()
        log.say(f"ends: {why}")
        return 0
    finally:
        if lock.is_ours():
            server.close()
            lock.write_address("")


def _end_by_signals(process: ControllerProcess) -> None:
    """Have SIGTERM and SIGINT end the loop, and the system the whole process where that does not come to an end.

    Without memory Python may wait forever for a thread that it could not start. Only the first signal counts: another
    one gives it no more time, and many could interrupt each other's handlers.
    """
    numbers = signal.SIGTERM, signal.SIGINT

    def end(number: int, _: object) -> None:
        for each in numbers:
            signal.signal(each, lambda *_: None)  # to ignore it would be inherited by what it starts
        signal.setitimer(signal.ITIMER_REAL, ENDS_WITHIN_SECONDS)
        process.end(f"{signal.Signals(number).name} came")

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for each in numbers:
        signal.signal(each, end)


def _listen(home: Home, path: Path, process: ControllerProcess) -> ControllerServer:
    """Make the socket; where its disk is the home's, which has a reserve, a full one does not keep it from us."""

    def make() -> ControllerServer:
        return ControllerServer(path, process.answer, {"lend": share_session})

    is_one_disk = path.parent.stat().st_dev == home.path.stat().st_dev
    return with_reserve(home, make) if is_one_disk else make()


def _load_paramiko_early(home: Home) -> None:
    """Load what SSH hosts need before there is work, if this home knows any such host."""
    if home.hosts.is_dir():
        from backends.ssh.config import load_paramiko

        threading.Thread(target=load_paramiko, name="warm", daemon=True).start()


def _open(
    home: Home, process: ControllerProcess, log: ControllerLog, *, is_ours: Callable[[], bool]
) -> Store | None:
    """Open and upgrade the store; None when the process is ended while the disk is full or the store locked.

    Raises:
        CannotWrite: nobody could write it for a while, for another reason than want of room.
        TryAgain: it was locked for as long.
    """
    from workbench.store.db.database import Store

    tried_until = time.monotonic() + STORE_SECONDS
    while not process.ended:
        if not is_ours():
            process.end("its lock file was removed, or the mount that it lies on has ended")
            break
        try:
            store = Store.open(home, migrate=True, makes=False)
            store.bind_controller()
            return store
        except NoSpaceLeft as error:
            _note_trouble(process, log, error)
            tried_until = time.monotonic() + STORE_SECONDS
        except (CannotWrite, TryAgain) as error:
            if time.monotonic() >= tried_until:
                raise
            _note_trouble(process, log, error)
        time.sleep(STORE_AGAIN_SECONDS)
    return None


def _note_trouble(process: ControllerProcess, log: ControllerLog, error: FabricError) -> None:
    if str(error) != process.trouble:
        process.trouble = str(error)
        log.say(f"{error}; it is tried again")


def _read(arguments: Sequence[str]) -> tuple[Home, bool]:
    # Two internal options are not worth the 10 ms that argparse takes to load.
    home, waits = Home(default_home()), False
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option == "--home" and rest:
            home = Home(Path(rest.pop(0)).absolute())
        elif option == "--wait":
            waits = True
        else:
            raise UsageError(f"unknown option '{option}'; use --home FOLDER or --wait")
    return home, waits


def _detach(home: Home) -> None:
    """Leave the terminal, the login session and the working folder; backends read the home from ``FABRIC_HOME``."""
    with contextlib.suppress(OSError):  # it leads a session already
        os.setsid()
    leave_session()
    os.chdir("/")
    os.umask(0o077)
    os.environ["FABRIC_HOME"] = str(home.path)


def _linger() -> float:
    try:
        return float(os.environ["FABRIC_LINGER_SECONDS"])
    except (KeyError, ValueError):
        return HOLDING_LINGER_SECONDS if CREDENTIALS.answers() or LOGINS.holds() else LINGER_SECONDS
