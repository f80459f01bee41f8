"""Turns what SQLite and the file system raise into sentences."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from workbench.errors import (
    CannotWrite,
    ConfigError,
    FabricError,
    InputMissing,
    NoSpaceLeft,
    TryAgain,
    UsageError,
    not_utf8,
)
from workbench.paths import Home

_CANNOT_WRITE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "rights are missing",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
}

_TOO_LONG: Final = re.compile(
    "Expression tree is too large|too many (SQL variables|terms)|parser stack overflow"
)
"""What SQLite says of a statement that is longer than it takes."""

_WRITE_ERRORS: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "rights are missing",
    errno.EPERM: "rights are missing",
    errno.ENOTDIR: "a part of that path is a file",
    errno.EEXIST: "there is a file of that name",
    errno.EIO: "the disk reports an error",
}

_GONE_HINT: Final = "mount it again, then try again; or FABRIC_HOME names another folder"

_ELSEWHERE: Final = "FABRIC_HOME names a folder on another file system"

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a disk without room answers, and one whose quota is used up."""

_MAKE_ROOM: Final = "make room, then try again"

_PROBE_BYTES: Final = 1 << 16
"""More than SQLite takes at once: the index of its log grows by 32 KiB."""


_INDEX_BYTES: Final = 1 << 15
"""The index of the log, or as much of it as one transaction changes."""


def is_gone(error: OSError) -> bool:
    """Say whether a file system has ended below its files: a mount whose server died, a device that was pulled out."""
    # Only an error needs it: a list of jobs is read without the agent's modules.
    from workbench.learner.platform.system import MOUNT_ENDED

    return error.errno in MOUNT_ENDED


def gone_failure(error: OSError, path: str | Path) -> InputMissing:
    """Say in a sentence that the file system of a file or folder has ended, and what to do."""
    why = (error.strerror or str(error)).lower()
    return InputMissing(f"cannot read {path}: its file system is not there any more ({why})", hint=_GONE_HINT)


def require_reachable(home: Home) -> None:
    """Refuse a home whose file system has ended: nothing can be said of its jobs.

    Raises:
        InputMissing: it has.
    """
    try:
        home.path.stat()
    except OSError as error:
        if is_gone(error):
            raise gone_failure(error, home.path) from error


def write_failure(error: OSError, path: Path) -> CannotWrite:
    """Say in a sentence why a file or folder could not be written, and what to do."""
    why = _WRITE_ERRORS.get(error.errno or 0, error.strerror or str(error))
    if error.errno in FULL:
        return NoSpaceLeft(f"cannot write {path}: {why}", hint=_MAKE_ROOM)
    return CannotWrite(f"cannot write {path}: {why}", hint="FABRIC_HOME names another folder")


def lock_failure(error: OSError, path: Path) -> ConfigError:
    """Say in a sentence that a home's file system has no locks of files, without which two may write at once."""
    why = (error.strerror or str(error)).lower()
    return ConfigError(
        f"{path} cannot be locked: its file system has no locks of files ({why})", hint=_ELSEWHERE
    )


def read_failure(error: OSError, path: Path) -> InputMissing:
    """Say in a sentence why a file or folder could not be read."""
    if is_gone(error):
        return gone_failure(error, path)
    why = "it is not there" if isinstance(error, FileNotFoundError) else _WRITE_ERRORS.get(error.errno or 0)
    return InputMissing(f"cannot read {path}: {why or error.strerror or error}")


def require_room(database: Path) -> None:
    """Refuse to change a database where its file system has no room for the pages of the log's index that change.

    Raises:
        NoSpaceLeft: it has none.
    """
    try:
        descriptor = os.open(database.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            if os.pwrite(descriptor, bytes(_INDEX_BYTES), 0) < _INDEX_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # there was room for a part
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in FULL:
            raise write_failure(error, database) from error


def store_failure(error: sqlite3.Error, database: Path) -> FabricError:
    """Say in a sentence why the store failed, and what to do."""
    from workbench.expression import take_failure  # no start of a command needs it

    if (too_slow := take_failure()) is not None:
        return too_slow
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TryAgain(
            f"the store {database} is locked by another process", hint="it may be busy; try again in a moment"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return InputMissing(
            f"the store {database} is damaged ({error})",
            hint="fabric doctor --rebuild restores it from the job folders",
        )
    if code == sqlite3.SQLITE_TOOBIG or _TOO_LONG.search(str(error)):
        return UsageError("the filter has too many terms", hint="use fewer, or several commands")
    text = f"cannot write the store {database}: "
    if code in _CANNOT_WRITE and (full := _why_full(code, database.parent)):
        return NoSpaceLeft(text + full, hint=_MAKE_ROOM)
    if (lost := _why_lost(error, database)) is not None:
        return lost
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMMAP and not maps_files(
        database.parent
    ):
        lacks = "its file system maps no files into memory, as a store needs that was made on another one"
        return ConfigError(f"cannot open the store {database}: {lacks}", hint=_ELSEWHERE)
    if why := _CANNOT_WRITE.get(code):
        return CannotWrite(text + why, hint="FABRIC_HOME names another folder")
    return FabricError(f"the store {database} failed: {error}", hint="fabric doctor checks it")


def maps_files(folder: Path) -> bool:
    """Say whether files of a folder can be mapped into memory; True where that cannot be tried."""
    import mmap
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(1)
            mmap.mmap(file.fileno(), 1).close()
    except OSError as error:
        return error.errno not in (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP)
    return True


@contextmanager
def translated(database: Path) -> Iterator[None]:
    """Turn SQLite's errors within the block into ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError) as error:
        raise translate(error, database) from error


def translate(error: sqlite3.Error | UnicodeEncodeError, database: Path) -> FabricError:
    """Return ours for an error of SQLite's, or for a value that no database can hold."""
    if isinstance(error, UnicodeEncodeError):
        return not_utf8(error.object.strip("%"))
    return store_failure(error, database)


def _why_lost(error: sqlite3.Error, database: Path) -> InputMissing | None:
    """Return the error of a database that was there and is gone, or whose file system is; None where it is there."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    if code & 0xFF not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return None
    try:
        database.stat()
    except FileNotFoundError:
        # One that could not be opened may never have been there.
        return None if code & 0xFF == sqlite3.SQLITE_CANTOPEN else lost_store(database)
    except OSError as found:
        return gone_failure(found, database) if is_gone(found) else None
    return None


def lost_store(database: Path) -> InputMissing:
    """Return the error of a database whose file has vanished while it was in use."""
    return InputMissing(
        f"the store {database} is not there any more",
        hint="mount its folder again if it was mounted; else `fabric doctor --rebuild` restores it",
    )


def _why_full(code: int, folder: Path) -> str:
    """Say whether it is for want of room that SQLite cannot write; empty where it is not.

    It calls a quota that is used up, and an index of its log that cannot grow, an error of the disk.
    """
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ""
    file = folder / f".probe.{os.getpid()}.{threading.get_ident()}"
    try:
        file.write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        if error.errno in FULL:
            return _WRITE_ERRORS[error.errno]
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
    return _CANNOT_WRITE[code] if code == sqlite3.SQLITE_FULL else ""
