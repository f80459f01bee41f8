"""What the controller remembers of one job; all of it can be rebuilt from the store and the backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from runners.interface import AttemptRef, LearnerRef, LearnerStatus
from workbench.controller.decide.model import BackendTrouble, JobSnapshot, Operation, Preparing, StopSent
from workbench.controller.decide.observations import absent, lost, merge, row_of, seen_of
from workbench.controller.decide.reconcile import is_alive, is_decided, never_began
from workbench.controller.decide.restarts import RETRY_LONGEST_SECONDS, backoff_seconds
from workbench.controller.decide.scheduling import QueueVerdict, SlotRequest
from workbench.job import TERMINAL, Intent, LearnerPhase, State
from workbench.spec import JobSpec
from workbench.store.db.rows import JobRow, LearnerRow


@dataclass(slots=True)
class TrackedJob:
    """One open job. Times are seconds of the monotonic clock."""

    row: JobRow
    spec: JobSpec
    home: str
    """The uuid of the home."""
    draw: float = 0.5
    asked_by: str = ""
    seen: dict[int, LearnerStatus] = field(default_factory=dict)
    saved: dict[int, LearnerRow] = field(default_factory=dict)
    """What the store has of the learners."""
    looked: bool = False
    doubt: bool = False
    previous_is_over: bool | None = None
    operation: Operation = Operation.NOTHING
    calling: AttemptRef | None = None
    """Which attempt that call concerns: this one, or the one before."""
    is_cancelling: bool = False
    stopping: Literal["halt", "kill"] = "halt"
    """What the stop under way asks for."""
    launches: int = 0
    launched_at: float | None = None
    look_after_launch: bool = False
    """Whether it was forgotten that learners were lost, since they are launched again."""
    fault: BackendTrouble | None = None
    trouble: BackendTrouble | None = None
    tries: int = 0
    """How many calls in a row have failed."""
    not_before: float | None = None
    busy: str = ""
    """Why its slots were not to be had, until they are known to be free."""
    busy_until: float | None = None
    verdict: QueueVerdict | None = None
    note: str = ""
    preparing: Preparing | None = None
    reason_changed_at: float | None = None
    stop_sent: StopSent | None = None
    decided_since: float | None = None
    draining_since: float | None = None
    collected_at: float | None = None
    drained: bool = False
    vanished: bool = False
    cleaned: bool = False
    removed: bool = False
    unreachable: str = ""
    away: bool = False
    """Whether the place could not be reached for a launch, and has to answer before another is tried."""
    begun: bool = False
    """Whether some launch of this attempt may have started something."""

    @classmethod
    def load(cls, row: JobRow, spec: JobSpec, home: str, known: Sequence[LearnerRow] = ()) -> TrackedJob:
        """Begin with what the store has of a job and of its last attempt's learners."""
        tracked = cls(row, spec, home)
        tracked.begin(row, known)
        return tracked

    def begin(
        self, row: JobRow, known: Sequence[LearnerRow] = (), *, previous_is_over: bool | None = None
    ) -> None:
        """Turn to an attempt, as if the controller had just been started."""
        fresh = TrackedJob(row, self.spec, self.home, draw=self.draw, asked_by=self.asked_by)
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))
        self.saved = {one.learner: replace(one, records_offset=0) for one in known}
        self.seen = {one.learner: seen_of(one, self.home) for one in known}
        self.previous_is_over = True if row.attempt == 1 else previous_is_over
        self.begun = row.state is not State.QUEUED  # by a controller before this one

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
        """Whether something of the attempt may be at the place."""
        return self.row.state is not State.QUEUED and self.row.state not in TERMINAL

    def snapshot(self, now: float) -> JobSnapshot:
        """Return what a decision is made from."""
        if self.decided_since is None and self.seen and is_decided(self._snapshot(now)):
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
            seen=self.seen,
            looked=self.looked,
            doubt=self.doubt,
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
            draining_since=self.draining_since,
            collected_at=self.collected_at,
            drained=self.drained,
            vanished=self.vanished,
            cleaned=self.cleaned,
            removed=self.removed,
            unreachable=self.unreachable,
            never_started=self.away and not self.begun,
        )

    def slot_request(self) -> SlotRequest:
        """Return what the job wants of its place: nothing once its commands are over and it stores its results."""
        count = 0 if self.row.state is State.STORING else self.spec.learners
        cpus, slots = (self.spec.cpus or 0.0) * count, self.spec.gpus * count
        return SlotRequest(self.row.id, self.row.seq, cpus, slots, self.busy)

    def unsaved(self) -> list[LearnerRow]:
        """List the learners of whom the store does not know what it should."""
        rows = (row_of(seen) for seen in self.seen.values() if _is_worth_a_row(seen))
        return [row for row in rows if self.saved.get(row.learner) != row]

    def saved_all(self) -> None:
        """Note that the store knows all that is to be known."""
        self.saved |= {row.learner: row for row in self.unsaved()}

    def stepped(self, row: JobRow) -> None:
        """Take in the row after a step. Out of QUEUED nothing was launched, so there is no need to look."""
        before, self.row = self.row, row
        if before.state is State.QUEUED and row.state is State.PENDING:
            self.looked, self.not_before, self.busy = True, None, ""
        if row.state is State.QUEUED and before.state is not State.QUEUED:
            self.trouble, self.verdict, self.preparing, self.launches = None, None, None, 0

    def asked(self, row: JobRow, asked_by: str) -> None:
        """Take in that a person asked for something: what waited for its time waits no more."""
        self.row, self.asked_by = row, asked_by
        if row.intent is not Intent.NONE:
            self.not_before = None

    def call(self, operation: Operation, attempt: AttemptRef | None = None) -> None:
        """Note that a call at the place begins, for the current attempt or another one."""
        self.operation, self.calling = operation, attempt or self.attempt
        if operation is Operation.LAUNCH:
            # They are launched again: that they are lost must not be taken for the end of what this launch begins.
            kept = {number: seen for number, seen in self.seen.items() if not never_began(seen)}
            self.look_after_launch |= len(kept) < len(self.seen)
            self.seen = kept
        self.preparing, self.is_cancelling = None, False

    def call_failed(self, trouble: BackendTrouble, now: float) -> None:
        """Note that the call failed. A launch may fail for good; all else is tried again, ever later."""
        launching = self.operation is Operation.LAUNCH
        self.operation, self.preparing = Operation.NOTHING, None
        if launching and trouble.kind in ("refused", "fault"):
            self.fault = trouble
            return
        delay = backoff_seconds(self.tries, self.draw)
        self.begun |= launching and trouble.started
        self.away |= launching and trouble.kind == "unreachable" and not trouble.started
        if trouble.kind == "unreachable":
            delay = min(delay, RETRY_LONGEST_SECONDS)
        self.tries += 1
        self.trouble = trouble
        if trouble.kind == "busy":
            self.busy, self.busy_until = trouble.reason.text, now + delay
        else:
            self.not_before = now + delay

    def reachable_again(self) -> None:
        """Note that the place answers again: what could not be asked of it is asked at once."""
        self.unreachable, self.away = "", False
        if self.trouble is not None and self.trouble.kind == "unreachable":
            self.not_before, self.tries = None, 0

    def answered_again(self) -> None:
        """Note that the place says what it has, or that it will not: a launch there can be tried."""
        self.away = False

    def launched(self, now: float) -> bool:
        """Note that a launch went through; return whether the place is to be looked at for who was lost before."""
        self._worked()
        look, self.look_after_launch = self.look_after_launch, False
        self.begun = True
        self.launches += 1
        self.launched_at = now
        return look

    def cancelled(self) -> None:
        """Note that a launch ended because it was called off."""
        self.operation, self.preparing = Operation.NOTHING, None

    def prepares(self, text: str, stage: Literal["preparing", "waiting", "starting"], now: float) -> None:
        """Note what a launch says that it does."""
        before = self.preparing
        since = before.since if before is not None and before.stage == stage else now
        self.preparing = Preparing(text, stage, since)

    def observed(self, shown: Sequence[LearnerStatus], *, whole: bool) -> bool:
        """Take in news of the attempt from the place's watch; return whether there was anything new."""
        before = (self.seen, self.looked, self.doubt)
        self.seen = merge(self.seen, shown)
        if whole:
            self.looked = True
            expected = self.spec.learners if self.row.state in (State.PROCESSING, State.STORING) else 0
            self.doubt = bool(absent(self.seen, shown, expected=expected))
        return before != (self.seen, self.looked, self.doubt)

    def probed(self, shown: Sequence[LearnerStatus], *, stopped: StopSent | None = None) -> None:
        """Take in everything there is of the attempt, as a look that was asked for shows it."""
        self._worked()
        known = self.seen
        self.seen = merge(known, shown)
        expected = self.spec.learners if self.row.state in (State.PROCESSING, State.STORING) else 0
        for number in absent(self.seen, shown, expected=max([expected, *known])):
            if number <= expected or number in known:
                self.seen[number] = lost(self._ref(number), known.get(number))
                self.vanished = True
        self.looked, self.doubt = True, False
        if stopped is not None:
            self.stop_sent = stopped

    def probed_previous(self, shown: Iterable[LearnerStatus], now: float) -> None:
        """Take in what is left of the attempt before."""
        self._worked()
        asked_to_end = self.previous_is_over is False
        self.previous_is_over = not any(is_alive(seen) for seen in shown)
        if not self.previous_is_over and asked_to_end:
            self.not_before = now + backoff_seconds(1, self.draw)

    def removed_all(self) -> None:
        """Note that the place has nothing of the job any more; of this attempt, while it is open."""
        self._worked()
        if self.row.state in TERMINAL:
            self.removed = True
        else:
            self.cleaned = True

    def _worked(self) -> None:
        self.operation, self.preparing = Operation.NOTHING, None
        self.trouble, self.tries, self.not_before = None, 0, None

    def _ref(self, learner: int) -> LearnerRef:
        return LearnerRef(self.home, self.row.id, self.row.attempt, learner)


def _is_worth_a_row(seen: LearnerStatus) -> bool:
    # What is but a moment before something else would only delay it.
    ending = seen.phase in (LearnerPhase.STOPPING, LearnerPhase.STORING) and seen.ended_us is not None
    return seen.phase is not LearnerPhase.STARTING and not ending
