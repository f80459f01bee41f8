"""Turns what SQLite and the file system raise into sentences."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from workbench.errors import CannotWrite, FabricError, InputMissing, TryAgain

_CANNOT_WRITE: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "rights are missing",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
}

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


def write_failure(error: OSError, path: Path) -> CannotWrite:
    """Say in a sentence why a file or folder could not be written, and what to do."""
    why = _WRITE_ERRORS.get(error.errno or 0, error.strerror or str(error))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "make room, then try again" if full else "FABRIC_HOME names another folder"
    return CannotWrite(f"cannot write {path}: {why}", hint=hint)


def read_failure(error: OSError, path: Path) -> InputMissing:
    """Say in a sentence why a file or folder could not be read."""
    why = "it is not there" if isinstance(error, FileNotFoundError) else _WRITE_ERRORS.get(error.errno or 0)
    return InputMissing(f"cannot read {path}: {why or error.strerror or error}")


def store_failure(error: sqlite3.Error, database: Path) -> FabricError:
    """Say in a sentence why the store failed, and what to do."""
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
    if why := _CANNOT_WRITE.get(code):
        full = code == sqlite3.SQLITE_FULL
        hint = "make room, then try again" if full else "FABRIC_HOME names another folder"
        return CannotWrite(f"cannot write the store {database}: {why}", hint=hint)
    return FabricError(f"the store {database} failed: {error}", hint="fabric doctor checks it")


@contextmanager
def in_words(database: Path) -> Iterator[None]:
    """Turn SQLite's errors within the block into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_failure(error, database) from error
