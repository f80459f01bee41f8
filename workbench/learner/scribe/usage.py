"""What a learner's processes use: CPU, memory, disk, network, GPUs. Cheap enough to be asked for every second."""

from __future__ import annotations

import _thread  # threading has Python call it in every process that an agent forks
import contextlib
import json
import os
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from workbench.learner.journal.output import PROCESSES_FILE
from workbench.learner.platform import system
from workbench.learner.platform.processes import CpuClocks, Tree, proportional_bytes
from workbench.learner.texts import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from workbench.learner.platform.process_table import ContainerTree
    from workbench.learner.scribe.masking import Mask

MOST_PROCESSES = 100
"""So many processes are listed; of the others only the number."""

COMMAND_CHARACTERS = 300

SHARE = 100
"""At most one hundredth of the time goes into reading how much memory a process shares."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_Key = Tuple[int, int]
"""Pid and start: a pid alone may be another process's by now."""

_Bytes = Tuple[int, int]
"""Bytes so far in one direction and in the other: read and written, received and sent."""


class _Process(NamedTuple):
    key: _Key
    parent: int
    cpu_seconds: float
    """Its own, and that of its children that have ended."""
    children_seconds: float
    resident_bytes: int
    disk: Optional[_Bytes] = None
    """Its own, and those of its children that have ended; None where it cannot be read."""


class _Listed(NamedTuple):
    """A process as the list of processes has it."""

    process: _Process
    cpu_percent: float
    memory_bytes: int


class _Shared(NamedTuple):
    """What a process used without what it shares with others, and when that was read."""

    proportional_bytes: int
    resident_bytes: int
    read_at: float
    cost_seconds: float


