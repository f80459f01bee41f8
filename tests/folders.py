"""Temporary folders of tests whose paths are short, and as long on every machine.

Sockets allow 100 characters, screens cut off and wrap what is longer, and files record the sizes of others.
"""

from __future__ import annotations

import contextlib
import secrets
import string
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "fab-"
"""By this a run finds what another one that was killed has left: :mod:`tests.gate.leftovers`."""
LENGTH: Final = len("/tmp/fab-12345678")
LEAST_LETTERS: Final = 6


def is_short(base: str) -> bool:
    """Say whether folders of tests may lie in this one."""
    return _letters(base) >= LEAST_LETTERS


def make_folder() -> Path:
    """Make a folder for one test, which removes it; it lies in ``/tmp`` where the path of TMPDIR is too long."""
    base = tempfile.gettempdir()
    if not is_short(base):
        base = "/tmp"
    while True:
        name = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_letters(base)))
        folder = Path(base, PREFIX + name)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def _letters(base: str) -> int:
    return LENGTH - len(f"{base}/{PREFIX}")
