"""What ends a learner that does not end by itself, and how it is stopped.

That is a request, the decision of another learner, or a limit: its time, its memory.
"""

from __future__ import annotations

import contextlib
import os

from workbench.learner.journal import reasons, state
from workbench.learner.journal.launch_document import ASKED, PREEMPT
from workbench.learner.journal.output import REPORT_FILE
from workbench.learner.platform import folder_signal, processes, system
from workbench.learner.platform.processes import CpuClocks, Tree, proportional_bytes, resident_bytes
from workbench.learner.queue.root_files import POLICY_FILE
from workbench.learner.report import STOP_ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.platform.watch import Watcher
    from workbench.learner.queue.preemption import PreemptionWatch

WATCH_FROM_SECONDS = 0.02
"""A learner that ends sooner needs no watch, which takes longer to set up than it ran."""

_NEAR = 0.8
"""From this share of its memory limit on a learner is looked at more often."""

_FAR_SECONDS = 0.5
_NEAR_SECONDS = 0.1
_POLL_SECONDS = 0.2

_POLICY_SECONDS = 10.0
"""How often a learner that its host's policy alone could preempt looks whether there is a policy."""

_OPERATOR_SECONDS = 300.0
"""How long a learner whose end an operator of the host has ordered may take for it at most."""

_FOLLOWING_SECONDS = 2.0
"""How long what started training code has to end after it, before it gets a signal."""

_NETWORK_SECONDS = 2.0
"""How often a folder on another machine is looked at though its changes are reported: not those of its next mount."""


class Requests:
    """Reads ``stop.json`` and ``decision.json`` when they change, and looks whether there are reports.

    The folders signal their changes, where the system can do so; elsewhere they are watched or polled.
    """

    def __init__(self, folder: state.HeldFolder, launch: LaunchDocument) -> None:
        self._folder = folder
        self._launch = launch
        self._attempt_descriptor: int | None = None
        self._watcher: Watcher | None = None
        self._is_changed = False
        self._is_away = False
        self._is_elsewhere = False
        self._check_at = 0.0
        self._stop: dict[str, Any] = {}
        self.decision: dict[str, Any] = {}
        """Another learner's end that decided; empty as long as there is none."""
        self.has_reports = False
        """Whether training code has reported anything."""

    def check(self, *, now: bool = False) -> dict[str, Any]:
        """Read stop request and decision if they may have changed, or ``now``; return a new request, else nothing."""
        before = self._stop
        if now or self._due():
            self._read()
        return self._stop if self._stop != before else {}

    def watch_anew(self) -> None:
        """Watch the folders that are there now: those before ended with their mount."""
        if self._attempt_descriptor is not None:
            os.close(self._attempt_descriptor)
            self._attempt_descriptor = None
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        self._check_at = 0.0

    def note_change(self) -> None:
        """Note that a folder has signalled a change."""
        self._is_changed = True

    def _due(self) -> bool:
        now = system.elapsed_seconds()
        was_changed, self._is_changed = self._is_changed, False
        if self._watcher is not None:
            was_changed = bool(self._watcher.wait(0))
        if not was_changed and now < self._check_at:
            return False
        if self._check_at and not self._is_watched:
            self._is_away = state.is_away(self._folder.path)
            if not self._is_away:
                self._watch()
                # What changed just before was not signalled: it is looked for once more, in the next turn.
                self._check_at = now
                return True
        self._check_at = now + self._pause_seconds()
        return True

    @property
    def _is_watched(self) -> bool:
        return self._attempt_descriptor is not None or self._watcher is not None

    def _watch(self) -> None:
        self._is_elsewhere = system.may_lose_writes(self._folder.path)
        # Who ends sooner is asked nothing, and leaves a disk no time to fill up.
        state.keep_spares(self._folder.held_path)
        # The folder of the attempt too: the removal of a folder that is in use is reported by the one above it only.
        self._attempt_descriptor = folder_signal.open_signalling(self._launch.attempt_dir)
        if self._attempt_descriptor is not None:
            if folder_signal.signal_changes(self._folder.descriptor):
                return
            os.close(self._attempt_descriptor)
            self._attempt_descriptor = None
        from workbench.learner.platform.watch import Watcher

        self._watcher = Watcher(self._paths(), polling=not system.reports_changes(self._folder.path))

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when something has changed; None where there is none."""
        return None if self._watcher is None else self._watcher.fileno()

    def due_seconds(self) -> float:
        """Return after how many seconds to check even if no change was reported."""
        return max(0.0, self._check_at - system.elapsed_seconds())

    def _pause_seconds(self) -> float:
        if not self._is_watched:
            return _POLL_SECONDS if self._is_away else WATCH_FROM_SECONDS
        is_polled = self._watcher is not None and self._watcher.fileno() is None
        return _POLL_SECONDS if is_polled else _NETWORK_SECONDS if self._is_elsewhere else 3600.0

    def _paths(self) -> list[str]:
        paths = [
            os.path.join(self._folder.path, "stop.json"),
            os.path.join(self._launch.attempt_dir, "decision.json"),
        ]
        return paths if self.has_reports else [*paths, os.path.join(self._folder.path, REPORT_FILE)]

    def _read(self) -> None:
        self._stop = state.read_stop(self._folder.path)
        if not self.has_reports and os.path.exists(os.path.join(self._folder.path, REPORT_FILE)):
            self.has_reports = True
            if self._watcher is not None:
                self._watcher.remove(os.path.join(self._folder.path, REPORT_FILE))
        if self._launch.learners > 1:
            decision = state.read_decision(self._launch.attempt_dir)
            if decision and decision.get("learner") != self._launch.learner:
                self.decision = decision


class LookingCode:
    """Says whether training code that looks for requests to stop (``should_stop()``) still has to end by itself.

    A signal would end what it needs for that: itself, or a worker process that loads its data. What else runs gets it
    once that code is over: the next command of a script, a server beside it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen_at: float | None = None

    def is_awaited(self) -> bool:
        """Look whether some of it runs and can see the request, or did a moment ago: a launcher ends after it."""
        now = system.elapsed_seconds()
        if self._is_there() and self._is_announced():
            self._seen_at = now
        return self._seen_at is not None and now < self._seen_at + _FOLLOWING_SECONDS

    def _is_there(self) -> bool:
        from workbench.learner.platform import beneath

        for folder in (self._folder, self._inside):
            with contextlib.suppress(OSError), beneath.Root(folder) as root:
                if _is_locked(root.open_file(STOP_ANSWER, os.O_RDWR, follow=False)):
                    return True
        return False

    def _is_announced(self) -> bool:
        """Say whether the request lies where the code looks; in a container it is passed on first."""
        if not os.path.lexists(os.path.join(self._folder, "stop.json")):
            return False
        if os.path.isdir(self._inside):
            from workbench.learner.platform import beneath

            try:
                with beneath.Root(self._inside) as root:
                    root.create("stop")
            except OSError:
                return False
        return True

    @property
    def _inside(self) -> str:
        """The folder that a container of the learner shares with its agent."""
        return os.path.join(self._folder, "inside")


