"""The processes of a home: which there are, and proof that a test leaves none behind."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cache

import psutil

from tests.support.waiting import until
from workbench.learner.platform.system import read_bytes
from workbench.paths import Home

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
