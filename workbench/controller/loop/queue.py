"""Evaluates the queue of each machine when something changed, and measures capacity where that matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from workbench.controller.decide.messages import CapacityMeasured, CapacityUnknown
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.decide.scheduler import QueueVerdict, schedule
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.targets.backend_worker import BackendWorker
from workbench.job import TERMINAL, State, short_id
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow
from workbench.store.jobs import job

ENDED: Final = ":ended"


class Gates:
    """Holds back jobs that come after others or exceed their sweep's limit, before the queues are evaluated."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def hold(self, waiting: Sequence[TrackedJob]) -> list[TrackedJob]:
        """Set the verdict of the jobs that are held back; return the others, oldest first."""
        under_way: dict[str, int] = {}
        for tracked in self._context.jobs.values():
            if tracked.is_launched and (sweep := _sweep(tracked)):
                under_way[sweep] = under_way.get(sweep, 0) + 1
        free: list[TrackedJob] = []
        for tracked in sorted(waiting, key=lambda one: one.row.seq):
            verdict = self._behind_others(tracked) or self._over_the_limit(tracked, under_way)
            if verdict is None:
                free.append(tracked)
                if sweep := _sweep(tracked):
                    under_way[sweep] = under_way.get(sweep, 0) + 1
            else:
                tracked.verdict = verdict
        return free

    def _behind_others(self, tracked: TrackedJob) -> QueueVerdict | None:
        for dependency in tracked.spec.after:
            job_id, _, mode = dependency.partition(":")
            known = self._context.jobs.get(job_id)
            row = known.row if known is not None else job(self._context.store, job_id)
            if verdict := _verdict(job_id, row, may_fail=f":{mode}" == ENDED):
                return verdict
        return None

    def _over_the_limit(self, tracked: TrackedJob, under_way: dict[str, int]) -> QueueVerdict | None:
        most, sweep = tracked.spec.at_most, _sweep(tracked)
        if most is None or not sweep or under_way.get(sweep, 0) < most:
            return None
        return QueueVerdict(False, f"waits: {most} of its sweep may run at once")


def _sweep(tracked: TrackedJob) -> str:
    return tracked.row.labels.get(SWEEP_LABEL, "")


def _verdict(job_id: str, row: JobRow | None, *, may_fail: bool) -> QueueVerdict | None:
    """Return the verdict that a job imposes on those after it; None where it holds nobody back."""
    if row is None or row.deleted_us is not None:
        return (
            None
            if may_fail
            else QueueVerdict(False, never=f"it comes after {short_id(job_id)}, which was deleted")
        )
    who = f"{short_id(row.id)} {row.name}"
    if row.state not in TERMINAL or row.next_try_us is not None or row.intent:
        return QueueVerdict(False, f"waits for {who} to {'end' if may_fail else 'complete'}")
    if row.state is State.COMPLETED or may_fail:
        return None
    how = "was halted" if row.state is State.HALTED else "failed"
    why = f": {row.reason.text}" if row.reason.text else ""
    return QueueVerdict(False, never=f"it comes after {who}, which {how}{why}")


MEASURE_AGAIN_SECONDS: Final = 10.0
"""A measurement without an answer is requested again after this."""

BUSY_LONGEST_SECONDS: Final = 30.0
"""The longest pause before slots that others hold are measured again."""


