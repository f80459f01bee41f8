"""The controller's process: takes the lock, answers on its socket in moments, works until it may end."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.contract.prompts import CREDENTIALS
from workbench.clock import now_us
from workbench.controller.runtime.connect import status
from workbench.controller.runtime.lock import RETRY_SECONDS, ControllerLock
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.runtime.login_server import LOGINS
from workbench.controller.runtime.prewarm import prewarm
from workbench.controller.runtime.server import ControllerServer, socket_path
from workbench.controller.runtime.session_sharing import share_session
from workbench.errors import CannotWrite, FabricError, TryAgain, UsageError
from workbench.paths import Home, default_home
from workbench.store.db.home_folder import refresh, require_home
from workbench.store.db.identity import home_uuid
from workbench.version import VERSION

if TYPE_CHECKING:
    from workbench.controller.loop.loop import Loop
    from workbench.store.db.database import Store

SUCCESSION_SECONDS: Final = 10.0
"""How long one waits for the end of another that holds the lock and does not answer."""

LINGER_SECONDS: Final = 60.0

HOLDING_LINGER_SECONDS: Final = 8 * 3600.0
"""How long one stays that holds what a person typed: it would have to be typed again."""

WORDS: Final = ("wake", "status", "stop", "hold", "recall", "expect", "login", "asked")
"""``hold`` keeps ``answers`` in memory, ``recall`` tells them, ``expect`` names a ``place`` that a job is about to
need, ``login`` one that a person wants to log in to, by whom ``asked`` is said again and again; whoever reaches the
socket is the user."""

STORE_AGAIN_SECONDS: Final = 0.5


class ControllerProcess:
    """What the socket's thread, the signals and the loop share."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._began_us = now_us()
        self._lock = threading.Lock()
        self._is_open = True
        self._ended = ""
        self.loop: Loop | None = None

    def answer(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a client's word."""
        what = str(said["do"])
        about: dict[str, Any] = {"pid": os.getpid(), "version": VERSION, "home": self._uuid}
        with self._lock:
            if what not in WORDS:
                return {"ok": False, "error": f"'{what}' is not understood: {', '.join(WORDS)} are", **about}
            if not self._is_open:
                return {"ok": False, "error": "it is about to end", **about}
            if what == "stop":
                self._is_open = False
                self.end("a client asked for it")
            elif what == "wake" and self.loop is not None:
                self.loop.wake()
            elif what == "hold":
                CREDENTIALS.update({str(key): str(value) for key, value in dict(said["answers"]).items()})
            elif what == "recall":
                about["answers"] = dict(CREDENTIALS.answers())
            elif what == "expect":
                prewarm(said["place"])
            elif what == "login":
                LOGINS.begin(str(said["name"]), said["place"], self._wake)
            elif what == "asked":
                about["login"] = LOGINS.look_in(str(said["name"]), int(said["number"]), said["answer"])
            jobs = self.loop.open_jobs() if self.loop is not None else 0
            return {"ok": True, **about, "open_jobs": jobs, "started_us": self._began_us}

    def _wake(self) -> None:
        if self.loop is not None:
            self.loop.wake()

    def door(self, is_open: bool) -> None:
        """Let clients in, or send them away to start another."""
        with self._lock:
            self._is_open = is_open

    def end(self, why: str) -> None:
        """Have the loop end, also if it has not begun."""
        self._ended = why
        if self.loop is not None:
            self.loop.end(why)

    def set_loop(self, loop: Loop) -> None:
        """Let the loop have what comes in from now on; it looks for itself what came before."""
        with self._lock:
            self.loop = loop
        if self._ended:
            loop.end(self._ended)

    @property
    def ended(self) -> str:
        """Why it is to end, or empty."""
        return self._ended


def main(arguments: Sequence[str]) -> int:
    """Be the controller of a home; return the exit code. The loser of a race for the lock ends with 0."""
    try:
        home, waits = _read(arguments)
        _detach(home)
        uuid = home_uuid(home)
        require_home(home)
        lock = _take_lock(home, waits=waits)
    except FabricError as error:
        print(f"controller: {error}", file=sys.stderr)
        return error.exit_code
    if lock is None:
        return 0
    refresh(home)
    log = ControllerLog(home.controller_log)
    try:
        return _run(home, uuid, lock, log)
    except FabricError as error:
        log.say(f"ends: {error}")
        return error.exit_code
    finally:
        lock.release()
        log.close()


def _take_lock(home: Home, *, waits: bool) -> ControllerLock | None:
    """Take the lock; None when another controller has it, and answers.

    One that holds it and does not answer may be about to end, or be dead: a child that it was just starting holds
    its lock for a moment longer.
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
    # Clients that write after this can wake us; what they wrote before is read when the store is opened.
    server = ControllerServer(socket_path(uuid), process.answer, {"lend": share_session})
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: process.end(f"{signal.Signals(number).name} came"))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # One that crashes, or seems to be stuck and is asked, says in its log where each of its threads is.
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
        lock.say(str(server.path))
        server.start()
        _load_paramiko_early(home)
        from workbench.controller.loop.loop import Loop, Settings
        from workbench.controller.runtime.prewarm import preload_modules

        store = _open(home, process, log)
        if store is None:
            log.say(f"ends: {process.ended}")
            return 0
        with store:
            settings = Settings(linger=_linger, door=process.door, is_ours=lock.is_ours)
            loop = Loop(home, store, log, settings)
            process.set_loop(loop)
            preload_modules()
            log.say(f"version {VERSION} looks after {home.path}")
            why = loop.run()
        log.say(f"ends: {why}")
        return 0
    finally:
        if lock.is_ours():
            server.close()
            lock.say("")


def _load_paramiko_early(home: Home) -> None:
    """Load what hosts over SSH need while nothing else is to be done yet, where this home knows any."""
    if home.places.is_dir():
        from backends.ssh.config import load_paramiko

        threading.Thread(target=load_paramiko, name="warm", daemon=True).start()


def _open(home: Home, process: ControllerProcess, log: ControllerLog) -> Store | None:
    """Open and upgrade the store; None when told to end while the disk is full or the store locked."""
    from workbench.store.db.database import Store

    said = ""
    while not process.ended:
        try:
            store = Store.open(home, migrate=True)
            store.bind_controller()
            return store
        except (CannotWrite, TryAgain) as error:
            if str(error) != said:
                said = str(error)
                log.say(f"{error}; it is tried again")
            time.sleep(STORE_AGAIN_SECONDS)
    return None


def _read(arguments: Sequence[str]) -> tuple[Home, bool]:
    # Two options of our own are not worth the 10 ms that argparse takes to load.
    home, waits = Home(default_home()), False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--home" and rest:
            home = Home(Path(rest.pop(0)).absolute())
        elif word == "--wait":
            waits = True
        else:
            raise UsageError(f"what is '{word}'? --home FOLDER and --wait are known")
    return home, waits


def _detach(home: Home) -> None:
    """Belong to no terminal and no folder; places find the home where we do."""
    with contextlib.suppress(OSError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    os.umask(0o077)
    os.environ["FABRIC_HOME"] = str(home.path)


def _linger() -> float:
    try:
        return float(os.environ["FABRIC_LINGER_SECONDS"])
    except (KeyError, ValueError):
        return HOLDING_LINGER_SECONDS if CREDENTIALS.answers() or LOGINS.holds() else LINGER_SECONDS
