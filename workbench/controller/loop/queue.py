"""Evaluates the queue of each machine when something changed, and measures capacity where that matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from runners.interface import (
    AttemptRef,
    HostGates,
    HostTurn,
    HostWait,
    Predecessor,
    SweepLimit,
    reason_for_busy,
)
from runners.registry import capabilities_of
from workbench.clock import now_us
from workbench.controller.decide.messages import CapacityMeasured, CapacityUnknown
from workbench.controller.decide.model import Operation
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.decide.scheduler import (
    AT_ITS_HOST,
    LineAdmission,
    LinedUpJob,
    QueueVerdict,
    SlotRequest,
    schedule,
)
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.targets.backend_worker import BackendWorker
from workbench.controller.targets.handover import can_wait_at_host
from workbench.controller.targets.opener import LineUp
from workbench.job import PREPARING, TERMINAL, Intent, State, short_id
from workbench.learner.queue.entries import QueueEntry
from workbench.learner.queue.limits import Held, sweep_group
from workbench.learner.queue.line import WAITING_AT_ONCE
from workbench.learner.queue.order import by_weight
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import job
from workbench.time_expressions import iso_us, until_text
from workbench.values import dataclass

ENDED: Final = ":ended"

HOST_PATH: Final = "host_path"
"""The type of a data store that is a folder of the host, as the results of another job are."""

AHEAD_AT_ONCE: Final = 2
"""How many jobs of a machine are prepared at once ahead of their turn: fewer than are launched at once, since one that
waits for nothing is not to wait for them."""

NOT_TAKEN_AT_MOST: Final = 3
"""Once a host has refused so many jobs of a sweep ahead of their turn, the sweep is counted here."""

CLOCK_SECONDS: Final = 30.0
"""How long at most until the time of day is read again for jobs that wait for one: it may be set meanwhile."""


HANDED_OVER_AT_ONCE: Final = 1000
"""So many jobs of a home are prepared and given to a host ahead of their turn; the first of them are in its queue."""

WEIGHED_AT_ONCE: Final = 2 * WAITING_AT_ONCE
"""Of so many that wait it is looked up which come first by their weights: a host may have half of them already."""

NO_GATES: Final = HostGates()
"""Those of a job that nothing holds back: one object for all."""

_order: Final = attrgetter("order")

_BEHIND_LAUNCH: Final = "waits for CPUs, some of which a job takes that is just being launched"


class Gates:
    """Holds back jobs that come after others or exceed their sweep's limit, before the queues are evaluated.

    Those of them that their host can watch are given to it with their gates, if it has not too many already.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.out_of_reach: list[TrackedJob] = []
        """Jobs that are given to their host once it answers."""
        self._launching: dict[str, bool] = {}

    def hold(self, waiting: Sequence[TrackedJob]) -> tuple[list[TrackedJob], float | None]:
        """Set the verdict of the jobs that are held back, and look when the next of them may begin by the clock.

        Return the others, those that go first before the rest, and when to look again. Those that their hosts have
        already are among both.
        """
        self.out_of_reach, self._launching = [], {}
        at_hosts = _count_at_hosts(waiting)
        prepared = [one for one in self._context.jobs.values() if one.row.state in PREPARING]
        ahead = _count_ahead(prepared)
        one_by_one = _are_prepared_alone(prepared)
        sweeps = self._sweeps()
        held_back = _HeldBack()
        free: list[TrackedJob] = []
        remaining_us: int | None = None
        now = now_us()
        for tracked in sorted(waiting, key=_order):
            if tracked.is_handed_over and tracked.stop_sent is not None:
                continue  # what it is being stopped for still holds
            verdict, gates = self._behind_others(tracked)
            if (left_us := _begins_in_us(tracked, now)) > 0:
                gates = replace(gates, begin_us=now + left_us)
                if verdict is None:
                    verdict = QueueVerdict(False, f"waits until {until_text(tracked.spec.begin, now)}")
                    remaining_us = left_us if remaining_us is None else min(left_us, remaining_us)
            elif tracked.restarts_at_us is not None and self._context.now() < tracked.restarts_within:
                # Clocks differ: the host begins by its own clock, and is asked to by ours once that must be over.
                left_us = int((tracked.restarts_within - self._context.now()) * 1e6)
                gates = replace(gates, begin_us=tracked.restarts_at_us, is_by_host_clock=True)
                verdict = QueueVerdict(False, tracked.restart_text)
                remaining_us = left_us if remaining_us is None else min(left_us, remaining_us)
            if not gates.are_closed and tracked.gates is not None and tracked.gates.are_closed:
                tracked.stays_here = False  # what its preparation lacked may be there now
            name = _sweep(tracked)
            sweep = sweeps.get(name)
            if sweep is not None and tracked.spec.at_most is not None:
                gates = sweep.limited(gates, tracked)
                verdict = verdict or sweep.admit(tracked)
            tracked.gates = gates
            if verdict is not None and not verdict.never:
                is_given = name not in one_by_one and self._goes_ahead(tracked, gates, at_hosts, ahead)
                if is_given and tracked.is_limited and tracked.spec.at_most == 1:
                    one_by_one.add(name)
                verdict = held_back.verdict(verdict.reason, gates, is_given=is_given)
            if verdict is None:
                free.append(tracked)
            else:
                tracked.verdict = verdict
        if remaining_us is None:
            return free, None
        return free, self._context.now() + min(remaining_us / 1e6, CLOCK_SECONDS)

    def judge_anew(self, unjudged: Sequence[TrackedJob]) -> None:
        """Set the verdicts of jobs that a controller before this one was launching, perhaps ahead of their turn.

        Of CPUs nobody knows whether they were to have them: their host sees whether they are free.
        """
        sweeps = self._sweeps()
        for tracked in unjudged:
            self._judge_anew(tracked, sweeps)

    def _judge_anew(self, tracked: TrackedJob, sweeps: Mapping[str, _Sweep]) -> None:
        verdict, gates = self._behind_others(tracked)
        now = now_us()
        if (left_us := _begins_in_us(tracked, now)) > 0:
            gates = replace(gates, begin_us=now + left_us)
        if (sweep := sweeps.get(_sweep(tracked))) is not None and tracked.spec.at_most is not None:
            gates = replace(gates, limit=sweep.limit_of(tracked))
        tracked.gates = gates
        wait = None
        if gates != HostGates() or tracked.spec.cpus:
            reason = "" if verdict is None else verdict.reason or verdict.never
            wait = HostWait(reason or AT_ITS_HOST, gates)
        if wait is None or not can_wait_at_host(tracked.row.target):
            tracked.verdict = QueueVerdict(True)
        else:
            tracked.verdict = QueueVerdict(False, wait.reason, hand_over=True, wait=wait)

    def _behind_others(self, tracked: TrackedJob) -> tuple[QueueVerdict | None, HostGates]:
        """Return the verdict of the first job that holds one back, with the gates that all of them are."""
        if not tracked.spec.after:
            return None, NO_GATES
        first: QueueVerdict | None = None
        closed: list[Predecessor] = []
        for dependency in tracked.spec.after:
            job_id, _, mode = dependency.partition(":")
            known = self._context.jobs.get(job_id)
            row = known.row if known is not None else job(self._context.store, job_id)
            may_fail = f":{mode}" == ENDED
            if (verdict := _verdict(job_id, row, may_fail=may_fail)) is None:
                continue
            if verdict.never and tracked.is_handed_over and _has_passed(tracked, job_id, row):
                continue  # its host has let it go since that job had completed
            if first is None or (verdict.never and not first.never):
                first = verdict
            if row is not None:
                closed.append(self._predecessor(row, known, may_fail=may_fail))
        return first, HostGates(after=tuple(closed)) if closed else NO_GATES

    def _predecessor(self, row: JobRow, known: TrackedJob | None, *, may_fail: bool) -> Predecessor:
        """Return the last attempt of a job that holds others back."""
        left = (1, 1)  # of one that is not looked after nobody knows
        if known is not None:
            spec = known.spec
            left = (spec.max_restarts - row.restarts, spec.max_platform_restarts - row.platform_restarts)
        attempt = AttemptRef(row.target.home(self._context.uuid), row.id, row.attempt, row.learners)
        return Predecessor(attempt, may_fail, max(0, left[0]), max(0, left[1]))

    def _goes_ahead(
        self, tracked: TrackedJob, gates: HostGates, at_hosts: Counter[tuple[str, bool]], ahead: Counter[str]
    ) -> bool:
        """Say whether a job that is held back is given to its host now; count it there if it is.

        The host has to see what opens the gates: the learners of jobs that run or wait there. Nothing that is prepared
        now may be another thing later.
        """
        row, machine = tracked.row, tracked.row.target.machine
        kind = (machine, gates.are_closed)
        if ahead[machine] >= AHEAD_AT_ONCE or at_hosts[kind] >= HANDED_OVER_AT_ONCE:
            return False
        if tracked.is_handed_over or tracked.stays_here or not can_wait_at_host(tracked.row.target):
            return False
        if row.intent is not Intent.NONE or tracked.operation is not Operation.NOTHING:
            return False
        if tracked.not_before is not None and self._context.now() < tracked.not_before:
            return False
        if tracked.spec.at_most is not None and _sweep(tracked) and gates.limit is None:
            return False  # its host would count those of its sweep that are under way there, and no others
        if _may_be_stale(tracked, gates) or not all(self._is_seen(one, tracked) for one in gates.after):
            return False
        if any(self._reads_files_of(one, tracked) for one in gates.after):
            return False
        if tracked.spec.cpus and self._is_launching(machine):
            return False
        if tracked.launch_unreachable or tracked.unreachable:
            self.out_of_reach.append(tracked)
            return False
        at_hosts[kind] += 1
        ahead[machine] += 1
        return True

    def _is_launching(self, machine: str) -> bool:
        """Say whether jobs with CPUs are being launched at a machine, which is looked up once for all that wait."""
        if machine not in self._launching:
            self._launching[machine] = _prepares_with_cpus(self._context.jobs.values(), machine)
        return self._launching[machine]

    def _is_seen(self, predecessor: Predecessor, tracked: TrackedJob) -> bool:
        """Say whether the host of a job sees how the learners of a job before it end."""
        known = self._context.jobs.get(predecessor.attempt.job_id)
        if known is None or not known.is_launched or known.row.intent is not Intent.NONE:
            return False
        theirs, own = known.row.target, tracked.row.target
        is_there = (theirs.type, theirs.address, theirs.backend) == (own.type, own.address, own.backend)
        can = capabilities_of(theirs.runner)
        is_same_home = theirs.home(self._context.uuid) == own.home(self._context.uuid)
        return is_there and is_same_home and can is not None and can.needs == "host"

    def _reads_files_of(self, predecessor: Predecessor, tracked: TrackedJob) -> bool:
        """Say whether a job reads the results of a container before it, which may have written as another user.

        Those files become our user's when the controller sees that container's end. Who runs in the same image is the
        same user.
        """
        known = self._context.jobs.get(predecessor.attempt.job_id)
        if known is None or not _uses_image(known):
            return False
        theirs, own = known.spec, tracked.spec
        is_same_image = (theirs.framework.image, theirs.framework.image_location) == (
            own.framework.image,
            own.framework.image_location,
        )
        if _uses_image(tracked) and is_same_image and theirs.build is None and own.build is None:
            return False
        folders = (store.connection.get("path", "") for store in own.data_stores if store.type == HOST_PATH)
        return any(Path(folder).name == known.row.id for folder in folders)

    def _sweeps(self) -> dict[str, _Sweep]:
        """Return the sweeps that have jobs with a limit, by what their jobs have in common."""
        members: dict[str, list[TrackedJob]] = {}
        for tracked in self._context.jobs.values():
            if tracked.row.state not in TERMINAL and (sweep := _sweep(tracked)):
                members.setdefault(sweep, []).append(tracked)
        return {
            sweep: _Sweep(sweep, jobs, self._context)
            for sweep, jobs in members.items()
            if any(one.spec.at_most is not None for one in jobs)
        }


