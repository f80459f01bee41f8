"""The loop: takes events from its mailbox, decides for each job, executes. It waits for events and SQLite only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from workbench.clock import now_us
from workbench.controller.decide.errors import sentence
from workbench.controller.decide.messages import (
    CallFailed,
    CallFinished,
    CapacityMeasured,
    CapacityUnknown,
    CheckpointsRetained,
    EndRequested,
    Event,
    JournalsDrained,
    Observed,
    ReportsTaken,
    StopAsked,
    TidiedUp,
    TidyUpFailed,
    Unreachable,
    Woken,
)
from workbench.controller.decide.model import Action, CancelLaunch, Operation, Purge, Stop, Untrack
from workbench.controller.decide.reconcile import decide, is_alive
from workbench.controller.decide.restarts import backoff_seconds
from workbench.controller.decide.scheduler import QueueVerdict
from workbench.controller.loop.actions import ActionExecutor
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.event_handler import EventHandler
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.queue import JobQueue
from workbench.controller.loop.removal import tidy_up
from workbench.controller.loop.request_handler import RequestHandler
from workbench.controller.loop.stop_rules import StopRules
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Queue
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.targets.backend_worker import BackendWorker
from workbench.controller.targets.ingest import JournalIngestion
from workbench.controller.targets.on_demand import noted_machines
from workbench.controller.targets.opener import Opener, open_target
from workbench.controller.targets.worker_pool import drain
from workbench.errors import CannotWrite, FabricError, NoSpaceLeft
from workbench.job import BEFORE_THE_COMMAND, Intent, LearnerPhase
from workbench.paths import Home
from workbench.spec import JobSpec
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.reserve import SLICE_BYTES, give_up, keep_reserve, reserve_bytes, with_reserve
from workbench.store.db.rows import JobRow
from workbench.store.history.journal import catch_up
from workbench.store.queries.experiments import ID_PREFIX, has_experiments
from workbench.store.queries.home_queue import queue_position
from workbench.store.queries.jobs import detail, job, open_jobs
from workbench.store.queries.learners import learners
from workbench.store.queries.requests import pending_requests
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.controller.loop.experiments import Experiments
    from workbench.controller.loop.schedules import Schedules

HEARTBEAT_SECONDS: Final = 30.0
"""How often it checks by itself whether the lock is still its own and whether a client failed to wake it."""

BEAT_SECONDS: Final = 5.0
"""How often it says that it looks after its jobs, for clients who tell how old their knowledge is."""

GAP_SECONDS: Final = 30.0
"""After so long without looking (no controller ran, or the machine slept) the jobs' last known state is old."""

STORE_AGAIN_SECONDS: Final = 1.0
"""How long it waits before it repeats a write that the store refused."""

BUG_AGAIN_SECONDS: Final = 30.0

SAME_LINE_SECONDS: Final = 600.0
"""The same line is logged no more often than this."""

STEPS: Final = 50
"""More decisions than this for one job in a row are a defect: the job is left alone for a while."""

KEPT_FOR_STOPS_BYTES: Final = 3 * SLICE_BYTES
"""So much of the home's reserve is not given to the last output of learners."""

SLICES_FOR_OUTPUT: Final = 4
"""So much of the rest at a time: a pipe holds a megabyte."""

STALLED: Final = "S204"
"""The code of the reason of a learner whose output waits for room."""

SWEEP_AFTER_SECONDS: Final = 2.0
"""How long after the start it looks for leftovers of crashes, when nobody waits for a job to start."""


@dataclass(slots=True)
class Settings:
    """What a test or a caller may replace."""

    open_target: Opener = open_target
    linger: Callable[[], float] = field(default=lambda: 60.0)
    """Returns how many seconds to stay with nothing to do."""
    accept_clients: Callable[[bool], None] = field(default=lambda accepts: None)
    """Has the socket accept clients, or send them away: none gets an answer that the loop would not follow."""
    is_ours: Callable[[], bool] = field(default=lambda: True)
    """Whether the lock is still held."""
    beat: Callable[[], None] = field(default=lambda: None)
    """Records for clients that the jobs were just tracked."""
    concurrency: Concurrency = THREADS
    """What its threads are made of."""
    looked_us: int | None = None
    """When a controller before this one last did so."""


