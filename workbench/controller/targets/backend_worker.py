"""A target as the loop sees it: calls return at once and report back as events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Final, Literal

from backends.contract.on_demand import read_demand
from runners.interface import AttemptRef, LaunchRequest, LearnerRef, Runner, StopRequest
from workbench.clock import elapsed_seconds
from workbench.controller.decide.errors import classify_error, mask, sentence
from workbench.controller.decide.messages import (
    CallCancelled,
    CallFailed,
    CallFinished,
    CapacityUnknown,
    CollectDelayed,
    Event,
    LaunchProgressed,
    LeftoversFound,
    LogNote,
    Unreachable,
)
from workbench.controller.decide.model import BackendTrouble, Operation
from workbench.controller.decide.scheduler import LINE_LENGTH
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Flag
from workbench.controller.targets.mirror import (
    Mirrors,
    MirrorWorker,
    bring_files,
    bring_some,
    fetch_stored,
    learners_of,
)
from workbench.controller.targets.observer import TargetObserver
from workbench.controller.targets.on_demand import OnDemand, is_noted, note_machine
from workbench.controller.targets.opener import LineUp, OpenedTarget, Opener
from workbench.controller.targets.worker_pool import Call, Post, WorkerPool
from workbench.errors import BackendUnreachable, CannotWrite, ConfigError, FabricError, TryAgain
from workbench.job import Reason
from workbench.learner.scribe.masking import secret_texts
from workbench.paths import Home
from workbench.store.db.rows import WATCHED, TargetRef
from workbench.values import dataclass

LAUNCHES_AT_ONCE: Final = 4
"""So that one launch that builds an environment for minutes does not delay the others."""

STOPS_AT_ONCE: Final = 16
REMOVALS_AT_ONCE: Final = 8
"""A stop or a removal that hangs, on a dead node say, must not delay those of other jobs."""

MEASURES_AND_SWEEPS_AT_ONCE: Final = 2
LAUNCH_SILENCE_SECONDS: Final = 1800.0
STOP_SECONDS: Final = 60.0
REMOVE_SECONDS: Final = 600.0
MEASURE_SECONDS: Final = 60.0
FETCHES_AT_ONCE: Final = 4
COLLECT_SILENCE_SECONDS: Final = 3600.0
COLLECT_AGAIN_SECONDS: Final = 2.0
"""How long until the files of an attempt are requested again; after each error in a row it is twice as long."""

SAME_FAILURE_SECONDS: Final = 0.5
"""Threads that waited while another failed to open the target get the same error, instead of each trying again."""

COLLECT_TRIES: Final = 6
"""How often the files of an attempt are requested from a backend that answers with errors, before they are left there:
for a minute. An API server that has just started knows nobody's rights for some seconds."""


class _Cancelled(FabricError):
    """Raised out of a launch's progress when the launch was called off."""


@dataclass(slots=True)
class LaunchOrder:
    """A launch that is to be made."""

    attempt: AttemptRef
    request: Callable[[], LaunchRequest]
    """Reads what is needed, in the thread that makes the launch."""
    cancelled: Flag = field(default_factory=THREADS.flag)
    call: Call | None = None


