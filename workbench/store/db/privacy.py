"""Keeps others of the machine out of a home: its folder is 0700, its database 0600."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from workbench.errors import NotAllowed
from workbench.paths import Home

_OTHERS: Final = 0o077

_HARMLESS: Final = frozenset(
    {
        "lost+found",  # of a disk of its own
        *(
            "agents",
            "code",
            "controller.lock",
            "controller.log",
            "data",
            "deleted.jsonl",
            "drafts",
            "engine-limits.json",
        ),
        *(
            "engines.json",
            "environments",
            "envs",
            "places",
            "reserve",
            "secrets",
            "served-store.json",
            "spare-files",
            "store",
        ),
    }
)
"""What a folder may hold that is to become a home: fabric puts these into a home before its first job, too."""


def close_home(home: Home) -> None:
    """Take from others what they may do in a home; a link to it is followed.

    A folder whose modes cannot be changed (a file system without them, or that is read-only) is left as it is.

    Raises:
        NotAllowed: the folder is another person's, is shared by many, or holds what is not fabric's.
    """
    try:
        found = home.path.stat()
    except OSError:
        return  # it is made, or whoever needs it says what is wrong with it
    if not is_open(found):
        return
    if why := _why_not_ours(home, found):
        raise NotAllowed(
            f"{home.path} cannot be a home: {why}, and others can read it (mode {stat.S_IMODE(found.st_mode):o})",
            hint="FABRIC_HOME names another folder",
        )
    with contextlib.suppress(OSError):
        home.path.chmod(0o700)
        # Whoever has one of these folders open gets no further.
        for folder in (home.jobs, home.code, home.secrets):
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o700)


def keep_private(database: Path) -> None:
    """Make a database's file where it is missing, and take from others what they may do with it and its logs.

    SQLite gives the logs the mode of the database.
    """
    with contextlib.suppress(OSError):  # SQLite says what is wrong
        try:
            os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            for file in (database, *(database.with_name(database.name + end) for end in ("-wal", "-shm"))):
                with contextlib.suppress(FileNotFoundError):
                    if is_open(file.stat()):
                        file.chmod(0o600)


def is_open(found: os.stat_result) -> bool:
    """Say whether others than the owner may do something with a file or folder."""
    return bool(found.st_mode & _OTHERS)


def _why_not_ours(home: Home, found: os.stat_result) -> str:
    """Say why a folder is not changed; empty where it is ours."""
    if found.st_uid != os.geteuid():
        return f"it belongs to {_name(found.st_uid)}"
    if found.st_mode & stat.S_ISVTX:
        return "it is shared by all users"
    if home.identity.exists() or home.database.exists() or home.jobs.exists():
        return ""
    with os.scandir(home.path) as entries:
        others = sorted(entry.name for entry in entries if entry.name not in _HARMLESS)
    return f"it holds {others[0]}, which is not fabric's" if others else ""


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