class _HeldBack:
    """Makes the verdicts of jobs that are held back, the same object for all that follow each other with the same."""

    def __init__(self) -> None:
        self._gates: HostGates | None = None
        self._verdict = QueueVerdict(False)

    def verdict(self, reason: str, gates: HostGates, *, is_given: bool) -> QueueVerdict:
        """Return the verdict of a job that waits behind these gates, and may be given to its host."""
        last = self._verdict
        if gates is not self._gates or last.hand_over is not is_given or last.reason != reason:
            self._gates = gates
            self._verdict = last = QueueVerdict(False, reason, is_given, HostWait(reason, gates))
        return last


class _Sweep:
    """The open jobs of a sweep: how many are under way, and whether its host starts those that wait.

    Either the controller starts jobs of a sweep, or its host does: two who count would both start the next one.
    """

    def __init__(self, name: str, jobs: Sequence[TrackedJob], context: ControllerContext) -> None:
        self._name = name
        self._context = context
        self._is_of_one_host = _are_at_one_host(jobs, context.uuid)
        """Whether one host sees all of it; else it is counted here, those that hosts have among them."""
        launched = [one for one in jobs if one.is_launched and not self._is_blocked(one)]
        # What a controller before this one has launched may run, though nobody has seen it since.
        under_way = [one for one in launched if not _is_at_host(one) or (one.is_on_its_way and one.begun)]
        self._from_waiter = {one.attempt for one in under_way if one.is_from_waiter}
        self._started = [one.attempt for one in under_way]
        """The attempts that are under way, or are started from here now."""
        self._count = len(under_way if self._is_of_one_host else launched)
        """How many are under way, or come before the next one."""
        self._has_some_at_host = any(
            _is_at_host(one) and not _waits_for_long(one) and not self._is_blocked(one) for one in jobs
        )
        self._completed: dict[AttemptRef, bool] = {}
        self._limits: dict[int, SweepLimit] = {}
        self._alone: dict[int, HostGates] = {}
        self._over: dict[tuple[int, bool], QueueVerdict] = {}

    def _is_blocked(self, tracked: TrackedJob) -> bool:
        """Say whether a job at its host comes after one that has to be started from here first.

        The host can start none such: were those of its sweep that are here to wait for it, all would wait for ever.
        """
        if not tracked.spec.after or not _is_at_host(tracked):
            return False
        before = (self._context.jobs.get(dependency.partition(":")[0]) for dependency in tracked.spec.after)
        return any(
            self._is_blocked(one) if _is_at_host(one) else one.row.state is State.QUEUED
            for one in before
            if one is not None
        )

    def admit(self, tracked: TrackedJob) -> QueueVerdict | None:
        """Count a waiting job that nothing else holds back; return its verdict, None where it may start now.

        They are asked for in their order.
        """
        at_most = tracked.spec.at_most
        assert at_most is not None
        if tracked.is_handed_over and not self._is_of_one_host:
            return None  # it counts already
        is_over = self._count >= at_most
        self._count += 1
        is_its_hosts = self._is_of_one_host and self._has_some_at_host and not tracked.is_handed_over
        if is_over or is_its_hosts:
            kind = (at_most, tracked.row.parent is None)
            if kind not in self._over:
                whose = "sweep" if tracked.row.parent is None else "search"
                self._over[kind] = QueueVerdict(False, f"waits: {at_most} of its {whose} may run at once")
            return self._over[kind]
        if not tracked.is_handed_over:
            self._started.append(tracked.attempt)
        return None

    def limited(self, gates: HostGates, tracked: TrackedJob) -> HostGates:
        """Return the gates of a job with the limit of its sweep, the same object for many that have no others."""
        limit = self.limit_of(tracked)
        if gates is not NO_GATES or limit is None:
            return gates if limit is None else replace(gates, limit=limit)
        known = self._alone.get(limit.at_most)
        if known is None or known.limit is not limit:
            known = self._alone[limit.at_most] = HostGates(limit=limit)
        return known

    def limit_of(self, tracked: TrackedJob) -> SweepLimit | None:
        """Return the limit as the job's host counts it; None where the host does not see all of the sweep.

        A host that has the job keeps it. What such a host knows by itself changes nothing of what it was given.
        """
        at_most = tracked.spec.at_most
        if at_most is None or not (self._is_of_one_host or tracked.is_handed_over):
            return None
        known = tracked.gates.limit if tracked.is_handed_over and tracked.gates is not None else None
        limit = self._limit(at_most)
        if known is None and not tracked.is_launched:
            return limit
        if tracked.attempt in limit.others:
            limit = replace(limit, others=tuple(one for one in limit.others if one != tracked.attempt))
        if known is None or (known.sweep, known.at_most) != (limit.sweep, limit.at_most):
            return limit
        are_known = self._from_waiter.union(known.others).issuperset(limit.others)
        if not are_known or any(one.cut_off for one in tracked.statuses.values()):
            return limit
        return known if all(self._is_seen(one, tracked.row.target) for one in known.others) else limit

    def _limit(self, at_most: int) -> SweepLimit:
        """Return the limit as it is now, the same object for all of many that wait."""
        known = self._limits.get(at_most)
        if known is None or len(known.others) != len(self._started):
            known = self._limits[at_most] = SweepLimit(self._name, at_most, tuple(self._started))
        return known

    def _is_seen(self, attempt: AttemptRef, host: TargetRef) -> bool:
        """Say whether an attempt runs, or this host has the record of its success."""
        if attempt in self._started:
            return True
        if attempt not in self._completed:
            known = self._context.jobs.get(attempt.job_id)
            row = known.row if known is not None else job(self._context.store, attempt.job_id)
            self._completed[attempt] = (
                row is not None
                and row.deleted_us is None
                and (row.state, row.attempt) == (State.COMPLETED, attempt.attempt)
                and _host_of(row.target) == _host_of(host)
            )
        return self._completed[attempt]


