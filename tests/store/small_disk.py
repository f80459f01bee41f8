"""A disk that is soon full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, *, size: str = "2m", options: str = "") -> Iterator[Path]:
    """Mount a small tmpfs; skips, aloud, where that is not allowed."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("only root on Linux can mount the small disk that is to be filled")
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}{options}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, *, leave: int = 0) -> None:
    """Take all room that is left but some bytes."""
    chunk = 1 << 16
    with (place / "filling").open("ab", buffering=0) as stream:
        while True:
            free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - leave
            if free <= 0:
                return
            stream.write(bytes(min(chunk, free)))
