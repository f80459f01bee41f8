"""What uses this machine, and what a run of tests leaves behind on it."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

Traces = Mapping[str, frozenset[str]]
"""What is there, by kind: names, or lines that say what it is."""


def load_average() -> float:
    """Return the load of the last minute."""
    return os.getloadavg()[0]


def addition_ns(repetitions: int = 3) -> float:
    """Return how long a processor takes for an addition in Python, in nanoseconds, whatever else runs beside it.

    Machines that are lent by the hour are faster in one hour than in another, with the same name and the same load.
    """
    best_seconds = math.inf
    for _ in range(repetitions):
        begin, total = time.process_time(), 0
        for number in range(1_000_000):
            total += number
        best_seconds = min(best_seconds, time.process_time() - begin)
    return best_seconds * 1e3


def largest_processes(count: int = 5) -> list[str]:
    """Return the processes that take the most of the processors, as lines of pid, percent and command."""
    argv = ["ps", "-eo", "pid=,pcpu=,args=", "--sort=-pcpu"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line.strip()[:150] for line in lines if "ps -eo pid=" not in line][:count]


def traces() -> Traces:
    """Return what tests may leave behind: processes, containers, users, mounts, networks and temporary files."""
    return {
        "processes": frozenset(_processes()),
        "containers": frozenset(_containers()),
        "users": frozenset(line.partition(":")[0] for line in _lines("/etc/passwd")),
        "mounts": frozenset(line.split()[1] for line in _lines("/proc/self/mounts")),
        "networks": frozenset([*_names("/run/netns"), *_names("/sys/class/net")]),
        "files": frozenset(
            f"{folder}/{name}" for folder in ("/tmp", "/dev/shm", "/srv") for name in _names(folder)
        ),
    }


def left_behind(before: Traces, after: Traces, most: int = 5) -> list[str]:
    """Return a line for each kind of which there is more than before, with the first few of them.

    A process that a test ended and started again, as parts of a cluster, is there as before.
    """
    lines = []
    for kind, held in after.items():
        new = held - before[kind]
        if kind == "processes":
            ended = {_command(process) for process in before[kind] - held}
            new = frozenset(process for process in new if _command(process) not in ended)
        if new:
            more = f", and {len(new) - most} more" if len(new) > most else ""
            lines.append(f"{len(new)} {kind}: {', '.join(sorted(new)[:most])}{more}")
    return lines


def _command(process: str) -> str:
    """Return what follows the pid."""
    return process.partition(" ")[2]


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in Path(folder).iterdir()]
    except OSError:
        return []


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return []


def _processes() -> Iterator[str]:
    """Give all processes but the kernel's, this one and those that it descends from."""
    own = {os.getpid(), *_ancestors(os.getpid())}
    for name in _names("/proc"):
        if name.isdigit() and int(name) not in own:
            try:
                argv = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if argv:
                yield f"{name} {argv.replace(bytes(1), b' ').decode(errors='replace').strip()[:100]}"


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return
        yield pid


def _containers() -> list[str]:
    try:
        argv = ["docker", "ps", "-a", "--format", "{{.Names}} ({{.Image}})"]
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=30
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []
