"""The kernel of the simulated host: processes with their open files, people, sockets, both clocks, and kills.

Files, locks and sockets are the real kernel's. Its locks belong to open files, not to processes, so that several
simulated processes in this one conflict as real ones do; each has the descriptors that it opened, inherited or was
sent, and a kill closes them with no ``finally``. While a history runs, the calls of ``os``, ``fcntl`` and ``time`` that
:func:`calls_replaced` names go through here: around each one the process may be killed, lose the processor, or hang.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.chance import Chance
from tests.simulation.tasks import Process, Scheduler, Task, Waiters

FIRST_PID: Final = 100_000_000
"""No real process has such a number."""

CALLS_UNTIL_KILLED: Final = 400
"""A process that is to be killed dies within so many calls that touch files, more often early."""

GIVE_WAY_WEIGHT: Final = 0.2
"""The same for losing the processor."""

HANGS_WEIGHT: Final = 0.01
"""How often a process hangs at a call, by the rate of that: it makes hundreds of them."""

_REAL: Final = {
    name: getattr(os, name)
    for name in (
        *("open", "close", "dup", "dup2", "pipe", "unlink", "rename", "link", "symlink", "mkdir", "write"),
        *(
            "pwrite",
            "pread",
            "ftruncate",
            "fsync",
            "listdir",
            "utime",
            "seteuid",
            "fstat",
            "getpid",
            "geteuid",
        ),
    )
}
_FLOCK: Final = fcntl.flock
_FCNTL: Final = fcntl.fcntl

_GROWS: Final = frozenset({"open", "write", "pwrite", "mkdir", "symlink"})
"""Calls that a full disk refuses."""


class HostProcess(Process):
    """One process of the simulated host."""

    def __init__(self, kernel: Kernel, name: str, kind: str, person: int) -> None:
        super().__init__(name)
        self.pid = kernel.next_pid()
        self.kind = kind
        self.person = person
        self.descriptors: dict[int, tuple[str, int, int]] = {}
        """By number: the path, and the device and inode, by which a number is known that was closed unseen."""
        self.only_read: set[int] = set()
        """Those of its open files that it cannot hold a lock of its own by."""
        self.closers: list[Callable[[], None]] = []
        self.calls_left: int | None = None
        """After how many calls it is killed; None where it is not."""
        self.looked_at = 0.0
        """When it began to read the entries last."""
        self.begun: dict[str, tuple[float, int]] = {}
        """What ``channel`` remembers of waiters that this process has started."""
        self.threads = 0
        self.hung_seconds = 0.0
        """For how long it has hung so far."""


class Kernel:
    """All processes of one history."""

    def __init__(self, scheduler: Scheduler, chance: Chance, folder: str) -> None:
        self.scheduler = scheduler
        self.folder = folder
        self.processes: dict[int, HostProcess] = {}
        self.pollers = Waiters(scheduler)
        """Those that wait until something is readable."""
        self.is_changed = False
        self.full: str = ""
        """The folder on whose disk there is no room; empty where there is everywhere."""
        self.on_call: Callable[[HostProcess | None, str, str], None] = lambda process, call, path: None
        """Told of each call that has changed something below the folder."""
        self.on_killed: Callable[[HostProcess, str, bool], None] = lambda process, where, is_fault: None
        """Told where a process was killed, and whether that is what goes wrong."""
        self.on_exit: Callable[[HostProcess, Sequence[str], bool], None] = lambda process, held, is_kill: None
        """Told of the end of a process, the files that it could have locked, and whether it was killed."""
        self.on_hindered: Callable[[HostProcess, float], None] = lambda process, seconds: None
        """Told of a process that hangs for so long, or finds no room."""
        self._chance = chance
        self._pids = FIRST_PID
        self._null = _REAL["open"](os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._locked: dict[str, int] = {}
        """By path: the process that has taken a lock."""
        self._nulled: set[int] = set()
        """Numbers of processes that are gone."""
        self._sockets: list[HostSocket] = []
        self._hangs = chance.is_active("slow")
        self.may_switch = self._hangs or scheduler.may_give_way
        """Whether others may come between two calls of a process."""
        self._person = 0
        self._is_root = _REAL["geteuid"]() == 0
        scheduler.on_turn = self._enter
        scheduler.give_way_share *= GIVE_WAY_WEIGHT

    def next_pid(self) -> int:
        """Return the number of the next process."""
        self._pids += 1
        return self._pids

    def running(self) -> HostProcess | None:
        """Return the process that runs; None for the world."""
        task = self.scheduler.current
        if task is None or task.process.is_killed:
            return None
        process = task.process
        assert isinstance(process, HostProcess)
        return process

    # Processes

    def start(self, process: HostProcess, main: Callable[[], Any]) -> None:
        """Start a process; it ends with what it does."""
        self.processes[process.pid] = process
        if self._chance.goes_wrong("kill", process.kind, 1.0):
            draw = self._chance.of(f"death of {process.kind}").random()
            process.calls_left = 1 + int(CALLS_UNTIL_KILLED * draw**2)
        self.start_thread(process, main)

    def start_thread(self, process: HostProcess, work: Callable[[], Any]) -> None:
        """Start a thread of a process, which ends with its last one."""
        process.threads += 1
        self.scheduler.start(process, partial(self._run, process, work), process.name)

    def _run(self, process: HostProcess, work: Callable[[], Any]) -> None:
        work()
        process.threads -= 1
        if not process.threads and not process.is_killed:
            self.end(process)

    def end(self, process: HostProcess) -> None:
        """End a process that has nothing left to do: what it leaves open is closed."""
        process.is_killed = True
        self._close_all(process, is_kill=False)

    def kill(self, process: HostProcess, where: str, *, is_fault: bool = False) -> None:
        """Kill a process; by one of its own tasks this does not return."""
        if process.is_killed:
            return
        process.is_killed = True
        with self.as_world():
            self._close_all(process, is_kill=True)
            self.on_killed(process, where, is_fault)
        self.scheduler.kill(process)

    def is_alive(self, pid: int) -> bool:
        """Say whether there is such a process."""
        return pid in self.processes and not self.processes[pid].is_killed

    def give(self, process: HostProcess, number: int) -> int:
        """Have a process inherit an open file of the one that runs; return its number."""
        made: int = _REAL["dup"](number)
        path = self._path_of(number)
        self._note(process, made, path)
        return made

    def _close_all(self, process: HostProcess, *, is_kill: bool) -> None:
        held = self.open_paths(process, may_lock=True)
        # The numbers stay taken until the history is over: frames that never run again still know them.
        for number, (_, device, inode) in list(process.descriptors.items()):
            found = _stat_of(number)
            if found is not None and (found.st_dev, found.st_ino) == (device, inode):
                _REAL["dup2"](self._null, number, inheritable=False)
                self._nulled.add(number)
        process.descriptors.clear()
        for close in process.closers:
            close()
        self.is_changed = True
        self.on_exit(process, held, is_kill)

    def open_paths(self, process: HostProcess, *, may_lock: bool = False) -> list[str]:
        """Return the files that a process has open: all, or those that lie there and that it may have locked."""
        found: list[str] = []
        for number, (path, device, inode) in process.descriptors.items():
            there = _stat_of(number if not may_lock or number not in process.only_read else -1)
            if there is None or (there.st_dev, there.st_ino) != (device, inode):
                continue
            if not may_lock or (there.st_nlink and _is_at(path, there)):
                found.append(path)
        return sorted(found)

    def close(self) -> None:
        """Give all numbers back."""
        for one in self._sockets:
            one.drop()
        null = _REAL["fstat"](self._null)
        for number in self._nulled:
            found = _stat_of(number)
            if found is not None and os.path.samestat(found, null):
                _REAL["close"](number)
        for process in self.processes.values():
            for number, (_, device, inode) in process.descriptors.items():
                found = _stat_of(number)
                if found is not None and (found.st_dev, found.st_ino) == (device, inode):
                    _REAL["close"](number)
        _REAL["close"](self._null)

    # Turns

    def _enter(self, task: Task | None) -> None:
        """Be the person of the task whose turn it is; the world's after it."""
        if task is not None and isinstance(task.process, HostProcess):
            self._become(task.process.person)
            return
        self._become(0)
        if self.is_changed:
            self.is_changed = False
            self.pollers.notify()

    def _become(self, person: int) -> None:
        if self._is_root and person != self._person:
            if self._person:
                _REAL["seteuid"](0)
            if person:
                _REAL["seteuid"](person)
            self._person = person

    @contextmanager
    def as_world(self) -> Iterator[None]:
        """Do something as the machine itself, in the middle of a task's turn."""
        before, current = self._person, self.scheduler._current
        self._become(0)
        self.scheduler._current = None
        try:
            yield
        finally:
            self.scheduler._current = current
            self._become(before)

    @contextmanager
    def as_person(self, person: int) -> Iterator[None]:
        """Do something as a person who has no process here, in the world's own time."""
        before = self._person
        self._become(person)
        try:
            yield
        finally:
            self._become(before)

    # Calls

    def call(self, call: str, path: str, do: Callable[[], Any]) -> Any:
        """Do what changes or reads a file of the host, with all that may happen around it."""
        process = self.running()
        if process is None:
            return do()
        self._before(process, call, path)
        if self.full and call in _GROWS and path.startswith(self.full):
            self.on_hindered(process, 0.0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        result = do()
        self._after(process, call, path)
        return result

    def _before(self, process: HostProcess, call: str, path: str) -> None:
        self._count(process, f"before {call} of {os.path.basename(path)}")
        if self.scheduler.may_give_way:
            self.scheduler.give_way()
        if self._hangs and self._chance.goes_wrong("slow", process.kind, HANGS_WEIGHT):
            seconds = self._chance.between(f"hang of {process.kind}", 0.1, 15.0)
            process.hung_seconds += seconds
            self.on_hindered(process, seconds)
            self.scheduler.park(None, seconds)

    def _after(self, process: HostProcess, call: str, path: str) -> None:
        self.on_call(process, call, path)
        self._count(process, f"after {call} of {os.path.basename(path)}")

    def _count(self, process: HostProcess, where: str) -> None:
        if process.calls_left is not None and not self._chance.ended:
            process.calls_left -= 1
            if process.calls_left <= 0:
                self.kill(process, where, is_fault=True)

    def _path_of(self, number: int) -> str:
        process = self.running()
        if process is not None and number in process.descriptors:
            return process.descriptors[number][0]
        for one in self.processes.values():
            if number in one.descriptors:
                return one.descriptors[number][0]
        return ""

    def full_path(self, path: Any, folder: int | None) -> str:
        """Return a path as the world knows it."""
        text = os.fsdecode(path)
        return text if folder is None or os.path.isabs(text) else f"{self._path_of(folder)}/{text}"

    def _note(self, process: HostProcess | None, number: int, path: str) -> None:
        if process is not None:
            found = _REAL["fstat"](number)
            process.descriptors[number] = (path, found.st_dev, found.st_ino)
            process.only_read.discard(number)

    def touch(self, target: Any, folder: int | None = None) -> None:
        """Have something be changed at the time that it is here, not at the machine's."""
        moment = 1000 * self.scheduler.now_us()
        person = self._person
        self._become(0)
        with suppress(OSError):
            _REAL["utime"](target, ns=(moment, moment), dir_fd=folder)
        self._become(person)

    def utime(self, target: Any, *times: Any, **named: Any) -> None:
        if times or named:
            _REAL["utime"](target, *times, **named)
        else:
            self.touch(target)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        full = self.full_path(path, dir_fd)
        makes = bool(flags & os.O_CREAT)
        process = self.running()
        if process is not None:
            self._before(process, "open", full)
            if makes and self.full and full.startswith(self.full) and not os.path.lexists(full):
                self.on_hindered(process, 0.0)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), full)
        made = makes and not os.path.lexists(full)
        number: int = _REAL["open"](path, flags, mode, dir_fd=dir_fd)
        self._note(process, number, full)
        if process is not None and not flags & (os.O_RDWR | os.O_WRONLY):
            process.only_read.add(number)
        if made:
            self.touch(full)
            self.touch(os.path.dirname(full))
        if process is not None and made:
            self._after(process, "open", full)
        return number

    def close_number(self, number: int) -> None:
        process = self.running()
        path = ""
        if process is not None:
            path = process.descriptors.get(number, ("", 0, 0))[0]
            if path.startswith(self.folder):
                self._before(process, "close", path)
            process.descriptors.pop(number, None)
        self._nulled.discard(number)
        _REAL["close"](number)
        self.is_changed = True
        if process is not None and path.startswith(self.folder):
            self._after(process, "close" if number not in process.only_read else "look", path)

    def dup(self, number: int) -> int:
        made: int = _REAL["dup"](number)
        self._note(self.running(), made, self._path_of(number))
        return made

    def pipe(self) -> tuple[int, int]:
        made: tuple[int, int] = _REAL["pipe"]()
        for number in made:
            self._note(self.running(), number, "pipe")
        return made

    def change(self, call: str, path: Any, *more: Any, **named: Any) -> Any:
        """Do a call that changes a name in a folder."""
        folder = named.get("dir_fd", named.get("dst_dir_fd"))
        full = self.full_path(more[0] if call in ("rename", "link", "symlink") else path, folder)

        def do() -> Any:
            result = _REAL[call](path, *more, **named)
            process = self.running()
            if call == "rename" and process is not None:
                self._rename(process, self.full_path(path, named.get("src_dir_fd")), full)
            self.touch(os.path.dirname(full))
            self.is_changed = True
            return result

        return self.call(call, full, do)

    @staticmethod
    def _rename(process: HostProcess, before: str, after: str) -> None:
        """Know the open files of a process by the name that they have now."""
        for number, (path, device, inode) in process.descriptors.items():
            if path == before:
                process.descriptors[number] = (after, device, inode)

    def write(self, call: str, number: int, *more: Any) -> Any:
        """Do a call that changes what is in a file."""
        path = self._path_of(number)

        def do() -> Any:
            result = _REAL[call](number, *more)
            if path.startswith(self.folder):
                self.touch(number)
            return result

        return self.call(call, path, do)

    def read(self, call: str, target: Any, *more: Any) -> Any:
        """Do a call that others may come before or after."""
        path = self._path_of(target) if isinstance(target, int) else str(target)
        return self.call(call, path, lambda: _REAL[call](target, *more))

    def flock(self, target: Any, operation: int) -> None:
        number = target if isinstance(target, int) else target.fileno()
        path = self._path_of(number)
        self.call("flock", path, lambda: _FLOCK(number, operation))
        process = self.running()
        if process is not None and operation & fcntl.LOCK_EX:
            self._locked[path] = process.pid

    def locks(self) -> list[list[str]]:
        """Return what the kernel lists as locked: the machine's own list is long, and names what is no part of this."""
        found: list[list[str]] = []
        with self.as_world():
            for path, pid in list(self._locked.items()):
                try:
                    number = _REAL["open"](path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    del self._locked[path]
                    continue
                try:
                    _FLOCK(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    del self._locked[path]
                except BlockingIOError:
                    there = _REAL["fstat"](number)
                    inode = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
                    found.append(["", "FLOCK", "", "WRITE", str(pid), inode])
                finally:
                    _REAL["close"](number)
        return found

    def fcntl(self, target: Any, command: int, argument: Any = 0) -> Any:
        number = target if isinstance(target, int) else target.fileno()
        return self.call("fcntl", self._path_of(number), lambda: _FCNTL(number, command, argument))

    def euid(self) -> int:
        process = self.running()
        if not self._is_root:
            return int(_REAL["geteuid"]())
        return self._person if process is None else process.person

    def pid(self) -> int:
        process = self.running()
        return int(_REAL["getpid"]()) if process is None else process.pid

    def sleep(self, seconds: float) -> None:
        if self.running() is not None:
            self.scheduler.park(None, seconds)

    def add_socket(self, made: HostSocket) -> None:
        """Know a socket of the process that runs."""
        self._sockets.append(made)
        self._note(self.running(), made.fileno(), "socket")

    def note_sent(self, number: int) -> None:
        """Know an open file that the process which runs was sent."""
        self._note(self.running(), number, os.readlink(f"/proc/self/fd/{number}"))


_in_use: Kernel | None = None


def kernel_in_use() -> Kernel:
    """Return the kernel of the history that runs."""
    assert _in_use is not None
    return _in_use


def _is_at(path: str, found: os.stat_result) -> bool:
    """Say whether an open file is the one that has a name now."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), found)
    except OSError:
        return False


def _stat_of(number: int) -> os.stat_result | None:
    try:
        found: os.stat_result = _REAL["fstat"](number)
    except OSError:
        return None
    return found


class HostSocket(socket.socket):
    """A socket of a simulated process: whoever waits for it lets others go on."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        super().setblocking(False)
        self._patience: float | None = None
        kernel_in_use().add_socket(self)

    def settimeout(self, value: float | None) -> None:
        self._patience = value

    def setblocking(self, flag: bool) -> None:
        self._patience = None if flag else 0.0

    def connect(self, address: Any) -> None:
        kernel = kernel_in_use()
        kernel.call("connect", "socket", lambda: socket.socket.connect(self, address))
        kernel.is_changed = True

    def accept(self) -> tuple[HostSocket, Any]:
        number, address = self._accept()  # type: ignore[attr-defined]  # as the standard library's own does
        return HostSocket(self.family, self.type, self.proto, fileno=number), address

    def sendmsg(self, *arguments: Any) -> int:
        kernel = kernel_in_use()
        sent: int = kernel.call("sendmsg", "socket", lambda: socket.socket.sendmsg(self, *arguments))
        kernel.is_changed = True
        return sent

    def sendall(self, data: Any, flags: int = 0) -> None:
        kernel = kernel_in_use()
        kernel.call("sendall", "socket", lambda: socket.socket.sendall(self, data, flags))
        kernel.is_changed = True

    def recv(self, size: int, flags: int = 0) -> bytes:
        kernel = kernel_in_use()
        until = None if self._patience is None else kernel.scheduler.now + self._patience
        while True:
            try:
                return super().recv(size, flags)
            except BlockingIOError:
                left = None if until is None else until - kernel.scheduler.now
                if left is not None and left <= 0:
                    if self._patience == 0:
                        raise
                    raise TimeoutError("timed out") from None
            kernel.pollers.wait(left)

    def recvmsg(self, *arguments: Any) -> Any:
        found = super().recvmsg(*arguments)
        for level, kind, numbers in found[1]:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for at in range(0, len(numbers) - 3, 4):
                    kernel_in_use().note_sent(int.from_bytes(numbers[at : at + 4], "little"))
        return found

    def close(self) -> None:
        kernel, number = _in_use, self.fileno()
        if kernel is not None and number >= 0:
            process = kernel.running()
            if process is not None:
                process.descriptors.pop(number, None)
            kernel.is_changed = True
        super().close()

    def drop(self) -> None:
        """Close it once the history is over, whoever had it."""
        super().close()


class _Poll:
    """``select.poll`` that lets others go on."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, target: Any, events: int) -> None:
        self._poll.register(target, events)

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        kernel = kernel_in_use()
        until = kernel.scheduler.now + milliseconds / 1000
        while True:
            found = self._poll.poll(0)
            left = until - kernel.scheduler.now
            if found or left <= 0:
                return found
            kernel.pollers.wait(left)


SELECT: Final = SimpleNamespace(poll=_Poll, POLLIN=select.POLLIN)
"""What stands in for the module ``select``."""

SOCKET: Final = SimpleNamespace(
    **{name: getattr(socket, name) for name in dir(socket) if not name.startswith("__")}
    | {"socket": HostSocket}
)
"""What stands in for the module ``socket``."""


@contextmanager
def calls_replaced() -> Iterator[None]:
    """Have the calls of this process go through the kernel of the history that runs, if one does."""

    def routed(real: Callable[..., Any], method: str, *before: Any) -> Callable[..., Any]:
        def route(*arguments: Any, **named: Any) -> Any:
            if _in_use is None:
                return real(*arguments, **named)
            return getattr(_in_use, method)(*before, *arguments, **named)

        return route

    def timed(real: Callable[..., Any], read: Callable[[Scheduler], Any]) -> Callable[..., Any]:
        def route(*arguments: Any) -> Any:
            return real(*arguments) if _in_use is None else read(_in_use.scheduler)

        return route

    os_calls: dict[str, tuple[str, Sequence[str]]] = {
        "open": ("open", ()),
        "close": ("close_number", ()),
        "dup": ("dup", ()),
        "pipe": ("pipe", ()),
        **{name: ("change", (name,)) for name in ("unlink", "rename", "link", "symlink", "mkdir")},
        **{name: ("write", (name,)) for name in ("write", "pwrite", "ftruncate")},
        **{name: ("read", (name,)) for name in ("pread", "listdir")},
        "geteuid": ("euid", ()),
        "getuid": ("euid", ()),
        "getpid": ("pid", ()),
        "utime": ("utime", ()),
    }
    with ExitStack() as stack:
        for name, (method, before) in os_calls.items():
            stack.enter_context(patch.object(os, name, routed(getattr(os, name), method, *before)))
        stack.enter_context(patch.object(os, "fsync", lambda number: None))
        stack.enter_context(patch.object(os, "chdir", lambda path: None))
        stack.enter_context(patch.object(fcntl, "flock", routed(_FLOCK, "flock")))
        stack.enter_context(patch.object(fcntl, "fcntl", routed(_FCNTL, "fcntl")))
        stack.enter_context(patch.object(time, "monotonic", timed(time.monotonic, lambda one: one.now)))
        stack.enter_context(
            patch.object(time, "clock_gettime", timed(time.clock_gettime, lambda one: one.now))
        )
        stack.enter_context(patch.object(time, "time", timed(time.time, lambda one: one.now_us() / 1e6)))
        stack.enter_context(
            patch.object(time, "time_ns", timed(time.time_ns, lambda one: 1000 * one.now_us()))
        )
        stack.enter_context(patch.object(time, "sleep", routed(time.sleep, "sleep")))
        yield


def close_really(number: int) -> None:
    """Close an open file of the world's."""
    _REAL["close"](number)


@contextmanager
def in_use(kernel: Kernel) -> Iterator[None]:
    """Have a history's kernel take the calls."""
    global _in_use
    _in_use = kernel
    try:
        yield
    finally:
        kernel._become(0)
        _in_use = None
        kernel.close()
