"""Brings a database to this version's schema: made new, upgraded step by step, or refused."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.errors import ConfigError, InputMissing
from workbench.formats import count
from workbench.paths import Home
from workbench.store.db.errors import lock_failure, maps_files
from workbench.store.db.filesystem import filesystem_type, is_network, machine_id
from workbench.store.db.schema import FIRST, FIRST_NAME, LATEST, statements

_RECORD = """
CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT, applied_at TEXT);
CREATE UNIQUE INDEX idx__sqlite_migrations_migration_set_name ON _sqlite_migrations (migration_set, name);
"""
"""Where sqlite-utils looks for what was applied, as it makes that table itself."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return the number of the last step that was applied; 0 for an empty database."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def prepare(connection: sqlite3.Connection, home: Home, *, migrate: bool) -> None:
    """Make or upgrade the schema, or refuse.

    Raises:
        ConfigError: the database is newer than this version, or older and ``migrate`` is not given.
    """
    version = version_of(connection)
    if version == 0:
        create(connection, home)
        version = version_of(connection)
    if version > LATEST:
        raise ConfigError(
            f"the store {home.database} is from a newer version of fabric "
            f"(schema {version}, this one knows {LATEST})",
            hint="upgrade fabric",
        )
    if version < LATEST:
        if not migrate:
            raise ConfigError(
                f"the store {home.database} is from an older version of fabric "
                f"(schema {version}, this one needs {LATEST})",
                hint="the controller upgrades it when it starts: fabric controller status",
            )
        upgrade(connection, home)


def refuse_lost_database(home: Home) -> None:
    """Refuse a home that has jobs and no database: they would seem never to have been.

    Raises:
        InputMissing: it is such a home.
    """
    if home.database.exists():
        return
    folders = sum(1 for _ in home.jobs.glob("training-*"))
    # Once more: another process may have made both since. It makes the database first.
    if folders and not home.database.exists():
        are = "is" if folders == 1 else "are"
        raise InputMissing(
            f"the database of {home.path} is lost; {count(folders, 'job folder')} {are} left",
            hint="`fabric doctor --rebuild` restores it from them",
        )


def create(connection: sqlite3.Connection, home: Home) -> None:
    """Make an empty database's schema; when two do it at once the second finds it made."""
    from datetime import UTC, datetime

    with one_at_a_time(home):
        if version_of(connection):
            return
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise InputMissing(f"{home.database} is an SQLite file, but not a store of fabric's")
        connection.execute(f"PRAGMA journal_mode = {_mode(home)}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements(FIRST + _RECORD):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('fabric', ?, ?)",
                (FIRST_NAME, str(datetime.now(UTC))),
            )
            if LATEST > 1:
                _apply_pending(connection)
            connection.execute(f"PRAGMA user_version = {LATEST}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def upgrade(connection: sqlite3.Connection, home: Home) -> None:
    """Apply the steps that are missing, each in a transaction of its own.

    One that fails leaves those before it.
    """
    from sqlite_utils import Database

    from workbench.store.db.migrations import STEPS

    with one_at_a_time(home):
        database = Database(connection)
        STEPS.ensure_migrations_table(database)
        pending = [step.name for step in STEPS.pending(database)]
        done = LATEST - len(pending)
        for index, _ in enumerate(pending):
            connection.execute("BEGIN IMMEDIATE")
            try:
                STEPS.apply(database, stop_before=pending[index + 1 :])
                connection.execute(f"PRAGMA user_version = {done + index + 1}")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def journal_mode(connection: sqlite3.Connection, home: Home, kind: str) -> str:
    """Set and return how SQLite keeps its journal: ``wal``, or ``delete`` where that cannot be.

    That is on network file systems, and on those that map no files into memory. ``kind`` is the home's.
    """
    found = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    mode = _mode(home) if found != "wal" else "delete" if is_network(kind) else "wal"
    if found != mode:
        found = str(connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0])
    return found


def _mode(home: Home) -> str:
    """Return how SQLite can keep its journal: readers of a log beside the database map an index into memory."""
    kind = filesystem_type(home.path)
    return "delete" if is_network(kind) or (kind.startswith("fuse") and not maps_files(home.path)) else "wal"


def bind_controller(connection: sqlite3.Connection, home: Home, *, force: bool = False) -> None:
    """On a network file system let one machine's controller alone work on this home; the first one stays it.

    Raises:
        ConfigError: the home belongs to another machine's controller.
    """
    if not is_network(filesystem_type(home.path)):
        return
    here = machine_id()
    if force:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('controller_machine', ?)", (here,))
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('controller_machine', ?)", (here,))
    bound = connection.execute("SELECT value FROM meta WHERE key = 'controller_machine'").fetchone()[0]
    if bound != here:
        raise ConfigError(
            f"{home.path} lies on a network file system and its controller runs on another machine ({bound})",
            hint="run fabric there, or set FABRIC_HOME to a folder of this machine",
        )


def _apply_pending(connection: sqlite3.Connection) -> None:
    from sqlite_utils import Database

    from workbench.store.db.migrations import STEPS

    STEPS.apply(Database(connection))


@contextmanager
def one_at_a_time(home: Home) -> Iterator[None]:
    """Hold a lock on ``home.json``: SQLite's own does not cover the change of the journal mode."""
    descriptor = os.open(home.identity, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise lock_failure(error, home.identity) from error
        yield
    finally:
        os.close(descriptor)
