"""Serves a pod's journal over frames, as a host does, and records how far it was read."""

from __future__ import annotations

import json
import os
from typing import BinaryIO, Dict

from workbench.learner.host.server import Answer, FrameServer, _Call
from workbench.learner.journal.state import read_object
from workbench.learner.pod import config


class PodServer(FrameServer):
    """Serves one reader's connection."""

    def __init__(self, stdin: BinaryIO, stdout: BinaryIO) -> None:
        super().__init__(stdin, stdout)
        self._handlers["follow"] = self._follow_and_note

    def _follow_and_note(self, call: _Call) -> Answer:
        # What a reader asks to go on from is what it has on its disk.
        for offsets in call.arguments["known"].values():
            write_read_offsets(offsets)
        return self._follow(call)


def write_read_offsets(offsets: Dict[str, int]) -> None:
    """Record the offsets that a reader has reached, and its pid."""
    new = "%s.new-%d" % (config.READ, os.getpid())
    try:
        with open(new, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "offsets": offsets}, file)
        os.rename(new, config.READ)
    except OSError:
        return  # it is printed once more, then


def read_offsets() -> Dict[str, int]:
    """Return the offsets up to which the journal was read, by file."""
    return {str(name): int(value) for name, value in (read_object(config.READ).get("offsets") or {}).items()}


def reader_is_alive() -> bool:
    """Say whether the last reader's process is still running."""
    pid = read_object(config.READ).get("pid")
    return bool(pid) and os.path.exists("/proc/%s" % pid)


def serve(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Serve until the reader goes; return the exit code."""
    return PodServer(stdin, stdout).run()
