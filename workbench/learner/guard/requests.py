"""Requests to stop a running learner, the decision of another learner, and how the learner is stopped."""

from __future__ import annotations

import os

from workbench.learner.journal import state
from workbench.learner.platform import processes, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.platform.watch import Watcher

WATCH_FROM_SECONDS = 0.02
"""A learner that ends sooner needs no watch, which takes longer to set up than it ran."""

_POLL_SECONDS = 0.2


class Requests:
    """Reads ``stop.json`` and ``decision.json`` when they change."""

    def __init__(self, folder: str, launch: LaunchDocument) -> None:
        self._folder = folder
        self._launch = launch
        self._watcher: Watcher | None = None
        self._check_at = 0.0
        self._stop: dict[str, Any] = {}
        self.decision: dict[str, Any] = {}
        """Another learner's end that decided; empty as long as there is none."""

    def check(self) -> dict[str, Any]:
        """Read stop request and decision if they may have changed; return a new request to stop, else nothing."""
        before = self._stop
        if self._due():
            self._read()
        return self._stop if self._stop != before else {}

    def _due(self) -> bool:
        now = system.elapsed_seconds()
        if self._watcher is not None:
            if not self._watcher.wait(0) and now < self._check_at:
                return False
        elif now < self._check_at:
            return False
        elif self._check_at:
            from workbench.learner.platform.watch import Watcher

            self._watcher = Watcher(self._paths())
        self._check_at = now + self._pause_seconds()
        return True

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when something has changed; None where there is none."""
        return None if self._watcher is None else self._watcher.fileno()

    def due_seconds(self) -> float:
        """Return after how many seconds to check even if no change was reported."""
        return max(0.0, self._check_at - system.elapsed_seconds())

    def _pause_seconds(self) -> float:
        if self._watcher is None:
            return WATCH_FROM_SECONDS
        return _POLL_SECONDS if self._watcher.fileno() is None else 3600.0

    def _paths(self) -> list[str]:
        # The second one even if no other learner decides: the removal of a folder that is in use is reported by
        # the folder above it only.
        return [
            os.path.join(self._folder, "stop.json"),
            os.path.join(self._launch.attempt_dir, "decision.json"),
        ]

    def _read(self) -> None:
        self._stop = state.read_stop(self._folder)
        if self._launch.learners > 1:
            decision = state.read_decision(self._launch.attempt_dir)
            if decision and decision.get("learner") != self._launch.learner:
                self.decision = decision


class LearnerStop:
    """How a learner is being stopped: the first cause counts, but a kill overrides it."""

    def __init__(self, find_members: Callable[[], dict[int, Any]]) -> None:
        self._find_members = find_members
        self._ending: processes.Termination | None = None
        self.kind = ""
        """What stopped it: ``halt``, ``kill``, ``settle``, ``max_runtime``, ``memory``; empty while nothing has."""
        self.why: dict[str, Any] | None = None
        """The reason for its end, as far as it is known."""
        self.out_of_reach = False
        """Whether processes are left that we have no right to end."""

    @property
    def begun(self) -> bool:
        """Whether processes are being ended."""
        return self._ending is not None

    def set_cause(self, kind: str, why: dict[str, Any]) -> None:
        """Set the cause, unless there is one already; a kill always counts."""
        if not self.kind or kind == "kill":
            self.kind, self.why = kind, why

    def end(self, grace_seconds: float) -> None:
        """Begin to end the processes, or let the grace period be over sooner."""
        if self._ending is None:
            self._ending = processes.Termination(self._find_members, grace_seconds)
        else:
            self._ending.hasten(grace_seconds)

    def step(self) -> bool:
        """Do what is due; return whether nothing is left of what was to be ended."""
        if self._ending is None or system.elapsed_seconds() < self._ending.due_at or self._ending.step():
            return False
        self.out_of_reach = bool(self._ending.out_of_reach)
        return True

    def over(self) -> None:
        """Note that all have ended."""
        self._ending = None

    def due_at(self) -> float | None:
        """Return when to step next, on the clock that cannot jump; None for never."""
        return None if self._ending is None else self._ending.due_at
