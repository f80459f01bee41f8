"""``controller.lock``: held by the one controller of a home for its life; its text says where to reach it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import fields
from typing import Self

from workbench.clock import now_us
from workbench.errors import CannotWrite
from workbench.paths import Home
from workbench.values import dataclass
from workbench.version import VERSION

RETRY_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LockText:
    """What the holder says of itself. It may be dead: only an answer on the socket means that it lives."""

    pid: int
    version: str
    socket: str
    """Path of the socket that it answers on."""
    host: str
    looked_us: int | None = None
    """When a controller last looked after the jobs; None where none has said so."""
    ended: str = ""
    """Why the last one ended by itself though there may be open jobs; empty where nothing was wrong."""
    start_ticks: int = 0
    """When its process was started, by which it is told from a later one with its pid; 0 where that is not known."""
    boot_id: str = ""
    """The boot of the machine that these ticks are of."""


class ControllerLock:
    """The lock, held until :meth:`release` or the end of the process."""

    def __init__(self, home: Home, descriptor: int) -> None:
        # Clients read the lock first of all, and need nothing of this.
        from workbench.learner.platform import system

        self._home = home
        self._descriptor = descriptor
        self._socket_path = self._ended = ""
        self._start_ticks, self._boot_id = system.start_ticks(os.getpid()), system.boot_id()
        before = read_lock(home)
        self._looked_us = before.looked_us if before is not None else None

    @property
    def looked_us(self) -> int | None:
        """When a controller last looked after the jobs: this one, or one before it."""
        return self._looked_us

    @classmethod
    def take(cls, home: Home) -> Self | None:
        """Take the lock, or return None when another holds it.

        Raises:
            CannotWrite: the home takes no more.
            ConfigError: its file system has no locks.
        """
        while True:
            try:
                descriptor = os.open(home.controller_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                # The store's modules would cost every client that only reads the lock 15 ms.
                from workbench.store.db.errors import write_failure

                raise write_failure(error, home.controller_lock) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError as error:
                os.close(descriptor)
                from workbench.store.db.errors import lock_failure

                raise lock_failure(error, home.controller_lock) from error
            lock = cls(home, descriptor)
            if lock.is_ours():
                return lock
            lock.release()

    def is_ours(self) -> bool:
        """Say whether the file by that name is still the one that is held; it may have been removed."""
        try:
            there, held = self._home.controller_lock.stat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

    def write_address(self, socket_path: str, *, ended: str = "") -> None:
        """Write where this controller is reached; or, with no path, why it ended though jobs may be open."""
        self._socket_path, self._ended = socket_path, ended
        self._write()

    def beat(self) -> None:
        """Write that this controller has just looked after the jobs."""
        self._looked_us = now_us()
        self._write()

    def release(self) -> None:
        """Let go."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _write(self) -> None:
        # In place: on a full disk what is given back is gone. Clients that read no address start another controller.
        from workbench.store.db.errors import write_failure
        from workbench.store.db.reserve import with_reserve

        text = LockText(
            os.getpid(),
            VERSION,
            self._socket_path,
            os.uname().nodename,
            self._looked_us,
            self._ended,
            self._start_ticks,
            self._boot_id,
        )
        data = json.dumps({field.name: getattr(text, field.name) for field in fields(text)}).encode() + b"\n"

        def write() -> None:
            try:
                # In this order, who reads meanwhile finds a whole document at each heartbeat.
                os.pwrite(self._descriptor, data, 0)
                os.ftruncate(self._descriptor, len(data))
            except OSError as error:
                raise write_failure(error, self._home.controller_lock) from error

        with contextlib.suppress(CannotWrite):
            with_reserve(self._home, write)


def read_lock(home: Home) -> LockText | None:
    """Read what the last holder said of itself; None where there is nothing to be read."""
    try:
        document = json.loads(home.controller_lock.read_bytes())
        return LockText(
            **{field.name: document[field.name] for field in fields(LockText) if field.name in document}
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
