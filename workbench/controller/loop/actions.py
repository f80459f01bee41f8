"""Executes the actions of a decision: rows are written first, then the backend is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from runners.interface import AttemptRef, Followed, LaunchRequest, StopRequest
from workbench.clock import elapsed_seconds, now_us
from workbench.controller.decide.errors import classify_error, sentence
from workbench.controller.decide.messages import CallFailed, JobPurged, JournalsCollected
from workbench.controller.decide.model import (
    Action,
    CancelLaunch,
    CleanUp,
    Drain,
    Finish,
    Operation,
    Probe,
    ProbePrevious,
    Purge,
    Remove,
    SetReason,
    StartLaunch,
    Stop,
    StopSent,
    Transition,
    Untrack,
)
from workbench.controller.decide.requests import RETAIN
from workbench.controller.decide.restarts import Restart
from workbench.controller.loop.context import AwaitedProbe, ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.removal import purge
from workbench.controller.loop.retention import OF_JOB
from workbench.controller.runtime.secrets import all_secrets
from workbench.controller.targets.backend_worker import BackendWorker, LaunchOrder
from workbench.errors import FabricError
from workbench.job import PREEMPTED, PREPARING, Intent, Reason, State
from workbench.learner.determined_jobs import CONFIG_VARIABLE, searched_by
from workbench.learner.journal.state import BY_CONTROLLER
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.history.journal import targets_of
from workbench.store.queries.experiments import ID_PREFIX
from workbench.store.queries.jobs import detail, job
from workbench.store.queries.learners import learners, save_learner
from workbench.store.queries.metric_values import BestOfTrials, best_of_trials
from workbench.store.queries.requests import add_request
from workbench.store.updates.jobs import NextAttempt, add_note, set_intent, set_reason, step

_MANY_TRIALS: Final = 500
"""The best one of fewer is looked for each time: that takes some milliseconds."""
_TRIALS_A_SECOND: Final = 5_000
"""What was found of more is kept for a second for each so many: then at most a fiftieth of the time is taken by it."""
_LEFT_RECORDS = (
    "ended before all that it recorded was in the store; the rest is taken in as soon as the store takes it, "
    "or by fabric doctor --rebuild"
)


class BestValidations:
    """The best values of searches, as attempts of their trials begin.

    A row of each trial is read for that, so what was found of a search with many trials is kept for some seconds: the
    controller's thread spends little of its time with it, however many trials begin.
    """

    def __init__(self, clock: Callable[[], float] = elapsed_seconds) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[float, BestOfTrials]] = {}
        """By search and metric: until when, and what."""

    def best(
        self, store: Store, search: str, metric: str, *, is_less_better: bool, learners: int, begins: str
    ) -> float | None:
        """Return what :func:`best_of_trials` does, or did some seconds ago."""

        def found(begins: str = "") -> BestOfTrials | None:
            return best_of_trials(
                store, search, metric, is_less_better=is_less_better, learners=learners, begins=begins
            )

        now, key = self._clock(), (search, metric)
        best: BestOfTrials | None
        until, best = self._kept.get(key, (now, None))
        if best is None or now >= until:
            self._kept.pop(key, None)
            best = found()
            if best is not None and best.trials >= _MANY_TRIALS:
                self._kept[key] = now + best.trials / _TRIALS_A_SECOND, best
        if best is not None and best.job_id == begins:
            best = found(begins)  # it may give up that very value
        return None if best is None else best.value


class ActionExecutor:
    """Executes actions on the controller's context."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._best_validations = BestValidations()

    def do(self, tracked: TrackedJob, action: Action) -> None:
        """Execute one action.

        Raises:
            FabricError: the store cannot be written; nothing was done, and the decision can be repeated.
        """
        context = self._context
        match action:
            case Transition(state, reason):
                self._step(tracked, state, reason)
            case SetReason(reason):
                with context.atomic():
                    # A restart that its host begins keeps its time whatever reason is shown.
                    due_us = None if tracked.restarts_at_us is None else tracked.row.next_try_us
                    set_reason(context.store, tracked.row.id, reason, due_us)
                self._refresh(tracked)
                tracked.reason_changed_at = context.now()
            case StartLaunch():
                self._launch(tracked)
            case CancelLaunch():
                tracked.is_cancelling = True
                if (order := context.orders.get(tracked.row.id)) is not None:
                    self._worker(tracked).cancel(order)
            case Stop(kind, grace):
                self._stop(tracked, kind, grace)
            case Probe():
                tracked.call(Operation.PROBE)
                self.probe(tracked, tracked.attempt)
            case ProbePrevious(end):
                self._probe_previous(tracked, end=end)
            case Drain():
                tracked.draining_since = context.now()
                self.drain(tracked.attempt, self._worker(tracked))
            case CleanUp():
                tracked.call(Operation.REMOVE)
                self._worker(tracked).remove([tracked.attempt], deleted=False)
            case Finish():
                self._finish(tracked, action)
            case Remove():
                self._remove(tracked)
            case Purge():
                self._purge(tracked)
            case Untrack():
                self._untrack(tracked)

    def save_learners(self, tracked: TrackedJob) -> None:
        """Save the status of learners that have started."""
        if tracked.unsaved():
            with self._context.atomic():
                self._save(tracked)
            tracked.saved_all()

    def probe(self, tracked: TrackedJob, attempt: AttemptRef, stopped: StopSent | None = None) -> None:
        """Request a probe of an attempt."""
        context = self._context
        context.probes[tracked.row.id] = AwaitedProbe(-1, attempt.attempt, stopped)
        context.watch(tracked)
        serial = self._worker(tracked).probe()
        context.probes[tracked.row.id] = AwaitedProbe(serial, attempt.attempt, stopped)

    def _step(self, tracked: TrackedJob, state: State, reason: Reason) -> None:
        context, was_handed_over = self._context, tracked.is_handed_over
        is_given = tracked.verdict is not None and tracked.verdict.hand_over
        was_on_its_way = tracked.row.state in PREPARING and (tracked.has_gates or is_given)
        with context.atomic():
            self._save(tracked)
            row, statuses = tracked.row, tracked.statuses.values()
            starts = [one.started_us for one in statuses if one.started_us is not None]
            step(
                context.store,
                row.id,
                row.attempt,
                state,
                reason,
                node=next((one.node for one in statuses if one.node), ""),
                started_us=min(starts, default=None) if state is State.PROCESSING else None,
            )
        tracked.saved_all()
        if state is State.PENDING and tracked.verdict is not None:
            tracked.note = tracked.verdict.note
        self._refresh(tracked)
        # From now on it is known when one with a limit lets go of what others wait for.
        has_known_end = state is State.PROCESSING and tracked.spec.max_runtime_seconds is not None
        context.queue_stale |= state is State.QUEUED or has_known_end
        if state is State.PROCESSING and row.trial:
            context.has_ended_jobs = True  # its search may have held another trial until it has begun
        if state is State.STORING or was_handed_over or tracked.is_handed_over or was_on_its_way:
            # Its slots are free now, or the others moved up, or what was asked of it meanwhile can be answered.
            context.jobs_changed()
        context.watch(tracked)

    def _finish(self, tracked: TrackedJob, finish: Finish) -> None:
        context, row, outcome, restart = self._context, tracked.row, finish.outcome, finish.restart
        followed = finish.followed
        ends = [one.ended_us for one in tracked.statuses.values() if one.ended_us is not None]
        starts = [one.started_us for one in tracked.statuses.values() if one.started_us is not None]
        with context.atomic():
            self._save(tracked)
            if row.state in PREPARING and starts:
                ran = Reason("the command runs")
                step(context.store, row.id, row.attempt, State.PROCESSING, ran, started_us=min(starts))
            if row.state not in (State.QUEUED, State.STORING):
                storing = Reason("storing results and logs")
                step(context.store, row.id, row.attempt, State.STORING, storing)
            step(
                context.store,
                row.id,
                row.attempt,
                outcome.state,
                outcome.reason,
                exit_code=outcome.exit_code,
                exit_by=outcome.exit_by,
                started_us=min(starts, default=None),
                ended_us=max(ends, default=None),
                then=None if restart is None else _after(restart, outcome.reason, followed),
            )
            if tracked.statuses and not tracked.drained and followed is None:
                add_note(context.store, row.id, _LEFT_RECORDS)
            if outcome.state is State.COMPLETED and tracked.spec.checkpoints.at_end and not _search_of(row):
                # Those of a trial are judged when its search is over.
                add_request(context.store, RETAIN, "", {OF_JOB: row.id}, "the job's end", "controller")
        tracked.saved_all()
        after = job(context.store, row.id)
        assert after is not None
        if restart is None:
            tracked.transitioned(after)
        else:
            tracked.draw = context.concurrency.random_share()
            if followed is None:
                tracked.begin(after)
                tracked.not_before = context.now() + restart.delay_seconds
            else:
                tracked.begin(after, learners(context.store, row.id, followed.attempt))
                tracked.restarts_at(followed.begin_us, context.now() + followed.delay_seconds)
                context.journals.follow(row.id, followed.attempt, tracked.spec.learners)
        context.watch(tracked)
        context.jobs_changed()

    def _launch(self, tracked: TrackedJob) -> None:
        context = self._context
        attempt, job_id = tracked.attempt, tracked.row.id
        wait = tracked.launching_wait = tracked.wait_at_host()
        limit = None if tracked.gates is None else tracked.gates.limit
        tracked.call(Operation.LAUNCH)
        try:
            found = detail(context.store, job_id)
            search_best = self._search_best(tracked.row, found.spec)
        except FabricError as error:
            context.post(CallFailed(Operation.LAUNCH, attempt, classify_error(error, started=False)))
            return
        home, row, code = context.home, tracked.row, found.code_hash
        # A host that does not count a sweep begins none of its attempts.
        restarts = None if limit is None and tracked.is_limited else tracked.restarts_at_host()
        # As it was changed since it was submitted.
        position = tracked.position_in_line
        spec = replace(found.spec, priority=tracked.spec.priority, weight=tracked.spec.weight)

        def request() -> LaunchRequest:
            return LaunchRequest(
                attempt=attempt,
                spec=spec,
                owner=row.owner,
                code_hash=code,
                code_file=str(home.snapshot(code)) if code else "",
                recorded=found.recorded,
                secrets=all_secrets(home, job_id, found.spec),
                seq=row.seq,
                position=position,
                wait=wait,
                limit=limit,
                restarts=restarts,
                search_best=search_best,
            )

        order = context.orders[job_id] = LaunchOrder(attempt, request, context.concurrency.flag())
        self._worker(tracked).launch(order)
        context.journals.follow(job_id, attempt.attempt, attempt.learners)

    def _search_best(self, row: JobRow, spec: JobSpec) -> float | None:
        """Return the best value that the trials of an experiment of Determined have when an attempt of one begins."""
        search = _search_of(row)
        metric, is_less_better = searched_by(spec.env.get(CONFIG_VARIABLE)) if search else ("", True)
        if not metric:
            return None
        return self._best_validations.best(
            self._context.store,
            search,
            metric,
            is_less_better=is_less_better,
            learners=spec.learners,
            begins=row.id,
        )

    def drain(self, attempt: AttemptRef, worker: BackendWorker, *, looks_first: bool = False) -> None:
        """Have all fetched that an attempt left, which is over, and its records taken in.

        With ``looks_first`` it is a failure that nothing of it is there any more.
        """
        journals, post = self._context.journals, self._context.post

        def collected() -> None:
            post(JournalsCollected(attempt.job_id, attempt.attempt))
            journals.drain(attempt.job_id, attempt.attempt, attempt.learners)

        worker.collect(attempt, collected, looks_first=looks_first)

    def _stop(self, tracked: TrackedJob, kind: Literal["halt", "kill"], grace_seconds: float) -> None:
        tracked.call(Operation.STOP)
        tracked.stopping = kind
        request = StopRequest(kind, grace_seconds, by=tracked.asked_by or BY_CONTROLLER)
        self._worker(tracked).stop(tracked.attempt, request)

    def _probe_previous(self, tracked: TrackedJob, *, end: bool) -> None:
        before = tracked.attempt_before
        if end:
            tracked.call(Operation.STOP, before)
            self._worker(tracked).stop(before, StopRequest("kill", 0.0, by=BY_CONTROLLER))
        else:
            tracked.call(Operation.PROBE, before)
            self.probe(tracked, before)

    def _remove(self, tracked: TrackedJob) -> None:
        last, now_at = tracked.attempt, tracked.row.target
        if not tracked.to_remove_at:
            # Only what was begun again may have been elsewhere; of others no history is read.
            known = targets_of(self._context.home, last.job_id) if last.attempt > 1 else ()
            tracked.to_remove_at = [now_at, *(one for one in known if one != now_at)]
        target = tracked.to_remove_at[0]
        # What was adopted carries another home's uuid, and that alone.
        home = last.home if target == now_at else target.home(self._context.uuid)
        numbers = [*range(1, last.attempt + 1)]
        if tracked.restarts_at_host() is not None:
            numbers.insert(0, last.attempt + 1)  # it may be there though its record is gone
        attempts = [AttemptRef(home, last.job_id, number, last.learners) for number in numbers]
        tracked.call(Operation.REMOVE, attempts[-1])
        self._context.worker(target).remove(attempts, deleted=True)

    def _purge(self, tracked: TrackedJob) -> None:
        context = self._context
        tracked.call(Operation.REMOVE)
        context.journals.forget(tracked.row.id)
        work = partial(
            purge, context.home, tracked.row.id, tracked.asked_by, context.post, context.concurrency
        )
        try:
            context.concurrency.start_thread(work, "forget")
        except (RuntimeError, MemoryError) as error:
            context.post(JobPurged(tracked.row.id, sentence(error)))

    def _untrack(self, tracked: TrackedJob) -> None:
        context = self._context
        if tracked.row.intent is not Intent.NONE:
            with context.atomic():
                set_intent(context.store, tracked.row.id, Intent.NONE, who="controller", origin="controller")
        context.drop(tracked)
        context.jobs_changed()

    def _save(self, tracked: TrackedJob) -> None:
        for row in tracked.unsaved():
            save_learner(self._context.store, row)

    def _refresh(self, tracked: TrackedJob) -> None:
        row = job(self._context.store, tracked.row.id)
        assert row is not None
        tracked.transitioned(row)

    def _worker(self, tracked: TrackedJob) -> BackendWorker:
        return self._context.worker(tracked.row.target)


def _search_of(row: JobRow) -> str:
    """Return the id of the search that a job is a trial of; empty for any other job."""
    return row.parent or "" if row.trial is not None and (row.parent or "").startswith(ID_PREFIX) else ""


def _after(restart: Restart, failure: Reason, followed: Followed | None) -> NextAttempt:
    due_us = now_us() + int(restart.delay_seconds * 1e6) if followed is None else followed.begin_us
    return NextAttempt(
        Reason(restart.text, "" if failure.code == PREEMPTED else failure.code),  # to make room is no fault
        restart.restarts,
        restart.platform_restarts,
        due_us,
        is_at_host=followed is not None,
    )