@dataclass(slots=True)
class _Collection:
    """What an attempt left that is over, while it is being fetched."""

    attempt: AttemptRef
    done: Callable[[], None]
    claim: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Keeps others from fetching the same journals."""
    tries: int = 0
    """How many tries in a row the backend has answered with an error."""
    next_try_at: float = 0.0
    is_failing: bool = False
    """Whether the last try failed, so that the loop is to hear of one that works."""
    looks_first: bool = False
    """Whether it may be gone from the backend, which would be taken for nothing left to fetch."""


class BackendWorker:
    """Threads and connections for one target: a backend with a runner."""

    def __init__(
        self,
        key: str,
        ref: TargetRef,
        home: Home,
        home_uuid: str,
        post: Post,
        open_target: Opener,
        concurrency: Concurrency = THREADS,
    ) -> None:
        self._concurrency = concurrency
        self.key = key
        self.ref = ref
        self._home = home
        self.home_uuid = home_uuid
        self._post = post
        self._open_target = open_target
        self._opening = self._concurrency.lock()
        self._opened: OpenedTarget | None = None
        self._refused: tuple[float, FabricError] | None = None
        """When the backend could last not be opened, and why."""
        self._watched: dict[str, set[AttemptRef]] = {}
        self._mine = concurrency.local()
        # Where the backend chooses the nodes, those that wait for theirs must not delay others.
        line = LINE_LENGTH if ref.type == "kubernetes" else 0
        self._launching = WorkerPool(
            f"launch {key}", post, width=LAUNCHES_AT_ONCE + line, concurrency=concurrency
        )
        self._stopping = WorkerPool(f"stop {key}", post, width=STOPS_AT_ONCE, concurrency=concurrency)
        self._removing = WorkerPool(f"remove {key}", post, width=REMOVALS_AT_ONCE, concurrency=concurrency)
        self._looking = WorkerPool(
            f"look {key}", post, width=MEASURES_AND_SWEEPS_AT_ONCE, concurrency=concurrency
        )
        self._observing = TargetObserver(key, self._make_runner, post, concurrency)
        self._closed = concurrency.flag()
        self._fetching = WorkerPool(f"fetch {key}", post, width=FETCHES_AT_ONCE, concurrency=concurrency)
        self._pools = (self._launching, self._stopping, self._removing, self._looking, self._fetching)
        self._mirrors = Mirrors(home, concurrency)
        self._on_demand = self._make_on_demand()
        # This machine's journals are the jobs' own folders, and there is no thread for nothing.
        self._mirroring = (
            None if ref.type == "local" else MirrorWorker(key, self._mirrors, self._make_runner, concurrency)
        )

    def watch(self, job_id: str, attempts: set[AttemptRef]) -> None:
        """Observe these attempts of a job from now on, and no others of it."""
        if self._watched.get(job_id, set()) == attempts:
            return
        self._watched[job_id] = attempts
        if not attempts:
            del self._watched[job_id]
        all_attempts = set().union(*self._watched.values())
        self._observing.watch(all_attempts)
        if self._mirroring is not None:
            self._mirroring.watch(all_attempts)

    def probe(self) -> int:
        """Request a complete observation; return the number that its answer carries."""
        return self._observing.probe()

    def launch(self, order: LaunchOrder) -> None:
        """Plan and launch an attempt."""
        call = self._call(
            Operation.LAUNCH,
            order.attempt,
            lambda: self._launch(order, call),
            LAUNCH_SILENCE_SECONDS,
            started=True,
        )
        late = call.overdue

        def overdue() -> Event | None:
            order.cancelled.set()  # should the call return, the launch must not continue
            return late()

        call.overdue = overdue
        order.call = call
        self._launching.submit(call)

    def cancel(self, order: LaunchOrder) -> None:
        """Call a launch off: one that waits behind launches of other jobs at once, another when it reports progress."""
        order.cancelled.set()
        if order.call is not None and self._launching.withdraw(order.call):
            self._post(CallCancelled(order.attempt))

    def collect(self, attempt: AttemptRef, done: Callable[[], None], *, looks_first: bool = False) -> None:
        """Fetch all that an attempt left, which is over; then call ``done``, from any thread.

        With ``looks_first`` it is a failure that nothing of it is there any more.
        """
        if self._mirroring is None:
            done()
            return

        collection = _Collection(attempt, done, looks_first=looks_first)
        collection.claim.enter_context(self._mirrors.claim(learners_of([attempt])))

        def overdue() -> Event:
            # The thread is left behind: should its call return after all, it goes on with the collection.
            text = f"{self.ref.backend} has not answered for {COLLECT_SILENCE_SECONDS:.0f} s"
            collection.is_failing = True
            return CollectDelayed(attempt.job_id, attempt.attempt, text)

        call = Call(lambda: self._collect(collection, call), overdue, COLLECT_SILENCE_SECONDS)
        self._fetching.submit(call)

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask an attempt's learners to stop."""

        def run() -> Event:
            self._runner().stop(attempt, request)
            return CallFinished(Operation.STOP, attempt)

        self._stopping.submit(self._call(Operation.STOP, attempt, run, STOP_SECONDS))

    def remove(
        self, attempts: Sequence[AttemptRef], *, deleted: bool, stop: StopRequest | None = None
    ) -> None:
        """Remove what these attempts of one job left; for a deleted job, everything.

        The event that follows names the last attempt.

        Args:
            attempts: of one job.
            deleted: whether the job is deleted.
            stop: how to ask the learners to stop first: stops and removals of separate calls have no order.
        """

        def run() -> Event:
            if self.ref.options.get(WATCHED):
                return CallFinished(Operation.REMOVE, attempts[-1])  # it belongs to another laptop
            for attempt in attempts:
                if stop is not None:
                    self._runner().stop(attempt, stop)
                self._runner().remove(attempt)
            if deleted:
                self._runner().remove_job(attempts[-1].job_id)
            return CallFinished(Operation.REMOVE, attempts[-1])

        self._removing.submit(self._call(Operation.REMOVE, attempts[-1], run, REMOVE_SECONDS))

    def measure(self, line: LineUp | None = None) -> None:
        """Measure the capacity of the target, and have jobs that need GPUs wait in its queue."""

        def run() -> Event | None:
            try:
                return self._open(may_start=True).measure(self.key, line)
            except BaseException as error:
                if classify_error(error, started=False).kind == "refused":
                    return CapacityUnknown(self.key)
                return Unreachable(self.key, sentence(error))  # asked again after a while

        self._looking.submit(Call(run, lambda: None, MEASURE_SECONDS))

    def sweep(self) -> None:
        """Look for learners of this home on the target."""

        def run() -> Event | None:
            found: list[LearnerRef] = []
            with contextlib.suppress(BaseException):  # the next controller looks again
                found.extend(one for one in self._runner().leftovers() if one.home == self.home_uuid)
            return LeftoversFound(self.key, tuple(found)) if found else None

        self._looking.submit(Call(run, lambda: None, REMOVE_SECONDS))

    def tend(self, *, busy: bool) -> float | None:
        """Stop a machine that starts on demand and idles; return when that is due, None where it never is."""
        if self._on_demand is None:
            return None
        return self._on_demand.tend(busy=busy, in_use=lambda: self._reach().in_use())

    def check(self, now: float) -> float | None:
        """Leave behind calls that hang; return when to check again, None while no call is under way."""
        due = [pool.check(now) for pool in self._pools]
        if self._observing.overdue(now):
            self._observing.end()
            self._drop_connection()
            self._observing = self._observing.successor(self._make_runner)
        due.append(self._observing.due())
        threads = [self._observing.check(), None if self._mirroring is None else self._mirroring.check()]
        due += [now + seconds for seconds in threads if seconds is not None]
        return min((one for one in due if one is not None), default=None)

    def close(self) -> None:
        """End the threads and close the connection; learners run on."""
        self._closed.set()
        self._observing.end()
        if self._mirroring is not None:
            self._mirroring.end()
        for pool in self._pools:
            pool.close()
        opened = self._opened
        if opened is not None and self._mirroring is not None:
            _close(opened)

    def _collect(self, collection: _Collection, call: Call) -> None:
        """Fetch some of what an attempt left, then queue again: a long log does not delay the end of other jobs.

        It is tried until it works; a backend that answers with errors is given up after some tries.
        """
        is_over = False
        if (pause := collection.next_try_at - elapsed_seconds()) > 0:
            # No longer at once: the files of other attempts come meanwhile.
            self._closed.wait(min(pause, COLLECT_AGAIN_SECONDS))
        else:
            is_over = self._try_to_fetch(collection)
        if not is_over and not self._closed.is_set():
            self._fetching.submit(call)
            return
        collection.claim.close()
        if not self._closed.is_set():
            collection.done()

    def _try_to_fetch(self, collection: _Collection) -> bool:
        """Fetch some of what an attempt left; return whether it is all here, or given up."""
        again_seconds = COLLECT_AGAIN_SECONDS
        try:
            if collection.looks_first and not self._is_there(collection.attempt):
                self._report_collection(collection, "nothing of it is there any more")
                return True
            collection.looks_first = False
            is_over = self._fetch_some(collection.attempt)
            collection.tries = 0
            if collection.is_failing:
                self._report_collection(collection, "")
            return is_over
        except (BackendUnreachable, TryAgain, CannotWrite) as error:
            collection.tries = 0
            self._report_collection(collection, sentence(error))
        except BaseException as error:
            collection.tries += 1
            self._report_collection(collection, sentence(error))
            if collection.tries >= COLLECT_TRIES:
                job_id = collection.attempt.job_id
                self._post(LogNote(f"{job_id}: its files stay on the backend: {sentence(error)}"))
                self._drop_secrets(collection.attempt)
                return True
            again_seconds *= 2 ** (collection.tries - 1)
        collection.next_try_at = elapsed_seconds() + again_seconds
        return False

    def _report_collection(self, collection: _Collection, failure: str) -> None:
        """Tell the loop why an attempt's files cannot be fetched, or that they come again."""
        collection.is_failing = bool(failure)
        attempt = collection.attempt
        self._post(CollectDelayed(attempt.job_id, attempt.attempt, failure))

    def _is_there(self, attempt: AttemptRef) -> bool:
        # By a runner of its own: one that has observed an attempt reports only what changes.
        with contextlib.closing(self._make_runner()) as runner:
            return bool(runner.observe([attempt], timeout_seconds=0.0).seen)

    def _fetch_some(self, attempt: AttemptRef) -> bool:
        """Fetch the next part of the journals of an attempt, and last its files; return whether that is all."""
        runner = self._runner()
        if runner.journals_in_place or not self._home.job(attempt.job_id).path.is_dir():
            return True
        if bring_some(self._mirrors, runner, attempt, self._home):
            return False
        bring_files(runner, attempt, self._home)
        fetch_stored(self._home, attempt.job_id, runner)
        self._release(runner, attempt)
        return True

    def _release(self, runner: Runner, attempt: AttemptRef) -> None:
        """Let the backend drop what it kept of an attempt, all of which is here."""
        if self.ref.options.get(WATCHED):
            return  # it belongs to another laptop
        try:
            runner.release(attempt)
        except (BackendUnreachable, TryAgain):
            raise
        except FabricError as error:
            self._post(LogNote(f"{attempt.job_id}: not all that it used can be removed: {sentence(error)}"))

    def _drop_secrets(self, attempt: AttemptRef) -> None:
        """Let the backend drop the secrets of an attempt whose files it keeps."""
        if self.ref.options.get(WATCHED):
            return
        try:
            self._runner().drop_secrets(attempt)
        except Exception as error:  # a plug-in's; the job ends all the same
            self._post(LogNote(f"{attempt.job_id}: its secrets stay on the backend: {sentence(error)}"))

    def _launch(self, order: LaunchOrder, call: Call) -> Event:
        if order.cancelled.is_set():
            return CallCancelled(order.attempt)

        def progress(text: str, *, stage: Literal["preparing", "waiting", "starting"]) -> None:
            if order.cancelled.is_set():
                raise _Cancelled("called off")
            call.heartbeat()
            self._post(LaunchProgressed(order.attempt, mask(text, secrets), stage))

        secrets: Sequence[str] = ()
        started = False
        try:
            request = order.request()
            secrets = secret_texts(request.secrets)
            runner = self._runner(may_start=True)
            plan = runner.plan(request)
            started = True
            runner.launch(plan, progress)
        except _Cancelled:
            return CallCancelled(order.attempt)
        except BaseException as error:
            # Whatever a plug-in raises becomes the job's reason, and harms nothing else.
            trouble = classify_error(error, started=started, secrets=secrets)
            return CallFailed(Operation.LAUNCH, order.attempt, trouble)
        return CallFinished(Operation.LAUNCH, order.attempt, plan.notes)

    def _call(
        self,
        operation: Operation,
        attempt: AttemptRef,
        run: Callable[[], Event],
        deadline_seconds: float,
        *,
        started: bool = False,
    ) -> Call:
        def guarded() -> Event:
            try:
                return run()
            except BaseException as error:
                return CallFailed(operation, attempt, classify_error(error, started=started))

        def overdue() -> Event:
            self._drop_connection()
            text = f"{self.ref.backend} has not answered for {deadline_seconds:.0f} s"
            return CallFailed(
                operation, attempt, BackendTrouble("unreachable", Reason(text, "S200"), started)
            )

        def starved(error: BaseException) -> Event:
            return CallFailed(operation, attempt, classify_error(error, started=False))

        return Call(guarded, overdue, deadline_seconds, starved=starved)

    def _runner(self, *, may_start: bool = False) -> Runner:
        """Return this thread's runner on the open connection."""
        opened = self._open(may_start=may_start)
        mine: tuple[OpenedTarget, Runner] | None = getattr(self._mine, "runner", None)
        if mine is None or mine[0] is not opened:
            mine = self._mine.runner = (opened, opened.runner())
        return mine[1]

    def _make_runner(self) -> Runner:
        """Return a runner for who looks after learners."""
        return self._open(watches=True).runner()

    def _open(self, *, may_start: bool = False, watches: bool = False) -> OpenedTarget:
        """Return the connection, opened if need be.

        Args:
            may_start: whether a machine that starts on demand is started: a job waits for it.
            watches: whether it is started once it has been silent for a while: a job has begun there, or may have.
        """
        if self._on_demand is None:
            return self._reach()
        if may_start:
            self._on_demand.claim()
        try:
            opened = self._reach()
        except BackendUnreachable as error:
            if may_start:
                raise self._on_demand.request_start(error) from error
            if watches:
                raise self._on_demand.unanswered(error) from error
            raise
        self._on_demand.answered()
        return opened

    def _reach(self) -> OpenedTarget:
        opened = self._opened
        if opened is not None and not opened.lost:
            return opened
        opening = self._opening
        with opening:
            before = self._opened
            if before is not None and not before.lost:
                return before
            if self._refused is not None and elapsed_seconds() < self._refused[0] + SAME_FAILURE_SECONDS:
                raise self._refused[1]
            self._opened = None
            try:
                opened = self._open_target(self.ref, self.home_uuid)
            except FabricError as error:
                self._refused = (elapsed_seconds(), error)
                raise
            finally:
                # Only now: of several hosts those that answer are still open, and the new one shares them.
                if before is not None:
                    _close(before)
            if opening is self._opening:
                self._opened = opened
            return opened

    def _make_on_demand(self) -> OnDemand | None:
        ref = self.ref
        try:
            demand = read_demand(ref.options.get("on_demand"))
        except ConfigError as error:
            self._post(LogNote(f"{ref.backend}: {error}"))
            return None
        if demand is None:
            return None
        is_up = bool(demand.stop) and is_noted(self._home, ref)
        return OnDemand(ref.backend, demand, self._say, self._note_machine, self._concurrency, is_up=is_up)

    def _say(self, text: str) -> None:
        self._post(LogNote(text))

    def _note_machine(self, is_up: bool) -> None:
        note_machine(self._home, self.ref, is_up=is_up)
        if not is_up:
            self._drop_connection()  # it may seem to be open long after its machine was stopped

    def _drop_connection(self) -> None:
        """Have the next call open a new connection. A thread that hangs in opening one keeps the old lock."""
        self._opening = self._concurrency.lock()
        opened, self._opened = self._opened, None
        if opened is not None and self._mirroring is not None:
            # Closing a connection that hangs may hang, too.
            self._concurrency.start_thread(partial(_close, opened), f"close {self.key}")


def _close(opened: OpenedTarget) -> None:
    with contextlib.suppress(Exception):  # nobody uses it any more
        opened.close()