def _is_at_host(tracked: TrackedJob) -> bool:
    """Say whether a job waits at its host, or is prepared to."""
    return tracked.is_handed_over or tracked.is_on_its_way


def _are_at_one_host(jobs: Sequence[TrackedJob], home_uuid: str) -> bool:
    """Say whether one host sees how all of these jobs end, and takes those that wait."""
    hosts = {(_host_of(one.row.target), one.row.target.home(home_uuid)) for one in jobs}
    if len(hosts) > 1 or sum(one.stays_here for one in jobs) >= NOT_TAKEN_AT_MOST:
        return False
    if any(one.spec.image_pull == "always" and _uses_image(one) for one in jobs):
        return False
    # Jobs at one backend differ in their runners at most: what those can do is looked up once for each.
    return all(map(can_wait_at_host, {one.row.target.runner: one.row.target for one in jobs}.values()))


def _host_of(target: TargetRef) -> tuple[str, str, str]:
    return (target.type, target.address, target.backend)


def _waits_for_long(tracked: TrackedJob) -> bool:
    """Say whether a job waits for a time of day that it asked for; the end of a back-off comes soon."""
    begin_us = None if tracked.gates is None else tracked.gates.begin_us
    return begin_us is not None and begin_us != tracked.restarts_at_us


def _limit_alone(tracked: TrackedJob) -> HostGates:
    """Return the limit of a job's sweep as the only gate: no other one holds it back."""
    return HostGates(limit=None if tracked.gates is None else tracked.gates.limit)


