"""All processes of the machine, as the system reports them: ``/proc`` on Linux, ``ps`` elsewhere."""

from __future__ import annotations

import contextlib
import os

from workbench.learner.platform import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable


_ENVIRONMENT_BYTES = 32 * 1024
"""How much of an environment is read at once; most are shorter."""


class ProcessEntry:
    """One living process; ``ticks`` tells it from a later one with the same pid."""

    __slots__ = ("parent", "stopped", "ticks")

    def __init__(self, parent: int, ticks: int, stopped: bool) -> None:
        self.parent = parent
        self.ticks = ticks
        self.stopped = stopped


def read() -> dict[int, ProcessEntry]:
    """Return every process that is not dead yet, by pid."""
    if not system.LINUX:
        return _read_ps()
    processes = {}
    for pid in pids():
        process = lookup(pid)
        if process is not None:
            processes[pid] = process
    return processes


def pids() -> set[int]:
    """Return the pids that there are, zombies' too. Linux only."""
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


def lookup(pid: int) -> ProcessEntry | None:
    """Return one process; None when it is dead, a zombie that waits for its parent too. Linux only."""
    # The name in brackets may hold blanks and brackets itself.
    fields = system.read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if len(fields) < 20 or system.is_dead(fields[0], fields[17]):
        return None
    return ProcessEntry(int(fields[1]), int(fields[19]), fields[0] in ("T", "t"))


def carriers(variable: str, value: str, among: Iterable[int]) -> set[int]:
    """Return those processes in whose environment, as it was at their start, the variable has that value."""
    if not system.LINUX:
        return _carriers_ps(variable, value).intersection(among)
    pattern = os.fsencode("\0%s=%s\0" % (variable, value))
    return {pid for pid in among if pattern in environment(pid)}


def environment(pid: int) -> bytes:
    """Return a process's environment as it was at its start, zeros before, between and behind the variables.

    It has none where the process is dead or another user's. Linux only.
    """
    parts = [b"\0"]
    try:
        descriptor = os.open("/proc/%d/environ" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b"\0"
    try:
        while True:
            parts.append(os.read(descriptor, _ENVIRONMENT_BYTES))
            # Here that is the end: another read for each process is saved.
            if len(parts[-1]) < _ENVIRONMENT_BYTES:
                break
    except OSError:
        pass
    finally:
        os.close(descriptor)
    parts.append(b"\0")
    return b"".join(parts)


def children(pid: int) -> list[int] | None:
    """Return the children of a process without threads, zombies too; None where that takes long."""
    if not system.LINUX:
        return None
    path = "/proc/%d/task/%d/children" % (pid, pid)
    if not os.path.exists(path):
        return None
    return [int(child) for child in system.read_bytes(path).split()]


def descendants(root: int, without: Iterable[int] = ()) -> set[int] | None:
    """Return all below a process, zombies too, without some and what is below those; None where that takes long."""
    if not system.LINUX or not os.path.exists("/proc/self/task/%d/children" % os.getpid()):
        return None
    found: set[int] = set()
    barred, waiting = set(without), [root]
    while waiting:
        pid = waiting.pop()
        try:
            threads = os.listdir("/proc/%d/task" % pid)
        except OSError:
            continue  # it has just ended: its children are another's
        for thread in threads:
            for child in map(int, system.read_bytes("/proc/%d/task/%s/children" % (pid, thread)).split()):
                if child not in found and child not in barred:
                    found.add(child)
                    waiting.append(child)
    return found


def holders(inode: int, among: Iterable[int]) -> Iterable[str]:
    """Give the paths under which processes hold a pipe, by which it can be opened again. Linux only."""
    pattern = "pipe:[%d]" % inode
    for pid in among:
        folder = "/proc/%d/fd" % pid
        try:
            numbers = os.listdir(folder)
        except OSError:
            continue
        for number in numbers:
            path = "%s/%s" % (folder, number)
            try:
                held = os.readlink(path) == pattern
            except OSError:
                continue
            if held:
                yield path


def _read_ps() -> dict[int, ProcessEntry]:
    processes = {}
    itself, lines = system.pid_and_output_of(["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="])
    for line in lines.splitlines():
        fields = line.split(None, 3)
        if len(fields) == 4 and not fields[2].startswith("Z"):
            ticks = system.seconds_of_date(fields[3])
            processes[int(fields[0])] = ProcessEntry(int(fields[1]), ticks, fields[2].startswith("T"))
    processes.pop(itself, None)
    return processes


def in_session(leader: int, among: Iterable[int]) -> set[int]:
    """Return those of the processes that are in the session that a process has begun."""
    found = set()
    for pid in among:
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                found.add(pid)
    return found


def _carriers_ps(variable: str, value: str) -> set[int]:
    pattern = " %s=%s " % (variable, value)
    found = set()
    for line in system.output_of(["ps", "-A", "-E", "-ww", "-o", "pid=,command="]).splitlines():
        if pattern in line + " ":
            found.add(int(line.split(None, 1)[0]))
    return found


FILE = "cgroup"
"""In a learner's folder: the path of the list of its container's processes."""

_ROOT = "/sys/fs/cgroup"


class ContainerTree:
    """A container's processes; none until its file names them."""

    def __init__(self, folder: str) -> None:
        self._file = os.path.join(folder, FILE)
        self._list = ""

    def pids(self) -> list[int]:
        """Return the living processes now."""
        if not self._list:
            self._list = system.read_text(self._file).strip()
        return [int(pid) for pid in system.read_text(self._list).split()] if self._list else []

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return what the container has read from disks and written to them; None where its group does not count."""
        group = os.path.dirname(self._list)
        text = system.read_text(os.path.join(group, "io.stat"))
        if text:
            return _sum_of(text, "rbytes="), _sum_of(text, "wbytes=")
        old = group.replace(_ROOT + "/memory/", _ROOT + "/blkio/", 1)
        text = system.read_text(os.path.join(old, "blkio.throttle.io_service_bytes"))
        return (_sum_of(text, "Read "), _sum_of(text, "Write ")) if text else None


def _sum_of(text: str, name: str) -> int:
    """Add up the numbers that stand behind a name, one for each disk."""
    return sum(int(rest.split()[0]) for rest in text.split(name)[1:])


def processes_file(pid: int) -> str:
    """Return the path of the list that a process of a container is in; empty where there is none.

    The list is that of the memory controller (version 1), or of the one group that there is (version 2).
    """
    groups = {}
    for line in system.read_text("/proc/%d/cgroup" % pid).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    for controller in ("memory", ""):
        path = groups.get(controller, "/")
        found = os.path.join(_ROOT, controller, path.lstrip("/"), "cgroup.procs")
        if path != "/" and os.path.exists(found):
            return found
    return ""
