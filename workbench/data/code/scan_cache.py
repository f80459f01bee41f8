"""The cache of the last scan of code, so that unchanged files are neither read nor matched again."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Final, NamedTuple

from workbench.paths import make_private_folder, write_private
from workbench.values import dataclass

FORMAT: Final = 3

RACY_NS: Final = 2_000_000_000
"""The coarsest file times (FAT, some network folders) count two seconds."""


class FileFacts(NamedTuple):
    """A file's size, times and inode; while they are the same, so is the content."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileFacts:
        """Take the facts out of a file's status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)

    def settled(self, scanned_at_ns: int) -> bool:
        """Say whether a change after that time would show in the file's times."""
        return max(self.mtime_ns, self.ctime_ns) < scanned_at_ns - RACY_NS


@dataclass(slots=True)
class ScanCache:
    """Content hashes by path, and for each folder which names were left out by which rules."""

    files: dict[str, list[Any]] = field(default_factory=dict)
    """Path to the five facts and the hash."""
    folders: dict[str, list[Any]] = field(default_factory=dict)
    """Path with a slash at its end (empty: the root) to the rules' fingerprint, and names by verdict."""
    archive: dict[str, Any] = field(default_factory=dict)
    """Of an archive: its facts and its snapshot."""

    def digest(self, path: str, facts: FileFacts) -> str | None:
        """Return the hash of a file's content if it is the same file as in the last scan."""
        before = self.files.get(path)
        if before is None or tuple(before[:5]) != facts:
            return None
        digest: str = before[5]
        return digest

    def decisions(self, folder: str, fingerprint: str) -> dict[str, str]:
        """Return the verdict on each name of a folder, if it was by the same rules; else nothing."""
        before = self.folders.get(folder)
        if before is None or before[0] != fingerprint:
            return {}
        decided: dict[str, str] = {}
        for verdict, names in before[1].items():
            decided.update(dict.fromkeys(names, verdict))
        return decided

    def note_file(self, path: str, facts: FileFacts, digest: str) -> None:
        """Remember a file."""
        self.files[path] = [*facts, digest]

    def note_folder(self, folder: str, fingerprint: str, verdicts: dict[str, list[str]]) -> None:
        """Remember what was left out of a folder and what was not."""
        self.folders[folder] = [fingerprint, verdicts]


def load_cache(file: Path) -> ScanCache:
    """Read the cache; an unreadable one counts as empty."""
    try:
        document = json.loads(file.read_bytes())
        if document["format"] == FORMAT:
            return ScanCache(document["files"], document["folders"], document["archive"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ScanCache()


def save_cache(file: Path, remembered: ScanCache) -> None:
    """Write the cache, whole or not at all; a failure is ignored."""
    document = {
        "format": FORMAT,
        "files": remembered.files,
        "folders": remembered.folders,
        "archive": remembered.archive,
    }
    # tempfile costs milliseconds to import, and a name by process and thread is as good here.
    temporary = file.with_name(f".scan-{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        make_private_folder(file.parent)
        try:
            write_private(temporary, json.dumps(document, separators=(",", ":")))
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