def _has_passed(tracked: TrackedJob, job_id: str, row: JobRow | None) -> bool:
    """Say whether a job that its host has does not wait any more for one that was deleted."""
    if row is not None and row.deleted_us is None:
        return False
    if row is not None and row.state is State.COMPLETED:
        return True
    gates = tracked.gates
    return gates is not None and all(one.attempt.job_id != job_id for one in gates.after)


def _count_ahead(jobs: Iterable[TrackedJob]) -> Counter[str]:
    """Count the jobs of each machine that are being prepared ahead of their turn."""
    return Counter(
        one.row.target.machine
        for one in jobs
        if one.row.state in PREPARING and one.wait_at_host() is not None
    )


def _are_prepared_alone(jobs: Iterable[TrackedJob]) -> set[str]:
    """Return the sweeps of which one job is being prepared ahead, and no more than one may be.

    Where jobs run one after the other, one that is given to its host sooner than the one before it starts before it.
    """
    return {
        _sweep(one)
        for one in jobs
        if one.is_limited
        and one.spec.at_most == 1
        and one.row.state in PREPARING
        and one.wait_at_host() is not None
    }


def _count_at_hosts(waiting: Sequence[TrackedJob]) -> Counter[tuple[str, bool]]:
    """Count the jobs of each machine that have been given to it: behind gates, and behind a sweep's limit alone."""
    return Counter(
        (one.row.target.machine, one.gates.are_closed)
        for one in waiting
        if one.is_handed_over and one.gates is not None and one.gates != HostGates()
    )


