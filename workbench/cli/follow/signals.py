"""What a signal does to somebody who follows a job: leave it running, or stop it.

A ``detach`` raises :class:`Detached` in the main thread, wherever that is, a blocked write included. A
``halt`` or ``kill`` is asked for by a thread of its own, so that it happens even while the main thread waits
for a full pipe. Whoever sends a second signal is not kept for long, and a third one ends the command, whatever becomes
of the job.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final, Literal, Self

from workbench.errors import UsageError, lacks
from workbench.formats import duration
from workbench.services.setting_check import POLICIES
from workbench.terminal.console import narrate, person_present

Policy = Literal["detach", "halt", "kill"]

OBEYED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ENDS_WITHIN_SECONDS: Final = 10.0
"""How long after a second signal the command still waits for the job to be killed."""

LAST_WORDS_SECONDS: Final = 1.0
"""How long a process that ends at once tries to say so."""


class Detached(Exception):
    """Somebody left; the job goes on."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


def policy_of(text: str | None) -> Policy:
    """Return what a signal does: as ``--on-interrupt`` says, else detach for a person, halt for a machine.

    Raises:
        UsageError: it is not a policy.
    """
    if text is None:
        return "detach" if person_present() else "halt"
    for policy in POLICIES:
        if text == policy:
            return policy
    raise UsageError(f"--on-interrupt takes {', '.join(POLICIES)}, not '{text}'")


class Interruption:
    """Obeys signals within a ``with`` block; what was there before is put back at its end.

    ``stop`` is called with ``halt`` or ``kill`` in a thread of its own: a first signal asks for the policy's
    kind, a second one for a kill. :data:`ENDS_WITHIN_SECONDS` after that, or at a third one, the process ends, after
    ``leave`` has said how to come back. A signal that our caller ignores (``nohup``) stays ignored.
    """

    def __init__(self, policy: Policy, stop: Callable[[Policy], None], leave: Callable[[], None]) -> None:
        self._policy = policy
        self._stop = stop
        self._leave = leave
        self._end: threading.Timer | None = None
        self._asked: queue.SimpleQueue[Policy | None] = queue.SimpleQueue()
        self._count = 0
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], None] | int | None] = {}
        self._thread = threading.Thread(target=self._obey, name="interruption", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for number in OBEYED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._end is not None:
            self._end.cancel()
        self._asked.put(None)
        # What was asked for is to be written down before this process ends.
        self._thread.join(timeout=10)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._policy == "detach":
            if self._count > 1:
                os._exit(128 + number)
            raise Detached(number)
        if self._count > 2:
            self._end_process(number)
        if self._count == 2:
            self._end_later(number)
        self._asked.put(self._policy if self._count == 1 else "kill")

    def _end_later(self, number: int) -> None:
        self._end = threading.Timer(ENDS_WITHIN_SECONDS, self._end_process, (number,))
        self._end.daemon = True
        try:
            self._end.start()
        except RuntimeError:  # there is no memory for a thread
            self._end_process(number)

    def _end_process(self, number: int) -> None:
        """End at once: the main thread may be blocked by a pipe, or by a disk that does not answer."""
        last_words = threading.Thread(target=self._leave, name="leaving", daemon=True)
        try:
            last_words.start()
            last_words.join(timeout=LAST_WORDS_SECONDS)  # nobody may read them
        except RuntimeError:  # there is no memory for a thread
            with suppress(Exception):
                self._leave()
        finally:
            os._exit(128 + number)

    def _obey(self) -> None:
        while (kind := self._asked.get()) is not None:
            try:
                self._stop(kind)
            except Exception as error:  # the next signal is to be obeyed all the same
                with suppress(Exception):
                    why = f"this command has {lacking} left" if (lacking := lacks(error)) else repr(error)
                    narrate(f"error: the {kind} could not be requested: {why}")


EXIT_TIMED_OUT: Final = 124
KILLED_AFTER_SECONDS: Final = 60.0
"""How much longer than its own grace period a job that was halted may take before it is killed."""


class TimeLimit:
    """Counts within a ``with`` block; without seconds it never ends."""

    def __init__(self, seconds: float | None, grace_seconds: float, stop: Callable[[Policy], None]) -> None:
        self._seconds = seconds
        self._grace_seconds = grace_seconds
        self._stop = stop
        self._timers: list[threading.Timer] = []
        self.over = False
        """Whether the time was over before the block was."""

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._start(self._seconds, self._halt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()

    def _start(self, seconds: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _halt(self) -> None:
        self.over = True
        narrate(f"--timeout: {duration(self._seconds or 0.0)} have passed")
        self._start(self._grace_seconds + KILLED_AFTER_SECONDS, lambda: self._stop("kill"))
        self._stop("halt")
