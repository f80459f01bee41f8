"""Small disks that tests fill."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

SmallDisk = Callable[[Path, int], Path]
"""Puts a disk of so many megabytes at a path."""


@contextmanager
def small_disks() -> Iterator[SmallDisk]:
    """Give what makes them, and take them away."""
    with ExitStack() as after:

        def mount(folder: Path, megabytes: int) -> Path:
            folder.mkdir(parents=True, exist_ok=True)
            argv = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
            if subprocess.run(argv, capture_output=True).returncode:
                pytest.skip("no right to mount a tmpfs")
            after.callback(lambda: subprocess.run(["umount", "-l", str(folder)], check=True))
            return folder

        yield mount


def fill(folder: Path) -> Path:
    """Take all that a disk has left."""
    file = folder / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(64 << 10)):
            continue
    return file


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """Puts small disks at paths."""
    with small_disks() as made:
        yield made
