"""The connection to a simulated target and its runner: where calls are slow, cut off, refused, or answered twice."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from backends.contract.host import Chunk
from runners.interface import (
    AttemptRef,
    Capabilities,
    EarlyBytes,
    ExecSession,
    HostGates,
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
from tests.simulation.targets import SimulatedTarget
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity
from workbench.controller.targets.opener import LineUp
from workbench.errors import (
    BackendError,
    BackendUnreachable,
    LaunchRefused,
    NotAllowed,
    RightsMissing,
    RunnerError,
    SlotsBusy,
    TryAgain,
)
from workbench.job import learner_name
from workbench.paths import JobFolder

if TYPE_CHECKING:
    from tests.simulation.tasks import Process

LOST_LINE: Final = "the connection was lost"
LONG_SECONDS: Final = (70.0, 700.0, 2000.0)
"""How long a call may hang: past the deadline of a stop, of a removal, of a launch."""


class Connection:
    """One open connection of a controller to a target."""

    def __init__(self, target: SimulatedTarget, process: Process | None) -> None:
        self.target = target
        self.process = process
        self.lost = False
        target.world.connections.append(self)

    @property
    def is_open(self) -> bool:
        """Whether what the controller holds by it is held."""
        return not self.lost and not (self.process is not None and self.process.is_killed)

    def call(self, what: str) -> None:
        """Begin a call: it takes its time, and may never reach the target.

        Raises:
            FabricError: it did not; nothing happened there.
        """
        world, target = self.target.world, self.target
        chance = world.chance
        far = target.kind != "local"
        world.sleep(chance.between("latency", 0.001, 0.06) if far else 0.001)
        if self.lost or not target.is_up or not world.is_linked(target):
            self._lose()
        if far and chance.goes_wrong("link", f"cut before {what}"):
            world.story(f"{target.name}: the link is cut before {what}")
            self._lose()
        if chance.goes_wrong("refuse", what):
            self._refuse(what)
        if far and chance.goes_wrong("link", f"{what} hangs", 0.3):
            world.story(f"{target.name}: {what} hangs")
            world.sleep(chance.choose("how long calls hang", LONG_SECONDS))
            self._lose()

    def answer(self, what: str) -> None:
        """End a call: its answer may never come.

        Raises:
            BackendUnreachable: it does not; what was asked for has happened.
        """
        world, target = self.target.world, self.target
        if target.kind == "local":
            return
        if world.chance.goes_wrong("link", f"cut after {what}"):
            world.story(f"{target.name}: the link is cut after {what}, before its answer")
            self._lose()
        world.sleep(world.chance.between("latency", 0.001, 0.06))
        if self.lost or not target.is_up:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        raise BackendUnreachable(LOST_LINE)

    def errors(self, what: str) -> tuple[Exception, ...]:
        """Return the errors by which it is refused."""
        denied = (
            NotAllowed if what == "start of a learner" else RightsMissing
        )  # which says that nothing was started
        return (*refusals(denied("no rights now")), ValueError("a plug-in's own error"))

    def _refuse(self, what: str) -> None:
        error = self.target.world.chance.choose("how backends refuse", self.errors(what))
        self.target.world.story(f"{self.target.name}: {what} is refused: {error}")
        raise error


def refusals(denied: NotAllowed) -> tuple[Exception, ...]:
    """Return the errors by which any backend refuses; ``denied`` is for lack of rights."""
    return (
        TryAgain("the server is busy"),
        BackendError("the server failed: 500"),
        RunnerError("the object was changed meanwhile"),
        denied,
    )


class OpenedSimulation:
    """What a controller opens; see ``workbench.controller.targets.opener.OpenedTarget``."""

    def __init__(self, connection: Connection, home_uuid: str) -> None:
        self._connection = connection
        self._home_uuid = home_uuid

    @property
    def lost(self) -> bool:
        return self._connection.lost

    def runner(self) -> Runner:
        return SimulatedRunner(self._connection, home_uuid=self._home_uuid)

    def in_use(self) -> str:
        connection, there = self._connection, self._connection.target
        connection.call("in use")
        runs = any(one.may_run for one in there.learners.values())
        connection.answer("in use")
        return "a learner runs there" if runs else "others" if there.taken_by_others else ""

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        connection, there = self._connection, self._connection.target
        connection.call("measure")
        lined_up = None if line is None else frozenset((*line.waiting, *line.handed_over)) | line.kept
        for entry in () if line is None else line.handed_over:
            if entry.gates is not None:
                there.gates[entry.job] = entry.gates
                there.admit()
        connection.answer("measure")
        if there.kind == "kubernetes":
            return CapacityMeasured(target, None, 0, "")
        return CapacityMeasured(
            target, Capacity(there.cpus, there.slots), there.free(), "GPU 0 by somebody", lined_up=lined_up
        )

    def close(self) -> None:
        self._connection.lost = True


class SimulatedRunner(Runner):
    """The runner of a simulated target."""

    name: ClassVar[str] = "simulated"
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs="host", hands_over=True, heeds_wait=True, restarts=True
    )

    def __init__(self, connection: Any, *, home_uuid: str) -> None:
        super().__init__(connection, home_uuid=home_uuid)
        self._line: Connection = connection
        self._target = self._line.target
        self._world = self._target.world
        self._reported: dict[LearnerRef, LearnerStatus] = {}
        self._asked: frozenset[AttemptRef] | None = None
        self._is_interrupted = self._is_follow_interrupted = False

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        self._line.call("plan")
        attempt = request.attempt
        learners = tuple(
            LearnerPlan(number, learner_name(attempt.job_id, attempt.attempt, number), {})
            for number in attempt.numbers
        )
        return LaunchPlan(request, self.name, learners, request.spec.gpus, request.spec.cpus or 0.0)

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        target, spec, attempt = self._target, plan.request.spec, plan.request.attempt
        refs = [
            LearnerRef(attempt.home, attempt.job_id, attempt.attempt, one.learner) for one in plan.learners
        ]
        self._line.call("launch")
        if not any(map(target.lacks, refs)):
            return
        progress("downloading code", stage="preparing")
        self._world.sleep(self._world.chance.between("time to prepare", 0.01, 1.5))
        if spec.gpus * len(refs) > target.slots:
            raise LaunchRefused(f"{target.name} has {target.slots} GPUs")
        waiting = [ref for ref in refs if target.lacks(ref)]
        needed = spec.gpus * len(waiting)
        wait = plan.request.wait
        restarts = None if target.kind == "kubernetes" else plan.request.restarts
        is_busy = len(waiting) == len(refs) and target.is_busy(attempt, spec, needed)
        if target.kind != "kubernetes" and (wait is not None or is_busy):
            if self._world.chance.goes_wrong("refuse", "the waiter"):
                text = f"{needed} GPUs are needed, {target.free()} are free"
                raise SlotsBusy(text if wait is None else wait.reason)
            gates = HostGates(limit=plan.request.limit) if wait is None else wait.gates
            target.hand_over(waiting, spec, gates, restarts)
            self._line.answer("launch")
            return
        if target.kind != "kubernetes" and needed > target.free():
            for begun in filter(None, (target.known(ref) for ref in refs if ref not in waiting)):
                target.ask(begun, "kill", 0.0, "an incomplete launch")
            raise RunnerError("The launch was interrupted, and other jobs took what it still needs.")
        with self._leased(attempt, needed) as lease:
            progress("starting", stage="starting")
            for number, ref in enumerate(waiting):
                if number:
                    self._line.call("start of a learner")
                lease(needed - spec.gpus * (number + 1))
                target.spawn(ref, spec, restarts, plan.request.limit, waits=target.kind == "kubernetes")
        self._line.answer("launch")

    @contextmanager
    def _leased(self, attempt: AttemptRef, slots: int) -> Iterator[Any]:
        """Hold slots until their learners do; they are free when the launch, or who makes it, is over."""
        target = self._target
        if target.kind == "kubernetes":
            yield lambda left: None
            return

        def keep(left: int) -> None:
            """Leave the others to a learner that is spawned at once: nobody gets them in between."""
            target.reserved[attempt] = left

        def release() -> None:
            if target.reserved.pop(attempt, 0):
                target.admit()

        keep(slots)
        if self._line.process is not None:
            self._line.process.on_killed.append(release)
        try:
            yield keep
        finally:
            release()

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        world, target = self._world, self._target
        asked = frozenset(attempts)
        self._line.call("observe")
        is_whole = self._asked != asked
        wanted = {(one.job_id, one.attempt) for one in attempts}
        until = world.scheduler.now + timeout_seconds
        while True:
            seen = target.shows(wanted, self.home_uuid)
            news = tuple(one for ref, one in seen.items() if self._reported.get(ref) != one)
            left = until - world.scheduler.now
            if is_whole or news or self._is_interrupted or left <= 0:
                break
            target.changed.wait(left)
            if self._line.lost or not target.is_up:
                self._line.call("observe")
        if world.chance.goes_wrong("repeat", "late observation"):
            world.sleep(world.chance.between("how late observations are", 0.1, 5.0))
        self._line.answer("observe")
        self._is_interrupted = False
        self._reported, self._asked = dict(seen), asked
        return Observation(tuple(seen.values()) if is_whole else news, is_whole)

    def interrupt(self) -> None:
        self._is_interrupted = True
        self._target.tell()

    @property
    def journals_in_place(self) -> bool:
        return bool(self._target.kind == "local")

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        world, target = self._world, self._target
        try:
            self._line.call("follow")
        except (BackendUnreachable, TryAgain):
            raise
        except Exception:
            for ref in known:
                target.refusals[ref] += 1
            raise
        for ref in known:
            target.refusals[ref] = 0
        until = world.scheduler.now + timeout_seconds
        while True:
            news = {ref: parts for ref in known if (parts := self._new_of(ref, known[ref]))}
            left = until - world.scheduler.now
            if news or self._is_follow_interrupted or left <= 0:
                break
            target.changed.wait(left)
            if self._line.lost or not target.is_up:
                self._line.call("follow")
        self._is_follow_interrupted = False
        if early is not None and world.chance.goes_wrong("repeat", "early bytes"):
            for ref, parts in news.items():
                if (part := parts.get("output")) is not None:
                    early(ref, "output", memoryview(part.data), part.offset)
        self._line.answer("follow")
        return news

    def _new_of(self, ref: LearnerRef, known: Mapping[str, int]) -> dict[str, Chunk]:
        one = self._target.learners.get(ref)
        if one is None or one.is_hidden:
            return {}
        parts: dict[str, Chunk] = {}
        is_whole = True
        for name, content in (("output", one.output), ("index", one.index), ("records", one.records)):
            offset = known.get(name, 0)
            data = bytes(content[offset:])
            if not data:
                continue
            if self._world.chance.goes_wrong("repeat", f"{name} from before"):
                back = min(offset, 48)
                data, offset = bytes(content[offset - back :]), offset - back
            if name == "output" and len(data) > 2 and self._world.chance.goes_wrong("repeat", "a part only"):
                data, is_whole = data[: len(data) // 2], False
            if name == "index" and not is_whole:
                continue  # an index never ends behind its log
            parts[name] = Chunk(data, offset, len(content))
        state = one.state()
        if is_whole and zlib.crc32(state) != known.get("state", 0):
            parts["state"] = Chunk(state, 0, len(state))
        return parts

    def interrupt_follow(self) -> None:
        self._is_follow_interrupted = True
        self._target.tell()

    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        return {}

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        self._line.call("stop")
        self._world.story(f"{self._target.name}: {request.kind} of {attempt.job_id[-9:]}.{attempt.attempt}")
        self._target.stop(attempt, request)
        self._line.answer("stop")

    def remove(self, attempt: AttemptRef) -> None:
        self._line.call("remove")
        self._world.story(f"{self._target.name}: removal of {attempt.job_id[-9:]}.{attempt.attempt}")
        self._target.remove(attempt)
        self._line.answer("remove")

    def remove_job(self, job_id: str) -> None:
        self._line.call("remove_job")

    def download(self, attempt: AttemptRef, job: JobFolder) -> None:
        self._line.call("download")
        self._line.answer("download")

    def release(self, attempt: AttemptRef) -> None:
        self._line.call("release")

    def drop_secrets(self, attempt: AttemptRef) -> None:
        self._line.call("drop_secrets")

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        raise RunnerError("nothing is run in a simulation")

    def close(self) -> None:
        return

    def leftovers(self) -> Iterator[LearnerRef]:
        self._line.call("leftovers")
        return iter([ref for ref, one in self._target.learners.items() if not one.is_over])
