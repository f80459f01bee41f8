"""A backend that is nothing but memory, with a runner that keeps every promise unless told to break some."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from backends.contract.host import Chunk, Cluster, Host
from runners.interface import (
    AttemptRef,
    Capabilities,
    EarlyBytes,
    ExecSession,
    LaunchPlan,
    LaunchProgress,
    LaunchRequest,
    LearnerPlan,
    LearnerRef,
    LearnerStatus,
    Observation,
    Runner,
    StopRequest,
)
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity
from workbench.controller.targets.opener import LineUp, OpenedTarget
from workbench.errors import RunnerError
from workbench.job import LearnerPhase, Reason, learner_name
from workbench.store.db.rows import TargetRef

Key = tuple[str, int, int]


@dataclass
class MemoryBackend:
    """The backend itself: what is on it outlives runners and controllers."""

    cpus: float = 2.0
    slots: int = 0

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 0
        self.learners: dict[Key, LearnerStatus] = {}
        self.stops: list[tuple[AttemptRef, StopRequest]] = []
        self.starts: list[Key] = []
        self.removed: list[AttemptRef] = []
        self.launches: list[LaunchPlan] = []
        self.open_failure: Exception | None = None
        self.on_launch: Callable[[LaunchPlan, LaunchProgress], None] = lambda plan, progress: None
        self.on_plan: Callable[[LaunchRequest], None] = lambda request: None
        self.on_observe: Callable[[], None] = lambda: None
        self.on_follow: Callable[[], None] | None = None
        """Set, journals are not written into the home but mirrored, and each request for them calls this."""
        self.on_stop: Callable[[AttemptRef, StopRequest], None] = self.obey
        self.on_remove: Callable[[AttemptRef], None] = lambda attempt: None
        self.on_measure: Callable[[], None] = lambda: None
        self.on_leftovers: Callable[[], None] = lambda: None
        self.leftovers: list[LearnerRef] = []
        self.free_slots: int | None = None

    def open(self, ref: TargetRef, home_uuid: str) -> OpenedTarget:
        """Reach it; what the loop is given as its opener."""
        if self.open_failure is not None:
            raise self.open_failure
        return _OpenMemory(self, home_uuid)

    def start(self, ref: LearnerRef) -> None:
        """Start a learner, unless it was started before."""
        key = (ref.job_id, ref.attempt, ref.learner)
        with self.changed:
            if key not in self.learners:
                self.starts.append(key)
                self._set(
                    key,
                    LearnerStatus(
                        ref, LearnerPhase.RUNNING, started_us=time.time_ns() // 1000, node="memory"
                    ),
                )

    def exit(
        self, job_id: str, attempt: int = 1, learner: int = 1, code: int = 0, *, stopped: str = ""
    ) -> None:
        """End a learner."""
        self.change(
            job_id,
            attempt,
            learner,
            phase=LearnerPhase.EXITED,
            exit_code=code,
            stopped=stopped,
            ended_us=_now_us(),
        )

    def lose(self, job_id: str, attempt: int = 1, learner: int = 1) -> None:
        """Let a learner vanish."""
        self.change(job_id, attempt, learner, phase=LearnerPhase.LOST, reason=Reason("it is gone", "S104"))

    def change(self, job_id: str, attempt: int, learner: int, **how: object) -> None:
        """Change how a learner is."""
        with self.changed:
            key = (job_id, attempt, learner)
            self._set(key, replace(self.learners[key], **how))  # type: ignore[arg-type] # a test says what fits

    def obey(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Stop at once, as learners do that respect their signals."""
        for key, seen in list(self.learners.items()):
            if key[:2] == (attempt.job_id, attempt.attempt) and seen.phase is LearnerPhase.RUNNING:
                code = 137 if request.kind == "kill" else 143
                self.exit(*key, code=code, stopped=request.kind)

    def shake(self) -> None:
        """Let watches return."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def _set(self, key: Key, seen: LearnerStatus) -> None:
        with self.changed:
            self.learners[key] = seen
            self.version += 1
            self.changed.notify_all()


class _OpenMemory:
    lost = False

    def __init__(self, backend: MemoryBackend, home_uuid: str) -> None:
        self._backend = backend
        self._home_uuid = home_uuid

    def runner(self) -> Runner:
        return MemoryRunner(self._backend, home_uuid=self._home_uuid)

    def in_use(self) -> str:
        return ""

    def measure(self, backend: str, line: LineUp | None = None) -> CapacityMeasured:
        found = self._backend
        found.on_measure()
        free = found.slots if found.free_slots is None else found.free_slots
        lined_up = None if line is None else frozenset(line.waiting) | line.kept
        capacity = Capacity(found.cpus, found.slots)
        return CapacityMeasured(backend, capacity, free, "GPU 0 by somebody else", lined_up=lined_up)

    def close(self) -> None:
        return


class MemoryRunner(Runner):
    """The runner of that backend."""

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(needs="host")

    def __init__(self, backend: MemoryBackend | Host | Cluster, *, home_uuid: str) -> None:
        assert isinstance(backend, MemoryBackend)
        self.memory = backend
        self.home_uuid = home_uuid
        self._reported: dict[Key, LearnerStatus] = {}
        self._asked: set[AttemptRef] = set()
        self._interrupted = False

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        self.memory.on_plan(request)
        attempt = request.attempt
        learners = tuple(
            LearnerPlan(number, learner_name(attempt.job_id, attempt.attempt, number), {})
            for number in range(1, attempt.learners + 1)
        )
        return LaunchPlan(request, self.name, learners, request.spec.gpus, request.spec.cpus or 0.0)

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        self.memory.launches.append(plan)
        self.memory.on_launch(plan, progress)
        attempt = plan.request.attempt
        for learner in plan.learners:
            self.memory.start(LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner.learner))

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        until = time.monotonic() + timeout_seconds
        asked, first = set(attempts), not self._asked
        new, self._asked = asked - self._asked, asked
        while True:
            self.memory.on_observe()
            with self.memory.changed:
                news = self._news(asked)
                if news or new or first or self._interrupted or time.monotonic() >= until:
                    self._interrupted = False
                    return Observation(tuple(news), whole=first)
                self.memory.changed.wait(until - time.monotonic())

    def _news(self, asked: set[AttemptRef]) -> list[LearnerStatus]:
        wanted = {(one.job_id, one.attempt) for one in asked}
        mine = {
            key: seen
            for key, seen in self.memory.learners.items()
            if key[:2] in wanted and seen.ref.home == self.home_uuid
        }
        news = [seen for key, seen in mine.items() if self._reported.get(key) != seen]
        self._reported.update(mine)
        return news

    def interrupt(self) -> None:
        with self.memory.changed:
            self._interrupted = True
            self.memory.changed.notify_all()

    @property
    def journals_in_place(self) -> bool:
        return self.memory.on_follow is None

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        if self.memory.on_follow is not None:
            self.memory.on_follow()
        return {}

    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        return {}

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        self.memory.stops.append((attempt, request))
        self.memory.on_stop(attempt, request)

    def remove(self, attempt: AttemptRef) -> None:
        self.memory.on_remove(attempt)
        self.memory.removed.append(attempt)
        with self.memory.changed:
            for key in [key for key in self.memory.learners if key[:2] == (attempt.job_id, attempt.attempt)]:
                del self.memory.learners[key]

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        raise RunnerError("nothing can be run in memory")

    def close(self) -> None:
        return

    def leftovers(self) -> Iterator[LearnerRef]:
        self.memory.on_leftovers()
        return iter(self.memory.leftovers)


def _now_us() -> int:
    return time.time_ns() // 1000
