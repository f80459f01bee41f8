"""Machines that are started when a job waits for them and stopped when they idle, by the user's own commands.

Commands run on this machine under ``sh``, one at a time, for a limited time. A command that fails is shown in the
waiting job's reason. A machine on which anything runs is never stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Final

from backends.contract.on_demand import OnDemandSettings
from workbench.clock import elapsed_seconds
from workbench.controller.runtime.concurrency import THREADS, Concurrency
from workbench.errors import BackendUnreachable

COMMAND_SECONDS: Final = 600.0
"""How long one command may take."""

START_AGAIN_SECONDS: Final = 600.0
"""The pause before the start command of a machine that does not answer is run again."""

STOP_AGAIN_SECONDS: Final = 60.0
"""The pause before a machine that was still in use is checked again."""


class OnDemand:
    """Starts and stops one machine. Threads may use it at once."""

    def __init__(
        self,
        name: str,
        demand: OnDemandSettings,
        say: Callable[[str], None],
        concurrency: Concurrency = THREADS,
    ) -> None:
        self._concurrency = concurrency
        self._name = name
        self._demand = demand
        self._say = say
        self._lock = concurrency.lock()
        self._running = ""
        self._started_at: float | None = None
        self._failure = ""
        self._is_up = False
        self._idle_since: float | None = None
        self._stop_at = 0.0

    def request_start(self, why: BackendUnreachable) -> BackendUnreachable:
        """Start the machine for a job that waits, unless that is under way; return why the job still waits.

        Args:
            why: why the machine could not be reached.
        """
        demand = self._demand
        if not demand.start:
            return why
        with self._lock:
            now = elapsed_seconds()
            is_due = self._started_at is None or now >= self._started_at + START_AGAIN_SECONDS
            if is_due and not self._running:
                self._started_at = now
                self._begin("start", demand.start)
            if self._running:
                return BackendUnreachable(f"it is being started: {_shown(demand.start)}")
            if self._failure:
                return BackendUnreachable(self._failure, hint=f"try it by hand: {demand.start}")
        return BackendUnreachable(f"its start command has run; {why.message}", hint=why.hint)

    def answered(self) -> None:
        """Note that the machine is up."""
        self._is_up, self._started_at, self._failure = True, None, ""

    def tend(self, *, busy: bool, in_use: Callable[[], str]) -> float | None:
        """Stop the machine when it has idled for long enough; return when to ask again, None while it is not up.

        Args:
            busy: whether jobs are open there.
            in_use: asks the machine what runs there, described in a few words; called in a thread of its own.
        """
        demand, now = self._demand, elapsed_seconds()
        if busy or not (self._is_up and demand.stop):
            self._idle_since = None
            return None
        if self._idle_since is None:
            self._idle_since = now
        due = max(self._idle_since + demand.idle_seconds, self._stop_at)
        if now < due:
            return due
        self._stop_at = now + STOP_AGAIN_SECONDS
        self._concurrency.start_thread(partial(self._stop, in_use), f"stop {self._name}")
        return self._stop_at

    def _stop(self, in_use: Callable[[], str]) -> None:
        try:
            use = in_use()
        except BaseException as error:
            self._say(f"{self._name} is not stopped: cannot find out what runs there: {error}")
            return
        with self._lock:
            if use or self._idle_since is None or self._running:
                self._say(f"{self._name} is not stopped: {use or 'a job needs it again'}")
                return
            self._is_up = False
            self._begin("stop", self._demand.stop)

    def _begin(self, what: str, command: str) -> None:
        self._running = what
        self._say(f"{self._name}: {what}: {command}")
        self._concurrency.start_thread(partial(self._run, what, command), f"{what} {self._name}")

    def _run(self, what: str, command: str) -> None:
        failure = _failure_of(command)
        if failure:
            self._say(f"{self._name}: {what}: {failure}")
        with self._lock:
            self._running = ""
            self._failure = f"its {what} command failed: {failure}" if failure and what == "start" else ""
            if failure and what == "stop":
                self._is_up = True


def _failure_of(command: str) -> str:
    """Run a command; return why it failed, or nothing."""
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return str(error.strerror)
    try:
        output, _ = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"it did not end within {COMMAND_SECONDS:.0f} seconds and was killed"
    if process.returncode == 0:
        return ""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else f"exit code {process.returncode}"


def _shown(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
