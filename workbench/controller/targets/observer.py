"""Asks one place without end how its learners are, in a thread of its own, and tells the loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Final

from runners.interface import AttemptRef, Runner
from workbench.clock import elapsed_seconds, now_us
from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import Observed, Unreachable
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.targets.worker_pool import Post

LONG_SECONDS: Final = 60.0
"""How long one call may wait for news."""

WHOLE_SECONDS: Final = 60.0
"""How often everything is looked at anew, also if nothing was told to have changed: files may be removed."""

SHORT_SECONDS: Final = 1.0
"""The same for a runner that cannot be interrupted."""

DEADLINE_SECONDS: Final = 30.0
"""How much longer than it may a call may take before the place counts as hanging."""


class TargetObserver:
    """The watch over a place. It alone tells how learners are, so no news is older than the news before."""

    def __init__(self, place: str, make_runner: Callable[[], Runner], post: Post) -> None:
        self._place = place
        self._make_runner = make_runner
        self._post = post
        self._changed = threading.Condition()
        self._nudged = threading.Event()
        self._wanted: tuple[AttemptRef, ...] = ()
        self._serial = 0
        self._runner: Runner | None = None
        self._due: float | None = None
        self._answered_us: int | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def want(self, attempts: Iterable[AttemptRef]) -> None:
        """Say which attempts matter from now on."""
        wanted = tuple(sorted(attempts, key=lambda one: (one.job_id, one.attempt)))
        with self._changed:
            if wanted == self._wanted:
                return
            self._wanted = wanted
            self._nudge()

    def look(self) -> int:
        """Ask for a look at everything; return the number that its answer, or a later one's, will carry."""
        with self._changed:
            self._serial += 1
            self._nudge()
            return self._serial

    def overdue(self, now: float) -> bool:
        """Say whether the place hangs."""
        with self._changed:
            return self._due is not None and now >= self._due

    def due(self) -> float | None:
        """Return when the place would count as hanging; None while it is not asked."""
        with self._changed:
            return self._due

    def end(self) -> None:
        """Ask no more. A call that hangs is left to itself, and what it says later is told to nobody."""
        with self._changed:
            self._ended = True
            self._nudge()

    def successor(self, make_runner: Callable[[], Runner]) -> TargetObserver:
        """Begin anew where this one hangs: same attempts, another thread."""
        after = TargetObserver(self._place, make_runner, self._post)
        after._serial = self._serial
        after._answered_us = self._answered_us
        self._post(Unreachable(self._place, "the backend does not answer", self._answered_us))
        after.want(self._wanted)
        return after

    def _nudge(self) -> None:
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._work, name=f"watch {self._place}", daemon=True)
            self._thread.start()
            nudger = threading.Thread(target=self._interrupt_again_and_again, name="interrupt", daemon=True)
            nudger.start()
        self._changed.notify_all()
        self._nudged.set()

    def _work(self) -> None:
        failures, answered = 0, -1 if self._serial else 0
        whole_at = elapsed_seconds()
        while True:
            with self._changed:
                while not self._ended and not self._wanted and self._serial == answered:
                    self._changed.wait()
                if self._ended:
                    break
                attempts, serial = self._wanted, self._serial
                now = elapsed_seconds()
                self._due = now + LONG_SECONDS + DEADLINE_SECONDS
            # No call of a plug-in is made with the lock held: it may hang, and the loop needs the lock.
            if serial != answered or now >= whole_at + WHOLE_SECONDS:
                self._drop_runner()
                whole_at = now
            try:
                event = self._ask(attempts, serial)
            except BaseException as error:
                # A plug-in may raise anything; the place is then tried again, and nothing else falls.
                failures += 1
                self._fail(sentence(error), failures)
                continue
            # The first answer after a failure is told even if it is empty: the place is back.
            tell = bool(event.seen) or event.whole or failures > 0
            failures, answered = 0, serial if event.whole else answered
            self._answered_us = now_us()
            with self._changed:
                self._due = None
                if tell and not self._ended:
                    self._post(event)
        self._drop_runner()

    def _ask(self, attempts: tuple[AttemptRef, ...], serial: int) -> Observed:
        runner = self._runner
        fresh = runner is None
        if runner is None:
            runner = self._runner = self._make_runner()
            with self._changed:
                stale = (attempts, serial) != (self._wanted, self._serial)
            if stale:
                self._interrupt(runner)
        interruptible = type(runner).interrupt is not Runner.interrupt
        timeout = min(LONG_SECONDS, WHOLE_SECONDS) if interruptible else SHORT_SECONDS
        found = runner.observe(attempts, timeout_seconds=timeout)
        # A runner's first answer is whole by contract; one that denies it would be asked without end.
        return Observed(self._place, attempts, tuple(found.seen), found.whole or fresh, serial)

    def _fail(self, text: str, failures: int) -> None:
        self._drop_runner()
        with self._changed:
            self._due = None
            if self._ended:
                return
            self._post(Unreachable(self._place, text, self._answered_us))
            draw = int.from_bytes(os.urandom(2)) / 65536
            self._changed.wait(min(backoff_seconds(failures - 1, draw), RETRY_LONGEST_SECONDS))

    def _interrupt_again_and_again(self) -> None:
        # In a thread of its own: a plug-in may hang even in this, and the loop must not.
        while not self._ended:
            self._nudged.wait()
            self._nudged.clear()
            if (runner := self._runner) is not None:
                self._interrupt(runner)

    def _interrupt(self, runner: Runner) -> None:
        try:
            runner.interrupt()
        except Exception as error:  # a plug-in's; its call returns when its time is over
            self._post(Unreachable(self._place, sentence(error), self._answered_us))

    def _drop_runner(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                runner.close()
            except Exception:
                return  # it is let go of either way
