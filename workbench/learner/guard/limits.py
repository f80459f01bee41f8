"""What ends a learner that does not end by itself: its time, its memory, another learner's end."""

from __future__ import annotations

from workbench.learner.journal import reasons
from workbench.learner.platform import system
from workbench.learner.platform.processes import CpuClocks, Tree, proportional_bytes, resident_bytes

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.journal.launch_document import LaunchDocument

_NEAR = 0.8
_FAR_SECONDS = 0.5
_NEAR_SECONDS = 0.1


class LimitExceeded:
    """The limit that a learner has reached, the reason for its state, and its grace period."""

    __slots__ = ("grace_seconds", "kind", "why")

    def __init__(self, kind: str, why: dict[str, Any], grace_seconds: float) -> None:
        self.kind = kind
        self.why = why
        self.grace_seconds = grace_seconds


class LearnerLimits:
    """The limits of one learner, from when this is made, on the clock that cannot jump."""

    def __init__(self, launch: LaunchDocument) -> None:
        self._launch = launch
        seconds = launch.max_runtime_seconds
        self._ends_at = None if seconds is None else system.elapsed_seconds() + seconds
        self._settles_at: float | None = None
        self._decision: dict[str, Any] = {}
        self._memory: MemoryWatch | None = None

    def watch_memory(self, tree: Tree) -> None:
        """Check the memory of these processes from now on, if there is a limit."""
        if self._launch.memory_bytes:
            self._memory = MemoryWatch(tree, self._launch.memory_bytes)

    def settle(self, decision: dict[str, Any]) -> None:
        """Note another learner's end that decided: after a failure this one is stopped at once."""
        if decision and self._settles_at is None:
            wait_seconds = 0.0 if decision.get("failed") else self._launch.settle_seconds
            self._settles_at = system.elapsed_seconds() + wait_seconds
            self._decision = decision

    def exceeded(self) -> LimitExceeded | None:
        """Return which limit is reached, if one is."""
        now = system.elapsed_seconds()
        grace_seconds = self._launch.grace_seconds
        if self._settles_at is not None and now >= self._settles_at:
            return LimitExceeded("settle", reasons.of_settling(self._decision), grace_seconds)
        if self._ends_at is not None and now >= self._ends_at:
            why = reasons.of_time_limit(self._launch.max_runtime_seconds or 0.0)
            return LimitExceeded("max_runtime", why, grace_seconds)
        if self._memory is not None and now >= self._memory.check_at:
            used = self._memory.check()
            if used:
                return LimitExceeded("memory", reasons.of_memory(used, self._memory.limit_bytes), 0.0)
        return None

    def due_at(self) -> float | None:
        """Return when to check next; None for never."""
        times = (self._settles_at, self._ends_at, None if self._memory is None else self._memory.check_at)
        return min((at for at in times if at is not None), default=None)


class MemoryWatch:
    """Checks the memory of a tree of processes, more often when it is near its limit."""

    def __init__(self, tree: Tree, limit_bytes: int) -> None:
        self._tree = tree
        self._clocks = CpuClocks()
        self.limit_bytes = limit_bytes
        self.check_at = system.elapsed_seconds() + _NEAR_SECONDS
        """When to check next, on the clock that cannot jump."""

    def check(self) -> int:
        """Return how many bytes are used if that is over the limit, else 0."""
        if not self._clocks.have_moved():
            self.check_at = system.elapsed_seconds() + _FAR_SECONDS
            return 0
        pids = self._tree.pids()
        self._clocks.note(pids)
        # Resident memory counts what processes share once for each: cheap, and never too low.
        used = sum(map(resident_bytes, pids))
        if used > self.limit_bytes:
            used = sum(map(proportional_bytes, pids))
        near = used > self.limit_bytes * _NEAR
        self.check_at = system.elapsed_seconds() + (_NEAR_SECONDS if near else _FAR_SECONDS)
        return used if used > self.limit_bytes else 0
