"""Reads small files that have a meaning by their name: a pipe of that name must not hold a snapshot for ever."""

from __future__ import annotations

import os
import stat

from workbench.learner.platform.beneath import checked
from workbench.learner.platform.open_files import AT_ONCE


def read_beginning(path: str, limit_bytes: int) -> bytes:
    """Return the first bytes of a regular file; a link to one is followed.

    Raises:
        OSError: it cannot be read; ``WrongKind`` where it is a pipe, a device or a folder.
    """
    with open(path, "rb", opener=_open_regular) as stream:
        return stream.read(limit_bytes)


def _open_regular(path: str, flags: int) -> int:
    return checked(os.open(path, flags | AT_ONCE), path, stat.S_ISREG, "regular file")