def _may_be_stale(tracked: TrackedJob, gates: HostGates) -> bool:
    """Say whether what a launch brings may be another thing once its gates are open: it is brought then.

    Code, secrets and the checkpoint that a job begins with are those of the submission, and data is brought by its
    agent as it begins. That leaves an image that is to be pulled at each start, and, since the jobs before it may make
    them, packages which lie in a folder or are fetched from an address. Of other images the launch knows more.
    """
    spec = tracked.spec
    if _uses_image(tracked) and spec.image_pull == "always":
        return True
    return bool(gates.after) and spec.python == "requirements" and any(map(_names_a_path, spec.requirements))


def _uses_image(tracked: TrackedJob) -> bool:
    can = capabilities_of(tracked.row.target.runner)
    return can is not None and can.uses_image


def _names_a_path(requirement: str) -> bool:
    return "/" in requirement or requirement.lstrip().startswith(("-", "."))


def _prepares_with_cpus(jobs: Iterable[TrackedJob], machine: str) -> bool:
    """Say whether a machine does not know yet of all that have CPUs there: they are being launched from here."""
    return any(
        one.spec.cpus
        and one.row.target.machine == machine
        and one.row.state in PREPARING
        and (one.operation is Operation.LAUNCH or not one.begun)
        and one.wait_at_host() is None
        and not (one.verdict is not None and one.verdict.hand_over)
        for one in jobs
    )


def _begins_in_us(tracked: TrackedJob, now: int) -> int:
    """Return how long a job still waits for its time, 0 or less where it waits for none."""
    begin = iso_us(tracked.spec.begin) if tracked.spec.begin else None
    return 0 if begin is None else begin - now


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


HOLDERS_SECONDS: Final = 15.0
"""How often it is asked who holds its GPUs while nobody else waits there."""

ASK_AGAIN_SECONDS: Final = 2.0
"""How often a host's queue is read again while others wait there, too."""


@dataclass(slots=True)
class HostLine:
    """The jobs of this home that wait for GPUs in the queue of a host."""

    worker: BackendWorker
    """Whose connection holds their entries."""
    lined_up: frozenset[LinedUpJob] = frozenset()
    turns: Mapping[str, HostTurn] = field(default_factory=dict)
    ask_at: float | None = None
    """When the queue is read again, though nothing has changed here."""
    _launched_at: dict[str, float] = field(default_factory=dict)
    """By job: when a launch of it ended last."""

    def answered(self, found: CapacityMeasured, now: float, asked_at: float) -> None:
        """Take over what the host said of those whom it was asked about."""
        if found.lined_up is None:
            return
        self._launched_at = {job: at for job, at in self._launched_at.items() if at >= asked_at}
        overtaken = self._launched_at.keys()
        self.lined_up = frozenset(
            one for one in found.lined_up if not (one.is_handed_over and one.job in overtaken)
        )
        self.turns = found.turns
        # Who holds GPUs out of turn changes no more often than other holders do.
        is_shared = any(
            turn.of > len(found.turns) or turn.limit or turn.preempts for turn in found.turns.values()
        )
        again = ASK_AGAIN_SECONDS if is_shared else HOLDERS_SECONDS if found.holders else None
        self.ask_at = None if again is None else now + again

    def launched(self, job_id: str, now: float) -> bool:
        """Have a job that was given to its host be sent again: what it was given with may be older than what was sent.

        The gates of an attempt are those of the moment in which its launch was prepared.

        Returns:
            Whether it was sent before.
        """
        self._launched_at[job_id] = now
        sent = {one for one in self.lined_up if one.job == job_id and one.is_handed_over}
        self.lined_up -= sent
        return bool(sent)

    def due(self, line_up: LineUp, now: float) -> float | None:
        """Return when the host is to be asked: now if others wait than those who lined up, or stand elsewhere."""
        waiting = {*line_up.waiting, *line_up.handed_over}
        gone = {entry.job for entry in self.lined_up - waiting} - set(line_up.keep)
        return now if gone or waiting - self.lined_up else self.ask_at