class JobQueue:
    """The queues of all machines; two targets on one machine share its queue."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._gates = Gates(context)
        self._measured: dict[str, CapacityMeasured] = {}
        self._measure_requested: dict[str, float] = {}
        self._refusing: set[str] = set()
        """Machines whose capacity cannot be read."""

    def evaluate(self) -> float | None:
        """Set the verdict of every job that waits; return when to evaluate again even if nothing happens."""
        waiting: dict[str, list[TrackedJob]] = {}
        running: dict[str, list[TrackedJob]] = {}
        queued = [one for one in self._context.jobs.values() if one.row.state is State.QUEUED]
        for tracked in self._gates.hold(queued):
            waiting.setdefault(_machine(tracked), []).append(tracked)
        for tracked in self._context.jobs.values():
            if tracked.is_launched:
                running.setdefault(_machine(tracked), []).append(tracked)
        times = [self._queue(jobs, running.get(machine, [])) for machine, jobs in waiting.items()]
        return min((at for at in times if at is not None), default=None)

    def measured(self, found: CapacityMeasured) -> None:
        """Take over a measured capacity. Slots that others held may be free now."""
        context = self._context
        self._measure_requested.pop(found.target, None)
        for tracked in context.jobs_at(found.target):
            tracked.answered_again()
            self._refusing.discard(_machine(tracked))
            self._measured[_machine(tracked)] = found
            if tracked.busy and tracked.busy_until is not None and context.now() >= tracked.busy_until:
                needed = tracked.slot_request().slots
                if found.capacity is None or found.free_slots >= needed:
                    tracked.busy, tracked.busy_until = "", None
                else:
                    self._still_busy(tracked, found, needed)

    def unmeasured(self, event: CapacityUnknown) -> None:
        """Note that a capacity cannot be read: a launch is tried, and its error says why."""
        for tracked in self._context.jobs_at(event.target):
            tracked.answered_again()
            self._refusing.add(_machine(tracked))

    def unreachable_now(self, target: str) -> None:
        """Note that a target does not answer: it is measured again soon, not only when the answer is overdue."""
        if target in self._measure_requested:
            self._measure_requested[target] = (
                self._context.now() + RETRY_LONGEST_SECONDS - MEASURE_AGAIN_SECONDS
            )

    def slots_freed(self) -> None:
        """Note that a job let go of what it held: who waits for slots retries again at once."""
        for tracked in self._context.jobs.values():
            known = self._measured.get(_machine(tracked))
            # Where a backend has its own queue, jobs that try at once would collide again.
            if tracked.busy and (known is None or known.capacity is not None):
                tracked.busy_until = self._context.now()

    def _queue(self, waiting: list[TrackedJob], running: list[TrackedJob]) -> float | None:
        now = self._context.now()
        ready, times = [], []
        for tracked in waiting:
            slot_request = tracked.slot_request()
            if not (slot_request.cpus or slot_request.slots or tracked.launch_unreachable):
                tracked.verdict = _sent_back(tracked, now)
                times += [tracked.busy_until] if tracked.busy_until is not None else []
            elif tracked.not_before is not None and now < tracked.not_before:
                tracked.verdict = None  # it is not in the queue before its time
                times.append(tracked.not_before)
            else:
                ready.append(tracked)
        if not ready:
            return min(times, default=None)
        machine = _machine(ready[0])
        known = self._measured.get(machine)
        retries = [at for tracked in ready if tracked.busy and (at := tracked.busy_until) is not None]
        unreachable = [tracked for tracked in ready if tracked.launch_unreachable]
        if known is None or unreachable or any(at <= now for at in retries):
            retries.append(self._measure(self._context.worker(ready[0].row.target)))
        times += retries
        for tracked in unreachable:
            tracked.verdict = None
            ready.remove(tracked)
        refusing = known is None and machine in self._refusing
        if refusing or (known is not None and known.capacity is None):
            for tracked in ready:
                tracked.verdict = _sent_back(tracked, now)
        elif known is not None and known.capacity is not None:
            holding = [one.slot_request() for one in running]
            verdicts = schedule(known.capacity, holding, [one.slot_request() for one in ready])
            for tracked in ready:
                tracked.verdict = verdicts[tracked.row.id]
        return min((at for at in times if at > now), default=None)

    def _measure(self, worker: BackendWorker) -> float:
        now = self._context.now()
        requested_at = self._measure_requested.get(worker.key)
        if requested_at is None or now >= requested_at + MEASURE_AGAIN_SECONDS:
            requested_at = self._measure_requested[worker.key] = now
            worker.measure()
        return requested_at + MEASURE_AGAIN_SECONDS

    def _still_busy(self, tracked: TrackedJob, found: CapacityMeasured, needed: int) -> None:
        tracked.tries += 1
        pause = min(backoff_seconds(tracked.tries, tracked.draw), BUSY_LONGEST_SECONDS)
        tracked.busy_until = self._context.now() + pause
        if found.holders:
            count = f"{needed} GPU" + ("" if needed == 1 else "s")
            tracked.busy = f"waits for {count}: {found.holders}"


def _sent_back(tracked: TrackedJob, now: float) -> QueueVerdict:
    """Return the verdict for a backend with its own queue: a job that it turned away waits before the next try."""
    if tracked.busy and tracked.busy_until is not None and now < tracked.busy_until:
        return QueueVerdict(False, tracked.busy)
    return QueueVerdict(True)


def _machine(tracked: TrackedJob) -> str:
    target = tracked.row.target
    return f"{target.type} {target.address or target.backend}"