class Meter:
    """Measures a learner's processes again and again; CPU, disk and network are rates between two samples.

    Args:
        disk: counts what the learner has read and written; by default its processes are asked.
        is_network_own: whether this machine's network counters are the learner's alone, as in a pod.
    """

    def __init__(
        self, disk: Optional[Callable[[], Optional[_Bytes]]] = None, *, is_network_own: bool = False
    ) -> None:
        self._before: Dict[_Key, _Process] = {}
        self._at: Optional[float] = None
        self._shared: Dict[_Key, _Shared] = {}
        self._count_disk = disk
        self._is_network_own = is_network_own
        self._counted: Dict[str, _Bytes] = {}
        self._listed: List[_Listed] = []
        self._nvml: Any = None
        self._nvml_tried = False
        self._gpu_limits: Dict[str, Dict[str, float]] = {}

    def sample(self, pids: Sequence[int], slots: Sequence[str] = ()) -> Dict[str, Any]:
        """Return a usage record of these processes and of what they use of these GPUs."""
        now = time.monotonic()
        found = _read(pids)
        memory = [self._memory(process, now) for process in found]
        record = {
            "kind": "usage",
            "time": system.now_us(),
            "cpu_percent": round(self._cpu_percent(found, now), 1),
            "memory_bytes": sum(memory),
            "processes": len(found),
            **self._disk(found, now),
            **self._network(found, now),
            "gpus": self._gpus(pids, slots),
        }
        self._listed = [
            _Listed(process, self._own_percent(process, now), memory[at]) for at, process in enumerate(found)
        ]
        self._before, self._at = {process.key: process for process in found}, now
        self._shared = {key: known for key, known in self._shared.items() if key in self._before}
        return record

    def begin_anew(self) -> None:
        """Forget the last sample: it may be why the next one failed."""
        self._before, self._at, self._shared, self._counted, self._listed = {}, None, {}, {}, []
        self.repeat_limits()

    def repeat_limits(self) -> None:
        """Have the next record say the limits of GPUs again: the last one is not kept."""
        self._gpu_limits.clear()

    def processes(self, mask: Optional[Mask] = None) -> Dict[str, Any]:
        """Return the processes of the last sample; secrets in their command lines are overwritten."""
        on_gpus: Dict[int, int] = {}
        for held in () if self._nvml is None else self._nvml.held.values():
            for pid, used in held.items():
                on_gpus[pid] = on_gpus.get(pid, 0) + used
        users: Dict[int, str] = {}
        rows = [_row(one, on_gpus, users, mask) for one in self._listed[:MOST_PROCESSES]]
        omitted = max(0, len(self._listed) - MOST_PROCESSES)
        return {"format": 1, "time": system.now_us(), "processes": rows, "omitted": omitted}

    def _own_percent(self, process: _Process, now: float) -> float:
        before = self._before.get(process.key)
        if self._at is None or now <= self._at:
            return 0.0
        seconds = process.cpu_seconds - process.children_seconds
        seconds -= before.cpu_seconds - before.children_seconds if before else 0.0
        return max(0.0, round(100.0 * seconds / (now - self._at), 1))

    def _disk(self, found: Sequence[_Process], now: float) -> Dict[str, float]:
        """Return what was read from and written to disks, a second; nothing the first time."""
        names = "disk_read_bytes_per_second", "disk_write_bytes_per_second"
        if self._count_disk is not None and (counted := self._count_disk()) is not None:
            return self._rates("disk", names, counted, now)
        if not found or any(process.disk is None for process in found) or not self._is_later(now):
            return {}
        return {name: self._a_second(self._disk_since(found, side), now) for side, name in enumerate(names)}

    def _disk_since(self, found: Iterable[_Process], side: int) -> int:
        """Return how many bytes went one way since the last sample."""
        total = 0
        given: Dict[int, int] = {}
        for process in found:
            before = self._before.get(process.key)
            assert process.disk is not None
            count = process.disk[side] - (before.disk[side] if before and before.disk else 0)
            given[process.key[0]] = count
            total += count
        alive = {process.key for process in found}
        for key, ended in self._before.items():
            # What a child had used when it ended is counted again at its parent, which waited for it: if that is left.
            if key not in alive and ended.disk and given.get(ended.parent, -1) >= ended.disk[side]:
                given[ended.parent] -= ended.disk[side]
                total -= ended.disk[side]
        return max(0, total)

    def _network(self, found: Sequence[_Process], now: float) -> Dict[str, float]:
        """Return what came and went over the learner's own network, a second; nothing where it has none of its own."""
        names = "network_receive_bytes_per_second", "network_send_bytes_per_second"
        for process in found[:1] if system.LINUX else ():
            counters = "/proc/%d/net/dev" % process.key[0]
            if self._is_network_own or not _is_same_file(counters, "/proc/self/net/dev"):
                return self._rates("network", names, _network_bytes(counters), now)
        return {}

    def _rates(
        self, what: str, names: Tuple[str, str], counted: Optional[_Bytes], now: float
    ) -> Dict[str, float]:
        before = self._counted.pop(what, None)
        if counted is None:
            return {}
        self._counted[what] = counted
        if before is None or not self._is_later(now):
            return {}
        return {name: self._a_second(counted[i] - before[i], now) for i, name in enumerate(names)}

    def _is_later(self, now: float) -> bool:
        return self._at is not None and now > self._at

    def _a_second(self, count: int, now: float) -> float:
        assert self._at is not None
        return round(max(0, count) / (now - self._at), 1)

    def _cpu_percent(self, found: Iterable[_Process], now: float) -> float:
        """Return the CPU time since the last sample, in percent of one CPU; 0 the first time."""
        if self._at is None or now <= self._at:
            return 0.0
        seconds = 0.0
        given: Dict[int, float] = {}
        for process in found:
            before = self._before.get(process.key)
            seconds += process.cpu_seconds - (before.cpu_seconds if before else 0.0)
            given[process.key[0]] = process.children_seconds - (before.children_seconds if before else 0.0)
        alive = {process.key for process in found}
        for key, before in self._before.items():
            # Of a child that has ended, what was counted before is now counted again at its parent: if that is left.
            if key not in alive and given.get(before.parent, -1.0) >= before.cpu_seconds:
                given[before.parent] -= before.cpu_seconds
                seconds -= before.cpu_seconds
        return max(0.0, 100.0 * seconds / (now - self._at))

    def _memory(self, process: _Process, now: float) -> int:
        """Return a process's memory, of pages that it shares with others its part only.

        Reading that takes long for a large process and holds it up; between two readings its resident size
        tells.
        """
        if not system.LINUX:
            return process.resident_bytes
        known = self._shared.get(process.key)
        if known is None or now - known.read_at >= known.cost_seconds * SHARE:
            begun = time.monotonic()
            proportional = proportional_bytes(process.key[0])
            cost = time.monotonic() - begun
            known = self._shared[process.key] = _Shared(proportional, process.resident_bytes, now, cost)
        return max(0, known.proportional_bytes + process.resident_bytes - known.resident_bytes)

    def _gpus(self, pids: Sequence[int], slots: Sequence[str]) -> List[Dict[str, Any]]:
        if not slots:
            return []
        if not self._nvml_tried:
            from workbench.learner.gpu.nvml import open_nvml

            self._nvml, self._nvml_tried = open_nvml(), True
        if self._nvml is None:
            return []
        ours = set(pids)
        found = [self._nvml.usage(slot, ours) for slot in slots]
        return [self._with_limits(gpu) for gpu in found if gpu is not None]

    def _with_limits(self, gpu: Dict[str, Any]) -> Dict[str, Any]:
        """Add the limits of a GPU where they are others than in the record before: they seldom change."""
        limits = self._nvml.limits(gpu["uuid"])
        if limits != self._gpu_limits.get(gpu["uuid"]):
            self._gpu_limits[gpu["uuid"]] = limits
            gpu.update(limits)
        return gpu


