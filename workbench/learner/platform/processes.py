"""Finds every process of a learner, measures its memory, and ends them until none is left, double-forked ones too.

A process belongs to a learner when it descends from its guard, which orphans are given to, or carries
``FABRIC_LEARNER`` in its environment, or descends from one that does.
"""

from __future__ import annotations

import os
import signal
import time

from workbench.learner.platform import process_table, system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Callable, Iterable

    Members = dict[int, process_table.ProcessEntry]

MARKER = "FABRIC_LEARNER"
"""The variable that every process of a learner carries."""

PATIENCE_SECONDS = 30.0
"""How long :func:`end` waits for processes that are killed and do not die (a disk that does not answer)."""

_POLL_SECONDS = 0.25

_LEFT_TO_PARENT = b"pt_data_worker\n"
"""The name of a worker of PyTorch's ``DataLoader``. Training that is to save cannot once one has been ended."""

_SIGNALLED_SECONDS = 10.0
"""How much of the grace period at most is left to who does not end by itself."""
_PROCESS_CLOCK = 2
"""Which clock of a process, in the number that Linux makes of it and the pid: the CPU time of all its threads."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def find(marker: str) -> list[int]:
    """Return the pids of all living processes of a learner by its marker, without the caller's own."""
    return sorted(members(marker, without=(os.getpid(),)))


def end(marker: str, grace_seconds: float) -> list[int]:
    """End all processes of a learner whose agent is dead; return those that could not be ended.

    Blocks for the grace period at most, and for :data:`PATIENCE_SECONDS` where killing does not help.
    """
    ending = Termination(lambda: members(marker, without=(os.getpid(),)), grace_seconds)
    give_up = system.elapsed_seconds() + grace_seconds + PATIENCE_SECONDS
    while ending.step():
        now = system.elapsed_seconds()
        if now > give_up:
            return sorted({*members(marker, without=(os.getpid(),)), *ending.dying()})
        time.sleep(min(max(0.0, ending.due_at - now), 0.02))
    return sorted(ending.out_of_reach)


def members(
    marker: str, *, roots: Iterable[int] = (), known: tuple[int, int] = (0, 0), without: Iterable[int] = ()
) -> Members:
    """Return all living processes of a learner.

    Args:
        marker: the value that they carry.
        roots: processes that all of whose descendants belong to the learner, themselves not.
        known: pid and start ticks of its command, which belongs to it before it carries anything.
        without: processes that do not belong to it, nor do their children by being that.
    """
    barred = set(without)
    known_by_marker = system.LINUX and not roots and not known[0]
    if known_by_marker and not process_table.carriers(MARKER, marker, process_table.pids() - barred):
        return {}  # as most often: what else is to be known of every process costs as much again
    table = process_table.read()
    seeds = process_table.carriers(MARKER, marker, table) - barred
    if known[0] in table and table[known[0]].ticks == known[1]:
        seeds.add(known[0])
    if not system.LINUX and known[0]:
        # Orphans do not come to us, and the environment of the system's own programs cannot be seen.
        seeds |= process_table.in_session(known[0], table) - barred
    below = _with_descendants(table, set(roots), barred) - set(roots)
    found = _with_descendants(table, seeds, barred) | below
    # Parents first: a shell would tell of a child that was killed before it.
    return {pid: table[pid] for pid in sorted(found)}


class Tree:
    """The descendants of a process, cheap to read repeatedly: only new processes are examined."""

    def __init__(self, root: int, without: Iterable[int] = ()) -> None:
        self._root = root
        self._without = set(without)
        self._members: dict[int, bool] = {}

    def pids(self) -> list[int]:
        """Return the living descendants now, zombies possibly too."""
        if not system.LINUX:
            return sorted(_with_descendants(process_table.read(), {self._root}, self._without) - {self._root})
        found = process_table.descendants(self._root, self._without)
        if found is not None:
            return sorted(found)
        alive = process_table.pids()
        # Who is ours stays ours, and who is not never becomes it: orphans are given to the root.
        self._members = {pid: is_member for pid, is_member in self._members.items() if pid in alive}
        for pid in alive - set(self._members):
            self._classify(pid)
        return sorted(pid for pid, is_member in self._members.items() if is_member)

    def _classify(self, pid: int) -> None:
        path = []
        while pid not in self._members:
            if pid in self._without or pid <= 1:
                self._members[pid] = False
                break
            process = process_table.lookup(pid)
            if process is None:
                return  # one on the way died, its children have another parent now: the next time
            path.append(pid)
            if process.parent == self._root:
                self._members[pid] = True
                break
            pid = process.parent
        for passed in path:
            self._members[passed] = self._members[pid]


class CpuClocks:
    """Says whether processes have used CPU, by their clocks: ``/proc`` is not read for processes that sleep.

    What has used none has neither more memory nor more children than before.
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def note(self, pids: Iterable[int]) -> None:
        """Compare with these processes' clocks as they are now."""
        self._known = {}
        for pid in pids if system.LINUX else ():
            try:
                self._known[pid] = _cpu_seconds(pid)
            except OSError:
                continue  # it has just ended

    def have_moved(self) -> bool:
        """Whether one of them has used CPU since, or has ended; True where that cannot be known."""
        try:
            return not self._known or any(_cpu_seconds(pid) != used for pid, used in self._known.items())
        except OSError:
            return True


