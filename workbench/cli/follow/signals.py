"""What a signal does to somebody who follows a job: leave it running, or stop it.

A ``detach`` raises :class:`Detached` in the main thread, wherever that is, a blocked write included. A
``halt`` or ``kill`` is asked for by a thread of its own, so that it happens even while the main thread waits
for a full pipe.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Literal, Self

from workbench.errors import UsageError
from workbench.terminal.console import person_present

Policy = Literal["detach", "halt", "kill"]
POLICIES: Final = ("detach", "halt", "kill")

OBEYED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Detached(Exception):
    """Somebody left; the job goes on."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


def policy_of(told: str | None) -> Policy:
    """Return what a signal does: as ``--on-interrupt`` says, else detach for a person, halt for a machine.

    Raises:
        UsageError: it is no policy.
    """
    if told is None:
        return "detach" if person_present() else "halt"
    for policy in POLICIES:
        if told == policy:
            return policy
    raise UsageError(f"--on-interrupt takes {', '.join(POLICIES)}, not '{told}'")


class Interruption:
    """Obeys signals within a ``with`` block; what was there before is put back at its end.

    ``stop`` is called with ``halt`` or ``kill`` in a thread of its own: a first signal asks for the policy's
    kind, a second one for a kill. A signal that our caller ignores (``nohup``) stays ignored.
    """

    def __init__(self, policy: Policy, stop: Callable[[Policy], None]) -> None:
        self._policy = policy
        self._stop = stop
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
        self._asked.put(None)
        # What was asked for is to be written down before this process ends.
        self._thread.join(timeout=10)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._policy == "detach":
            if self._count > 1:
                os._exit(128 + number)
            raise Detached(number)
        self._asked.put(self._policy if self._count == 1 else "kill")

    def _obey(self) -> None:
        while (kind := self._asked.get()) is not None:
            self._stop(kind)
