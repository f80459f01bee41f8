"""Whether processes live, zombies not counted: whoever is to reap them may take a while."""

from __future__ import annotations

import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_dead(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until and is_alive(pid):
        pass
    return not is_alive(pid)
