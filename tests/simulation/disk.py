"""The home's disk, between the code and the system: where processes are killed, and where writes are refused.

While a history runs, the calls by which fabric changes files are replaced in this process: those of ``os`` that
:data:`_CALLS` names, and what ends a transaction of SQLite's. Each first asks whether the process that calls it dies
there (before it, or after it; a write also in its middle), or whether the disk refuses. The files and the database
themselves are real.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.simulation.chance import Chance
from tests.simulation.tasks import Process, Scheduler

_CALLS: Final = (
    "write",
    "pwrite",
    "fsync",
    "replace",
    "rename",
    "unlink",
    "mkdir",
    "truncate",
    "ftruncate",
)
_GROWS: Final = frozenset({"write", "pwrite", "mkdir", "fsync"})
"""Calls that a full disk refuses; what removes something always works."""

KILL_WEIGHT: Final = 0.02
"""There are some hundred writes in the life of a controller."""
REFUSE_WEIGHT: Final = 0.15


class Disk:
    """The disk of one history."""

    def __init__(self, scheduler: Scheduler, chance: Chance) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self.after_commit: Callable[[], None] = lambda: None
        """Called when a transaction of the home's database is there for all to see."""
        self.after_mirrored: Callable[[str], None] = lambda path: None
        """Called when a mirrored file has grown."""
        self.connections: dict[Process, list[sqlite3.Connection]] = {}
        self.full_until = 0.0
        self._kills, self._refuses = chance.is_active("kill"), chance.is_active("disk")
        self.on_killed: Callable[[Process, str], None] = lambda process, where: None

    def owner(self) -> Process | None:
        """Return the process that runs; None for the world."""
        task = self._scheduler.current
        return None if task is None or task.process.is_killed else task.process

    def _dies(self, moment: str, what: str) -> None:
        if not self._kills:
            return
        process = self.owner()
        if process is not None and self._chance.goes_wrong("kill", f"{moment} {what}", KILL_WEIGHT):
            self.on_killed(process, f"{moment} {what}")
            self._scheduler.kill(process)

    def is_refused(self, what: str) -> bool:
        """Say whether the disk refuses a write now: it stays full for a while."""
        if not self._refuses or self._chance.ended or self.owner() is None:
            return False
        if self._scheduler.now < self.full_until:
            return True
        if self._chance.goes_wrong("disk", what, REFUSE_WEIGHT):
            lasts = self._chance.choose("how long the disk is full", (0.0, 0.5, 3.0, 90.0))
            self.full_until = self._scheduler.now + lasts
            return True
        return False

    def call(
        self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Make one of the calls."""
        if self._scheduler.current is None or not isinstance(arguments[0], int | str | os.PathLike):
            return real(*arguments, **named)
        self._dies("before", name)
        if name in _GROWS and self.is_refused(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if name == "write" and len(arguments[1]) > 1:
            process = self.owner()
            if process is not None and self._chance.goes_wrong("kill", "amid write", KILL_WEIGHT):
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                self.on_killed(process, "amid write")
                self._scheduler.kill(process)
        done = real(*arguments, **named)
        if name == "pwrite":
            self.after_mirrored(str(Path(f"/proc/self/fd/{arguments[0]}").readlink()))
        self._dies("after", name)
        return done

    def commit(self, real: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        """End a transaction."""
        self._dies("before", "commit")
        if self.is_refused("commit"):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        done = real()
        self.after_commit()
        self._dies("after", "commit")
        return done

    def opened(self, connection: sqlite3.Connection) -> None:
        """Note that a process has opened the database."""
        process = self.owner()
        if process is None:
            return
        if process not in self.connections:
            self.connections[process] = []
            process.on_killed.append(lambda: self._close(process))
        self.connections[process].append(connection)

    def _close(self, process: Process) -> None:
        for connection in self.connections.pop(process, []):
            connection.close()

    def close(self) -> None:
        """Close all that anybody has open."""
        for process in list(self.connections):
            self._close(process)


_disk: Disk | None = None


_execute: Final = sqlite3.Connection.execute
_WRITES: Final = ("INSERT", "UPDATE", "DELETE")


class _Connection(sqlite3.Connection):
    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if sql[:1] not in "CIUD" or _disk is None:
            return _execute(self, sql, values)
        if sql == "COMMIT" or (not self.in_transaction and sql.startswith(_WRITES)):
            return _disk.commit(lambda: _execute(self, sql, values))
        return _execute(self, sql, values)

    def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if _disk is None or self.in_transaction:
            return super().executemany(sql, *arguments)
        executemany = super().executemany
        return _disk.commit(lambda: executemany(sql, *arguments))


_connect = sqlite3.connect


def _connect_here(*arguments: Any, **named: Any) -> sqlite3.Connection:
    connection = _connect(*arguments, factory=_Connection, **named)
    if _disk is not None:
        _disk.opened(connection)
    return connection


def _replaced(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return real(*arguments, **named) if _disk is None else _disk.call(name, real, arguments, named)

    return call


@contextmanager
def calls_replaced() -> Iterator[None]:
    """Replace the calls of this process; without a disk in use they do what they always did."""
    before = {name: getattr(os, name) for name in _CALLS}
    try:
        for name, real in before.items():
            setattr(os, name, _replaced(name, real))
        sqlite3.connect = _connect_here  # type: ignore[assignment] # the same arguments, but for the factory
        yield
    finally:
        for name, real in before.items():
            setattr(os, name, real)
        sqlite3.connect = _connect


@contextmanager
def in_use(disk: Disk) -> Iterator[None]:
    """Have this process write to a history's disk."""
    global _disk
    _disk = disk
    try:
        yield
    finally:
        _disk = None
