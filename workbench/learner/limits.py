"""How much memory a learner's processes use, and whether that is more than it asked for."""

from __future__ import annotations

import os

from workbench.learner import system
from workbench.learner.processes import Tree

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NEAR = 0.8
_FAR_SECONDS = 0.5
_NEAR_SECONDS = 0.1


class MemoryWatch:
    """Looks at the memory of a tree of processes, more often when it comes near its limit."""

    def __init__(self, tree: Tree, limit_bytes: int) -> None:
        self._tree = tree
        self.limit_bytes = limit_bytes
        self.look_at = system.elapsed_seconds() + _NEAR_SECONDS
        """When to look next, on the clock that cannot jump."""

    def look(self) -> int:
        """Return how many bytes are used if that is over the limit, else 0."""
        pids = self._tree.pids()
        # Resident memory counts what processes share once for each: cheap, and never too low.
        used = sum(map(_resident_bytes, pids))
        if used > self.limit_bytes:
            used = sum(map(proportional_bytes, pids))
        near = used > self.limit_bytes * _NEAR
        self.look_at = system.elapsed_seconds() + (_NEAR_SECONDS if near else _FAR_SECONDS)
        return used if used > self.limit_bytes else 0


def proportional_bytes(pid: int) -> int:
    """Return a process's memory (PSS): what it shares with others counts in part."""
    for line in system.read_bytes("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    if not system.LINUX:
        told = system.told(["ps", "-o", "rss=", "-p", str(pid)]).strip()
        return int(told) << 10 if told.isdigit() else 0
    fields = system.read_bytes("/proc/%d/statm" % pid).split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0
