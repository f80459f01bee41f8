"""Records how far a pod's journal was read, and by which process: the side-car prints what nobody has read."""

from __future__ import annotations

import json
import os

from workbench.learner.journal.state import read_object
from workbench.learner.pod import config


def write_read_offsets(offsets: dict[str, int]) -> None:
    """Record the offsets that a reader, which is this process, has reached."""
    new = "%s.new-%d" % (config.READ, os.getpid())
    try:
        with open(new, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "offsets": offsets}, file)
        os.rename(new, config.READ)
    except OSError:
        return  # it is printed once more, then


def read_offsets() -> dict[str, int]:
    """Return the offsets up to which the journal was read, by file."""
    return {str(name): int(value) for name, value in (read_object(config.READ).get("offsets") or {}).items()}


def is_alive() -> bool:
    """Say whether the last reader's process is still running."""
    pid = read_object(config.READ).get("pid")
    return bool(pid) and os.path.exists("/proc/%s" % pid)
