"""A controller that is there and does not answer: how that is noticed, what is said of it, and how it is ended.

A machine that slept, or a client that was stopped itself, must not be taken for that. So only the time counts in which
this process waited for an answer on a connection that it had, and woke up when that wait was over.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from typing import TYPE_CHECKING, Final

from workbench.clock import elapsed_seconds
from workbench.controller.runtime.lock import read_lock
from workbench.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.paths import Home

HANGS_SECONDS: Final = 5.0
"""A controller that has not answered for so long hangs."""

BUSY_SECONDS: Final = 20.0
"""One that is not stopped is ended after so long only: it may be busy, and holds in memory what a person typed."""

LATE_SECONDS: Final = 1.0
"""A wait that ends so much later than it should: this process was stopped meanwhile, or the machine slept."""

DIES_WITHIN_SECONDS: Final = 2.0
"""How long one that was killed may take to be gone; one that waits for a disk dies when that answers."""

STOPPED: Final = "stopped"
RESTART: Final = "fabric controller restart"
"""The command that ends it and starts another."""

_WHY: Final = {"T": STOPPED, "t": STOPPED, "D": "waits for a disk"}
"""What the letter of a process's state says."""

_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class _Silence:
    """For how long the process that a lock names has not answered this one."""

    pid: int
    start_ticks: int
    version: str
    seconds: float
    until: float


@dataclass(frozen=True, slots=True)
class UnansweringController:
    """A controller that holds the lock of its home, lives, and does not answer."""

    pid: int
    start_ticks: int
    version: str
    why: str
    """What its process does: it is stopped, or waits for a disk; empty where it just does not answer."""
    seconds: float
    """For how long this process has waited for an answer."""

    @property
    def text(self) -> str:
        """That it does not answer, and why."""
        return f"controller {self.pid} does not answer" + (f" ({self.why})" if self.why else "")

    @property
    def advice(self) -> str:
        """That it does not answer, and what helps."""
        return f"{self.text}; `{RESTART}` ends it and starts another"

    @property
    def may_be_ended(self) -> bool:
        """Whether a stop may end it, which nobody asked for: it does nothing, and will not by itself."""
        return self.seconds >= (HANGS_SECONDS if self.why == STOPPED else BUSY_SECONDS)


_silences: dict[Path, _Silence] = {}


def count_silence(home: Home, began: float, patience: float) -> None:
    """Count a wait for an answer that did not come; ``began`` is when it did, ``patience`` how long it was to last."""
    from workbench.learner.platform.system import start_ticks

    now, held, known = elapsed_seconds(), read_lock(home), _silences.get(home.path)
    ticks = start_ticks(held.pid) if held is not None else 0
    if held is None or not ticks:
        end_silence(home)
        return
    # An older version does not say when it was started; of another machine's process only the number would be right.
    is_that_one = held.start_ticks == ticks or (not held.start_ticks and held.host == os.uname().nodename)
    if not is_that_one:
        end_silence(home)
        return
    if now - began > patience + LATE_SECONDS:
        # No time counts that we slept through. It has not answered all the same: who needs an answer asks again.
        _silences[home.path] = _Silence(held.pid, ticks, held.version, 0.0, now)
        return
    if known is None or (known.pid, known.start_ticks) != (held.pid, ticks):
        known = _Silence(held.pid, ticks, held.version, 0.0, began)
    # Threads that wait at the same time wait for one answer.
    seconds = known.seconds + now - max(began, known.until)
    _silences[home.path] = _Silence(held.pid, ticks, held.version, seconds, now)


def end_silence(home: Home) -> None:
    """Forget that a controller did not answer: it did, or there is none."""
    _silences.pop(home.path, None)


def is_silent(home: Home) -> bool:
    """Say whether a controller that is there has not answered this process when it was last asked."""
    return home.path in _silences


def unanswering(home: Home, *, after: float | None = None) -> UnansweringController | None:
    """Return the controller of a home where it has not answered for so many seconds, :data:`HANGS_SECONDS` as a rule.

    It asks nothing: what counts is how long this process has waited so far.
    """
    from workbench.learner.platform import system

    silence = _silences.get(home.path)
    if silence is None or silence.seconds < (HANGS_SECONDS if after is None else after):
        return None
    if system.start_ticks(silence.pid) != silence.start_ticks or not _is_held(home):
        end_silence(home)
        return None
    why = _WHY.get(system.state_letter(silence.pid), "")
    return UnansweringController(silence.pid, silence.start_ticks, silence.version, why, silence.seconds)


def _is_held(home: Home) -> bool:
    """Say whether a process holds the lock. Shared, so that two who ask do not take each other for it."""
    try:
        descriptor = os.open(home.controller_lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def end_process(found: UnansweringController) -> bool:
    """Kill a controller that does not answer; return whether it is gone.

    Neither its learners nor the store are harmed: it may be killed at any instant.
    """
    try:
        _kill(found)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is another user's
    return ends_within(found.pid, found.start_ticks, DIES_WITHIN_SECONDS)


def ends_within(pid: int, start_ticks: int, seconds: float) -> bool:
    """Wait for the end of that very process, so long at most; return whether it is gone."""
    from workbench.learner.platform import system

    until = time.monotonic() + seconds
    while system.start_ticks(pid) == start_ticks:
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _kill(found: UnansweringController) -> None:
    """Kill that very process, and no other that got its number meanwhile.

    Raises:
        ProcessLookupError: it is gone.
    """
    from workbench.learner.platform.system import start_ticks

    try:
        descriptor = os.pidfd_open(found.pid)
    except (AttributeError, NotImplementedError):  # macOS
        descriptor = -1
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel
        descriptor = -1
    try:
        # With the descriptor in hand the number cannot be given away between the look and the signal.
        if start_ticks(found.pid) != found.start_ticks:
            raise ProcessLookupError
        if descriptor < 0:
            os.kill(found.pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
