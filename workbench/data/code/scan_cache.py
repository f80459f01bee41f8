"""What the last look at code found, so that what did not change is neither read nor matched again."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

FORMAT: Final = 2

RACY_NS: Final = 2_000_000_000
"""The coarsest file times (FAT, some network folders) count two seconds."""


class FileFacts(NamedTuple):
    """What a file system says of a file; while all of it is the same, so is the content."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileFacts:
        """Take the facts out of a file's status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)

    def settled(self, looked_at_ns: int) -> bool:
        """Say whether a change after that look would show; one within the clock's grain leaves the times."""
        return max(self.mtime_ns, self.ctime_ns) < looked_at_ns - RACY_NS


@dataclass(slots=True)
class Remembered:
    """Content hashes by path, and for each folder which names were left out by which rules."""

    files: dict[str, list[Any]] = field(default_factory=dict)
    """Path to the five facts and the hash."""
    folders: dict[str, list[Any]] = field(default_factory=dict)
    """Path with a slash at its end (empty: the root) to the rules' fingerprint, and names by verdict."""
    archive: dict[str, Any] = field(default_factory=dict)
    """Of an archive: its facts and what its snapshot was described as."""

    def digest(self, path: str, facts: FileFacts) -> str | None:
        """Return the hash of a file's content if it is the file of the last look."""
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


def recall(file: Path) -> Remembered:
    """Read what was remembered; anything unreadable is forgotten."""
    try:
        document = json.loads(file.read_bytes())
        if document["format"] == FORMAT:
            return Remembered(document["files"], document["folders"], document["archive"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return Remembered()


def remember(file: Path, remembered: Remembered) -> None:
    """Write what is to be remembered, whole or not at all; failing to is no failure."""
    document = {
        "format": FORMAT,
        "files": remembered.files,
        "folders": remembered.folders,
        "archive": remembered.archive,
    }
    # tempfile costs milliseconds to import, and a name by process and thread is as good here.
    temporary = file.with_name(f".scan-{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            temporary.write_bytes(json.dumps(document, separators=(",", ":")).encode())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