def _read(pids: Sequence[int]) -> List[_Process]:
    if not system.LINUX:
        return _read_ps(pids)
    return [process for process in map(_read_proc, pids) if process is not None]


def _read_proc(pid: int) -> Optional[_Process]:
    stat = system.read_bytes("/proc/%d/stat" % pid)
    # The name in brackets may hold blanks and brackets itself.
    fields = stat[stat.rfind(b")") + 2 :].split()
    # A process whose first thread has ended looks like a zombie while its other threads run on.
    if len(fields) < 22 or fields[0] == b"X" or (fields[0] == b"Z" and int(fields[17]) <= 1):
        return None
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return _Process(
        key=(pid, int(fields[19])),
        parent=int(fields[1]),
        cpu_seconds=(own + children) / _TICKS_PER_SECOND,
        children_seconds=children / _TICKS_PER_SECOND,
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
        disk=_disk_bytes(pid),
    )


def _disk_bytes(pid: int) -> Optional[_Bytes]:
    """Return what a process has read from disks and written to them; None where that may not be read."""
    found = {}
    for line in system.read_bytes("/proc/%d/io" % pid).splitlines():
        name, _, count = line.partition(b": ")
        found[name] = count
    try:
        return int(found[b"read_bytes"]), int(found[b"write_bytes"])
    except (KeyError, ValueError):
        return None


def _network_bytes(counters: str) -> Optional[_Bytes]:
    """Add up what all interfaces have received and sent, without what the machine sent to itself."""
    received = sent = 0
    lines = system.read_text(counters).splitlines()[2:]
    for line in lines:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() != "lo" and len(fields) > 8:
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return (received, sent) if lines else None


def _is_same_file(one: str, other: str) -> bool:
    """Say whether two names are one file: each network of a machine has counters of its own. True where unknown."""
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return True


def _row(
    one: _Listed, on_gpus: Dict[int, int], users: Dict[int, str], mask: Optional[Mask]
) -> Dict[str, Any]:
    pid = one.process.key[0]
    row = {
        "pid": pid,
        "parent": one.process.parent,
        "user": _user_of(pid, users),
        "cpu_percent": one.cpu_percent,
        "memory_bytes": one.memory_bytes,
        "command": _command_of(pid, mask),
    }
    if pid in on_gpus:
        row["gpu_memory_bytes"] = on_gpus[pid]
    return row


def _user_of(pid: int, users: Dict[int, str]) -> str:
    try:
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return ""
    if uid not in users:
        users[uid] = system.user_name(uid)
    return users[uid]


def _command_of(pid: int, mask: Optional[Mask]) -> str:
    """Return a process's command line, of a kernel's or a dead one its name in brackets."""
    if not system.LINUX:
        raw = system.output_of(["ps", "-o", "command=", "-p", str(pid)]).strip().encode()
    else:
        raw = system.read_bytes("/proc/%d/cmdline" % pid).replace(b"\0", b" ").strip()
        raw = raw or b"[%s]" % system.read_bytes("/proc/%d/comm" % pid).strip()
    return clean((mask.data(raw) if mask else raw).decode("utf-8", "replace"), COMMAND_CHARACTERS)


def _read_ps(pids: Sequence[int]) -> List[_Process]:
    """Where there is no ``/proc``: macOS."""
    if not pids:
        return []
    argv = ["ps", "-o", "pid=,ppid=,rss=,time=", "-p", ",".join(map(str, pids))]
    found = []
    for line in system.output_of(argv).splitlines():
        fields = line.split()
        if len(fields) == 4:
            pid, parent, kibibytes = map(int, fields[:3])
            found.append(_Process((pid, 0), parent, _clock_seconds(fields[3]), 0.0, kibibytes * 1024))
    return found


