"""Why a learner is stopped, and the ending of its processes."""

from __future__ import annotations

from workbench.learner.platform import processes, system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable


class Stopping:
    """Of several causes the first stands, but who kills has the last word."""

    def __init__(self, find_members: Callable[[], dict[int, Any]]) -> None:
        self._find_members = find_members
        self._ending: processes.Ending | None = None
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

    def because(self, kind: str, why: dict[str, Any]) -> None:
        """Take note of a cause."""
        if not self.kind or kind == "kill":
            self.kind, self.why = kind, why

    def end(self, grace_seconds: float) -> None:
        """Begin to end the processes, or let the grace period be over sooner."""
        if self._ending is None:
            self._ending = processes.Ending(self._find_members, grace_seconds)
        else:
            self._ending.hasten(grace_seconds)

    def step(self) -> bool:
        """Do what is due; return whether nothing is left of what was to be ended."""
        if self._ending is None or system.elapsed_seconds() < self._ending.due_at or self._ending.step():
            return False
        self.out_of_reach = bool(self._ending.out_of_reach)
        return True

    def over(self) -> None:
        """Take note that all have ended."""
        self._ending = None

    def due_at(self) -> float | None:
        """Return when to step next, on the clock that cannot jump; None for never."""
        return None if self._ending is None else self._ending.due_at
