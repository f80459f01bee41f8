"""What takes up space in a home: each job's logs, results and checkpoints, and the caches that jobs share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.paths import Home, JobFolder
    from workbench.store.db.rows import JobRow

BLOCK_BYTES = 512
"""What ``st_blocks`` counts in."""

LOG_NAMES = ("output.log", "output.idx", "training-log.txt", "user_log.txt", "latest-log")
"""Files of a log; records, from which metrics can be read again, are none."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What one job takes up, in bytes on the disk."""

    row: JobRow
    logs: int
    results: int
    checkpoints: int
    other: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.logs + self.results + self.checkpoints + self.other


@dataclass(frozen=True, slots=True)
class SharedCache:
    """Something that jobs share."""

    name: str
    path: Path
    about: str
    size_bytes: int


def use_of(home: Home, row: JobRow) -> DiskUse:
    """Measure one job."""
    folder = home.job(row.id)
    results, checkpoints = disk_bytes(folder.results), disk_bytes(folder.checkpoints)
    logs = sum(file_bytes(file) for file in log_files(folder))
    other = disk_bytes(folder.path) - results - checkpoints - logs
    return DiskUse(row, logs, results, checkpoints, max(0, other))


def log_files(folder: JobFolder) -> Iterator[Path]:
    """Yield the files of a job's logs, of every attempt and learner."""
    for attempt in folder.path.glob("attempt-*"):
        for path, _, names in os.walk(attempt):
            # What the command's own folder holds is not a log, whatever it is called.
            if "model-code" in Path(path).parts:
                continue
            yield from (Path(path, name) for name in names if name in LOG_NAMES)


def caches(home: Home) -> list[SharedCache]:
    """Measure what jobs share."""
    known = (
        ("code", home.code, "snapshots of code, one for each content"),
        ("environments", home.environments, "virtual environments made of requirements"),
        ("data", home.data, "copies of what data stores hold"),
        ("agents", home.agents, "the agent that runs learners"),
        ("store", home.store_folder, "what `fabric store serve` serves; yours, never pruned"),
        ("database", home.database, "states, metrics, histories"),
        ("reserve", home.reserve, "room for stops on a full disk"),
    )
    return [SharedCache(name, path, about, disk_bytes(path)) for name, path, about in known if path.exists()]


def disk_bytes(path: Path) -> int:
    """Return what a file or folder takes up on its disk; a file with several names counts once."""
    counted: set[tuple[int, int]] = set()
    if not path.is_dir() or path.is_symlink():
        return file_bytes(path)
    total = 0
    for folder, _, names in os.walk(path):
        total += file_bytes(Path(folder))
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - millions of files
            except OSError:
                continue
            if status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in counted:
                    continue
                counted.add((status.st_dev, status.st_ino))
            total += status.st_blocks * BLOCK_BYTES
    return total


def file_bytes(path: Path) -> int:
    """Return what one file takes up; nothing where it is not there."""
    try:
        return path.lstat().st_blocks * BLOCK_BYTES
    except OSError:
        return 0