def _clock_seconds(text: str) -> float:
    """Read CPU time as ``ps`` writes it: ``[[days-]hours:]minutes:seconds``."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86400


IDLE_LOOK = 5
IDLE_SAMPLE = 15
"""How many times the interval passes until processes that use no CPU are looked at, and a sample is given of them."""


class Sampler:
    """Samples every so many seconds, more seldom while nothing is used; a byte in the pipe says that one is ready.

    Args:
        tree: the learner's processes.
        slots: its GPUs.
        every_seconds: how often.
        folder: where the processes of the last sample are listed; empty for nowhere.
        mask: finds the secrets that a command line may hold.
        is_network_own: whether this machine's network is the learner's alone.
    """

    def __init__(
        self,
        tree: Tree | ContainerTree,
        slots: list[str],
        every_seconds: float,
        *,
        folder: str = "",
        mask: Mask | None = None,
        is_network_own: bool = False,
    ) -> None:
        self._tree = tree
        self._slots = slots
        self._every_seconds = every_seconds
        self._list_file = os.path.join(folder, PROCESSES_FILE) if folder else ""
        self._mask = mask
        self._meter = Meter(getattr(tree, "disk_bytes", None), is_network_own=is_network_own)
        self._clocks = CpuClocks()
        self._ready: list[dict[str, Any]] = []
        self._listing = _thread.allocate_lock()
        self._fault = ""
        self._ended = False
        self.pipe, self._ready_pipe = os.pipe()
        os.set_blocking(self.pipe, False)
        self._open, self._running = _thread.allocate_lock(), _thread.allocate_lock()
        self._open.acquire()
        self._running.acquire()
        _thread.start_new_thread(self._run, ())

    def end(self) -> None:
        """Sample no more: the learner has ended, and the list of its processes goes."""
        with self._listing, contextlib.suppress(OSError):
            if not self._ended and self._list_file:
                self._ended = True
                os.unlink(self._list_file)

    def take(self) -> list[dict[str, Any]]:
        """Return the records that are ready: samples, and a note where one failed for a new reason."""
        try:
            os.read(self.pipe, 4096)
        except BlockingIOError:
            return []
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> None:
        """End its thread, and give the descriptors back."""
        self._open.release()
        self._running.acquire()
        os.close(self.pipe)
        os.close(self._ready_pipe)

    def _run(self) -> None:
        try:
            self._sample_again_and_again()
        finally:
            self._running.release()

    def _sample_again_and_again(self) -> None:
        found = self._measure()  # what CPU is used lies between two samples: the first one is no record
        self._meter.repeat_limits()
        if found is not None and found["kind"] == "note" and not self._hand_over(found):
            return
        due = sampled_at = time.monotonic()
        pause_seconds = self._every_seconds
        while True:
            due = max(due + pause_seconds, time.monotonic())
            if self._open.acquire(timeout=max(0.0, due - time.monotonic())):
                return
            if self._slots or self._clocks.have_moved():
                pause_seconds = self._every_seconds
            else:
                pause_seconds = min(2 * pause_seconds, IDLE_LOOK * self._every_seconds)
                if due - sampled_at < IDLE_SAMPLE * self._every_seconds:
                    continue
            sampled_at = due
            found = self._measure()
            if found is not None and not self._hand_over(found):
                return

    def _hand_over(self, record: dict[str, Any]) -> bool:
        """Let a record be taken; return False where nobody can take any more."""
        self._ready.append(record)
        try:
            os.write(self._ready_pipe, b"!")
        except OSError:
            return False
        return True

    def _measure(self) -> dict[str, Any] | None:
        """Sample; return nothing where there is no process, and a note, once, where it fails.

        A sample that failed costs no later one: what is read vanishes under our hands, in more ways than are known.
        """
        try:
            return self._sample()
        except Exception as error:
            fault = "%s: %s" % (type(error).__name__, error)
            self._meter.begin_anew()
            if fault == self._fault:
                return None
            self._fault = fault
            text = "a sample of what the learner uses failed (%s); it is tried again" % clean(fault, 200)
            return {"time": system.now_us(), "kind": "note", "level": "warning", "text": text}

    def _sample(self) -> dict[str, Any] | None:
        pids = self._tree.pids()
        self._clocks.note(pids)
        found = self._meter.sample(pids, self._slots)
        if not pids:
            self._meter.repeat_limits()
            return None
        self._list_processes()
        return found

    def _list_processes(self) -> None:
        """Overwrite the list of processes, in place: a new file in the folder would wake the guard."""
        with self._listing, contextlib.suppress(OSError):
            if self._ended or not self._list_file:
                return
            line = json.dumps(self._meter.processes(self._mask), separators=(",", ":")).encode() + b"\n"
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._list_file, flags, 0o600)
            try:
                os.pwrite(descriptor, line, 0)
                os.ftruncate(descriptor, len(line))
            finally:
                os.close(descriptor)