def _cpu_seconds(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)


class Termination:
    """Ends processes: SIGTERM, SIGKILL when the grace period is over, until none is left. Never blocks.

    Args:
        find_members: finds them.
        grace_seconds: the time from now to SIGKILL.
        end_by_themselves: says whether they are about to: SIGTERM waits then, until the grace period is nearly over.
    """

    def __init__(
        self,
        find_members: Callable[[], Members],
        grace_seconds: float,
        end_by_themselves: Callable[[], bool] = lambda: False,
    ) -> None:
        self._find = find_members
        self._end_by_themselves = end_by_themselves
        self.due_at = system.elapsed_seconds()
        """When to :meth:`step` next, on the clock that cannot jump."""
        self._kill_at = self.due_at + grace_seconds
        self._signal_at = self._kill_at - _last_seconds(grace_seconds)
        self._checked: set[int] = set()
        self._killed: Members = {}
        self._spared: set[int] = set()
        """Those that were left to their parents to end."""
        self._began = False
        self._pause_seconds = 0.001
        self.out_of_reach: set[int] = set()
        """Processes that we have no right to end."""

    def hasten(self, grace_seconds: float) -> None:
        """Let the grace period end so many seconds from now, if that is sooner."""
        self.due_at = system.elapsed_seconds()
        self._kill_at = min(self._kill_at, self.due_at + grace_seconds)
        self._signal_at = min(self._signal_at, self._kill_at - _last_seconds(grace_seconds))

    def step(self) -> bool:
        """Do what is due; return whether anything is left."""
        now = system.elapsed_seconds()
        if now >= self._kill_at:
            left = self._signal_all(signal.SIGKILL, again=True)
            self._pause_seconds = min(self._pause_seconds * 2, _POLL_SECONDS)
            self.due_at = now + self._pause_seconds
            return left
        if self._began:
            left = (
                self._signal_all(signal.SIGTERM, among=self._spared)
                if self._spared
                else bool(self._within_reach())
            )
        elif now < self._signal_at and self._end_by_themselves():
            left = bool(self._within_reach())
            self.due_at = min(now + _POLL_SECONDS, self._signal_at)
            return left
        else:
            self._began = True
            self._signal_all(signal.SIGTERM)
            # Once more, for what was forked meanwhile; later ones may be a handler's helpers.
            left = self._signal_all(signal.SIGTERM)
        self.due_at = min(now + _POLL_SECONDS, self._kill_at)
        return left

    def _within_reach(self) -> Members:
        found = self._find()
        if not found:
            # The child of a process that forked and ended meanwhile is found the second time.
            found = self._find() or self.dying()
        return {pid: process for pid, process in found.items() if pid not in self.out_of_reach}

    def dying(self) -> Members:
        """Return what was killed and is not dead: it has its files still, and not the environment that tells it."""
        left = {pid: process_table.lookup(pid) for pid in self._killed} if system.LINUX else {}
        self._killed = {
            pid: process
            for pid, process in left.items()
            if process is not None and process.ticks == self._killed[pid].ticks
        }
        return self._killed

    def _signal_all(self, number: int, *, again: bool = False, among: set[int] | None = None) -> bool:
        found = self._within_reach()
        for pid, process in found.items():
            if not (again or pid not in self._checked) or (among is not None and pid not in among):
                continue
            if number == signal.SIGTERM and self._is_left_to_parent(pid, process, found):
                self._spared.add(pid)
                continue
            self._checked.add(pid)
            self._signal(pid, process, number)
        return bool(found)

    def _is_left_to_parent(self, pid: int, process: process_table.ProcessEntry, found: Members) -> bool:
        """Say whether a process is one that its parent ends, which may still need it."""
        if process.parent not in found or system.elapsed_seconds() >= self._signal_at:
            return False
        return system.read_bytes("/proc/%d/comm" % pid) == _LEFT_TO_PARENT

    def _signal(self, pid: int, process: process_table.ProcessEntry, number: int) -> None:
        try:
            if system.start_ticks(pid) != process.ticks:
                return  # it ended, and the pid is another's
            os.kill(pid, number)
            if number == signal.SIGKILL:
                self._killed[pid] = process
            if process.stopped and number != signal.SIGKILL:
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return
        except PermissionError:
            self.out_of_reach.add(pid)


def _last_seconds(grace_seconds: float) -> float:
    """Return how long before the end of a grace period SIGTERM is sent to who was to end without."""
    return min(_SIGNALLED_SECONDS, grace_seconds / 3)


def _with_descendants(table: Members, seeds: set[int], barred: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found, waiting = set(seeds), list(seeds)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found and child not in barred:
                found.add(child)
                waiting.append(child)
    return found & set(table)


def proportional_bytes(pid: int) -> int:
    """Return a process's memory (PSS): what it shares with others counts in part."""
    for line in system.read_bytes("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return resident_bytes(pid)


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory (RSS): what it shares with others counts in full; 0 when it has ended."""
    if not system.LINUX:
        kibibytes = system.output_of(["ps", "-o", "rss=", "-p", str(pid)]).strip()
        return int(kibibytes) << 10 if kibibytes.isdigit() else 0
    fields = system.read_bytes("/proc/%d/statm" % pid).split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0