class Loop:
    """One home's controller, in the thread that calls :meth:`run`."""

    def __init__(
        self, home: Home, store: Store, log: ControllerLog, settings: Settings | None = None
    ) -> None:
        self._settings = settings or Settings()
        self._log = log
        concurrency = self._settings.concurrency
        self._mailbox: Queue[Event] = concurrency.queue()
        writing = concurrency.lock()
        self._context = ControllerContext(
            home=home,
            uuid=home_uuid(home, makes=False),
            store=store,
            log=log,
            post=self.post,
            open_target=self._settings.open_target,
            journals=JournalIngestion(home, self.post, log, writing, concurrency),
            writing=writing,
            concurrency=concurrency,
        )
        self._executor = ActionExecutor(self._context)
        self._request_handler = RequestHandler(self._context, self._track)
        self._queue = JobQueue(self._context)
        self._event_handler = EventHandler(self._context, self._executor)
        self._stop_rules = StopRules(self._context)
        self._experiments: Experiments | None = None
        self._are_experiments_due = True
        self._schedules: Schedules | None = None
        self._schedules_at: float | None = None
        self._due: dict[str, float] = {}
        self._queue_at: float | None = None
        self._requests_at: float | None = 0.0
        self._sweep_at: dict[str, float] = {}
        self._tidy_at: float | None = self._context.now() + SWEEP_AFTER_SECONDS
        self._untidy = ""
        self._tend_at: float | None = None
        self._idle_since: float | None = None
        self._woken = True
        self._loaded = False
        self._load_at = 0.0
        self._again: list[Event] = []
        self._ended = ""
        self._logged_at: dict[str, float] = {}
        self._looked_us = self._settings.looked_us
        self._beat_at = 0.0

    def post(self, event: Event) -> None:
        """Put an event into its mailbox, from any thread or a signal handler."""
        self._mailbox.put(event)

    def wake(self) -> None:
        """Have it read what clients have written."""
        self.post(Woken())

    def ask(self, job_id: str, kind: str, who: str) -> None:
        """Have a job stopped or deleted for a client that cannot write to the store."""
        self.post(StopAsked(job_id, kind, who))

    def trouble(self) -> str:
        """Return why what happens cannot be written down now; empty while it can."""
        return self._context.trouble or self._context.journals.trouble

    def untidy(self) -> str:
        """Return why what a crash left could not be repaired; empty once it is."""
        return self._untidy

    def end(self, why: str) -> None:
        """Have it end; jobs run on."""
        self.post(EndRequested(why))

    def open_jobs(self) -> int:
        """Return the number of jobs that it tracks."""
        return len(self._context.jobs)

    def run(self) -> str:
        """Work until :meth:`end` is called or there is nothing to do for a while; return why it ended."""
        context = self._context
        context.journals.start()
        try:
            while not self._ended:
                self._turn(drain(self._mailbox, self._timeout()))
        finally:
            for worker in context.workers.values():
                worker.close()
            context.journals.end()
        self._beat_at = 0.0
        self._beat(context.now())
        return self._ended

    def _turn(self, events: list[Event]) -> None:
        if not self._settings.is_ours():
            # Before anything is written: the home may be gone with it, and a job's history would make it again.
            self._ended = self._ended or "its lock file was removed, or the mount that it lies on has ended"
            return
        touched: set[str] = set()
        self._guarded(self._notice_gap_now)
        again, self._again = self._again, []
        for event in (*again, *events):
            touched |= self._guarded(partial(self._take, event), failed=event)
        now = self._context.now()
        due = min(self._load_at, self._load_at if self._requests_at is None else self._requests_at)
        if self._woken or now >= due:
            touched |= self._guarded(self._answer_requests)
        touched |= self._step_experiments()
        touched |= {job_id for job_id, at in self._due.items() if now >= at}
        while touched or self._context.has_ended_jobs or self._is_queue_due(now):
            if self._is_queue_due(now):
                touched |= self._evaluate_queue()
            for job_id in sorted(touched):
                self._settle(job_id)
            touched = set()
            if self._context.has_ended_jobs:
                # Other jobs and clients may have waited for what just ended.
                self._queue.slots_freed()
                touched = self._guarded(self._answer_requests)
                touched |= self._step_experiments()
        self._guarded(self._step_schedules)
        self._do_timed_work(now, events)
        self._beat(now)

    def _take(self, event: Event) -> set[str]:
        match event:
            case Woken():
                self._woken = True
                return set()
            case ReportsTaken(job_id):
                self._are_experiments_due = True
                self._woken |= self._stop_rules.evaluate(job_id)
                return set()
            case JournalsDrained(job_id):
                self._stop_rules.evaluate(job_id, is_over=True)
            case TidiedUp(repaired):
                self._untidy = ""
                if repaired:
                    self._woken, self._load_at = True, 0.0
                return set()
            case TidyUpFailed(text, repaired):
                self._not_tidied(text)
                if repaired:
                    self._woken, self._load_at = True, 0.0
                return set()
            case Observed():
                touched = self._event_handler.take(event)
                for job_id in self._stop_rules.undecided(touched):
                    self._follow_rules(job_id)
                return touched
            case EndRequested(why):
                self._ended = why
                return set()
            case CheckpointsRetained():
                self._request_handler.retained(event)
                return set()
            case StopAsked():
                self._woken = True
                return self._request_handler.take(event)
            case CallFinished(Operation.LAUNCH, attempt) | CallFailed(Operation.LAUNCH, attempt):
                touched = self._event_handler.take(event)
                self._queue.launch_ended(attempt.job_id)
                return touched
            case CapacityUnknown():
                self._queue.unmeasured(event)
                self._context.queue_stale = True
                return set()
            case CapacityMeasured():
                # What writes goes first: an event that the store refuses comes again in each turn, and a queue that
                # took it each time would ask its host each time.
                touched = self._event_handler.back(event.target)
                self._queue.measured(event)
                self._context.queue_stale = True
                return touched
            case Unreachable(target):
                touched = self._event_handler.take(event)
                self._queue.unreachable_now(target)
                self._context.queue_stale = True
                return touched
        return self._event_handler.take(event)

    def _follow_rules(self, job_id: str) -> None:
        """Follow a job's rules; where the store refuses what follows, they alone come again.

        What else made its job known or an observation news would not be so once more, and nobody would decide the job.
        """
        event = ReportsTaken(job_id)
        self._guarded(partial(self._take, event), failed=event)

    def _notice_gap_now(self) -> set[str]:
        if self._loaded:
            self._notice_gap()
        return set()

    def _notice_gap(self) -> None:
        """After a time without looking have the backends looked at; their jobs are out of sight until they answer."""
        before, now = self._looked_us, now_us()
        if before is not None and now - before > GAP_SECONDS * 1e6:
            launched = [tracked for tracked in self._context.jobs.values() if tracked.is_launched]
            self._event_handler.out_of_sight(launched, before)
            for worker in {id(worker): worker for worker in map(self._worker_of, launched)}.values():
                worker.probe()
        self._looked_us = now

    def _worker_of(self, tracked: TrackedJob) -> BackendWorker:
        return self._context.worker(tracked.row.target)

    def _beat(self, now: float) -> None:
        """Say that the jobs were looked after, where there are any."""
        if self._loaded and now >= self._beat_at:
            self._beat_at = now + BEAT_SECONDS
            self._settings.beat()

    def _load(self) -> None:
        """Track the open jobs that are not tracked yet."""
        store = self._context.store
        if not self._loaded:
            # What a crash left in a job's history alone must reach its rows before it is recorded again.
            with self._context.atomic():
                for job_id in {one.id for one in open_jobs(store)} | {
                    one.job_id for one in pending_requests(store)
                }:
                    catch_up(store, job_id)
            self._loaded = True
            for ref in noted_machines(self._context.home):
                self._context.worker(ref)  # which stops it when it has idled
        for row in open_jobs(store):
            if row.id not in self._context.jobs:
                self._track(row)
                self._due[row.id] = 0.0
                # One whose rows a crash had lost has no open request, and yet has to get its turn.
                self._context.queue_stale |= row.state in BEFORE_THE_COMMAND
        self._notice_gap()

    def _answer_requests(self) -> set[str]:
        self._woken, self._context.has_ended_jobs = False, False
        now = self._context.now()
        if now >= self._load_at:
            keep_reserve(self._context.home)
            self._load()
            self._load_at = now + HEARTBEAT_SECONDS
        try:
            with_reserve(self._context.home, self._request_handler.answer_pending)
        finally:
            # Also where the store refused some answer: a stop that is written down does not wait for the others.
            touched = self._request_handler.take_touched()
            self._due |= dict.fromkeys(touched, now)
        self._requests_at = None
        self._context.queue_stale |= bool(touched)
        self._are_experiments_due = True
        if self._loaded:
            # Before that no schedule is looked at, and a time that is over would be waited for in a circle.
            self._schedules_at = now
        return touched

    def _step_experiments(self) -> set[str]:
        """Take what trials of searches have reported and how they ended; return the jobs that this concerns."""
        if not (self._are_experiments_due and self._loaded):
            return set()
        return self._guarded(self._step_due_experiments)

    def _step_due_experiments(self) -> set[str]:
        if self._experiments is None:
            if not has_experiments(self._context.store):
                self._are_experiments_due = False
                return set()
            from workbench.controller.loop.experiments import Experiments

            self._experiments = Experiments(self._context, self._track)
        touched = self._experiments.step()
        failure = self._experiments.failure
        self._are_experiments_due = failure is not None
        if failure is not None:
            self._fail(failure)
        return touched

    def _step_schedules(self) -> set[str]:
        """Start the runs that are due, and see when the next one is."""
        now = self._context.now()
        if self._schedules_at is None or now < self._schedules_at or not self._loaded:
            return set()
        if self._schedules is None:
            if not self._context.home.schedules.is_dir():
                self._schedules_at = None
                return set()
            from workbench.controller.loop.schedules import Schedules

            self._schedules = Schedules(
                self._context.home, self._log_once, self.wake, self._context.concurrency
            )
        self._schedules_at = now + STORE_AGAIN_SECONDS  # where this fails
        next_us = self._schedules.step(now_us())
        self._schedules_at = None if next_us is None else now + max(0.0, (next_us - now_us()) / 1e6)
        return set()

    def _is_queue_due(self, now: float) -> bool:
        return self._context.queue_stale or (self._queue_at is not None and now >= self._queue_at)

    def _evaluate_queue(self) -> set[str]:
        """Evaluate the queue; return the jobs for which that decides something."""
        self._context.queue_stale = False
        before = [
            (tracked, tracked.verdict)
            for tracked in self._context.jobs.values()
            if tracked.row.state in BEFORE_THE_COMMAND
        ]
        self._queue_at = self._queue.evaluate()
        return {tracked.row.id for tracked, verdict in before if _is_news(tracked.verdict, verdict)}

    def _settle(self, job_id: str) -> None:
        """Decide and execute until there is nothing to do for a job now."""
        self._due.pop(job_id, None)
        tracked = self._context.jobs.get(job_id)
        if tracked is None:
            return
        again: float | None = None
        try:
            again = self._act(tracked)
        except CannotWrite as error:
            again = self._put_off(tracked, error)
        except FabricError as error:
            self._log_once(f"{job_id}: {error}; it is tried again")
            again = self._context.now() + STORE_AGAIN_SECONDS
            self._guarded(partial(self._check, tracked))
        except Exception as error:
            # A defect must stop no other job.
            self._log.bug(f"{job_id}", error)
            again = self._context.now() + BUG_AGAIN_SECONDS
        if self._waits_for_room(tracked):
            later = self._context.now() + STORE_AGAIN_SECONDS
            again = later if again is None else min(again, later)
            self._give_room_to_output()
        if again is not None and job_id in self._context.jobs:
            self._due[job_id] = again

    def _act(self, tracked: TrackedJob) -> float | None:
        for _ in range(STEPS):
            decision = decide(tracked.snapshot(self._context.now()))
            self._execute(tracked, decision.actions)
            if any(isinstance(action, Untrack | Purge) for action in decision.actions):
                return None
            if not decision.actions:
                self._executor.save_learners(tracked)
                return decision.until
        raise RuntimeError(f"no rest after {STEPS} steps: {decision}")

    def _execute(self, tracked: TrackedJob, actions: Sequence[Action]) -> None:
        """Execute the actions of one decision; a stop does not wait for a disk that is full or read-only.

        Raises:
            CannotWrite: all others were not executed.
        """
        failure: CannotWrite | None = None
        for action in actions:
            if failure is None or isinstance(action, Stop | CancelLaunch):
                try:
                    self._executor.do(tracked, action)
                except CannotWrite as error:
                    failure = error
        if failure is not None:
            raise failure

    def _put_off(self, tracked: TrackedJob, error: CannotWrite) -> float:
        """Return when to try again what a disk did not take: at once, where the reserve is meant for it."""
        context = self._context
        is_over = bool(tracked.statuses) and not any(map(is_alive, tracked.statuses.values()))
        is_meant = is_over or tracked.row.intent is not Intent.NONE
        if isinstance(error, NoSpaceLeft) and is_meant and give_up(context.home):
            return context.now()
        context.trouble = str(error)
        self._log_once(f"{tracked.row.id}: {error}; it is tried again")
        self._guarded(partial(self._check, tracked))
        return context.now() + STORE_AGAIN_SECONDS

    def _give_room_to_output(self) -> None:
        for _ in range(SLICES_FOR_OUTPUT):
            if reserve_bytes(self._context.home) > KEPT_FOR_STOPS_BYTES:
                give_up(self._context.home)

    def _waits_for_room(self, tracked: TrackedJob) -> bool:
        """Say whether a command here has ended and what it printed last finds no room: its job cannot end before."""
        return tracked.row.target.type == "local" and any(
            one.phase is LearnerPhase.STOPPING
            and one.ended_us is not None
            and one.reason is not None
            and one.reason.code == STALLED
            for one in tracked.statuses.values()
        )

    def _check(self, tracked: TrackedJob) -> set[str]:
        """Load a job again whose row differs from the tracked one: the store was rebuilt, or its history was ahead."""
        # Not the context's transaction: one that writes nothing does not show that the disk takes writes again.
        with self._context.writing, self._context.store.atomic():
            catch_up(self._context.store, tracked.row.id)
        row = job(self._context.store, tracked.row.id)
        if row is None or (row.deleted_us is not None and not tracked.removed):
            self._context.drop(tracked)
        elif (row.attempt, row.state) != (tracked.row.attempt, tracked.row.state):
            self._context.drop(tracked)
            self._track(row)
            self._context.worker(row.target).probe()
            self._context.queue_stale |= row.state in BEFORE_THE_COMMAND
        return set()

    def _track(self, row: JobRow) -> TrackedJob:
        context = self._context
        try:
            spec = detail(context.store, row.id).spec
        except FabricError as error:
            # Its folder is gone: it can still be shown, stopped and deleted.
            self._log.say(f"{row.id}: {error}")
            spec = JobSpec(name=row.name, learners=row.learners, gpus=row.gpus, cpus=row.cpus)
        known = learners(context.store, row.id, row.attempt)
        tracked = TrackedJob.load(row, spec, row.target.home(context.uuid), known)
        tracked.stands_at(queue_position(context.store, row, spec))
        tracked.draw = context.concurrency.random_share()
        if row.next_try_us is not None and tracked.is_handed_over:
            within = context.now() + backoff_seconds(max(row.restarts + row.platform_restarts - 1, 0), 1.0)
            tracked.restarts_at(row.next_try_us, within)
        elif row.next_try_us is not None:
            # A clock that jumped must not make it wait for ever.
            left = max(0.0, (row.next_try_us - now_us()) / 1e6)
            longest = backoff_seconds(row.restarts + row.platform_restarts, 1.0)
            tracked.not_before = context.now() + min(left, longest)
        context.add(tracked)
        self._event_handler.tracked(tracked)
        worker = context.worker(row.target)
        self._sweep_at.setdefault(worker.key, context.now() + SWEEP_AFTER_SECONDS)
        if spec.stop_when or (row.trial is not None and (row.parent or "").startswith(ID_PREFIX)):
            context.journals.announce(row.id)
        if tracked.is_launched:
            context.journals.follow(row.id, row.attempt, spec.learners)
            context.watch(tracked)
            # What came in before a crash may hold, and nothing more may come.
            self._follow_rules(row.id)
        return tracked

    def _do_timed_work(self, now: float, events: list[Event]) -> None:
        """Do what is due at this time whatever happened: tidy up, sweep, tend machines, end when idle."""
        if self._tidy_at is not None and now >= self._tidy_at:
            self._tidy_at = None
            work = partial(tidy_up, self._context.home, self._log, self.post, self._context.concurrency)
            try:
                self._context.concurrency.start_thread(work, "tidy up")
            except (RuntimeError, MemoryError) as error:
                self._not_tidied(sentence(error))
        if self._context.journals.is_dead:
            raise RuntimeError("the thread that takes in what learners record has died")
        for key, at in list(self._sweep_at.items()):
            if now >= at:
                self._sweep_at[key] = float("inf")
                self._context.workers[key].sweep()
                self._event_handler.fetch_left_output(key)
        self._tend_at = self._tend()
        is_behind = not self._loaded or self._request_handler.is_behind
        is_behind |= self._experiments is not None and self._experiments.is_asking
        is_behind |= self._schedules is not None and self._schedules.is_active
        if self._context.jobs or self._again or is_behind or self._tend_at is not None:
            self._idle_since = None
            return
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now >= self._idle_since + self._settings.linger():
            self._settings.accept_clients(False)
            if self._mailbox.empty():
                self._ended = self._ended or "nothing was left to do"
            else:
                self._settings.accept_clients(True)

    def _not_tidied(self, text: str) -> None:
        """Say why what a crash left is still there, and have it tried again."""
        self._tidy_at = self._context.now() + BUG_AGAIN_SECONDS
        self._untidy = f"what a crash may have left in the home cannot be repaired: {text}"
        self._log_once(f"{self._untidy}; it is tried again")

    def _tend(self) -> float | None:
        """Stop machines that started on demand and idle; return when the next one is due."""
        if not self._context.workers:
            return None
        open_at = {(job.row.target.type, job.row.target.address) for job in self._context.jobs.values()}
        due = [
            worker.tend(busy=(worker.ref.type, worker.ref.address) in open_at)
            for worker in self._context.workers.values()
        ]
        return min((at for at in due if at is not None), default=None)

    def _timeout(self) -> float:
        now = self._context.now()
        times = [self._load_at, *self._due.values(), *self._sweep_at.values()]
        times += [at for worker in self._context.workers.values() if (at := worker.check(now)) is not None]
        times += [
            at
            for at in (self._queue_at, self._requests_at, self._tidy_at, self._tend_at, self._schedules_at)
            if at is not None
        ]
        if self._idle_since is not None:
            times.append(self._idle_since + self._settings.linger())
        if self._context.jobs and self._loaded:
            times.append(self._beat_at)
        return max(0.0, min(times) - now)

    def _guarded(self, do: Callable[[], set[str]], *, failed: Event | None = None) -> set[str]:
        """Run something that uses the store; what fails is tried again later, with its event."""
        try:
            return do()
        except FabricError as error:
            self._fail(error)
            if failed is not None:
                self._again.append(failed)
        except Exception as error:
            self._log.bug("news" if failed is not None else "requests", error)
            self._rest(BUG_AGAIN_SECONDS)
        return set()

    def _fail(self, error: FabricError) -> None:
        """Say what has failed, and try it again later."""
        self._log_once(f"{error}; it is tried again")
        if isinstance(error, CannotWrite):
            self._context.trouble = str(error)
        self._rest(STORE_AGAIN_SECONDS)

    def _rest(self, seconds: float) -> None:
        later = self._context.now() + seconds
        self._requests_at, self._load_at = later, max(self._load_at, later)

    def _log_once(self, text: str) -> None:
        """Log a line unless it was logged lately: what is repeated every second fails with the same text."""
        now = self._context.now()
        if now >= self._logged_at.get(text, -SAME_LINE_SECONDS) + SAME_LINE_SECONDS:
            recent = {line: at for line, at in self._logged_at.items() if now < at + SAME_LINE_SECONDS}
            self._logged_at = recent | {text: now}
            self._log.say(text)


def _is_news(verdict: QueueVerdict | None, before: QueueVerdict | None) -> bool:
    """Say whether a job is to be looked at for its new verdict."""
    if verdict is None or before is None:
        return verdict is not before
    return verdict is not before and verdict.decisive != before.decisive
