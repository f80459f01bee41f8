"""Journals as learners leave them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from workbench.paths import LearnerFolder

START_US = 1_700_000_000_000_000


class Journal:
    """One learner's output that is published bit by bit."""

    def __init__(self, path: Path) -> None:
        self.folder = LearnerFolder(path)
        path.mkdir(parents=True)
        self.size = 0
        self.newlines = 0

    def begin(self) -> None:
        self.folder.index.write_bytes(struct.pack("<8sQQ", b"FABRIDX1", START_US, 0))

    def write(self, data: bytes) -> None:
        """Print without publishing."""
        with self.folder.output.open("ab") as stream:
            stream.write(data)

    def publish(self, data: bytes, time_us: int) -> None:
        """Print and publish."""
        if not self.folder.index.exists():
            self.begin()
        self.write(data)
        self.size += len(data)
        self.newlines += data.count(b"\n")
        with self.folder.index.open("ab") as stream:
            stream.write(struct.pack("<QQQ", self.size, time_us, self.newlines))

    def end(self) -> None:
        self.folder.state.write_text(json.dumps({"format": 1, "phase": "exited", "exit_code": 0}))
