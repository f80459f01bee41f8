"""Applies events from the targets' threads to the tracked jobs that they concern."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from runners.interface import AttemptRef, LearnerStatus, StopRequest
from runners.registry import capabilities_of
from workbench.controller.decide.errors import NEEDS_LOGIN
from workbench.controller.decide.log_policies import LogMatch, search_outputs
from workbench.controller.decide.messages import (
    CallCancelled,
    CallFailed,
    CallFinished,
    CollectDelayed,
    Event,
    JobPurged,
    JournalsCollected,
    JournalsDrained,
    LaunchProgressed,
    LeftoversFound,
    LogNote,
    LogsSearched,
    Observed,
    Unreachable,
)
from workbench.controller.decide.model import BackendTrouble, Operation, StopSent
from workbench.controller.decide.observations import harmless
from workbench.controller.decide.outcome import OVER, REFUSED, failed
from workbench.controller.decide.reconcile import LEFT_THERE, STILL_COMING, without_left_output
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS
from workbench.controller.loop.actions import ActionExecutor
from workbench.controller.loop.context import AwaitedProbe, ControllerContext, target_key
from workbench.controller.loop.job_state import TrackedJob
from workbench.job import TERMINAL, Intent, Reason, State
from workbench.learner.journal.state import BY_CONTROLLER
from workbench.store.queries.jobs import attempts, attempts_by_reason, job, transitions
from workbench.store.queries.learners import learners
from workbench.store.updates.jobs import add_note, correct_end, mark_in_sight, mark_seen

CAME: Final = "its last output and files have come from the backend after all"

CLUSTER: Final = "kubernetes"
"""The type of backends with more than one machine."""


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    return os.pread(descriptor, size, offset)


class EventHandler:
    """Applies each event, and returns the jobs that need a new decision."""

    def __init__(self, context: ControllerContext, executor: ActionExecutor) -> None:
        self._context = context
        self._executor = executor
        self._silent: set[str] = set()
        """Keys of the targets that do not answer now."""
        self._out_of_sight: set[str] = set()
        """Jobs of which the store has until when they were seen."""
        self._uncollected: set[tuple[str, int]] = set()
        """Attempts whose last output could not be fetched when it was last tried."""

    def take(self, event: Event) -> set[str]:
        """Apply an event; return the jobs that it concerns."""
        match event:
            case Observed():
                return self._observed(event)
            case Unreachable():
                return self._unreachable(event)
            case LaunchProgressed(attempt, text, stage):
                return self._with(
                    attempt, lambda job: job.launch_progressed(text, stage, self._context.now())
                )
            case CallFinished():
                return self._called(event)
            case CallCancelled(attempt):
                self._context.queue_stale = True
                return self._with(attempt, TrackedJob.launch_cancelled)
            case CallFailed():
                return self._failed(event)
            case LeftoversFound():
                self._end_leftovers(event)
            case CollectDelayed():
                return self._collect_delayed(event)
            case JournalsCollected():
                return self._collected(event)
            case JournalsDrained():
                return self._drained(event)
            case LogsSearched():
                return self._logs_searched(event)
            case JobPurged():
                return self._purged(event)
            case LogNote(text):
                self._context.log.say(text)
        return set()

    def fetch_left_output(self, target: str) -> None:
        """Fetch the last output and files that jobs which are over have left at the target with this key.

        An attempt's reason says that they are there. Nothing else is stored of it, so jobs of an older version are
        found, too. Of a job that went on the files of an earlier attempt stay: those that are here are newer.
        """
        context = self._context
        for job_id, attempt in attempts_by_reason(context.store, LEFT_THERE, STILL_COMING):
            row = job(context.store, job_id)
            if (
                row is None
                or row.deleted_us is not None
                or row.state not in TERMINAL
                or row.attempt != attempt
            ):
                continue
            if target_key(row.target) == target and job_id not in context.jobs:
                ref = AttemptRef(row.target.home(context.uuid), job_id, attempt, row.learners)
                self._executor.drain(ref, context.workers[target], looks_first=True)

    def _correct_reason(self, event: JournalsDrained) -> None:
        """Correct the reason of an attempt that is over, once its last output is here."""
        key = (event.job_id, event.attempt)
        if key in self._uncollected:
            self._uncollected.discard(key)
            return
        store = self._context.store
        found = next((one for one in attempts(store, event.job_id) if one.attempt == event.attempt), None)
        if found is None or (text := without_left_output(found.reason.text)) == found.reason.text:
            return
        with self._context.atomic():
            correct_end(
                store, event.job_id, event.attempt, found.state, replace(found.reason, text=text),
                exit_code=found.exit_code, exit_by=found.exit_by, text=CAME, who="controller", origin="controller",
            )  # fmt: skip
        self._context.jobs_changed()

    def _collect_delayed(self, event: CollectDelayed) -> set[str]:
        if event.failure:
            self._uncollected.add((event.job_id, event.attempt))
        else:
            self._uncollected.discard((event.job_id, event.attempt))
        tracked = self._context.jobs.get(event.job_id)
        if (
            tracked is None
            or tracked.row.attempt != event.attempt
            or tracked.collect_failure == event.failure
        ):
            return set()
        if not event.failure:
            tracked.collect_failing_since = None
        elif tracked.collect_failing_since is None:
            tracked.collect_failing_since = self._context.now()
        tracked.collect_failure = event.failure
        return {event.job_id}

    def _collected(self, event: JournalsCollected) -> set[str]:
        tracked = self._context.jobs.get(event.job_id)
        if tracked is None or tracked.row.attempt != event.attempt:
            return set()
        tracked.collected_at = self._context.now()
        return {event.job_id}

    def _drained(self, event: JournalsDrained) -> set[str]:
        tracked = self._context.jobs.get(event.job_id)
        if tracked is None:
            self._correct_reason(event)
            return set()
        self._uncollected.discard((event.job_id, event.attempt))
        if tracked.row.attempt != event.attempt:
            return set()
        if event.trouble:
            with self._context.atomic():
                add_note(self._context.store, event.job_id, event.trouble)
        over = [one for one in tracked.statuses.values() if one.phase in OVER]
        if tracked.spec.log_policies and tracked.row.intent is Intent.NONE and any(map(failed, over)):
            self._search_logs(tracked, over)
            return set()
        tracked.drained = True
        return {event.job_id}

    def _search_logs(self, tracked: TrackedJob, learners: Sequence[LearnerStatus]) -> None:
        """Have the output of a failed attempt searched in a thread: it may be long."""
        post, job_id, attempt = self._context.post, tracked.row.id, tracked.row.attempt
        policies, has_other_nodes = tracked.spec.log_policies, tracked.row.target.type == CLUSTER
        folder = self._context.home.job(job_id).attempt(attempt)
        files = {one.ref.learner: (folder.learner(one.ref.learner).output, one.node) for one in learners}

        def search() -> None:
            found, trouble = list[LogMatch](), "log policies could not be looked at"
            try:
                with ExitStack() as opened:
                    outputs = []
                    for learner, (path, node) in sorted(files.items()):
                        if path.exists():
                            descriptor = opened.enter_context(path.open("rb")).fileno()
                            read = partial(_read_at, descriptor)
                            outputs.append((learner, node, read, path.stat().st_size))
                    found, trouble = search_outputs(policies, outputs)
            finally:
                matches = tuple(replace(one, has_other_nodes=has_other_nodes) for one in found)
                post(LogsSearched(job_id, attempt, matches, trouble))

        self._context.concurrency.start_thread(search, f"log policies of {job_id}")

    def _logs_searched(self, event: LogsSearched) -> set[str]:
        tracked = self._context.jobs.get(event.job_id)
        if tracked is None or tracked.row.attempt != event.attempt:
            return set()
        tracked.log_matches, tracked.drained = event.matches, True
        notes = [*(match.note for match in event.matches), *([event.trouble] if event.trouble else [])]
        if notes:
            with self._context.atomic():
                for note in notes:
                    add_note(self._context.store, event.job_id, note)
        return {event.job_id}

    def _observed(self, event: Observed) -> set[str]:
        context = self._context
        observed = set(event.attempts)
        shown: dict[tuple[str, int], list[LearnerStatus]] = {}
        for status in event.statuses:
            if status.ref.home == context.workers[event.target].home_uuid:
                shown.setdefault((status.ref.job_id, status.ref.attempt), []).append(harmless(status))
        touched = self.back(event.target)
        if event.whole:
            concerned = context.jobs_at(event.target)
        else:
            concerned = [context.jobs[job_id] for job_id, _ in shown if job_id in context.jobs]
        for tracked in concerned:
            probe = context.probes.get(tracked.row.id)
            if probe is not None and event.whole and 0 <= probe.serial <= event.serial:
                del context.probes[tracked.row.id]
                self._probed(tracked, probe, shown.get((tracked.row.id, probe.attempt), []))
                touched.add(tracked.row.id)
            elif tracked.attempt in observed and tracked.is_launched:
                news = shown.get((tracked.row.id, tracked.row.attempt), [])
                had_begun = tracked.has_begun
                if tracked.observed(news, whole=event.whole):
                    touched.add(tracked.row.id)
                    context.queue_stale |= not had_begun and context.leaves_entry(tracked)
        return touched

    def _probed(self, tracked: TrackedJob, probe: AwaitedProbe, shown: list[LearnerStatus]) -> None:
        if probe.attempt == tracked.row.attempt:
            had_begun = tracked.has_begun
            tracked.probed(shown, stopped=probe.stopped)
            self._context.queue_stale |= not had_begun and self._context.leaves_entry(tracked)
        elif probe.attempt == tracked.row.attempt - 1:
            tracked.probed_previous(shown, self._context.now())
        self._context.watch(tracked)

    def back(self, target: str) -> set[str]:
        """Mark a target as reachable again; return its jobs that have to be decided again."""
        self._in_sight(target)
        if target not in self._silent:
            return set()
        self._silent.remove(target)
        touched: set[str] = set()
        for tracked in self._context.jobs_at(target):
            tracked.reachable_again()
            touched.add(tracked.row.id)
        return touched

    def tracked(self, job: TrackedJob) -> None:
        """Take up a job: it may have been out of sight when the controller before this one ended."""
        if job.row.seen_us is not None:
            self._out_of_sight.add(job.row.id)
            job.unreachable_since = self._context.now()

    def out_of_sight(self, jobs: Sequence[TrackedJob], since_us: int) -> None:
        """Note until when jobs were seen whose backend does not answer, or was not asked.

        Of one that was never launched a backend has nothing to say.
        """
        unmarked = [
            tracked.row.id
            for tracked in jobs
            if tracked.is_launched and tracked.row.id not in self._out_of_sight
        ]
        if unmarked:
            with self._context.atomic():
                mark_seen(self._context.store, unmarked, since_us)
            self._out_of_sight |= set(unmarked)

    def _in_sight(self, target: str) -> None:
        """Note that a backend answers: what the store has of its jobs is as it is now."""
        if not self._out_of_sight:
            return
        at_target = self._context.jobs_at(target)
        for tracked in at_target:
            tracked.unreachable_since = None
        back = [tracked.row.id for tracked in at_target]
        if back := [job_id for job_id in back if job_id in self._out_of_sight]:
            with self._context.atomic():
                mark_in_sight(self._context.store, back)
            self._out_of_sight -= set(back)

    def _unreachable(self, event: Unreachable) -> set[str]:
        jobs = self._context.jobs_at(event.target)
        if event.target not in self._silent and event.answered_us is not None and jobs:
            self.out_of_sight(jobs, event.answered_us)
        self._silent.add(event.target)
        touched: set[str] = set()
        for tracked in jobs:
            text = _unreachable_text(tracked, event.text)
            if tracked.is_away(text, self._context.now()):
                touched.add(tracked.row.id)
        return touched

    def _called(self, event: CallFinished) -> set[str]:
        tracked = self._caller(event)
        if tracked is None:
            return set()
        match event.operation:
            case Operation.LAUNCH:
                self._note(tracked, event.notes)
                if tracked.launched(self._context.now()):
                    self._context.worker(tracked.row.target).probe()
                self._context.orders.pop(tracked.row.id, None)
                self._context.queue_stale = True  # the next in the line may be launched
            case Operation.STOP if event.attempt == tracked.attempt:
                before = tracked.stop_sent
                times = 1 if before is None or before.kind != tracked.stopping else before.times + 1
                sent = StopSent(tracked.stopping, self._context.now(), times)
                self._executor.probe(tracked, tracked.attempt, sent)
            case Operation.STOP:
                self._executor.probe(tracked, event.attempt)
            case Operation.REMOVE:
                tracked.removed_all()
        return {tracked.row.id}

    def _caller(self, event: CallFinished | CallFailed) -> TrackedJob | None:
        """Return the job that waits for this call; None if it no longer does."""
        tracked = self._context.jobs.get(event.attempt.job_id)
        if tracked is None or (tracked.operation, tracked.calling) != (event.operation, event.attempt):
            return None
        return tracked

    def _note(self, tracked: TrackedJob, notes: tuple[str, ...]) -> None:
        """Write the notes of the plan into the job's history, once."""
        if notes and not tracked.launches:
            with self._context.atomic():
                for text in notes:
                    add_note(self._context.store, tracked.row.id, text)

    def _failed(self, event: CallFailed) -> set[str]:
        tracked = self._caller(event)
        if tracked is None:
            return set()
        self._context.orders.pop(tracked.row.id, None)
        self._context.queue_stale |= event.operation is Operation.LAUNCH
        trouble = event.trouble
        if trouble.kind == "unreachable" and trouble.reason.code == "S200":
            text = _unreachable_text(tracked, trouble.reason.text)
            trouble = replace(trouble, reason=replace(trouble.reason, text=text))
        if tracked.trouble is None or tracked.trouble.reason.text != trouble.reason.text:
            self._context.log.say(f"{tracked.row.id}: {event.operation}: {trouble.reason.text}")
        if event.operation is Operation.REMOVE and self._has_nothing_there(tracked, trouble):
            tracked.removed_all()
        elif event.operation is Operation.REMOVE and tracked.leaves_files_behind(
            trouble, self._context.now()
        ):
            target = tracked.to_remove_at[0]
            left = f"what it left at {target.backend} stays there"
            left += ", and fabric gc lists it" if target.type == "ssh" else ""
            self._context.log.say(f"{tracked.row.id}: {left}: {event.trouble.reason.text}")
            tracked.removed_all()
        else:
            tracked.call_failed(trouble, self._context.now())
        return {tracked.row.id}

    def _has_nothing_there(self, tracked: TrackedJob, trouble: BackendTrouble) -> bool:
        """Say whether a job that cannot be removed from its backend has nothing there."""
        row = tracked.row
        if trouble.is_denied and not row.reason.code.startswith(REFUSED):
            return False  # the right to look is missing, and a job that began may have left something
        if trouble.kind == "refused":
            # There is no such backend or runner any more, and it never reported a learner.
            return not learners(self._context.store, row.id)
        if trouble.kind != "unreachable" or row.attempt > 1:
            return False
        # What ended while it was queued was never launched, unless it waited at its host.
        states = [one.state for one in transitions(self._context.store, row.id) if one.kind == "state"]
        was_queued = row.state in TERMINAL and states[-2:-1] == [State.QUEUED]
        return was_queued and not learners(self._context.store, row.id)

    def _purged(self, event: JobPurged) -> set[str]:
        tracked = self._context.jobs.get(event.job_id)
        if tracked is None:
            return set()
        if not event.failure:
            self._context.drop(tracked)
            self._context.jobs_changed()
            return set()
        self._context.log.say(f"{event.job_id} is not removed yet: {event.failure}")
        tracked.call_failed(BackendTrouble("unreachable", Reason(event.failure, "S200")), self._context.now())
        return {event.job_id}

    def _end_leftovers(self, event: LeftoversFound) -> None:
        """End learners that should not be there: of deleted jobs, and of attempts that are over.

        Of what the store does not know nothing is touched: it may be new, or have been rebuilt. Several hosts together
        see the learners of jobs at each of them alone, too: these are ended by the targets of their own.
        """
        found_by = self._context.workers[event.target]
        can = capabilities_of(found_by.ref.runner)
        for ref in event.learners:
            row = job(self._context.store, ref.job_id)
            if row is None or ref.home != row.target.home(self._context.uuid):
                continue
            # Of an open job the next attempt may have been begun by its host.
            over = ref.attempt < row.attempt or row.state in TERMINAL
            if row.deleted_us is None and not over:
                continue
            attempt = AttemptRef(ref.home, ref.job_id, ref.attempt, row.learners)
            worker = found_by
            if can is not None and can.needs == "hosts":
                worker = self._context.worker(row.target)
            self._context.log.say(
                f"{ref.job_id}: attempt {ref.attempt} is over, but learner {ref.learner} is there"
            )
            kill = StopRequest("kill", 0.0, by=BY_CONTROLLER)
            if row.deleted_us is None:
                worker.stop(attempt, kill)
            else:
                worker.remove([attempt], deleted=True, stop=kill)

    def _with(self, attempt: AttemptRef, apply: Callable[[TrackedJob], None]) -> set[str]:
        tracked = self._context.jobs.get(attempt.job_id)
        if tracked is None or tracked.attempt != attempt or tracked.operation is not Operation.LAUNCH:
            return set()
        apply(tracked)
        return {attempt.job_id}


def _unreachable_text(tracked: TrackedJob, why: str) -> str:
    """Say that a backend does not answer, why, and when it is tried again."""
    if why.startswith(NEEDS_LOGIN):
        return why
    # A time of its own for each try would be another reason each time, and written down.
    again = f"next try within {RETRY_LONGEST_SECONDS:g} s"
    target = tracked.to_remove_at[0] if tracked.to_remove_at else tracked.row.target
    return f"{target.backend} cannot be reached: {why.rstrip('.')}; {again}"
