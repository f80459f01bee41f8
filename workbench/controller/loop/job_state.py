"""What the controller remembers of one job; all of it can be rebuilt from the store and the backend."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Final, Literal, cast

from backends.contract.host import SHARE_NAMES, BackendOptions, is_set
from backends.contract.host_group import member_options
from runners.interface import AttemptRef, HostGates, HostRestarts, HostWait, LearnerRef, LearnerStatus
from runners.registry import capabilities_of
from workbench.controller.decide.errors import EXHAUSTED, NEEDS_LOGIN
from workbench.controller.decide.log_policies import LogMatch
from workbench.controller.decide.model import BackendTrouble, JobSnapshot, Operation, Preparing, StopSent
from workbench.controller.decide.observations import absent, lost, merge, row_of, status_of
from workbench.controller.decide.outcome import decider
from workbench.controller.decide.reconcile import is_alive, is_decided, never_began
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, at_host, backoff_seconds
from workbench.controller.decide.scheduler import AT_ITS_HOST, LinedUpJob, QueueVerdict, SlotRequest
from workbench.controller.targets.handover import can_wait_at_host
from workbench.job import PREPARING, TERMINAL, Intent, LearnerPhase, Reason, State
from workbench.learner.journal.launch_document import (
    PREEMPT,
    has_failed_by_itself,
    is_tried_again_at_host,
)
from workbench.learner.queue.entries import group_mark, marks_text, shared_name
from workbench.spec import SWEEP_LABEL, JobSpec
from workbench.store.db.rows import OF_HOME, WATCHED, JobRow, LearnerRow, TargetRef
from workbench.store.queries.home_queue import QueuePosition
from workbench.values import dataclass

EXHAUSTED_TRIES: Final = 5
"""How often a call is tried again that the controller has too little memory or too few descriptors for."""

LEAVING_SECONDS: Final = 300.0
LEAVING_TRIES: Final = 5
"""For so long, and so often, it is tried to remove what a deleted job left where it was before, or where nobody starts
the machine. A laptop that wakes up has had the time, and not the tries."""

REFUSED_TRIES: Final = 5
"""How often a launch ahead of its turn is tried again that is refused after one without an answer."""


@dataclass(slots=True)
class TrackedJob:
    """One open job. Times are seconds of the monotonic clock."""

    row: JobRow
    spec: JobSpec
    home: str
    """The uuid of the home."""
    position: float | None = None
    """Where it stands among the jobs of its priority; None: by its submission."""
    draw: float = 0.5
    asked_by: str = ""
    statuses: dict[int, LearnerStatus] = field(default_factory=dict)
    """The last known status of each learner of the attempt, by number."""
    saved: dict[int, LearnerRow] = field(default_factory=dict)
    """The rows that the store has of the learners."""
    is_observed: bool = False
    learner_absent: bool = False
    previous_is_over: bool | None = None
    operation: Operation = Operation.NOTHING
    calling: AttemptRef | None = None
    """Which attempt that call concerns: this one, or the one before."""
    is_cancelling: bool = False
    stopping: Literal["halt", "kill"] = "halt"
    """What the stop under way asks for."""
    launches: int = 0
    launched_at: float | None = None
    probe_after_launch: bool = False
    """Whether this launch replaces learners that were lost, so that a probe has to follow it."""
    fault: BackendTrouble | None = None
    trouble: BackendTrouble | None = None
    tries: int = 0
    """How many calls in a row have failed."""
    exhausted: int = 0
    """How many calls in a row have failed since the controller itself lacks something."""
    not_before: float | None = None
    is_left: bool = False
    """Whether it is another laptop's, which alone can give it to its host again."""
    busy: str = ""
    """Why it got no slots, until they are known to be free."""
    busy_until: float | None = None
    verdict: QueueVerdict | None = None
    note: str = ""
    preparing: Preparing | None = None
    reason_changed_at: float | None = None
    stop_sent: StopSent | None = None
    decided_since: float | None = None
    stop_asked_at: float | None = None
    draining_since: float | None = None
    collect_failure: str = ""
    collect_failing_since: float | None = None
    collected_at: float | None = None
    drained: bool = False
    log_matches: tuple[LogMatch, ...] = ()
    vanished: bool = False
    cleaned: bool = False
    to_remove_at: list[TargetRef] = field(default_factory=list)
    """Where a deleted job may have left something yet, its own target first; empty until that was looked up."""
    remove_failing_since: float | None = None
    """Since when each try to remove it from the first of these has failed."""
    removed: bool = False
    unreachable: str = ""
    unreachable_since: float | None = None
    launch_unreachable: bool = False
    """Whether a launch failed because the backend did not answer: it must answer before the next one."""
    begun: bool = False
    """Whether some launch of this attempt may have started something."""
    is_handed_over: bool = False
    """Whether the attempt is QUEUED at its host, which starts it."""
    stays_here: bool = False
    """Whether its host, or what its launch needs, did not take the attempt ahead of its turn: it is not tried again."""
    is_from_waiter: bool = False
    """Whether its host's waiter has started the attempt and counts it for its sweep, as this controller knows."""
    has_gates: bool = False
    """Whether a time, other jobs or the limit of its sweep hold it back, or did."""
    gates: HostGates | None = None
    """What holds back an attempt that was handed over, as the queue saw it last."""
    restarts_at_us: int | None = None
    """When the back-off is over after which the host begins the attempt; None where it did not follow one there."""
    restarts_within: float = 0.0
    """When it is over however a clock is set."""
    restart_text: str = ""
    """Why the attempt waits until then."""
    launching_wait: HostWait | None = None
    """What the launch under way gives it to its host for; None where it is to start it."""
    made_request: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """What the last request for slots was made of, while it was QUEUED, and the request."""
    made_entry: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """The same of the last entry in its host's queue."""

    @classmethod
    def load(cls, row: JobRow, spec: JobSpec, home: str, known: Sequence[LearnerRow] = ()) -> TrackedJob:
        """Make one from the rows of a job and of its last attempt's learners."""
        tracked = cls(row, spec, home)
        tracked.begin(row, known)
        return tracked

    def begin(
        self, row: JobRow, known: Sequence[LearnerRow] = (), *, previous_is_over: bool | None = None
    ) -> None:
        """Start over with an attempt, as a controller does that was just started."""
        fresh = TrackedJob(row, self.spec, self.home, self.position, self.draw, self.asked_by)
        fresh.has_gates = self.has_gates
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
        self.saved = {one.learner: replace(one, records_offset=0) for one in known}
        self.statuses = {one.learner: status_of(one, self.home) for one in known}
        # Only of an attempt that waits at its host are there learners while it is QUEUED.
        self.is_handed_over = row.state is State.QUEUED and bool(known)
        if self.is_handed_over:
            self.statuses = {number: replace(one, waits=True) for number, one in self.statuses.items()}
        self.previous_is_over = True if row.attempt == 1 else previous_is_over
        self.begun = self.is_launched  # by a controller before this one
        # Which may have been killed before it removed what a lost learner left.
        self.vanished = any(status.phase is LearnerPhase.LOST for status in self.statuses.values())

    @property
    def attempt(self) -> AttemptRef:
        """The attempt that is current."""
        return AttemptRef(self.home, self.row.id, self.row.attempt, self.spec.learners)

    @property
    def attempt_before(self) -> AttemptRef:
        """The attempt before the current one."""
        return AttemptRef(self.home, self.row.id, self.row.attempt - 1, self.spec.learners)

    @property
    def is_launched(self) -> bool:
        """Whether something of the attempt may be at the target."""
        return self.row.state not in TERMINAL and (self.row.state is not State.QUEUED or self.is_handed_over)

    def snapshot(self, now: float) -> JobSnapshot:
        """Return what :func:`decide` needs to know of the job."""
        if self.decided_since is None and self.statuses and is_decided(self._snapshot(now)):
            self.decided_since = now
        return self._snapshot(now)

    def _snapshot(self, now: float) -> JobSnapshot:
        row = self.row
        return JobSnapshot(
            job_id=row.id,
            state=row.state,
            reason=row.reason,
            attempt=row.attempt,
            spec=self.spec,
            now=now,
            intent=row.intent,
            asked_by=self.asked_by,
            restarts=row.restarts,
            platform_restarts=row.platform_restarts,
            draw=self.draw,
            statuses=self.statuses,
            is_observed=self.is_observed,
            learner_absent=self.learner_absent,
            previous_is_over=self.previous_is_over,
            operation=self.operation,
            is_cancelling=self.is_cancelling,
            launches=self.launches,
            launched_at=self.launched_at,
            fault=self.fault,
            trouble=self.trouble,
            not_before=self.not_before,
            verdict=self.verdict,
            note=self.note,
            preparing=self.preparing,
            reason_changed_at=self.reason_changed_at,
            stop_sent=self.stop_sent,
            decided_since=self.decided_since,
            stop_asked_at=self.stop_asked_at,
            draining_since=self.draining_since,
            collect_failure=self.collect_failure,
            collect_failing_since=self.collect_failing_since,
            collected_at=self.collected_at,
            drained=self.drained,
            log_matches=self.log_matches,
            vanished=self.vanished,
            cleaned=self.cleaned,
            removed=self.removed,
            unreachable=self.unreachable,
            unreachable_since=self.unreachable_since,
            never_started=self.launch_unreachable and not self.begun,
            is_handed_over=self.is_handed_over,
            may_be_followed=not self.is_observed and self._may_be_followed(),
            is_watched=self._is_watched,
        )

    @property
    def _is_watched(self) -> bool:
        """Whether it belongs to another laptop, and is only looked at."""
        return bool(self.row.target.options.get(WATCHED))

    def _may_be_followed(self) -> bool:
        """Say whether the end that is on record may lack that the host has begun the next attempt."""
        ended = [one for one in self.statuses.values() if one.phase is LearnerPhase.EXITED]
        one = decider(ended, ends_when=self.spec.ends_when, intent=Intent.NONE)
        if len(ended) != self.spec.learners or one is None:
            return False
        code = "" if one.reason is None else one.reason.code
        is_preempted = any(each.stopped == PREEMPT for each in ended)
        is_of_user = has_failed_by_itself(one.exit_code, one.signal, one.stopped, code)
        is_of_platform = is_tried_again_at_host(one.exit_code, one.stopped, code, is_agent_killed=True)
        if not (is_preempted or is_of_user or is_of_platform):
            return False
        if self._is_watched:
            return True
        restarts = self.restarts_at_host()
        if restarts is None or is_preempted:
            return restarts is not None
        if is_of_platform:
            return restarts.platform_done < restarts.platform_allowed
        return restarts.done < restarts.allowed

    def restarts_at(self, time_us: int, within: float) -> None:
        """Note when the host begins the attempt, which follows one that failed there; it can be asked to begin now.

        Args:
            time_us: when that is by its clock.
            within: when it is so however any clock is set.
        """
        self.restarts_at_us, self.restarts_within, self.has_gates = time_us, within, True
        self.restart_text = self.row.reason.text

    def restarts_now(self) -> None:
        """Note that nothing is waited for any more between the attempts."""
        self.not_before = self.restarts_at_us = None

    def restarts_at_host(self) -> HostRestarts | None:
        """Return how the host begins the next attempt, should this one fail or be preempted; None where it does not."""
        row = self.row
        restarts = at_host(
            self.spec, restarts=row.restarts, platform_restarts=row.platform_restarts, draw=self.draw
        )
        if restarts is None or not can_wait_at_host(row.target):
            return None
        can = capabilities_of(row.target.runner)
        return restarts if can is not None and can.restarts else None

    @property
    def is_limited(self) -> bool:
        """Whether it belongs to a sweep or search of which no more than some may run at once."""
        return self.spec.at_most is not None and SWEEP_LABEL in self.row.labels

    def slot_request(self) -> SlotRequest:
        """Return the slots and CPUs that the job needs: none once its commands are over and it stores results.

        The same object as before for one that is QUEUED and has not changed: each decision asks all that wait.
        """
        if self.row.state is not State.QUEUED:
            return self._slot_request()
        made_of = (self.row, self.spec, self.position, self.busy, self.is_handed_over)
        if not _are_same(made_of, self.made_request):
            self.made_request = (*made_of, self._slot_request())
        return cast(SlotRequest, self.made_request[-1])

    def _slot_request(self) -> SlotRequest:
        is_over = self.row.state is State.STORING and not self._is_followed
        count = 0 if is_over else self.spec.learners
        cpus, slots = (self.spec.cpus or 0.0) * count, self.spec.gpus * count
        return SlotRequest(
            self.row.id,
            self.row.seq,
            cpus,
            slots,
            self.busy,
            self.spec.learners,
            self.spec.priority,
            self.position_in_line,
            self._ends_us(),
            is_handed_over=self.is_handed_over,
        )

    @property
    def _is_followed(self) -> bool:
        """Whether the host has begun the next attempt, whose turn is not noted yet."""
        return any(one.followed_by is not None for one in self.statuses.values())

    def _ends_us(self) -> int | None:
        """Return when the attempt is over at the latest; None where it does not run yet, or has no limit."""
        started_us, limit = self.row.started_us, self.spec.max_runtime_seconds
        if self.row.state is not State.PROCESSING or started_us is None or limit is None:
            return None
        return started_us + int(limit * 1e6)

    def line_entry(self) -> LinedUpJob:
        """Return the job as it waits for GPUs in its host's queue; the same object as before where nothing changed."""
        gates = self.gates if self.is_handed_over and self.has_gates else None
        is_handed_over = self.is_handed_over
        made_of = (self.row.id, self.spec, self.position, self.tries, gates, self.row.attempt, is_handed_over)
        if not _are_same(made_of, self.made_entry):
            spec = self.spec
            entry = LinedUpJob(
                job=self.row.id,
                gpus=spec.gpus * spec.learners,
                each=spec.gpus,
                priority=spec.priority,
                position=self.position_in_line,
                max_runtime_seconds=spec.longest_seconds,
                tries=self.tries,
                labels=marks_text(spec.labels),
                group=group_mark(spec.labels.get(SWEEP_LABEL, "")),
                name=shared_name(spec.name) if self._shares_name() else "",
                weight=spec.weight,
                gates=gates,
                attempt=self.row.attempt,
                is_handed_over=is_handed_over,
            )
            self.made_entry = (*made_of, entry)
        return cast(LinedUpJob, self.made_entry[-1])

    def _shares_name(self) -> bool:
        """Say whether others may read its name, at one of several hosts at least."""
        ref = self.row.target
        members = member_options(BackendOptions.of(ref))
        return any(is_set(one.options, SHARE_NAMES) for one in members)

    def wait_at_host(self) -> HostWait | None:
        """Return what a launch is to give the attempt to its host for; None where it is to start what it can.

        Where some learner has begun the others follow it at once.
        """
        if self.has_begun:
            return None
        verdict = self.verdict
        if verdict is None:
            gates = HostGates(limit=None if self.gates is None else self.gates.limit)
            is_to_wait = not self.spec.gpus or gates.limit is not None
            return HostWait(AT_ITS_HOST, gates) if self.is_handed_over and is_to_wait else None
        return None if verdict.start else verdict.wait

    @property
    def is_on_its_way(self) -> bool:
        """Whether a job that waits is just being given to its host, which puts it where it stands in the queue."""
        if self.row.state not in PREPARING or self.has_begun:
            return False
        is_given = self.verdict is not None and self.verdict.hand_over
        return is_given or self.wait_at_host() is not None

    @property
    def has_begun(self) -> bool:
        """Say whether some learner does not wait any more."""
        return any(not (one.waits or one.cut_off or never_began(one)) for one in self.statuses.values())

    @property
    def order(self) -> tuple[float, float, int]:
        """What jobs of one home are sorted by: that of :meth:`slot_request`, which takes longer to make."""
        return (-self.spec.priority, self.position_in_line, self.row.seq)

    @property
    def position_in_line(self) -> float:
        """Where it stands among the jobs of its home and priority."""
        return float(self.row.seq) if self.position is None else self.position

    def stands_at(self, stands: QueuePosition) -> None:
        """Take over where the job stands in the queue."""
        begin = self.spec.begin if stands.begin is None else stands.begin
        self.has_gates |= bool(self.spec.after or self.spec.begin or begin or self.is_limited)
        self.spec = replace(self.spec, priority=stands.priority, weight=stands.weight, begin=begin)
        self.position = stands.position

    def unsaved(self) -> list[LearnerRow]:
        """List the rows of learners that differ from those in the store."""
        rows = (row_of(status) for status in self.statuses.values() if _is_worth_a_row(status))
        return [row for row in rows if self.saved.get(row.learner) != row]

    def saved_all(self) -> None:
        """Note that the store has the rows of all learners."""
        self.saved |= {row.learner: row for row in self.unsaved()}

    def transitioned(self, row: JobRow) -> None:
        """Take over the row after a transition. A job that was QUEUED here has no learners yet: none are looked for."""
        before, self.row = self.row, row
        if before.state is State.QUEUED and row.state is State.PENDING and not self.is_handed_over:
            self.is_observed, self.not_before, self.busy = True, None, ""
        if row.state is State.QUEUED and before.state is not State.QUEUED:
            self.is_handed_over = any(status.waits for status in self.statuses.values())
            self.preparing = None
            if not self.is_handed_over:
                self.trouble, self.verdict, self.launches = None, None, 0
        elif row.state is not State.QUEUED:
            is_counted = self.gates is not None and self.gates.limit is not None
            self.is_from_waiter |= self.is_handed_over and is_counted
            self.is_handed_over = False

    def intent_changed(self, row: JobRow, asked_by: str, now: float) -> None:
        """Take over the row after a person's request; a pending retry is due at once."""
        if row.intent is not self.row.intent:
            self.stop_asked_at = None if row.intent is Intent.NONE else now
        self.row, self.asked_by = row, asked_by
        if row.intent is not Intent.NONE:
            self.not_before = None

    def call(self, operation: Operation, attempt: AttemptRef | None = None) -> None:
        """Note that a call to the backend begins, for the current attempt or another one."""
        self.operation, self.calling = operation, attempt or self.attempt
        if operation is Operation.LAUNCH:
            # They are launched again: that they are lost must not be taken for the end of what this launch begins.
            began = {number: one for number, one in self.statuses.items() if not never_began(one)}
            self.probe_after_launch |= len(began) < len(self.statuses)
            self.statuses = began
        self.preparing, self.is_cancelling = None, False

    def call_failed(self, trouble: BackendTrouble, now: float) -> None:
        """Note that the call failed. A launch may fail for good; all else is tried again, ever later."""
        launching = self.operation is Operation.LAUNCH
        if self.operation is Operation.REMOVE and self.remove_failing_since is None:
            self.remove_failing_since = now
        wait, self.launching_wait = self.launching_wait if launching else None, None
        self.operation, self.preparing = Operation.NOTHING, None
        if trouble.reason.code == EXHAUSTED:
            self._exhausted(trouble, now, launching=launching)
            return
        if launching and trouble.kind in ("refused", "fault") and self._left_to_laptop:
            self._leave_to_laptop(trouble, now)
            return
        if wait is not None and trouble.kind in ("busy", "refused", "fault"):
            if not self.begun:
                self._not_taken_ahead(trouble)
                return
            if self.tries < REFUSED_TRIES:
                # A launch before, of which no answer came, may have given it to its host.
                trouble = replace(trouble, kind="unreachable")
        if launching and trouble.kind in ("refused", "fault"):
            # What an earlier launch of the attempt began may run, whatever kept this one from starting anything.
            self.fault = replace(trouble, started=trouble.started or self.begun)
            return
        delay = backoff_seconds(self.tries, self.draw)
        self.begun |= launching and trouble.started
        self.launch_unreachable |= launching and trouble.kind == "unreachable" and not trouble.started
        if trouble.kind == "unreachable" or trouble.is_denied:
            delay = min(delay, RETRY_LONGEST_SECONDS)
        self.tries += 1
        self.trouble = trouble
        if trouble.kind == "busy":
            self.busy, self.busy_until = trouble.reason.text, now + delay
            if self.is_handed_over:  # its host has no waiter any more
                self.is_handed_over, self.statuses = False, {}
        else:
            self.not_before = now + delay

    @property
    def _left_to_laptop(self) -> str:
        """What another laptop's job waits for that its host starts no more; empty for every other job."""
        if OF_HOME not in self.row.target.options:
            return ""
        reasons = (one.reason for one in self.statuses.values() if one.cut_off)
        return next((reason.text for reason in reasons if reason is not None), "")

    def _leave_to_laptop(self, trouble: BackendTrouble, now: float) -> None:
        """Note that the attempt cannot be given to its host from here: its own laptop can do that still."""
        text = f"{self._left_to_laptop}; from here it cannot be started: {trouble.reason.text}"
        self.trouble = BackendTrouble("unreachable", Reason(text, "S200", trouble.reason.hint))
        self.not_before = now + min(backoff_seconds(self.tries, self.draw), RETRY_LONGEST_SECONDS)
        self.tries += 1
        self.is_left = True

    def _not_taken_ahead(self, trouble: BackendTrouble) -> None:
        """Note that its host does not take the attempt before its turn: it waits here.

        What its preparation lacks may be there once it may start, such as a folder that the job before it makes.
        """
        self.stays_here, self.is_handed_over, self.statuses = True, False, {}
        self.trouble = replace(trouble, kind="busy", started=False)

    def _exhausted(self, trouble: BackendTrouble, now: float, *, launching: bool) -> None:
        """Note that the controller lacks what the call needs: it is tried again; in the end the job ends with that.

        What the attempt may have left by then is removed as of any attempt that is over.
        """
        self.exhausted += 1
        if self.exhausted > EXHAUSTED_TRIES and self.row.state is not State.QUEUED:
            self.fault = replace(trouble, kind="refused", started=False)
            return
        self.begun |= launching and trouble.started
        self.trouble = replace(trouble, kind="unreachable")
        self.not_before = now + backoff_seconds(self.exhausted - 1, self.draw)

    def is_away(self, why: str, now: float) -> bool:
        """Note that the backend does not answer; return whether that, or the reason, is new."""
        is_news = self.unreachable != why
        self.unreachable = why
        if self.unreachable_since is None:
            self.unreachable_since = now
        return is_news

    def reachable_again(self) -> None:
        """Note that the backend answers again: a call that failed for that is due at once."""
        self.unreachable, self.unreachable_since, self.launch_unreachable = "", None, False
        if self.trouble is not None and self.trouble.kind == "unreachable":
            self.not_before, self.tries = None, 0

    def answered_again(self) -> None:
        """Note that the backend answered a measurement, if only with a refusal: a launch can be tried."""
        self.launch_unreachable = False

    def launched(self, now: float) -> bool:
        """Note that a launch succeeded; return whether a probe must follow it."""
        self._call_succeeded()
        probe, self.probe_after_launch = self.probe_after_launch, False
        self.begun = True
        self.launches += 1
        self.launched_at = now
        return probe

    def launch_cancelled(self) -> None:
        """Note that the launch ended because it was cancelled."""
        self.operation, self.preparing = Operation.NOTHING, None

    def launch_progressed(
        self, text: str, stage: Literal["preparing", "waiting", "starting"], now: float
    ) -> None:
        """Note the progress that a launch reports."""
        before = self.preparing
        since = before.since if before is not None and before.stage == stage else now
        self.preparing = Preparing(text, stage, since)

    def observed(self, shown: Sequence[LearnerStatus], *, whole: bool) -> bool:
        """Merge an observation of the attempt; return whether it changed anything. ``whole``: it is complete."""
        before = (self.statuses, self.is_observed, self.learner_absent)
        self.statuses = merge(self.statuses, shown)
        if self.is_left and not self._left_to_laptop:
            self.is_left, self.trouble, self.tries, self.not_before = False, None, 0, None
        if whole:
            self.is_observed = True
            # Before all have begun, only those that were there can be gone.
            expected = self.spec.learners if self.row.state in (State.PROCESSING, State.STORING) else 0
            gone = absent(self.statuses, shown, expected=max([expected, *self.statuses]))
            self.learner_absent = any(number <= expected or number in self.statuses for number in gone)
        return before != (self.statuses, self.is_observed, self.learner_absent)

    def probed(self, shown: Sequence[LearnerStatus], *, stopped: StopSent | None = None) -> None:
        """Merge the answer to a probe of the attempt: a learner that it lacks is lost."""
        self._call_succeeded()
        known = self.statuses
        self.statuses = merge(known, shown)
        expected = self.spec.learners if self.row.state in (State.PROCESSING, State.STORING) else 0
        for number in absent(self.statuses, shown, expected=max([expected, *known])):
            if number <= expected or number in known:
                self.statuses[number] = lost(self._ref(number), known.get(number))
                self.vanished = True
        self.is_observed, self.learner_absent = True, False
        if stopped is not None:
            self.stop_sent = stopped

    def leaves_files_behind(self, trouble: BackendTrouble, now: float) -> bool:
        """Say whether what a deleted job left at a target stays there, as it could not be removed for too long.

        The job's own target is waited for, unless its machine starts on demand: nobody starts it for that.
        """
        if not self.to_remove_at or self.remove_failing_since is None:
            return False
        if trouble.reason.text.startswith(NEEDS_LOGIN):
            return False  # a person can help, and is asked to
        target = self.to_remove_at[0]
        is_off = trouble.kind == "unreachable" and bool(target.options.get("on_demand"))
        is_long = now >= self.remove_failing_since + LEAVING_SECONDS and self.tries >= LEAVING_TRIES
        return is_long and (is_off or target != self.row.target)

    def probed_previous(self, shown: Iterable[LearnerStatus], now: float) -> None:
        """Take over the answer to a probe of the previous attempt."""
        self._call_succeeded()
        was_stopped = self.previous_is_over is False
        self.previous_is_over = not any(is_alive(status) for status in shown)
        if not self.previous_is_over and was_stopped:
            self.not_before = now + backoff_seconds(1, self.draw)

    def removed_all(self) -> None:
        """Note that the backend has nothing left of the job, or of this attempt while the job is open."""
        self._call_succeeded()
        self.remove_failing_since = None
        if self.row.state not in TERMINAL:
            self.cleaned = True
        elif self.to_remove_at:  # else it is the answer to what was to be cleaned up before the end
            del self.to_remove_at[0]
            self.removed = not self.to_remove_at

    def _call_succeeded(self) -> None:
        self.operation, self.preparing = Operation.NOTHING, None
        self.trouble, self.tries, self.exhausted, self.not_before = None, 0, 0, None

    def _ref(self, learner: int) -> LearnerRef:
        return LearnerRef(self.home, self.row.id, self.row.attempt, learner)


def _are_same(parts: tuple[object, ...], known: tuple[object, ...]) -> bool:
    """Say whether what a value was made of is still the same; rows are not compared field by field."""
    return bool(known) and all(map(operator.is_, parts, known))


def _is_worth_a_row(status: LearnerStatus) -> bool:
    # A phase that another follows within a moment is not worth the write, which would only delay that.
    if status.waits:
        return True  # by this row the next controller knows that the attempt was handed over
    ending = status.phase in (LearnerPhase.STOPPING, LearnerPhase.STORING) and status.ended_us is not None
    return status.phase is not LearnerPhase.STARTING and not ending
