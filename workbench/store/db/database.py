"""The open database: its connection, its transactions, and its failures as a ``FabricError``.

A :class:`Store` belongs to the thread that opened it. Readers hold no transaction across a refresh; nothing
waits for a network inside one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

from workbench.errors import ConfigError, FabricError
from workbench.paths import Home
from workbench.store.db.errors import (
    gone_failure,
    is_gone,
    lost_store,
    require_reachable,
    require_room,
    translate,
    translated,
)
from workbench.store.db.filesystem import COPY_ON_WRITE, filesystem_type
from workbench.store.db.home_folder import refuse_linked_copy
from workbench.store.db.identity import home_uuid, require_made
from workbench.store.db.privacy import close_home, keep_private
from workbench.store.db.reserve import with_reserve
from workbench.store.db.schema import LATEST
from workbench.store.db.setup import bind_controller, journal_mode, prepare, refuse_lost_database, version_of

__all__ = ["Store", "home_uuid"]

Values: TypeAlias = "Sequence[Any] | Mapping[str, Any]"
"""What a statement's question marks, or names, stand for."""

_LOG_BYTES: Final = 16 << 20

_LOOK_SECONDS: Final = 0.5
"""How often it is found out again whether open jobs are looked after."""


class Store:
    """One home's database, open in one thread."""

    home: Home
    connection: sqlite3.Connection

    def __init__(
        self, home: Home, connection: sqlite3.Connection, file: Path, *, needs_room: bool = False
    ) -> None:
        self.home = home
        self.file = file
        self.connection = connection
        self._needs_room = needs_room
        self._last_look: Callable[[], int | None] | None = None
        self._note: Callable[[str], None] | None = None
        self._looked_us: int | None = None
        self._look_due = 0.0
        self._depth = 0
        self._undo: list[Callable[[], None]] = []
        self._tables: set[str] = set()
        """Those that were found, of which not each version knows."""
        self._inode = _inode(file)
        self._read_version = self._pragma("data_version")

    @classmethod
    def open(
        cls, home: Home, *, wait_seconds: float = 10.0, migrate: bool = False, makes: bool = True
    ) -> Self:
        """Open the store of a home.

        The home, its ``home.json`` and an empty database are made where they are missing.

        ``wait_seconds`` is how long a locked database is waited for. ``migrate`` is for the holder of the
        controller lock alone: it upgrades an older database. Without ``makes`` no home is made: who works for one
        that is moved away meanwhile must not leave another in its place.

        Raises:
            CannotWrite: the home cannot be written, or its disk is full.
            ConfigError: the database is of a newer version, or of an older one that nobody has upgraded.
            HomeNotBound: the home is a copy whose database is a hard link to the original's.
            InputMissing: the file is damaged, no store, or lost, and the hint says how to rebuild it; or the home
                is gone, or its file system is.
            TryAgain: another process kept it locked.
        """
        require_reachable(home)
        if not makes:
            require_made(home)
        refuse_lost_database(home)
        refuse_linked_copy(home)
        close_home(home)
        home_uuid(home, makes=makes)
        return with_reserve(
            home, lambda: cls.open_file(home, home.database, wait_seconds=wait_seconds, migrate=migrate)
        )

    @classmethod
    def open_file(cls, home: Home, file: Path, *, wait_seconds: float = 10.0, migrate: bool = False) -> Self:
        """Open a database that lies elsewhere than the home's own, while it is being rebuilt."""
        with translated(file):
            keep_private(file)
            is_closed = _is_closed_and_read_only(file)
            connection = sqlite3.connect(
                f"file:{quote(str(file))}?immutable=1" if is_closed else file,
                uri=is_closed,
                timeout=wait_seconds,
                isolation_level=None,
                cached_statements=256,
            )
            try:
                prepare(connection, home, migrate=migrate)
                kind = "" if is_closed else filesystem_type(home.path)
                if not is_closed:
                    journal_mode(connection, home, kind)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA temp_store = MEMORY")
                # After a burst of metrics the log need not stay as large as it was.
                connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
                return cls(home, connection, file, needs_room=kind in COPY_ON_WRITE)
            except BaseException:
                connection.close()
                raise

    def date_rows_by(self, last_look: Callable[[], int | None]) -> None:
        """Date the rows of open jobs: ``last_look`` says when they were last looked after, None where they are now."""
        self._last_look = last_look

    def note_by(self, note: Callable[[str], None]) -> None:
        """Have a front end show notes: what a command took for what, where a person could mean something else."""
        self._note = note

    def note(self, text: str) -> None:
        """Show a note, if a front end asked for them."""
        if self._note is not None:
            self._note(text)

    @property
    def looked_us(self) -> int | None:
        """When open jobs were last looked after; None where they are now, or nobody asked to know."""
        if self._last_look is None:
            return None
        now = time.monotonic()
        if now >= self._look_due:
            self._look_due = now + _LOOK_SECONDS
            self._looked_us = self._last_look()
        return self._looked_us

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """All or nothing: a write transaction from its first moment on.

        Blocks within blocks are savepoints.
        """
        depth, mark = self._depth, len(self._undo)
        if not depth and self._needs_room:
            require_room(self.file)
        name = f"level_{depth}"
        self._depth += 1
        try:
            self.execute(f"SAVEPOINT {name}" if depth else "BEGIN IMMEDIATE")
            yield
            # SQLite may have rolled all back by itself (disk full), then this says so.
            self.execute(f"RELEASE {name}" if depth else "COMMIT")
        except BaseException:
            try:
                # While the lock is still held: others write to the same files behind it.
                while len(self._undo) > mark:
                    self._undo.pop()()
            finally:
                if self.connection.in_transaction:
                    self.execute(f"ROLLBACK TO {name}" if depth else "ROLLBACK")
            raise
        finally:
            self._depth -= 1
        if not depth:
            self._undo.clear()
            if self._needs_room:
                self._mark_log_as_read()

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Have something outside the database undone if the transaction that is open now fails."""
        self._undo.append(undo)

    def execute(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        """Run one statement, with SQLite's errors as a FabricError."""
        # Here and below without a context manager, which would take as long as many a statement.
        try:
            return self.connection.execute(sql, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise translate(error, self.file) from error

    def executemany(self, sql: str, rows: Iterable[Values]) -> None:
        """Run one statement for many rows, with SQLite's errors as a FabricError."""
        try:
            self.connection.executemany(sql, rows)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise translate(error, self.file) from error

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run one query to its end, so that no read transaction stays open."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise translate(error, self.file) from error

    def row(self, sql: str, values: Values = ()) -> tuple[Any, ...] | None:
        """Run one query for at most one row."""
        found = self.rows(sql, values)
        return found[0] if found else None

    def has_table(self, name: str) -> bool:
        """Say whether there is a table or an index, of those that not each version makes; none is ever removed."""
        if name not in self._tables:
            if self.row("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)) is None:
                return False
            self._tables.add(name)
            if self.connection.in_transaction:  # the one that makes it, perhaps
                self.on_rollback(lambda: self._tables.discard(name))
        return True

    def counter(self, name: str) -> int:
        """Return a revision counter (``jobs``, ``transitions``, ``series``, ...).

        It moves when that table changes.
        """
        found = self.row("SELECT value FROM counters WHERE name = ?", (name,))
        return found[0] if found else 0

    def bump(self, name: str) -> int:
        """Move a counter on and return its new value; within :meth:`atomic`."""
        self.execute("UPDATE counters SET value = value + 1 WHERE name = ?", (name,))
        return self.counter(name)

    def data_version(self) -> int:
        """Return a number that changes when another process or connection has written.

        Raises:
            ConfigError: the database was upgraded or rebuilt meanwhile.
            InputMissing: its file is gone, or the file system below it.
        """
        try:
            inode = self.file.stat().st_ino
        except OSError as error:
            raise gone_failure(error, self.file) if is_gone(error) else lost_store(self.file) from error
        if inode != self._inode:
            raise ConfigError(f"the store {self.file} was rebuilt", hint="restart this one")
        version = self._pragma("data_version")
        if version != self._read_version:
            self._read_version = version
            if self.schema_version() != LATEST:
                raise ConfigError(
                    f"the store {self.file} was changed by another version of fabric",
                    hint="restart this one",
                )
        return version

    def schema_version(self) -> int:
        """Return the version of the database's schema."""
        with translated(self.file):
            return version_of(self.connection)

    def bind_controller(self, *, force: bool = False) -> None:
        """Let this machine's controller alone work on a home on a network file system.

        ConfigError on any other.
        """
        with self.atomic():
            bind_controller(self.connection, self.home, force=force)

    def close(self) -> None:
        """Give the connection back."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mark_log_as_read(self) -> None:
        """Read once after a commit, which notes in the log's index up to where the log is read.

        The first reader writes that. It would be killed where there is no room by then; now there was some.
        """
        with contextlib.suppress(FabricError):  # the transaction is over and done
            self.row("SELECT 1 FROM counters LIMIT 1")

    def _pragma(self, name: str) -> int:
        with translated(self.file):
            return int(self.connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_closed_and_read_only(file: Path) -> bool:
    """Say whether a database lies on a read-only file system, where nobody has it open.

    SQLite cannot make the files there that its log takes, and reads such a one only where it is told that
    nothing changes it.
    """
    try:
        if not os.statvfs(file).f_flag & os.ST_RDONLY:
            return False
    except OSError:
        return False
    return not any(file.with_name(f"{file.name}-{kind}").exists() for kind in ("wal", "journal"))


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except OSError:
        return -1
