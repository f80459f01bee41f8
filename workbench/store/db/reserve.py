"""The home's reserve: a file that keeps a little room on the home's disk, for what has to be written when it is full.

Stops and ends of jobs are written into that room. It is given up a slice at a time, right before a write is tried
again: learners that wait for room take whatever is free within moments.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from workbench.errors import NoSpaceLeft
from workbench.paths import Home

RESERVE_BYTES: Final = 4 << 20

SLICE_BYTES: Final = 128 << 10
"""Room for the largest transaction of a stop or an end."""

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
    except OSError:
        return  # a disk without room has none to keep


def reserve_bytes(home: Home) -> int:
    """Return how much room is kept."""
    try:
        return home.reserve.stat().st_size
    except OSError:
        return 0


def give_up(home: Home) -> bool:
    """Free a slice of the reserve; return False where nothing is left of it."""
    held = reserve_bytes(home)
    if not held:
        return False
    try:
        os.truncate(home.reserve, max(0, held - SLICE_BYTES))
    except OSError:
        return False
    return True


def with_reserve(home: Home, write: Callable[[], _Result]) -> _Result:
    """Call what writes, again and again on a full disk as long as there is a reserve to give up.

    Raises:
        NoSpaceLeft: the disk is full, and the reserve is gone.
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
