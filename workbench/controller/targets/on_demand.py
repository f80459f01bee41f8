"""Machines that are started when a job waits for them and stopped when they idle, by the user's own commands.

Commands run on this machine under ``sh``, one at a time, for a limited time. A command that fails is shown in the
waiting job's reason. A machine on which anything runs is never stopped. One that is up is noted in the home
(``on-demand/``), so that the next controller stops it where this one is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from backends.contract.on_demand import OnDemandSettings
from workbench.clock import elapsed_seconds
from workbench.controller.runtime.concurrency import THREADS, Concurrency
from workbench.errors import BackendUnreachable
from workbench.paths import Home, make_private_folder, write_private
from workbench.store.db.rows import TargetRef

FORMAT: Final = 1

COMMAND_SECONDS: Final = 600.0
"""How long one command may take."""

START_AGAIN_SECONDS: Final = 600.0
"""The pause before the start command of a machine that does not answer is run again."""

SILENT_SECONDS: Final = 60.0
"""A machine at which a job is open is started when it has not answered for so long: its link may be cut as well."""

STOP_AGAIN_SECONDS: Final = 60.0
"""The pause before a machine that was still in use is checked again."""

STOP_AGAIN_LONGEST_SECONDS: Final = 900.0
"""The longest pause before a machine that does not answer is asked again whether it is in use."""

TAKEN_FOR_STOPPED_SECONDS: Final = 24 * 3600.0
"""A machine that idles and has not answered for so long is taken for one that somebody else has stopped."""


class OnDemand:
    """Starts and stops one machine. Threads may use it at once."""

    def __init__(
        self,
        name: str,
        demand: OnDemandSettings,
        say: Callable[[str], None],
        note: Callable[[bool], None],
        concurrency: Concurrency = THREADS,
        *,
        is_up: bool = False,
    ) -> None:
        """Begin.

        Args:
            name: the backend's.
            demand: its setting.
            say: writes a line into the controller's log.
            note: called when the machine is up, and when it is not any more.
            concurrency: what threads are made of.
            is_up: whether an earlier controller has left it up.
        """
        self._concurrency = concurrency
        self._name = name
        self._demand = demand
        self._say = say
        self._note = note
        self._lock = concurrency.lock()
        self._running = ""
        self._started_at: float | None = None
        self._failure = ""
        self._is_up = is_up
        self._idle_since: float | None = None
        self._stop_at = 0.0
        self._silent_seconds = 0.0
        """The pauses in all since it was first asked in vain what runs there: a night asleep is one of them."""
        self._unanswered_since: float | None = None
        """Since when it does not answer who looks after a job that is open there."""
        self._said = ""
        """Why it was not stopped the last time."""

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
                # From now on: the job may be withdrawn before it answers.
                self._is_up_now()
                self._begin("start", demand.start)
            if self._running == "stop":
                return BackendUnreachable(_stopped_first(demand))
            if self._running:
                return BackendUnreachable(f"it is being started: {_shown(demand.start)}")
            if self._failure:
                return BackendUnreachable(self._failure, hint=f"try it by hand: {demand.start}")
        return BackendUnreachable(f"its start command has run; {why.message}", hint=why.hint)

    def claim(self) -> None:
        """Note that a job needs the machine now: it is not stopped before it has idled again.

        Raises:
            BackendUnreachable: it is just being stopped.
        """
        with self._lock:
            if self._running == "stop":
                raise BackendUnreachable(_stopped_first(self._demand))
            self._idle_since = None

    def unanswered(self, why: BackendUnreachable) -> BackendUnreachable:
        """Start the machine again where it has been silent for a while though a job is open there; return why it is.

        Somebody may have stopped it while the job ran, or the controller that had it started was killed.
        """
        now = elapsed_seconds()
        if self._unanswered_since is None:
            self._unanswered_since = now
        return why if now < self._unanswered_since + SILENT_SECONDS else self.request_start(why)

    def answered(self) -> None:
        """Note that the machine is up."""
        self._started_at, self._failure = None, ""
        self._silent_seconds, self._unanswered_since = 0.0, None
        self._is_up_now()

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
        idle_since = self._idle_since  # which a job that claims it forgets at any moment
        if idle_since is None:
            idle_since = self._idle_since = now
        due = max(idle_since + demand.idle_seconds, self._stop_at)
        if now < due:
            return due
        if self._running:
            return now + STOP_AGAIN_SECONDS
        self._stop_at = now + STOP_AGAIN_SECONDS
        self._concurrency.start_thread(partial(self._stop, in_use), f"stop {self._name}")
        return self._stop_at

    def _stop(self, in_use: Callable[[], str]) -> None:
        try:
            use = in_use()
        except BaseException as error:
            self._cannot_ask(error)
            return
        self._silent_seconds = 0.0
        with self._lock:
            if use or self._idle_since is None or self._running:
                self._say_once(f"{self._name} is not stopped: {use or 'a job needs it again'}")
                return
            self._begin("stop", self._demand.stop)

    def _cannot_ask(self, error: BaseException) -> None:
        """Ask again later, more and more seldom: perhaps somebody else has stopped it, perhaps its link is cut."""
        if self._silent_seconds < TAKEN_FOR_STOPPED_SECONDS:
            pause = min(max(STOP_AGAIN_SECONDS, self._silent_seconds), STOP_AGAIN_LONGEST_SECONDS)
            self._silent_seconds += pause
            self._stop_at = elapsed_seconds() + pause
            self._say_once(f"{self._name} is not stopped: cannot find out what runs there: {error}")
            return
        hours = TAKEN_FOR_STOPPED_SECONDS / 3600
        self._say(f"{self._name} has not answered for {hours:.0f} h and is taken for stopped: {error}")
        self._is_down()

    def _say_once(self, text: str) -> None:
        """Say why the machine is not stopped, unless that was said when it was tried before."""
        if text != self._said:
            self._said = text
            self._say(text)

    def _is_up_now(self) -> None:
        if not self._is_up and self._demand.stop:
            self._note(True)
        self._is_up = True

    def _is_down(self) -> None:
        self._is_up, self._said, self._silent_seconds = False, "", 0.0
        self._note(False)

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
            # A start that has failed may have started it all the same.
            if what == "stop" and not failure:
                self._is_down()


def note_machine(home: Home, ref: TargetRef, *, is_up: bool) -> None:
    """Note in a home that a machine is up, or that it is not any more. Where that cannot be written nobody knows."""
    file = _file_of(home, ref)
    with contextlib.suppress(OSError):
        if not is_up:
            file.unlink(missing_ok=True)
            return
        make_private_folder(file.parent, within=home.path)
        beside = file.with_suffix(".new")
        write_private(beside, json.dumps({"format": FORMAT, "target": asdict(ref)}))
        beside.replace(file)


def is_noted(home: Home, ref: TargetRef) -> bool:
    """Say whether a machine was left up, as a home has it."""
    return _file_of(home, ref).exists()


def noted_machines(home: Home) -> Iterator[TargetRef]:
    """Yield the machines that an earlier controller has left up; what cannot be read is passed over."""
    for file in sorted(home.machines_on_demand.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            ref = TargetRef(**json.loads(file.read_bytes())["target"])
            if isinstance(ref.options, dict):
                yield ref


def _file_of(home: Home, ref: TargetRef) -> Path:
    name = hashlib.sha256(json.dumps(asdict(ref), sort_keys=True).encode()).hexdigest()[:16]
    return home.machines_on_demand / f"{name}.json"


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


def _stopped_first(demand: OnDemandSettings) -> str:
    return f"it is being stopped first: {_shown(demand.stop)}"


def _shown(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
