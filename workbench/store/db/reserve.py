"""The home's reserve: a file that keeps a little room on the home's disk, for what has to be written when it is full.

Stops and ends of jobs are written into that room. It is given up a slice at a time, right before a write is tried
again: learners that wait for room take whatever is free within moments. A disk can also lack inodes, or a quota
allow no more files: for that a few empty files are kept, and removed one at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from workbench.errors import NoSpaceLeft
from workbench.paths import Home, make_private_folder

RESERVE_BYTES: Final = 4 << 20

SLICE_BYTES: Final = 128 << 10
"""Room for the largest transaction of a stop or an end."""

SPARE_FILES: Final = 16

_FILES_AT_ONCE: Final = 4
"""So many are needed at most: to open a database that nobody has open, or to find out why it cannot be opened."""

_LEAST_SHARE: Final = 4
"""The reserve takes no more than this part of what is free."""

_Result = TypeVar("_Result")


def keep_reserve(home: Home) -> None:
    """Have the reserve hold what the disk can spare. Only for the holder of the controller lock."""
    try:
        found, held = os.statvfs(home.path), reserve_bytes(home)
        spare = (found.f_bavail * found.f_frsize + held) // _LEAST_SHARE
        size = min(RESERVE_BYTES, spare // SLICE_BYTES * SLICE_BYTES)
        if size > held:
            _grow(home, held, size)
        _keep_files(home, found.f_favail)
    except OSError:
        return  # a disk without room has none to keep


def reserve_bytes(home: Home) -> int:
    """Return how much room is kept."""
    try:
        return home.reserve.stat().st_size
    except OSError:
        return 0


def spare_files(home: Home) -> list[Path]:
    """Return the empty files that are kept."""
    try:
        return list(home.spare_files.iterdir())
    except OSError:
        return []


def give_up(home: Home) -> bool:
    """Free what the disk lacks, a spare file or a slice of the reserve; return False where nothing is left of it."""
    refusal = _refusal_of_files(home)
    if not refusal:
        return _give_slice(home)
    is_freed = _give_file(home)
    # Bytes would not help where there are some, and are needed later.
    return is_freed if _has_bytes(home, refusal) else _give_slice(home) or is_freed


def _give_slice(home: Home) -> bool:
    held = reserve_bytes(home)
    if not held:
        return False
    try:
        os.truncate(home.reserve, max(0, held - SLICE_BYTES))
    except OSError:
        # To shorten a file is a write, which a btrfs refuses whose quota is used up; to remove one is always allowed.
        return _give_all(home)
    return True


def _give_all(home: Home) -> bool:
    try:
        home.reserve.unlink()
    except OSError:
        return False
    return True


def _give_file(home: Home) -> bool:
    for file in spare_files(home):
        with contextlib.suppress(OSError):
            file.unlink()
            return True
    return False


def _refusal_of_files(home: Home) -> int:
    """Return the error of a disk that takes no new files, or 0: its count of inodes does not tell of a quota."""
    probe = f".probe.{os.getpid()}.{threading.get_ident()}"
    files = [home.path / f"{probe}.{number}" for number in range(_FILES_AT_ONCE)]
    try:
        for file in files:
            file.touch(0o600, exist_ok=False)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        for file in files:
            with contextlib.suppress(OSError):
                file.unlink()
    return 0


def _has_bytes(home: Home, refusal: int) -> bool:
    if refusal == errno.EDQUOT and not spare_files(home):
        return False  # of bytes, as far as is known: what a file system has free does not tell of a quota
    try:
        found = os.statvfs(home.path)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= SLICE_BYTES


def with_reserve(home: Home, write: Callable[[], _Result]) -> _Result:
    """Call what writes, again and again on a full disk as long as there is a reserve to give up.

    Raises:
        NoSpaceLeft: the disk is full, and the reserve has nothing left of what it lacks.
    """
    while True:
        try:
            return write()
        except NoSpaceLeft:
            if not give_up(home):
                raise


def _grow(home: Home, held: int, size: int) -> None:
    descriptor = os.open(home.reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, held, size - held)
        else:
            os.pwrite(descriptor, bytes(size - held), held)
    except OSError:
        os.ftruncate(descriptor, held)
    finally:
        os.close(descriptor)


def _keep_files(home: Home, free: int) -> None:
    """Have as many spare files as the disk can spare; one that does not count its inodes needs none."""
    held = len(spare_files(home))
    missing = min(SPARE_FILES, (free + held) // _LEAST_SHARE) - held
    if missing <= 0:
        return
    make_private_folder(home.spare_files, within=home.path)
    for number in range(SPARE_FILES):
        if missing and not (file := home.spare_files / f"{number}").exists():
            file.touch(0o600)
            missing -= 1
