"""What a learner's processes use: CPU, memory, GPUs. Cheap enough to be asked for every second."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from workbench.learner.platform import system
from workbench.learner.platform.processes import Tree, proportional_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from workbench.learner.platform.process_table import ContainerTree

SHARE = 100
"""At most one hundredth of the time goes into reading how much memory a process shares."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_Key = Tuple[int, int]
"""Pid and start: a pid alone may be another process's by now."""


class _Process(NamedTuple):
    key: _Key
    parent: int
    cpu_seconds: float
    """Its own, and that of its children that have ended."""
    children_seconds: float
    resident_bytes: int


class _Shared(NamedTuple):
    """What a process used without what it shares with others, and when that was read."""

    proportional_bytes: int
    resident_bytes: int
    read_at: float
    cost_seconds: float


class Meter:
    """Measures a learner's processes again and again; what CPU they used lies between two samples."""

    def __init__(self) -> None:
        self._before: Dict[_Key, _Process] = {}
        self._at: Optional[float] = None
        self._shared: Dict[_Key, _Shared] = {}
        self._nvml: Any = None
        self._nvml_tried = False

    def sample(self, pids: Sequence[int], slots: Sequence[str] = ()) -> Dict[str, Any]:
        """Return a usage record of these processes and of what they use of these GPUs."""
        now = time.monotonic()
        found = _read(pids)
        record = {
            "kind": "usage",
            "time": system.now_us(),
            "cpu_percent": round(self._cpu_percent(found, now), 1),
            "memory_bytes": sum(self._memory(process, now) for process in found),
            "processes": len(found),
            "gpus": self._gpus(pids, slots),
        }
        self._before, self._at = {process.key: process for process in found}, now
        self._shared = {key: known for key, known in self._shared.items() if key in self._before}
        return record

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
            # Of a child that has ended, what was counted before is now counted again at its parent.
            if key not in alive and given.get(before.parent, 0.0) >= before.cpu_seconds:
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
        return [gpu for gpu in found if gpu is not None]


_meter = Meter()


def sample(pids: Sequence[int], slots: Sequence[str] = ()) -> Dict[str, Any]:
    """Return a usage record of these processes (a learner's whole tree) and of what they use of these GPUs.

    CPU is that since the last call in this process, in percent of one CPU.
    """
    return _meter.sample(pids, slots)


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
    )


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


class Sampler:
    """Samples every so many seconds from the time it is made; a byte in the pipe says that one is ready."""

    def __init__(self, tree: Tree | ContainerTree, slots: list[str], every_seconds: float) -> None:
        self._tree = tree
        self._slots = slots
        self._every_seconds = every_seconds
        self._ready: list[dict[str, Any]] = []
        self.pipe, self._ready_pipe = os.pipe()
        os.set_blocking(self.pipe, False)
        threading.Thread(target=self._run, daemon=True).start()

    def take(self) -> list[dict[str, Any]]:
        """Return the samples that are ready."""
        try:
            os.read(self.pipe, 4096)
        except BlockingIOError:
            return []
        ready, self._ready = self._ready, []
        return ready

    def _run(self) -> None:

        sample(self._tree.pids(), self._slots)  # what CPU is used lies between two samples
        due = time.monotonic()
        while True:
            due = max(due + self._every_seconds, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            pids = self._tree.pids()
            if pids:
                self._ready.append(sample(pids, self._slots))
                os.write(self._ready_pipe, b"!")
