"""Processes that work on a learner's files every few seconds, as long as its command runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

from workbench.learner.journal import state
from workbench.learner.journal.output import REPORT_FILE
from workbench.learner.platform import system
from workbench.learner.stores.errors import TransferError

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.stores.rclone import StopCheck

_END_SECONDS = 5.0
_POLL_SECONDS = 0.2


class WorkCancelled(Exception):
    """The work has to end now: its learner was killed, or its process is to stop."""


class PeriodicWorker:
    """A process that repeats one piece of work while the command runs; the guard does the rest at the end."""

    is_needed = True

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.pid = 0
        """0 where there is none."""

    def rounds(self, check_stop: StopCheck) -> tuple[Callable[[], object], float]:
        """Return what is called in the process, and the seconds between two calls."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it; where there is no room for a process the guard does all at the end."""
        if not self.is_needed:
            return
        guard = os.getpid()
        with contextlib.suppress(OSError):
            self.pid = os.fork()
            if self.pid == 0:
                self._run(guard)

    def end(self) -> None:
        """End it and what it runs."""
        if not self.pid:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)
            give_up = time.monotonic() + _END_SECONDS
            while time.monotonic() < give_up:
                try:
                    if os.waitpid(self.pid, os.WNOHANG)[0]:
                        self.pid = 0
                        return
                except ChildProcessError:
                    self.pid = 0
                    return
                time.sleep(0.005)

    def _run(self, guard: int) -> None:
        """Work in the forked process until the guard ends it; never returns."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            _close_descriptors()
            received: list[int] = []
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            system.die_with_parent()

            def check_stop() -> None:
                if received or os.getppid() != guard:
                    raise WorkCancelled

            self._repeat(check_stop)
            code = 0
        except WorkCancelled:
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write a record where those of training code are collected: the scribe's own file is the scribe's."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with contextlib.suppress(OSError):
            report = os.open(
                os.path.join(self._folder, REPORT_FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
            )
            try:
                os.write(report, line)
            finally:
                os.close(report)

    def _repeat(self, check_stop: StopCheck) -> None:
        call, seconds = self.rounds(check_stop)
        due = system.elapsed_seconds() + seconds
        while True:
            check_stop()
            if system.elapsed_seconds() < due:
                time.sleep(_POLL_SECONDS)
                continue
            with contextlib.suppress(TransferError, OSError):  # the next round tries again, and the end too
                call()
            due = system.elapsed_seconds() + seconds


def check_not_killed(folder: str) -> None:
    """Check that the work at the learner's end may continue: a kill does not wait for it.

    Raises:
        WorkCancelled: the learner was killed, or its folder is gone.
    """
    if state.read_stop(folder).get("kind") == "kill" or state.is_removed(folder):
        raise WorkCancelled


def _close_descriptors() -> None:
    """Close the guard's descriptors: pipes would not end and locks would not be free while they are open here."""
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        descriptors = list(range(3, 1024))
    for descriptor in descriptors:
        if descriptor > 2:
            with contextlib.suppress(OSError):
                os.close(descriptor)