class JobQueue:
    """The queues of all machines; two targets on one machine share its queue."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._gates = Gates(context)
        self._measured: dict[str, CapacityMeasured] = {}
        self._measure_requested: dict[str, float] = {}
        self._refusing: set[str] = set()
        """Machines whose capacity cannot be read."""
        self._lines: dict[str, HostLine] = {}
        """By machine: who waits in the queue of a host for GPUs."""

    def evaluate(self) -> float | None:
        """Set the verdict of every job that waits; return when to evaluate again even if nothing happens."""
        waiting: dict[str, list[TrackedJob]] = {}
        running: dict[str, list[TrackedJob]] = {}
        queued, unjudged = [], []
        for tracked in self._context.jobs.values():
            state = tracked.row.state
            if state is State.QUEUED:
                queued.append(tracked)
            elif state not in TERMINAL:
                running.setdefault(tracked.row.target.machine, []).append(tracked)
                if state in PREPARING and tracked.verdict is None:
                    unjudged.append(tracked)
        if unjudged:
            self._gates.judge_anew(unjudged)
        free, looks_again_at = self._gates.hold(queued)
        for tracked in free:
            waiting.setdefault(tracked.row.target.machine, []).append(tracked)
        held: dict[str, list[TrackedJob]] = {}
        are_free = {tracked.row.id for tracked in free}
        for tracked in queued:
            if tracked.is_handed_over and tracked.row.id not in are_free:
                held.setdefault(tracked.row.target.machine, []).append(tracked)
        times = [
            self._queue(waiting.get(machine, []), running.get(machine, []), held.get(machine, []))
            for machine in dict.fromkeys((*waiting, *held))
        ]
        times += [self._measure(self._context.worker(one.row.target)) for one in self._gates.out_of_reach]
        left = set(self._lines) - set(waiting) - set(held)
        times.append(looks_again_at)
        times += [self._leave_line(machine, running.get(machine, [])) for machine in left]
        return min((at for at in times if at is not None), default=None)

    def measured(self, found: CapacityMeasured) -> None:
        """Take over a measured capacity. Slots that others held may be free now."""
        context = self._context
        asked_at = self._measure_requested.pop(found.target, 0.0)
        machines = {machine for machine, line in self._lines.items() if line.worker.key == found.target}
        for tracked in context.jobs_at(found.target):
            tracked.answered_again()
            machines.add(tracked.row.target.machine)
        self._refusing -= machines
        self._measured.update(dict.fromkeys(machines, found))
        # The machine's jobs by other connections too: one alone is asked.
        for tracked in context.jobs.values():
            if tracked.row.target.machine not in machines:
                continue
            turn = found.turns.get(tracked.row.id)
            if turn is not None and turn.start:
                tracked.busy, tracked.busy_until = "", None
            if tracked.busy and tracked.busy_until is not None and context.now() >= tracked.busy_until:
                needed = tracked.slot_request().slots
                if found.capacity is None or found.free_slots >= needed:
                    tracked.busy, tracked.busy_until = "", None
                else:
                    self._still_busy(tracked, found)
        for line in self._lines.values():
            if line.worker.key == found.target:
                line.answered(found, context.now(), asked_at)

    def unmeasured(self, event: CapacityUnknown) -> None:
        """Note that a capacity cannot be read: a launch is tried, and its error says why."""
        for tracked in self._context.jobs_at(event.target):
            tracked.answered_again()
            self._refusing.add(tracked.row.target.machine)

    def unreachable_now(self, target: str) -> None:
        """Note that a target does not answer: it is measured again soon, not only when the answer is overdue."""
        if target in self._measure_requested:
            self._measure_requested[target] = (
                self._context.now() + RETRY_LONGEST_SECONDS - MEASURE_AGAIN_SECONDS
            )
        for machine, line in list(self._lines.items()):
            if line.worker.key == target:
                del self._lines[machine]  # the entries went with the connection

    def launch_ended(self, job_id: str) -> None:
        """Note that a launch has ended, however it did: its host may have the job now."""
        for line in self._lines.values():
            self._context.queue_stale |= line.launched(job_id, self._context.now())

    def slots_freed(self) -> None:
        """Note that a job let go of what it held: who waits for slots retries again at once."""
        for line in self._lines.values():
            line.ask_at = self._context.now()
        for tracked in self._context.jobs.values():
            known = self._measured.get(tracked.row.target.machine)
            # Where a backend has its own queue, jobs that try at once would collide again.
            if tracked.busy and (known is None or known.capacity is not None):
                tracked.busy_until = self._context.now()

    def _queue(
        self, waiting: list[TrackedJob], running: list[TrackedJob], held: list[TrackedJob]
    ) -> float | None:
        """Set the verdicts of the jobs of one machine that no gate holds back.

        Those that are ``held`` back wait at their host, which is to know of what opens their gates.
        """
        now = self._context.now()
        ready, times = [], []
        wanted: dict[str, SlotRequest] = {}
        line = LineAdmission([one.slot_request() for one in running if one.operation is Operation.LAUNCH])
        for tracked in waiting:
            slot_request = wanted[tracked.row.id] = tracked.slot_request()
            if tracked.is_handed_over:
                ready.append(tracked)
            elif not (slot_request.cpus or slot_request.slots or tracked.launch_unreachable):
                tracked.verdict = _sent_back(tracked, now, line)
                times += [tracked.busy_until] if tracked.busy_until is not None else []
            elif tracked.not_before is not None and now < tracked.not_before:
                tracked.verdict = None  # it is not in the queue before its time
                times.append(tracked.not_before)
            else:
                ready.append(tracked)
        if not (ready or held):
            return min(times, default=None)
        machine = (ready or held)[0].row.target.machine
        known = self._measured.get(machine)
        retries = [at for tracked in ready if tracked.busy and (at := tracked.busy_until) is not None]
        unreachable = [tracked for tracked in ready if tracked.launch_unreachable]
        host_line = self._line(machine, [*ready, *held])
        are_weighed = known is not None and known.heeds_weights and _differ_in_weight(ready)
        if are_weighed:
            ready = _by_weight(ready, running)
            line_up = _line_up([*ready, *held], running)
        else:
            line_up = _line_up(sorted([*ready, *held], key=_order) if held else ready, running)
        if host_line is not None and (due := host_line.due(line_up, now)) is not None:
            retries.append(due)
        if (ready and known is None) or unreachable or any(at <= now for at in retries):
            worker = (
                self._context.worker((ready or held)[0].row.target) if host_line is None else host_line.worker
            )
            sent = None if host_line is None else replace(line_up, known=host_line.lined_up)
            retries.append(self._measure(worker, sent))
        times += retries
        for tracked in unreachable:
            tracked.verdict = None
            ready.remove(tracked)
        refusing = known is None and machine in self._refusing
        if refusing or (known is not None and known.capacity is None):
            for tracked in ready:
                tracked.verdict = _sent_back(tracked, now, line)
        elif known is not None and known.capacity is not None:
            holding = [one.slot_request() for one in running]
            turns = {} if host_line is None else host_line.turns
            for job_id in wanted.keys() & turns.keys():
                wanted[job_id] = replace(wanted[job_id], turn=turns[job_id])
            asking = [wanted[one.row.id] for one in ready]
            verdicts = schedule(known.capacity, holding, asking, now_us(), are_in_order=are_weighed)
            # One that the host has not heard of yet would come last of all when it takes its GPUs.
            unheard = (
                set() if host_line is None else _jobs_of(line_up) - {one.job for one in host_line.lined_up}
            )
            for tracked in ready:
                is_unknown = bool(tracked.spec.gpus) and tracked.row.id in unheard
                verdict = verdicts[tracked.row.id]
                if verdict.reason == AT_ITS_HOST:
                    verdict = replace(verdict, reason=_busy_reason(tracked, known) or AT_ITS_HOST)
                tracked.verdict = None if is_unknown else verdict
            self._hand_over(ready, held, wanted, known.capacity.cpus - sum(one.cpus for one in holding))
        return min((at for at in times if at > now), default=None)

    def _hand_over(
        self,
        ready: Sequence[TrackedJob],
        held: Sequence[TrackedJob],
        requests: Mapping[str, SlotRequest],
        free_cpus: float,
    ) -> None:
        """Have the first of those that wait for GPUs or CPUs given to their host, which starts them whatever we do.

        They come in their order.

        Whoever asks for CPUs is not given past one before it that stays here. Two who start jobs would give the same
        CPUs away: one that could start now is given to its host, too, if it and what waits there do not fit together.
        """
        there = sum(tracked.is_handed_over for tracked in ready)
        cpus_there = sum(one.slot_request().cpus for one in (*ready, *held) if one.is_handed_over)
        is_behind = False
        is_launching = bool(ready) and _prepares_with_cpus(
            self._context.jobs.values(), ready[0].row.target.machine
        )
        for tracked in ready:
            verdict, wanted = tracked.verdict, requests[tracked.row.id]
            if verdict is None:
                continue
            reason = verdict.reason or AT_ITS_HOST
            if tracked.is_handed_over:
                # Should it be launched again, nothing of it may start that needs no GPUs, or past its sweep's limit.
                gates = _limit_alone(tracked)
                is_certain = bool(wanted.slots) and gates.limit is None
                tracked.verdict = verdict if is_certain else replace(verdict, wait=HostWait(reason, gates))
                continue
            is_room = there < HANDED_OVER_AT_ONCE and not (wanted.cpus and is_behind)
            collides = bool(wanted.cpus and cpus_there) and free_cpus < wanted.cpus + cpus_there
            if (
                is_room
                and (collides or not verdict.start)
                and self._may_go(tracked, wanted, is_launching=is_launching)
            ):
                gates = _limit_alone(tracked)
                is_to_wait = bool(wanted.cpus or gates.limit) and can_wait_at_host(tracked.row.target)
                wait = HostWait(reason, gates) if is_to_wait else None
                tracked.verdict = replace(verdict, start=False, reason=reason, hand_over=True, wait=wait)
                there, cpus_there = there + 1, cpus_there + wanted.cpus
            elif (
                collides and is_launching and not tracked.stays_here and can_wait_at_host(tracked.row.target)
            ):
                # It goes to its host once that knows of those who are being launched from here.
                tracked.verdict = replace(verdict, start=False, reason=verdict.reason or _BEHIND_LAUNCH)
                is_behind = True
            elif verdict.start:
                free_cpus -= wanted.cpus
            else:
                is_behind |= bool(wanted.cpus)

    def _may_go(self, tracked: TrackedJob, wanted: SlotRequest, *, is_launching: bool) -> bool:
        """Say whether a job may be given to its host that waits for GPUs or CPUs, or would take some."""
        if tracked.busy or tracked.stays_here:
            return False  # it was refused there
        can = capabilities_of(tracked.row.target.runner)
        if can is None or not can.hands_over:
            return False
        if not wanted.cpus or not can_wait_at_host(tracked.row.target):
            # Its launch takes its GPUs where they are free.
            is_waiting = tracked.verdict is not None and not tracked.verdict.start
            return wanted.slots > 0 and is_waiting
        return not is_launching

    def _line(self, machine: str, ready: Sequence[TrackedJob]) -> HostLine | None:
        """Return the line at a machine, if anybody there needs GPUs, or did, or was given to it.

        It is always asked for by one connection.
        """
        if machine not in self._lines:
            worker = next((self._context.worker(one.row.target) for one in ready if _has_line(one)), None)
            if worker is None:
                return None
            self._lines[machine] = HostLine(worker)
        return self._lines[machine]

    def _leave_line(self, machine: str, running: Sequence[TrackedJob]) -> float | None:
        """Have the entries removed of jobs that wait no more; nothing is asked for again after that."""
        line, line_up = self._lines[machine], _line_up([], running)
        if not line.lined_up and not self._measure_requested.get(line.worker.key):
            del self._lines[machine]
            return None
        if set(line_up.keep) >= {entry.job for entry in line.lined_up}:
            return None  # each has its GPUs soon, and its entry is gone
        return self._measure(line.worker, replace(line_up, known=line.lined_up))

    def _measure(self, worker: BackendWorker, line_up: LineUp | None = None) -> float:
        now = self._context.now()
        requested_at = self._measure_requested.get(worker.key)
        if requested_at is None or now >= requested_at + MEASURE_AGAIN_SECONDS:
            requested_at = self._measure_requested[worker.key] = now
            worker.measure(line_up)
        return requested_at + MEASURE_AGAIN_SECONDS

    def _still_busy(self, tracked: TrackedJob, found: CapacityMeasured) -> None:
        tracked.tries += 1
        pause = min(backoff_seconds(tracked.tries, tracked.draw), BUSY_LONGEST_SECONDS)
        tracked.busy_until = self._context.now() + pause
        tracked.busy = _busy_reason(tracked, found) or tracked.busy


def _busy_reason(tracked: TrackedJob, found: CapacityMeasured) -> str:
    """Return why a job waits that none of ours keeps waiting: who holds its GPUs; empty where that is not known."""
    needed = tracked.slot_request().slots
    if not needed:
        return ""
    if tracked.row.id in found.lacking:
        return found.lacking[tracked.row.id]
    alone = f"waits for {needed} GPU{'' if needed == 1 else 's'}"
    if found.capacity is not None and needed > found.capacity.slots:
        # It had them when the job was launched: they may come back, after a reboot say.
        return f"{alone}: {tracked.row.target.backend} has {found.capacity.slots} now"
    turn = found.turns.get(tracked.row.id)
    return reason_for_busy(turn, needed, alone, found.holders, now_us()) if found.holders else ""


def _jobs_of(line_up: LineUp) -> set[str]:
    return {one.job for one in (*line_up.waiting, *line_up.handed_over)}


def _has_line(tracked: TrackedJob) -> bool:
    """Say whether the host of a job has it in its queue, or for its waiter."""
    return bool(tracked.spec.gpus) or tracked.is_handed_over


def _differ_in_weight(ready: Sequence[TrackedJob]) -> bool:
    """Say whether jobs that wait for GPUs have more than one weight."""
    return len({one.spec.weight for one in ready if one.spec.gpus}) > 1


def _by_weight(ready: list[TrackedJob], running: Sequence[TrackedJob]) -> list[TrackedJob]:
    """Return jobs as their host's policy has them come: those that wait for GPUs take each other's turns.

    So the first of each sweep are at the host, which chooses among those that it has. What comes after these first ones
    stays in its order: thousands may wait.
    """
    seen: dict[tuple[str, float, int], int] = {}
    first: list[int] = []
    for index, one in enumerate(ready):
        spec = one.spec
        if not spec.gpus:
            continue
        kind = (one.row.labels.get(SWEEP_LABEL, ""), spec.weight, spec.priority)
        count = seen.get(kind, 0)
        if count < WEIGHED_AT_ONCE:
            seen[kind] = count + 1
            first.append(index)
    held: Counter[str] = Counter()
    for one in running:
        held[_sweep(one)] += one.slot_request().slots
    groups = {sweep_group(0, sweep): Held(gpus) for sweep, gpus in held.items() if sweep}
    entries = [_as_entry(index, ready[index]) for index in first]
    coming = [int(entry.job) for entry in by_weight(entries, groups, WEIGHED_AT_ONCE)]
    end = max(coming) + 1
    they = set(coming)
    turns = iter([*coming, *(at for at in range(end) if at not in they and ready[at].spec.gpus)])
    return [ready[next(turns)] if one.spec.gpus else one for one in ready[:end]] + ready[end:]


def _as_entry(index: int, tracked: TrackedJob) -> QueueEntry:
    spec = tracked.spec
    gpus = spec.gpus * spec.learners
    return QueueEntry(
        0, "", str(index), gpus, priority=spec.priority, weight=spec.weight, group=_sweep(tracked)
    )


def _line_up(ready: Sequence[TrackedJob], running: Sequence[TrackedJob]) -> LineUp:
    """Say who waits for GPUs at a host, in their order, and who gets some there just now."""
    lined_up = list(filter(_has_line, ready))
    waiting = [one for one in lined_up if not one.is_handed_over][:WAITING_AT_ONCE]
    handed_over = [one for one in lined_up if one.is_handed_over]
    launching = (one for one in running if one.spec.gpus and one.row.state in PREPARING and not one.has_begun)
    return LineUp(
        tuple(one.line_entry() for one in waiting),
        tuple(sorted(one.row.id for one in launching)),
        tuple(one.line_entry() for one in handed_over),
    )


def _sent_back(tracked: TrackedJob, now: float, line: LineAdmission) -> QueueVerdict:
    """Return the verdict for a backend with its own queue: a job that it turned away waits before the next try."""
    if tracked.busy and tracked.busy_until is not None and now < tracked.busy_until:
        return QueueVerdict(False, tracked.busy)
    return line.verdict(tracked.slot_request())
