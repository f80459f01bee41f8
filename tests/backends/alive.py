"""Whether processes live, zombies not counted: whoever is to reap them may take a while."""

from __future__ import annotations

from pathlib import Path

from tests.support.waiting import until


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until_dead(pid: int) -> bool:
    until(lambda: not is_alive(pid), f"process {pid} to end")
    return True
