"""Starts what schedules ask for when its time has come, and writes down what was missed.

A run's jobs are made by a process of their own (``workbench.services.submit.schedules``), since code is packed and
backends are asked for them: the loop waits for neither, and what a manifest does there harms one run only.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from workbench.controller.runtime.concurrency import THREADS, Concurrency
from workbench.errors import UsageError
from workbench.paths import Home
from workbench.recurrence import Recurrence
from workbench.store.queries.schedules import ScheduleRow, dealt_with_us, runs_of, schedules, undecided
from workbench.store.updates.schedules import record_run
from workbench.values import dataclass

LATE_US: Final = 60_000_000
"""A time is missed that came longer ago: no controller ran, or the machine slept."""

COUNTED: Final = 10_000
"""So many times are counted at once: a year of every minute would take seconds."""

OF_THE_SESSION: Final = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK")
"""Variables that another login has other values of: the controller's are taken, where it has any."""

NOT_THERE: Final = "no controller ran"
CUT_OFF: Final = "it was cut off while its jobs were made"


@dataclass(frozen=True, slots=True)
class Missed:
    """Times that have passed without a run."""

    count: int
    """:data:`COUNTED` stands for that many or more."""
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Look:
    """What has to be done for a schedule at some time."""

    missed: Missed | None
    """Times that have passed."""
    due_us: int | None
    """The one that has just come."""
    next_us: int | None
    """The first one to come."""


def look(row: ScheduleRow, after_us: int, now_us: int) -> Look:
    """Return what has to be done for a schedule whose times up to one have been dealt with.

    Raises:
        UsageError: its expression or its zone is none on this machine.
    """
    recurrence = Recurrence(row.every, row.zone)
    passed = recurrence.times(after_us, COUNTED, now_us)
    next_us = recurrence.next_after(now_us)
    due_us = None
    if len(passed) == COUNTED:
        return Look(Missed(COUNTED, passed[0], now_us), None, next_us)
    if passed and now_us - passed[-1] <= LATE_US:
        due_us = passed.pop()
    return Look(Missed(len(passed), passed[0], passed[-1]) if passed else None, due_us, next_us)


class Schedules:
    """All schedules of a home."""

    def __init__(
        self,
        home: Home,
        log: Callable[[str], None],
        wake: Callable[[], None],
        concurrency: Concurrency = THREADS,
    ) -> None:
        """Look at none yet.

        Args:
            home: where they are.
            log: writes what goes wrong, once where it is repeated.
            wake: called by another thread when a run's jobs have been made.
            concurrency: makes that thread.
        """
        self._home = home
        self._log = log
        self._wake = wake
        self._concurrency = concurrency
        self._making: dict[str, subprocess.Popen[bytes]] = {}
        self._next: dict[str, int | None] = {}
        self.is_active = False
        """Whether there is anything to wait for."""

    def step(self, now_us: int) -> int | None:
        """Record what was missed, start what is due; return when the next time comes, None where none does.

        Raises:
            CannotWrite: the home takes no more; nothing was started that is not recorded.
        """
        rows, faults = schedules(self._home)
        for fault in faults:
            self._log(fault)
        active = [row for row in rows if row.paused_us is None]
        self.is_active = bool(active)
        known, self._next = self._next, {}
        for row in active:
            next_us = known.get(row.id)
            if next_us is None or next_us <= now_us or row.id in self._making:
                try:
                    next_us = self._step(row, now_us)
                except UsageError as error:
                    self._log(f"{row.id}: {error}")
            self._next[row.id] = next_us
        return min((at for at in self._next.values() if at is not None), default=None)

    def _step(self, row: ScheduleRow, now_us: int) -> int | None:
        making = self._making.get(row.id)
        is_making = self._is_making(row.id)
        events = runs_of(self._home, row.id)
        if not is_making and (cut_off := undecided(events)) is not None:
            due_us = int(cut_off["due_us"])
            why = CUT_OFF if making is None else f"{CUT_OFF} (exit status {making.returncode})"
            self._record_missed(row, Missed(1, due_us, due_us), why)
        found = look(row, dealt_with_us(row, events), now_us)
        if found.missed is not None:
            self._record_missed(row, found.missed, NOT_THERE)
        if found.due_us is not None:
            self._begin(row, found.due_us, is_making=is_making)
        return found.next_us

    def _begin(self, row: ScheduleRow, due_us: int, *, is_making: bool) -> None:
        """Claim a time, then have its jobs made: a time that is written down is never begun again."""
        record_run(self._home, row.id, {"do": "due", "due_us": due_us})
        if is_making:
            why = "the jobs of the run before are still being made"
            record_run(self._home, row.id, {"do": "skipped", "due_us": due_us, "job": None, "why": why})
            return
        words = ["run", str(self._home.path), row.id, str(due_us)]
        try:
            with self._home.controller_log.open("ab") as log:
                made = subprocess.Popen(
                    maker_command(*words),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=maker_environment(row.environment, os.environ, self._home),
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            why = f"no process could be started: {error.strerror or error}"
            record_run(self._home, row.id, {"do": "refused", "due_us": due_us, "why": why})
            return
        self._making[row.id] = made
        self._concurrency.start_thread(partial(self._wait, made), "schedule")

    def _wait(self, made: subprocess.Popen[bytes]) -> None:
        made.wait()
        self._wake()

    def _is_making(self, schedule_id: str) -> bool:
        """Say whether a run's jobs are being made, be it by a process of a controller before this one."""
        made = self._making.get(schedule_id)
        if made is not None and made.poll() is None:
            return True
        self._making.pop(schedule_id, None)
        try:
            descriptor = os.open(self._home.schedule(schedule_id).lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _record_missed(self, row: ScheduleRow, missed: Missed, why: str) -> None:
        record_run(self._home, row.id, {"do": "missed", **asdict(missed), "why": why})


def maker_command(*words: str) -> list[str]:
    """Return the command that checks a schedule or makes a run's jobs."""
    # -P: a folder of the user's that is called workbench must not be imported instead of ours.
    return [sys.executable, "-P", "-m", "workbench.services.submit.schedules", *words]


def maker_environment(kept: Mapping[str, str], around: Mapping[str, str], home: Home) -> dict[str, str]:
    """Return the variables of that command: those that a schedule keeps, and this login's sockets."""
    session = {name: around[name] for name in OF_THE_SESSION if name in around}
    return {**kept, **session, "FABRIC_HOME": str(home.path)}
