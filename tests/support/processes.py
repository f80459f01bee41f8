"""The processes of a home: which there are, and proof that a test leaves none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import until
from workbench.learner.platform import process_table
from workbench.learner.platform.system import read_bytes
from workbench.paths import Home

PTRACE_SEIZE = 0x4206
WAIT_ALL = 0x40000000
"""``__WALL``: for any child, also one that is ours only because we trace it."""
KTHREADD = 2
"""The process of Linux whose children are the kernel's threads."""


def end_everything(home: Home) -> None:
    """Kill the controller and every process of this home, so that no test leaves one behind."""
    end_processes_that_name(str(home.path))


def belonging_to(home: Home) -> list[psutil.Process]:
    """Return the processes that were started from this home, ourselves and our parents left out."""
    return processes_that_name(str(home.path))


def end_processes_that_name(text: str) -> None:
    """Kill every process that has a text in its environment or its words, ourselves and our parents left out."""

    def none_is_left() -> bool:
        found = processes_that_name(text)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        return not found

    until(none_is_left, f"every process that names {text} to be gone")


@cache
def threads_of_the_kernel() -> frozenset[int]:
    """Return the kernel's own processes, most of a quiet machine's: they name nothing."""
    return frozenset(each.pid for each in psutil.process_iter(["ppid"]) if each.info["ppid"] == KTHREADD)


def processes_that_name(text: str) -> list[psutil.Process]:
    """Return the processes that have a text in their environment or their words, ourselves and our parents left out."""
    named, kernel = os.fsencode(text), threads_of_the_kernel()
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208 - it is done after every test
        with contextlib.suppress(OSError):
            if pid not in kernel and (
                named in read_bytes(f"/proc/{pid}/environ") or named in read_bytes(f"/proc/{pid}/cmdline")
            ):
                found.append(pid)
    if not found:
        return []
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    processes = []
    for pid in found:
        with contextlib.suppress(psutil.Error):
            if pid not in ours and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


@contextlib.contextmanager
def dying_slowly(variable: str, marker: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """Give a process with a marker in a variable that, once killed, has no environment and is not dead until let die.

    The first process of a namespace waits for all others, one of which we do not bury.
    """
    if subprocess.run(["unshare", "-Urpf", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace can be made here")
    argv = ["unshare", "-Urpf", "sh", "-c", "sleep 100 & wait"]
    one = subprocess.Popen(argv, env={**os.environ, variable: marker}, start_new_session=True)
    first = child_of(one.pid)
    sleeper = child_of(first)
    traced = ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_SEIZE, sleeper, None, None)
    assert traced == 0, os.strerror(ctypes.get_errno())
    unburied = [sleeper]

    def bury() -> None:
        while unburied:
            os.waitpid(unburied.pop(), WAIT_ALL)

    try:
        yield first, bury
    finally:
        for pid in (one.pid, first, sleeper):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        bury()
        one.wait()


def child_of(pid: int) -> int:
    return until(lambda: process_table.children(pid) or [])[0]


def open_descriptors() -> set[tuple[str, str]]:
    """Return what this process has open, with the numbers.

    Some of it is garbage of earlier tests, and may be closed at any time.
    """
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that reads the folder is closed again
            found.add((entry.name, str(entry.readlink())))
    return found