def _is_locked(descriptor: int) -> bool:
    """Say whether a process has locked an open file, and close it."""
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


class LearnerStop:
    """How a learner is being stopped: the first cause counts, but a kill overrides it."""

    def __init__(self, folder: str, find_members: Callable[[], dict[int, Any]]) -> None:
        self._looking = LookingCode(folder)
        self._find_members = find_members
        self._ending: processes.Termination | None = None
        self.kind = ""
        """What stopped it: ``halt``, ``kill``, ``settle``, ``max_runtime``, ``memory``, ``preempt``; else empty."""
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

    def withdraw_cause(self) -> None:
        """Note that the learner has ended by itself, whatever was asked of it."""
        self.kind, self.why = "", None

    def end(self, grace_seconds: float) -> None:
        """Begin to end the processes, or let the grace period be over sooner."""
        if self._ending is None:
            self._ending = processes.Termination(self._find_members, grace_seconds, self._looking.is_awaited)
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
        self._began_at = system.elapsed_seconds()
        seconds = launch.max_runtime_seconds
        self._ends_at = None if seconds is None else self._began_at + seconds
        self._settles_at: float | None = None
        self._decision: dict[str, Any] = {}
        self._memory: MemoryWatch | None = None
        self._preemption: PreemptionWatch | None = None
        self._preemption_at = None if launch.preemption is None or not launch.slots else 0.0

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
        # First, since learners of one attempt end together, each in the time that is theirs then.
        settles = self._settles_at is not None and now >= self._settles_at
        if self._preemption_at is not None and (settles or now >= self._preemption_at):
            preempted = self._check_preemption(now)
            if preempted is not None:
                return preempted
        if settles:
            return LimitExceeded("settle", reasons.of_settling(self._decision), grace_seconds)
        if self._ends_at is not None and now >= self._ends_at:
            why = reasons.of_time_limit(self._launch.max_runtime_seconds or 0.0)
            return LimitExceeded("max_runtime", why, grace_seconds)
        if self._memory is not None and now >= self._memory.check_at:
            used = self._memory.check()
            if used:
                return LimitExceeded("memory", reasons.of_memory(used, self._memory.limit_bytes), 0.0)
        return None

    def _check_preemption(self, now: float) -> LimitExceeded | None:
        """Say that somebody wants this learner to end; None where nobody does."""
        launch = self._launch
        if self._preemption is None:
            facts = launch.preemption or {}
            if facts.get("preemption") != ASKED and not os.path.exists(POLICY_FILE):
                # What no policy may preempt, and no operator end, as nearly everything, loads nothing for it.
                self._preemption_at = now + _POLICY_SECONDS
                return None
            from workbench.learner.queue.entries import attempt_name
            from workbench.learner.queue.preemption import PreemptionWatch

            name = attempt_name(launch.job, launch.attempt)
            self._preemption = PreemptionWatch(facts, name, self._began_at)
        why = self._preemption.check()
        self._preemption_at = self._preemption.check_at
        operator = self._preemption.ended_by
        if operator:
            by = reasons.of_stop("halt", "%s, an operator of its host" % operator)
            return LimitExceeded("halt", by, min(launch.grace_seconds, _OPERATOR_SECONDS))
        return LimitExceeded(PREEMPT, reasons.of_preemption(why), self._preemption.seconds) if why else None

    def due_at(self) -> float | None:
        """Return when to check next; None for never."""
        memory_at = None if self._memory is None else self._memory.check_at
        times = (self._settles_at, self._ends_at, memory_at, self._preemption_at)
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
