"""Observes the learners of one target in a thread of its own, without end, and posts what it learns to the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from runners.interface import AttemptRef, Runner
from workbench.clock import elapsed_seconds, now_us
from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import Observed, Unreachable
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Thread
from workbench.controller.targets.worker_pool import Post

LONG_SECONDS: Final = 60.0
"""How long one call may wait for a change."""

WHOLE_SECONDS: Final = 60.0
"""How often everything is observed again even if no change was reported: files may have been removed."""

SHORT_SECONDS: Final = 1.0
"""How long a call may wait on a runner that cannot be interrupted."""

DEADLINE_SECONDS: Final = 30.0
"""How long after its timeout a call may return before the target counts as hanging."""


AGAIN_SECONDS: Final = 1.0
"""How long until a thread is started again that could not be started."""


class TargetObserver:
    """The observer of a target. It is the only source of its learners' status, so their order is kept."""

    def __init__(
        self,
        target: str,
        make_runner: Callable[[], Runner],
        post: Post,
        concurrency: Concurrency = THREADS,
    ) -> None:
        self._concurrency = concurrency
        self._target = target
        self._make_runner = make_runner
        self._post = post
        self._changed = concurrency.condition()
        self._nudged = concurrency.flag()
        self._attempts: tuple[AttemptRef, ...] = ()
        self._serial = 0
        self._runner: Runner | None = None
        self._due: float | None = None
        self._answered_us: int | None = None
        self._ended = False
        self._thread: Thread | None = None
        self._nudger: Thread | None = None

    def watch(self, attempts: Iterable[AttemptRef]) -> None:
        """Observe these attempts from now on, and no others."""
        ordered = tuple(sorted(attempts, key=lambda one: (one.job_id, one.attempt)))
        with self._changed:
            if ordered == self._attempts:
                return
            self._attempts = ordered
            self._nudge()

    def probe(self) -> int:
        """Request a complete observation; return the number that it, or a later one, will carry."""
        with self._changed:
            self._serial += 1
            self._nudge()
            return self._serial

    def overdue(self, now: float) -> bool:
        """Say whether the target hangs."""
        with self._changed:
            return self._due is not None and now >= self._due

    def due(self) -> float | None:
        """Return when the target would count as hanging; None while no call is under way."""
        with self._changed:
            return self._due

    def end(self) -> None:
        """Stop observing. A call that hangs is left behind, and what it returns later is dropped."""
        with self._changed:
            self._ended = True
            self._nudge()

    def successor(self, make_runner: Callable[[], Runner]) -> TargetObserver:
        """Return a new observer of the same attempts, with another thread, in place of this one, which hangs."""
        after = TargetObserver(self._target, make_runner, self._post, self._concurrency)
        after._serial = self._serial
        after._answered_us = self._answered_us
        self._post(Unreachable(self._target, "the backend does not answer", self._answered_us))
        after.watch(self._attempts)
        return after

    def check(self) -> float | None:
        """Start the threads again that could not be started or died; return after how long to check again."""
        with self._changed:
            if self._ended or (self._serial == 0 and not self._attempts):
                return None
            if self._has_threads():
                return None
            text = "the controller has no memory or threads left to ask it"
            self._post(Unreachable(self._target, text, self._answered_us))
            return AGAIN_SECONDS

    def _nudge(self) -> None:
        if not self._ended:
            self._has_threads()
        self._changed.notify_all()
        self._nudged.set()

    def _has_threads(self) -> bool:
        """Start what does not run yet; say whether all runs. Without memory nothing can be started for a while."""
        try:
            if self._thread is None or not self._thread.is_alive():
                self._thread = self._concurrency.start_thread(self._work, f"watch {self._target}")
            if self._nudger is None or not self._nudger.is_alive():
                self._nudger = self._concurrency.start_thread(self._interrupt_again_and_again, "interrupt")
        except (RuntimeError, MemoryError):
            return False
        return True

    def _work(self) -> None:
        failures, answered = 0, -1 if self._serial else 0
        whole_at = elapsed_seconds()
        while True:
            with self._changed:
                while not self._ended and not self._attempts and self._serial == answered:
                    self._changed.wait()
                if self._ended:
                    break
                attempts, serial = self._attempts, self._serial
                now = elapsed_seconds()
                self._due = now + LONG_SECONDS + DEADLINE_SECONDS
            # No call of a plug-in is made with the lock held: it may hang, and the loop needs the lock.
            if serial != answered or now >= whole_at + WHOLE_SECONDS:
                self._drop_runner()
                whole_at = now
            try:
                event = self._ask(attempts, serial)
            except BaseException as error:
                # A plug-in may raise anything: the target is tried again, and nothing else fails.
                failures += 1
                self._fail(sentence(error), failures)
                continue
            # The first answer after a failure is posted even if it is empty: the target is back.
            has_news = bool(event.statuses) or event.whole or failures > 0
            failures, answered = 0, serial if event.whole else answered
            self._answered_us = now_us()
            with self._changed:
                self._due = None
                if has_news and not self._ended:
                    self._post(event)
        self._drop_runner()

    def _ask(self, attempts: tuple[AttemptRef, ...], serial: int) -> Observed:
        runner = self._runner
        fresh = runner is None
        if runner is None:
            runner = self._runner = self._make_runner()
            with self._changed:
                stale = (attempts, serial) != (self._attempts, self._serial)
            if stale:
                self._interrupt(runner)
        interruptible = type(runner).interrupt is not Runner.interrupt
        timeout = min(LONG_SECONDS, WHOLE_SECONDS) if interruptible else SHORT_SECONDS
        observation = runner.observe(attempts, timeout_seconds=timeout)
        # A runner's first answer is complete by contract; one that denies it would be asked without end.
        return Observed(self._target, attempts, tuple(observation.seen), observation.whole or fresh, serial)

    def _fail(self, text: str, failures: int) -> None:
        self._drop_runner()
        with self._changed:
            self._due = None
            if self._ended:
                return
            self._post(Unreachable(self._target, text, self._answered_us))
            draw = self._concurrency.random_share()
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
            self._post(Unreachable(self._target, sentence(error), self._answered_us))

    def _drop_runner(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                runner.close()
            except Exception:
                return  # it is dropped either way
