"""A backend and a store in miniature, driven by the real decisions: to try orders of events by the thousand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from runners.interface import LearnerRef, LearnerStatus
from tests.quick.controller.values import GO, HOME, JOB, row, spec
from workbench.controller.decide.model import (
    Action,
    BackendTrouble,
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
from workbench.controller.decide.reconcile import decide
from workbench.controller.decide.requests import Intend, Keep, Resume, StartNow, answer
from workbench.controller.loop.job_state import TrackedJob
from workbench.job import TERMINAL, LearnerPhase, Reason, State, may_step
from workbench.spec import JobSpec
from workbench.store.db.rows import JobRow, LearnerRow


@dataclass
class PretendedBackend:
    """What is really there. A spawned learner is not seen before it says so; the promises of runners hold."""

    learners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(attempt, learner) -> ``spawned``, ``alive``, ``lost`` or ``exited <code> <stopped>``."""
    stopping: dict[int, str] = field(default_factory=dict)
    """Attempts for which a request to stop lies there."""
    starts: list[tuple[int, int]] = field(default_factory=list)

    def spawn(self, attempt: int, learner: int) -> None:
        self.learners.setdefault((attempt, learner), "spawned")

    def wake(self, attempt: int, learner: int) -> None:
        if self.learners.get((attempt, learner)) != "spawned":
            return
        if attempt in self.stopping:
            self.learners[attempt, learner] = f"exited 143 {self.stopping[attempt]}"
        else:
            self.learners[attempt, learner] = "alive"
            self.starts.append((attempt, learner))

    def end(self, attempt: int, learner: int, how: str) -> None:
        if self.learners.get((attempt, learner)) == "alive":
            self.learners[attempt, learner] = how

    def obey(self) -> None:
        for attempt, kind in self.stopping.items():
            for key, how in self.learners.items():
                if key[0] == attempt and how == "alive":
                    self.learners[key] = f"exited 143 {kind}"

    def lose_trace(self, attempt: int, learner: int) -> None:
        """Somebody removes its files: it runs on and is not seen any more."""
        if self.learners.get((attempt, learner)) == "alive":
            self.learners[attempt, learner] = "hidden"

    def alive(self, attempt: int | None = None) -> list[tuple[int, int]]:
        return [
            key
            for key, how in self.learners.items()
            if how in ("alive", "hidden") and attempt in (None, key[0])
        ]

    def show(self, attempt: int) -> list[LearnerStatus]:
        return [
            _seen(number, at, how)
            for (at, number), how in self.learners.items()
            if at == attempt and how not in ("spawned", "hidden")
        ]


def _seen(number: int, attempt: int, how: str) -> LearnerStatus:
    ref = LearnerRef(HOME, JOB, attempt, number)
    if how == "alive":
        return LearnerStatus(ref, LearnerPhase.RUNNING, started_us=1)
    if how == "lost":
        return LearnerStatus(ref, LearnerPhase.LOST, started_us=1, reason=Reason("gone", "S104"))
    _, code, stopped = how.split(" ")
    return LearnerStatus(
        ref, LearnerPhase.EXITED, exit_code=int(code), stopped=stopped, started_us=1, ended_us=2
    )


class Simulation:
    """One job, one backend, one controller that may be restarted; asserts what must hold at all times."""

    def __init__(self, job: JobSpec | None = None) -> None:
        self.spec = job or spec(learners=2, max_restarts=1)
        self.backend = PretendedBackend()
        self.row: JobRow = row(State.QUEUED, learners=self.spec.learners)
        self.rows: dict[int, dict[int, LearnerRow]] = {}
        self.requests: list[str] = []
        self.now = 0.0
        self.finishes: list[Finish] = []
        self.forgotten = self.closed = False
        self.snapshots: list[tuple[int, list[LearnerStatus]]] = []
        self.until: float | None = None
        self.start_controller()

    def start_controller(self) -> None:
        """Begin with what the store has, and nothing else."""
        known = list(self.rows.get(self.row.attempt, {}).values())
        self.tracked = TrackedJob.load(self.row, self.spec, HOME, known)
        self.pending: list[tuple[int, Callable[[str], None]]] = []
        self.closed = False
        self.settle()

    def ask(self, kind: str) -> None:
        """A person asks for something."""
        if not self.forgotten:
            self.requests.append(kind)
            self.settle()

    def news(self, *, whole: bool) -> None:
        """The backend's watch reports how things are."""
        self._tell(self.row.attempt, self.backend.show(self.row.attempt), whole=whole)

    def old_news(self, which: int) -> None:
        """The backend's watch reports how things were."""
        if self.snapshots:
            attempt, shown = self.snapshots[which % len(self.snapshots)]
            self._tell(attempt, shown, whole=False)

    def remember(self) -> None:
        """A look is taken whose telling is late."""
        self.snapshots.append((self.row.attempt, self.backend.show(self.row.attempt)))

    def come_back(self, how: str) -> None:
        """The call that is under way ends: ``ok``, ``unreachable``, ``busy``, ``fault`` or ``refused``."""
        if self.pending:
            attempt, ends = self.pending.pop(0)
            ends(how if attempt == self.row.attempt or how == "ok" else "ok")
            self.settle()

    def launch_one(self, number: int) -> None:
        """The launch that is under way gets as far as this learner."""
        if self.tracked.operation is Operation.LAUNCH and number <= self.spec.learners:
            self.backend.spawn(self.row.attempt, number)

    def pass_time(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.settle()

    def settle(self) -> None:
        """Do all that there is to do now."""
        for _ in range(40):
            self._answer()
            if self.forgotten or self.closed:
                return
            self.tracked.verdict = GO
            decision = decide(self.tracked.snapshot(self.now))
            self.until = decision.until
            assert decision.until is None or decision.until > self.now, "it would decide for ever"
            if not decision.actions:
                return
            for action in decision.actions:
                self._do(action)
        raise AssertionError(f"it does not come to rest: {decision}")

    def _tell(self, attempt: int, shown: list[LearnerStatus], *, whole: bool) -> None:
        if attempt == self.row.attempt and self.tracked.is_launched:
            self.tracked.observed(shown, whole=whole)
            self.settle()

    def _answer(self) -> None:
        kept = []
        for index, kind in enumerate(self.requests):
            found = answer(kind, self.row, self.requests[index + 1 :])
            if isinstance(found, Keep | Intend):
                kept.append(kind)
            if isinstance(found, Intend):
                self.row = replace(self.row, intent=found.intent)
                self.tracked.intent_changed(self.row, "me@box", self.now)
                self.closed = False
            elif isinstance(found, Resume):
                self._next_attempt(previous_is_over=None, delay=0.0, restarts=(0, 0))
                self.closed = False
            elif isinstance(found, StartNow):
                self.tracked.not_before = None
        self.requests = kept

    def _do(self, action: Action) -> None:
        tracked, backend, attempt = self.tracked, self.backend, self.row.attempt
        match action:
            case Transition(state, reason):
                self._step(state, reason)
            case SetReason(reason):
                self.row = tracked.row = replace(self.row, reason=reason)
                tracked.reason_changed_at = self.now
            case StartLaunch():
                assert self.row.state is not State.QUEUED
                assert not [key for key in backend.alive() if key[0] != attempt], (
                    "the last attempt still runs"
                )
                self._call(Operation.LAUNCH, lambda how: self._launched(attempt, how))
            case CancelLaunch():
                tracked.is_cancelling = True
            case Stop(kind, _):
                self._call(Operation.STOP, lambda how: self._stopped(attempt, kind, how))
            case Probe():
                self._call(Operation.PROBE, lambda how: self._looked(attempt, how))
            case ProbePrevious(end):
                self._call(Operation.PROBE, lambda how: self._looked_back(attempt - 1, end, how))
            case Drain():
                tracked.draining_since = self.now
                tracked.drained = True
            case CleanUp():
                self._call(Operation.REMOVE, lambda how: self._cleaned(attempt, how))
            case Finish():
                self._finish(action)
            case Remove():
                assert not backend.alive(), "removed while it runs"
                self._call(Operation.REMOVE, self._removed)
            case Purge():
                self.forgotten = True
            case Untrack():
                assert self.row.state in TERMINAL
                self.closed = True

    def _call(self, operation: Operation, ends: Callable[[str], None]) -> None:
        assert not [at for at, _ in self.pending if at == self.row.attempt], (
            "two calls for one attempt at once"
        )
        self.tracked.call(operation)
        self.pending.append((self.row.attempt, ends))

    def _failed(self, how: str, *, started: bool = False) -> bool:
        kind = how if how in ("unreachable", "busy", "fault", "refused") else ""
        if kind == "":
            return False
        trouble = BackendTrouble(kind, Reason(kind, "S101"), started)  # type: ignore[arg-type] # one of the four
        self.tracked.call_failed(trouble, self.now)
        return True

    def _launched(self, attempt: int, how: str) -> None:
        if self.tracked.is_cancelling:
            self.tracked.launch_cancelled()
            return
        if how not in ("busy", "refused"):
            for number in range(1, self.spec.learners + (how == "ok")):
                self.backend.spawn(attempt, number)
        if not self._failed(how, started=True):
            self.tracked.launched(self.now)

    def _stopped(self, attempt: int, kind: str, how: str) -> None:
        if attempt == self.row.attempt and self._failed("unreachable" if how != "ok" else ""):
            return
        if self.backend.stopping.get(attempt) != "kill":
            self.backend.stopping[attempt] = kind
        times = self.tracked.stop_sent.times + 1 if self.tracked.stop_sent else 1
        if attempt == self.row.attempt:
            sent = StopSent(kind, self.now, times)  # type: ignore[arg-type] # one of the two
            self.tracked.probed(self.backend.show(attempt), stopped=sent)

    def _looked(self, attempt: int, how: str) -> None:
        if attempt == self.row.attempt and not self._failed("unreachable" if how != "ok" else ""):
            self.tracked.probed(self.backend.show(attempt))

    def _looked_back(self, attempt: int, end: bool, how: str) -> None:
        if attempt != self.row.attempt - 1 or self._failed("unreachable" if how != "ok" else ""):
            return
        if end:
            self.backend.stopping[attempt] = "kill"
        self.tracked.probed_previous(self.backend.show(attempt), self.now)

    def _cleaned(self, attempt: int, how: str) -> None:
        if how == "ok":
            for key in [key for key in self.backend.learners if key[0] == attempt]:
                self.backend.learners[key] = "lost"
        if attempt == self.row.attempt and not self._failed("unreachable" if how != "ok" else ""):
            self.tracked.removed_all()

    def _removed(self, how: str) -> None:
        if not self._failed("unreachable" if how != "ok" else ""):
            self.tracked.removed_all()

    def _step(self, state: State, reason: Reason) -> None:
        assert may_step(self.row.state, state), (self.row.state, state)
        self._save()
        self.row = replace(self.row, state=state, reason=reason)
        self.tracked.transitioned(self.row)

    def _save(self) -> None:
        for learner in self.tracked.unsaved():
            self.rows.setdefault(self.row.attempt, {})[learner.learner] = learner
        self.tracked.saved_all()

    def _finish(self, finish: Finish) -> None:
        attempt = self.row.attempt
        assert not self.backend.alive(attempt), "an attempt was ended while its learners run"
        if self.row.state is State.QUEUED:
            assert not [key for key in self.backend.learners if key[0] == attempt]
        elif self.row.state is not State.STORING:
            self._step(State.STORING, Reason("storing results and logs"))
        self._step(finish.outcome.state, finish.outcome.reason)
        self.finishes.append(finish)
        if self.row.intent.value in ("halt", "kill"):
            self.row = replace(self.row, intent=type(self.row.intent).NONE)
            self.tracked.row = self.row
        if finish.restart is not None:
            counts = (finish.restart.restarts, finish.restart.platform_restarts)
            self._next_attempt(previous_is_over=True, delay=finish.restart.delay_seconds, restarts=counts)

    def _next_attempt(
        self, *, previous_is_over: bool | None, delay: float, restarts: tuple[int, int]
    ) -> None:
        self.row = replace(
            self.row,
            attempt=self.row.attempt + 1,
            state=State.QUEUED,
            restarts=restarts[0],
            platform_restarts=restarts[1],
            next_try_us=1 if delay else None,
        )
        self.tracked.begin(self.row, previous_is_over=previous_is_over)
        self.tracked.not_before = self.now + delay if delay else None
