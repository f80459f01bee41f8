"""Simulated hosts and clusters: what is really there, whoever knows it, and the learners that live on them.

A :class:`SimulatedTarget` outlives controllers and connections. What it promises is what ``runners.interface`` has
runners promise; ``tests.simulation.test_contract`` runs one script against it and against the real process runner.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from runners.interface import (
    AttemptRef,
    Followed,
    HostGates,
    HostRestarts,
    LearnerRef,
    LearnerStatus,
    Predecessor,
    StopRequest,
    SweepLimit,
)
from tests.simulation.chance import Chance
from tests.simulation.tasks import Scheduler, Waiters
from workbench.controller.loop.stop_rules import rule_of
from workbench.job import PREEMPTED, LearnerPhase, Reason, short_id
from workbench.learner.journal import reasons
from workbench.learner.journal.launch_document import PREEMPT, LaunchDocument
from workbench.learner.journal.stop_rules import BY, StopRule, is_for_agent
from workbench.learner.waiter import gates as waiter_gates
from workbench.manifest.builder.scripts_run import may_be_preempted
from workbench.spec import SWEEP_LABEL, JobSpec

if TYPE_CHECKING:
    from runners.shared.staged_launch import Rendezvous
    from tests.simulation.lines import SimulatedLine
    from tests.simulation.world import World

Kind = Literal["local", "ssh", "kubernetes"]

LATE_SECONDS: Final = 60.0
FOR_EVER: Final = 1e9

NO_GATES: Final = HostGates()

_OVER: Final = frozenset({LearnerPhase.EXITED, LearnerPhase.LOST})


@dataclass(slots=True)
class Behaviour:
    """What a learner does if nothing is done to it."""

    start_seconds: float
    """From its launch until its command starts."""
    run_seconds: float
    exit_code: int = 0
    signal: int | None = None
    ignores_term: bool = False
    stop_seconds: float = 0.1
    """How long it takes to end when it is asked to."""
    agent_dies_at: float | None = None
    """When its agent is killed, after its command's start."""
    all_die_at: float | None = None
    """When its agents are killed together with it."""
    preempted_at: float | None = None
    """When a job of a higher priority wants its GPUs, which it has where it needs some."""
    halted_exit_code: int = 143
    """What it ends with when it is halted."""
    trace_lost_at: float | None = None
    """When somebody removes its files: it runs on, and is not seen any more."""
    lines: int = 3
    phases: tuple[LearnerPhase, ...] = ()
    """Those it goes through before its command starts."""
    store_seconds: float = 0.0
    """How long it stores its results."""
    stalls_seconds: float = 0.0
    """How long the last of its output finds no room."""


def draw_behaviour(chance: Chance, ref: LearnerRef, *, is_to_fail: bool) -> Behaviour:
    """Draw what a learner does; of those that are to fail some do not."""
    draw = chance.of("what learners do")
    does = Behaviour(0.05 + draw.random(), 0.2 + 20.0 * draw.random() ** 2, lines=1 + int(draw.random() * 4))
    if draw.random() < 0.2:
        does.phases = (LearnerPhase.DOWNLOADING, LearnerPhase.SETUP)[: 1 + int(draw.random() * 2)]
    if draw.random() < 0.2:
        does.store_seconds = draw.random() * 5
    does.stop_seconds = draw.random() * 2
    does.halted_exit_code = chance.choose("exit code of a halted learner", (143, 0, 143, 1))
    if chance.goes_wrong("learner", "fails") or (is_to_fail and chance.of("who fails").random() < 0.7):
        does.exit_code = chance.choose("exit code", (1, 2, 3, 126, 127, 143, 137))
    if chance.goes_wrong("learner", "dies by a signal"):
        does.exit_code, does.signal = 0, chance.choose("signal", (11, 9, 15))
    if chance.goes_wrong("learner", "hangs"):
        does.run_seconds = FOR_EVER
    does.ignores_term = chance.goes_wrong("learner", "ignores SIGTERM")
    if chance.goes_wrong("learner", "starts late"):
        does.start_seconds = chance.between("how late", 1.0, LATE_SECONDS)
    if chance.goes_wrong("learner", "loses its agent"):
        does.agent_dies_at = chance.between("when the agent dies", 0.0, 10.0)
    if chance.goes_wrong("learner", "is killed with its agent"):
        does.all_die_at = chance.between("when all die", 0.0, 10.0)
    if chance.goes_wrong("learner", "is preempted"):
        does.preempted_at = chance.between("when it is preempted", 0.0, 20.0)
    if chance.goes_wrong("learner", "loses its files", 0.3):
        does.trace_lost_at = chance.between("when the files go", 0.0, 10.0)
    if chance.goes_wrong("machine", "disk full at the end", 0.3):
        does.stalls_seconds = chance.between("how long output stalls", 0.1, 30.0)
    return does


@dataclass(slots=True)
class Learner:
    """A learner, as it really is."""

    ref: LearnerRef
    spec: JobSpec
    does: Behaviour
    target: str
    """The name of where it is."""
    phase: LearnerPhase = LearnerPhase.STARTING
    runs: bool = False
    """Whether its command runs."""
    is_hidden: bool = False
    """Whether its files are gone, so that nobody sees it."""
    began: bool = False
    """Whether its command was ever started."""
    waits_for_slots: bool = False
    is_handed_over: bool = False
    """Whether its host's waiter starts it, with all of its attempt."""
    is_cut_off: bool = False
    """Whether it waited for slots when who was to start it died."""
    slots: tuple[str, ...] = ()
    started_us: int | None = None
    ended_us: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    stopped: str = ""
    decided: bool = False
    asked: str = ""
    """Which stop lies there."""
    asked_by: str = ""
    stops_itself: bool = False
    """Whether its agent follows its stop rules."""
    held: str = ""
    """Why one of its stop rules holds, by what it has reported; empty until one does."""
    rules: tuple[StopRule, ...] = ()
    is_to_finish: bool = False
    """Whether ``should_stop()`` says yes."""
    ended_by_itself: bool = False
    restarts: HostRestarts | None = None
    """How its host begins the next attempt, should it fail."""
    limit: SweepLimit | None = None
    """How many of its sweep may run at once then."""
    followed_by: Followed | None = None
    is_complete: bool = False
    """Whether nothing but the record of its exit is left; the last one has the next attempt begun."""
    output: bytearray = field(default_factory=bytearray)
    index: bytearray = field(default_factory=bytearray)
    records: bytearray = field(default_factory=bytearray)
    reported: int = 0
    """How many metrics it has reported."""
    life: int = 0
    """Counts what is planned for it, so that what is out of date does nothing."""

    @property
    def name(self) -> str:
        """What a story calls it."""
        return f"{short_id(self.ref.job_id)}.{self.ref.attempt}.{self.ref.learner}"

    @property
    def is_over(self) -> bool:
        """Whether its end is recorded, or will never be."""
        return self.phase in _OVER

    @property
    def may_run(self) -> bool:
        """Whether it runs, or may yet: nobody starts one whose waiter was killed, unless it is given to another."""
        return self.runs or not (self.is_over or self.is_cut_off)

    def status(self, node: str) -> LearnerStatus:
        """Return what an observer sees."""
        return LearnerStatus(
            self.ref,
            self.phase,
            exit_code=self.exit_code,
            signal=self.signal,
            reason=self.reason,
            started_us=self.started_us,
            ended_us=self.ended_us,
            decided=self.decided,
            stopped=self.stopped,
            slots=self.slots,
            node=node,
            waits=self.waits_for_slots and self.is_handed_over,
            cut_off=self.is_cut_off,
            stops_itself=self.stops_itself if self.began or self.is_over else None,
            followed_by=self.followed_by if self.is_over else None,
        )

    def state(self) -> bytes:
        """Return its state file."""
        return json.dumps({"phase": str(self.phase), "exit_code": self.exit_code, "life": self.life}).encode()


def restarts_document(restarts: HostRestarts) -> dict[str, Any]:
    """Return what the launch document of an attempt says of those that follow it."""
    platform = {"done": restarts.platform_done, "allowed": restarts.platform_allowed}
    return {"done": restarts.done, "allowed": restarts.allowed, "platform": platform}


def is_of_platform(one: Learner) -> bool:
    """Say whether a learner has ended by a fault of the platform."""
    return one.stopped != PREEMPT and one.reason is not None and one.reason.code.startswith("S")


class Holder(Protocol):
    """A connection: what a controller holds by it is held as long as it is open."""

    @property
    def is_open(self) -> bool:
        """Whether that is so."""


@dataclass(slots=True)
class Lease:
    """GPUs that a launch holds by its connection, until learners have them."""

    holder: Holder
    attempt: AttemptRef
    slots: int
    at: float
    """When it was taken."""


class SimulatedTarget:
    """One host or cluster."""

    def __init__(self, world: World, name: str, kind: Kind, *, slots: int, cpus: float) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.slots = self.slots_at_first = slots
        self.cpus = cpus
        self.taken_by_others = 0
        self.learners: dict[LearnerRef, Learner] = {}
        self.reserved: dict[AttemptRef, int] = {}
        """Slots that a launch under way has taken, and whose learners are not there yet."""
        self.leases: Sequence[Lease] = ()
        """What launches of groups hold by their connections."""
        self.line: SimulatedLine | None = None
        """Its queue, where it has one that is simulated."""
        self.parts: dict[tuple[str, int], Rendezvous] = {}
        """The attempts of groups of which it has a part of the learners, with where these meet."""
        self.decisions: dict[tuple[str, int], bool] = {}
        """Of which of them it is known that they are decided, and whether by a failure."""
        self.gates: dict[str, HostGates] = {}
        """By job: what holds back one that the waiter has."""
        self.restarts_within: dict[str, float] = {}
        """By job: when its back-off is over, however the clock is set."""
        self.refusals: Counter[LearnerRef] = Counter()
        """How many times in a row it has answered with an error when a learner's journal was asked for."""
        self.knows_rules = world.chance.of("agents that know rules").random() < 0.7
        """Whether the agents here are those of a fabric that follows stop rules."""
        self.clock_us = 0
        """How far its clock is ahead."""
        self.reboots = False
        self.is_off = False
        """Whether it was not started, or stopped, on demand."""
        self.changed = Waiters(world.scheduler)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of its world."""
        return self.world.scheduler

    @property
    def is_up(self) -> bool:
        """Whether it answers who can reach it."""
        return not (self.reboots or self.is_off)

    def now_us(self) -> int:
        """Return the time by its own clock."""
        return self.scheduler.now_us() - self.scheduler.jump_us + self.clock_us

    def of(self, attempt: AttemptRef) -> list[Learner]:
        """List the learners of an attempt that are there, seen or not."""
        return [
            one
            for ref, one in self.learners.items()
            if (ref.home, ref.job_id, ref.attempt) == (attempt.home, attempt.job_id, attempt.attempt)
        ]

    def shows(self, attempts: set[tuple[str, int]], home: str) -> dict[LearnerRef, LearnerStatus]:
        """Return the status of the learners of some attempts, as an observer sees them."""
        return {
            ref: one.status(self.name)
            for ref, one in self.learners.items()
            if (ref.job_id, ref.attempt) in attempts and ref.home == home and not one.is_hidden
        }

    def tell(self) -> None:
        """Have those look again who watch."""
        self.changed.notify()

    # Slots

    def held(self) -> int:
        """Return how many slots learners and launches hold."""
        return sum(len(one.slots) for one in self.learners.values()) + sum(self.reserved.values())

    def free(self) -> int:
        """Return how many slots can be had now."""
        return max(0, self.slots - self.taken_by_others - self.held())

    def is_busy(self, attempt: AttemptRef, spec: JobSpec, needed: int) -> bool:
        """Say whether a launch cannot have so many slots now."""
        return needed > self.free()

    # Learners

    def spawn(
        self,
        ref: LearnerRef,
        spec: JobSpec,
        restarts: HostRestarts | None = None,
        limit: SweepLimit | None = None,
        *,
        waits: bool = False,
    ) -> None:
        """Start a learner, unless it was started before; one whose start was cut off was not."""
        one = self.known(ref)
        if one is not None and not one.is_cut_off:
            return
        if one is None:
            one = self._add(ref, spec)
        one.restarts, one.limit = restarts, limit
        one.is_cut_off = one.is_handed_over = False
        self.world.story(f"{self.name}: {one.name} is launched")
        if waits and spec.gpus > self.free():
            one.waits_for_slots = True
            one.reason = Reason(f"waits for {spec.gpus} GPUs")
        else:
            self._begin(one)
        self.tell()

    def _begin(self, one: Learner) -> None:
        one.waits_for_slots, one.reason = False, None
        one.slots = tuple(f"GPU-{one.name}-{number}" for number in range(one.spec.gpus))
        steps = len(one.does.phases) + 1
        for number, phase in enumerate(one.does.phases):
            self._later(one, one.does.start_seconds * (number + 1) / steps, partial(self._enter, one, phase))
        self._later(one, one.does.start_seconds, lambda: self._start(one))

    def hand_over(
        self,
        refs: Sequence[LearnerRef],
        spec: JobSpec,
        gates: HostGates = NO_GATES,
        restarts: HostRestarts | None = None,
    ) -> None:
        """Give an attempt to the waiter; one that waits already is given again."""
        self.gates[refs[0].job_id] = gates
        for ref in refs:
            one = self.known(ref)
            if one is None:
                one = self._add(ref, spec)
            if one.is_cut_off or (one.phase is LearnerPhase.STARTING and not one.slots and not one.is_over):
                one.waits_for_slots = one.is_handed_over = True
                one.is_cut_off = False
                one.restarts, one.limit = restarts, gates.limit
        self.world.story(f"{self.name}: {short_id(refs[0].job_id)}.{refs[0].attempt} waits there")
        self.admit()
        self.tell()

    def _add(self, ref: LearnerRef, spec: JobSpec) -> Learner:
        one = self.learners[ref] = Learner(ref, spec, self.world.behaviour(ref, spec), self.name)
        one.rules = tuple(rule_of(rule) for rule in spec.stop_when if is_for_agent(rule))
        one.stops_itself = bool(one.rules) and ref.learner == 1 and self.knows_rules
        return one

    def known(self, ref: LearnerRef) -> Learner | None:
        """Return the learner that a launch finds there: none where it is over and somebody has removed its files."""
        one = self.learners.get(ref)
        return None if one is not None and one.is_hidden and one.is_over else one

    def lacks(self, ref: LearnerRef) -> bool:
        """Say whether a launch is to start this learner."""
        one = self.known(ref)
        return one is None or one.is_cut_off

    def kill_waiter(self) -> None:
        """Kill the waiter: what it was to start is cut off."""
        gone = [one for one in self.learners.values() if one.waits_for_slots and one.is_handed_over]
        for one in gone:
            one.waits_for_slots, one.is_cut_off = False, True
        if gone:
            self.world.story(f"{self.name}: the waiter is killed")
            self.tell()

    def _admit_handed_over(self) -> None:
        waiting = self._handed_over()
        for key in self._may_go_on(waiting):
            learners = waiting[key]
            is_room = sum(one.spec.gpus for one in learners) <= self.free() and self._has_cpus(learners)
            if is_room and self._is_turn_of(learners):
                for one in learners:
                    self._begin(one)
                self.tell()
        for job_id, _ in waiting:
            left = self.seconds_left(job_id, self.gates.get(job_id, NO_GATES))
            if left > 0:
                self.scheduler.after(left, self.admit)

    def _handed_over(self) -> dict[tuple[str, int], list[Learner]]:
        """Return the learners that the waiter has, by job and attempt, in the order in which it got them."""
        waiting: dict[tuple[str, int], list[Learner]] = {}
        for one in self.learners.values():
            if one.waits_for_slots and one.is_handed_over:
                waiting.setdefault((one.ref.job_id, one.ref.attempt), []).append(one)
        return waiting

    def _may_go_on(self, waiting: Mapping[tuple[str, int], Sequence[Learner]]) -> list[tuple[str, int]]:
        """List the attempts that no gate holds back, nor the limit of their sweep: GPUs are all that they wait for."""
        gates_of = {key: self.gates.get(key[0], NO_GATES) for key in waiting}
        counts = self._under_way([gates.limit for gates in gates_of.values()], set(waiting))
        found = []
        for key, gates in gates_of.items():
            if self.seconds_left(key[0], gates) > 0 or not all(self._lets_go(one) for one in gates.after):
                continue
            if gates.limit is not None:
                counts[gates.limit.sweep] += 1
                if counts[gates.limit.sweep] > gates.limit.at_most:
                    continue
            found.append(key)
        return found

    def _is_turn_of(self, learners: Sequence[Learner]) -> bool:
        """Say whether nobody comes before an attempt that waits there."""
        return True

    def _under_way(self, limits: Sequence[SweepLimit | None], waiting: set[tuple[str, int]]) -> Counter[str]:
        """Count the attempts of each sweep that run there, or of which the waiter was given that they do.

        It remembers nothing of its own: a waiter may have ended since, and another one begun.
        """
        known: dict[str, set[tuple[str, int]]] = {}
        for limit in limits:
            if limit is not None:
                others = {(one.job_id, one.attempt) for one in limit.others if not self._is_over(one)}
                known.setdefault(limit.sweep, set()).update(others)
        for one in self.learners.values():
            sweep = one.spec.labels.get(SWEEP_LABEL)
            is_there = not (one.is_over or one.waits_for_slots or one.is_cut_off or one.is_hidden)
            if is_there and one.spec.at_most is not None and sweep in known:
                known[sweep].add((one.ref.job_id, one.ref.attempt))
        return Counter({sweep: len(attempts - waiting) for sweep, attempts in known.items()})

    def _is_over(self, attempt: AttemptRef) -> bool:
        awaited = waiter_gates.AwaitedAttempt(attempt.job_id, attempt.attempt, True, 0, 0, ())
        return waiter_gates.is_over(awaited, self._records_of(attempt))

    def _has_cpus(self, learners: Sequence[Learner]) -> bool:
        wanted = sum(one.spec.cpus or 0.0 for one in learners)
        running = (one for one in self.learners.values() if not (one.is_over or one.waits_for_slots))
        held = sum(one.spec.cpus or 0.0 for one in running if not one.is_cut_off)
        return not wanted or not held or held + wanted <= self.cpus

    def seconds_left(self, job_id: str, gates: HostGates) -> float:
        """Return how long a job waits for its time of day."""
        if gates.begin_us is None or self.now_us() >= gates.begin_us:
            return 0.0
        left = (gates.begin_us - self.now_us()) / 1e6
        return min(left, self.restarts_within.get(job_id, FOR_EVER) - self.scheduler.now)

    def _lets_go(self, before: Predecessor) -> bool:
        attempt = before.attempt
        predecessor = waiter_gates.AwaitedAttempt(
            attempt.job_id,
            attempt.attempt,
            before.may_fail,
            before.restarts_left,
            before.platform_restarts_left,
            tuple(f"/job/attempt-{attempt.attempt}/learner-{one + 1}" for one in range(attempt.learners)),
        )
        records = self._records_of(attempt)
        while True:
            following = waiter_gates.following_attempt(predecessor, records)
            if following is None:
                break
            predecessor = following
            records = self._records_of(replace(attempt, attempt=following.attempt))
        return waiter_gates.lets_go(predecessor, records)

    def _records_of(self, attempt: AttemptRef) -> list[dict[str, Any]]:
        numbers = range(1, attempt.learners + 1)
        refs = [LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number) for number in numbers]
        return [self._record_of(ref) for ref in refs]

    def _record_of(self, ref: LearnerRef) -> dict[str, Any]:
        """Return what a learner's agent has recorded in its folder."""
        one = self.learners.get(ref)
        if one is None or one.is_hidden:
            return {}
        return {
            "job": ref.job_id,
            "attempt": ref.attempt,
            "phase": str(one.phase),
            "exit_code": one.exit_code,
            "signal": one.signal,
            "stopped": one.stopped,
            "reason": None if one.reason is None else {"code": one.reason.code},
            "followed_by": None if one.followed_by is None else asdict(one.followed_by),
        }

    def admit(self) -> None:
        """Let learners begin that wait for slots, oldest first."""
        self._admit_handed_over()
        for one in list(self.learners.values()):
            if one.waits_for_slots and not one.is_handed_over and one.spec.gpus <= self.free():
                self._begin(one)
                self.tell()

    def _later(self, one: Learner, seconds: float, do: Callable[[], object]) -> None:
        life = one.life

        def due() -> None:
            if one.life == life and self.learners.get(one.ref) is one:
                do()

        self.scheduler.after(seconds, due)

    def _enter(self, one: Learner, phase: LearnerPhase) -> None:
        one.phase = phase
        self.tell()

    def _start(self, one: Learner) -> None:
        if one.asked:
            self._end(
                one, 143 if one.asked == "halt" else None, None if one.asked == "halt" else 9, one.asked
            )
            return
        one.phase, one.runs, one.began = LearnerPhase.RUNNING, True, True
        one.started_us = self.now_us()
        self.world.started(self, one)
        does = one.does
        for number in range(does.lines):
            self._later(one, min(does.run_seconds, 60.0) * number / does.lines, lambda: self._print(one))
        if does.run_seconds < FOR_EVER:
            self._later(one, does.run_seconds, lambda: self._end(one, does.exit_code, does.signal, ""))
        if one.spec.max_runtime_seconds is not None:
            self._later(one, one.spec.max_runtime_seconds, lambda: self._end(one, None, 15, "max_runtime"))
        if one.is_to_finish:
            self._finish(one)
        if does.preempted_at is not None and may_be_preempted(one.spec):
            self._later(one, does.preempted_at, partial(self._preempt, one))
        if does.agent_dies_at is not None:
            self._later(one, does.agent_dies_at, lambda: self.kill_agent(one))
        if does.all_die_at is not None:
            why = Reason("the learner's agent was killed together with the learner", "S202")
            self._later(one, does.all_die_at, lambda: self.lose(one, why))
        if does.trace_lost_at is not None:
            self._later(one, does.trace_lost_at, lambda: self._hide(one))
        self.tell()

    def _preempt(self, one: Learner) -> None:
        if not one.asked:
            self._end(one, one.does.halted_exit_code, None, PREEMPT)

    def _print(self, one: Learner) -> None:
        one.reported += 1
        number = one.reported
        one.output += f"{one.name} line {number}\n".encode()
        one.index += len(one.output).to_bytes(8, "little") * 3
        record = {
            "seq": number,
            "kind": "metrics",
            "times": [self.now_us()],
            "steps": [number],
            "values": self.world.people.values_of(one.ref.job_id, number),
        }
        one.records += json.dumps(record).encode() + b"\n"
        self._write_here(one)
        self.tell()
        loss = self.world.people.values_of(one.ref.job_id, number)["loss"][0]
        held = next((rule for rule in one.rules if not one.held and rule.take(loss, number)), None)
        if held is not None:
            one.held = held.sentence
            self.world.story(f"{self.name}: {one.name} reports what a rule stops it for: {one.held}")
            if one.stops_itself:
                self._later(one, 0.05, partial(self._follow_rule, one, held))

    def _follow_rule(self, one: Learner, held: StopRule) -> None:
        """Have the agents of an attempt stop it by a rule, as the first learner's agent asks them to."""
        kind = str(held.rule.get("then", "halt"))
        for other in self.of(AttemptRef(one.ref.home, one.ref.job_id, one.ref.attempt, one.spec.learners)):
            if not other.is_over and not other.asked:
                self.ask(other, kind, one.spec.grace_seconds, BY + held.sentence)

    def _write_here(self, one: Learner) -> None:
        """Write the journal into the home, where this is the home's machine."""
        folder = self.folder(one)
        if self.kind != "local" or one.is_hidden or not folder.parent.parent.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("output.log", one.output), ("records.jsonl", one.records)):
            with (folder / name).open("ab") as stream:
                stream.write(content[stream.tell() :])
        self.world.file_changed(str(folder / "records.jsonl"))

    def folder(self, one: Learner) -> Path:
        """Return where its journal is in the home."""
        job = self.world.home.job(one.ref.job_id)
        return job.attempt(one.ref.attempt).learner(one.ref.learner).path

    def _end(self, one: Learner, code: int | None, number: int | None, stopped: str) -> None:
        """End a learner's command; its agent records how."""
        was_running, one.runs = one.runs, False
        one.life += 1
        one.exit_code, one.signal = (None, number) if number is not None else (code, None)
        one.stopped, one.ended_us = stopped, self.now_us()
        one.ended_by_itself = was_running and stopped in ("", "max_runtime", PREEMPT)
        if stopped == "max_runtime":
            one.reason = Reason("max_runtime is over", "C204")
        if stopped in ("halt", "kill"):
            one.reason = Reason(**reasons.of_stop(stopped, one.asked_by))
        if stopped == PREEMPT:
            one.reason = Reason("preempted: somebody's job needs its GPUs", PREEMPTED)
        if one.does.stalls_seconds and self.kind == "local":
            why = one.reason
            one.phase, one.reason = LearnerPhase.STOPPING, Reason("its output finds no room", "S204")
            self._later(one, one.does.stalls_seconds, lambda: self._record_end(one, why))
        elif one.does.store_seconds and was_running:
            one.phase = LearnerPhase.STORING
            self._later(one, one.does.store_seconds, lambda: self._record_end(one, one.reason))
        else:
            self._record_end(one, one.reason)
        self.tell()

    def _record_end(self, one: Learner, why: Reason | None) -> None:
        one.reason, one.is_complete = why, True
        if self._is_followed(one):
            self._name_next(one)
        else:
            self._exit(one)

    def _exit(self, one: Learner) -> None:
        one.phase, one.slots = LearnerPhase.EXITED, ()
        self.world.story(
            f"{self.name}: {one.name} has ended: "
            f"{f'signal {one.signal}' if one.signal else f'exit code {one.exit_code}'} {one.stopped}"
        )
        self.admit()
        self.tell()
        self._settle_others(one)

    def _is_followed(self, one: Learner) -> bool:
        """Say whether its agent has the waiter begin the next attempt."""
        end = self._end_of_attempt(one)
        if one.restarts is None or one.asked or one.is_hidden or end is None or not end.ended_by_itself:
            return False
        found = {"exit_code": end.exit_code, "signal": end.signal, "stopped": end.stopped}
        launch = LaunchDocument({"restarts": restarts_document(one.restarts)})
        has_failed = end.exit_code != 0 or end.signal is not None or end.stopped == PREEMPT
        if end.stopped != PREEMPT and any(
            re.search(each.encode(), other.output, re.MULTILINE)
            for each in one.restarts.barred_by
            for other in self._attempt_of(one)
        ):
            return False
        if one.is_to_finish and one.stopped != PREEMPT:
            return False
        return launch.is_followed(found, {"code": "C201"} if has_failed else None)

    def _attempt_of(self, one: Learner) -> list[Learner]:
        refs = (replace(one.ref, learner=number) for number in range(1, one.spec.learners + 1))
        return [self.learners[ref] for ref in refs if ref in self.learners]

    def _end_of_attempt(self, one: Learner) -> Learner | None:
        """Return the learner whose end is the attempt's, once all are over; None where agents do not say."""
        if one.spec.learners == 1:
            return one
        learners = self._attempt_of(one)
        if len(learners) < one.spec.learners or not all(each.is_complete for each in learners):
            return None
        if any(each.stopped in ("halt", "kill") or each.is_hidden for each in learners):
            return None
        # It decides only now that it is over, if no other has.
        deciding = next((each for each in learners if each.decided), one)
        preempted = next((each for each in learners if each.stopped == PREEMPT), None)
        has_failed = deciding.exit_code != 0 or deciding.signal is not None or deciding.stopped == PREEMPT
        return deciding if preempted is None or not has_failed else preempted

    def _name_next(self, one: Learner) -> None:
        """Write down which attempt follows one that has failed; what comes then may not happen any more."""
        assert one.restarts is not None
        end = self._end_of_attempt(one) or one
        number, delay = one.ref.attempt + 1, 0.0 if end.stopped == PREEMPT else one.restarts.delay_seconds
        if is_of_platform(end):
            delay = one.restarts.platform_delay_seconds
        one.phase = LearnerPhase.STOPPING
        one.followed_by = Followed(number, self.now_us() + int(delay * 1e6), delay)
        self.world.story(f"{self.name}: {one.name} is to be followed by attempt {number}")
        self._later(
            one,
            self.world.chance.between("how long a hand-over takes", 0.0, 1.0),
            partial(self._give_next, one, end),
        )
        self.tell()

    def _give_next(self, one: Learner, end: Learner) -> None:
        """Give the next attempt to the waiter, unless somebody has asked for a stop, or the waiter does not take it.

        Args:
            one: whose agent does it.
            end: the learner whose end is that of the attempt.
        """
        assert one.restarts is not None and one.followed_by is not None
        followed = one.followed_by
        if one.asked or self.world.chance.goes_wrong("refuse", "the waiter after a failure"):
            one.followed_by = None
            self._exit(one)
        elif self.world.chance.goes_wrong("learner", "its agent dies before the next attempt waits"):
            self._exit(one)  # the agent that takes over records the end
        else:
            numbers = range(1, one.spec.learners + 1)
            refs = [replace(one.ref, attempt=followed.attempt, learner=number) for number in numbers]
            self.restarts_within[one.ref.job_id] = self.scheduler.now + followed.delay_seconds
            delay, done = min(2 * followed.delay_seconds, 60.0), one.restarts.platform_done + 1
            after = one.restarts
            if is_of_platform(end):
                after = replace(after, platform_done=done, platform_delay_seconds=delay)
            elif end.stopped != PREEMPT:
                after = replace(after, done=after.done + 1, delay_seconds=delay)
            gates = HostGates(begin_us=followed.begin_us, limit=one.limit)
            self.hand_over(refs, one.spec, gates, after)
            # A stop that comes before its end is recorded is its controller's to pass on.
            self._later(
                one, self.world.chance.between("how long an end takes", 0.0, 0.5), partial(self._exit, one)
            )

    def _settle_others(self, one: Learner) -> None:
        """Have the agents of the others stop them, as they agree among themselves."""
        if not one.ended_by_itself or self.world.chance.goes_wrong("learner", "agents do not agree"):
            return
        others = [
            other
            for ref, other in self.learners.items()
            if (ref.job_id, ref.attempt) == (one.ref.job_id, one.ref.attempt) and not other.is_over
        ]
        failed = bool(one.signal or one.exit_code or one.stopped == PREEMPT)
        if not others or (not failed and one.spec.ends_when != "first"):
            return
        one.decided = True
        for other in others:
            wait = 0.3 if failed else one.spec.settle_seconds
            self._later(other, wait, partial(self.ask, other, "settle", one.spec.grace_seconds))

    def lose(self, one: Learner, why: Reason) -> None:
        """End a learner without a trace of how."""
        if one.is_over:
            return
        one.runs = False
        one.life += 1
        one.phase, one.reason, one.slots, one.waits_for_slots = LearnerPhase.LOST, why, (), False
        self.world.story(f"{self.name}: {one.name} is lost: {why.text}")
        self.admit()
        self.tell()

    def kill_agent(self, one: Learner) -> None:
        """Kill a learner's agent: a new one ends the command, and records that nobody knows how it ended."""
        if one.is_over or not one.runs:
            return
        one.runs, one.decided = False, True
        one.life += 1
        one.ended_us = self.now_us()
        one.reason = Reason("the agent was killed while the command ran", "S202")
        self.world.story(f"{self.name}: the agent of {one.name} is killed, and a new one ends the command")
        if self._is_followed_though_killed(one):
            self._name_next(one)
            return
        one.phase, one.slots = LearnerPhase.EXITED, ()
        self.admit()
        self.tell()

    def _is_followed_though_killed(self, one: Learner) -> bool:
        """Say whether its scribe has the waiter begin the next attempt; killed with the agent it cannot."""
        if one.restarts is None or one.asked or one.stopped or one.is_hidden or one.is_to_finish:
            return False
        launch = LaunchDocument({"restarts": restarts_document(one.restarts)})
        is_left = launch.is_followed({"stopped": ""}, {"code": "S202"}, is_agent_killed=True)
        return is_left and not self.world.chance.goes_wrong("learner", "its scribe is killed, too")

    def _hide(self, one: Learner) -> None:
        one.is_hidden = True
        self.world.checks.files_lost(one)
        self.world.story(f"{self.name}: the files of {one.name} are gone, it runs on")
        self.tell()

    def ask(self, one: Learner, kind: str, grace_seconds: float, by: str = "") -> None:
        """Ask a learner to stop, as its agent does."""
        if one.is_over or one.is_hidden or one.asked == "kill" or (one.asked and kind != "kill"):
            return
        if kind == "finish":
            one.is_to_finish = True
            self._finish(one)
            return
        one.asked, one.asked_by = kind, by
        if one.waits_for_slots or one.is_cut_off:
            one.waits_for_slots = one.is_cut_off = False
            self._end(one, None, None if one.is_handed_over else 9, kind)
            return
        if not one.runs:
            return  # it sees the request when it starts, or stores what it has
        does = one.does
        if kind == "kill":
            self._later(one, 0.05, lambda: self._end(one, None, 9, kind))
        elif does.ignores_term:
            self._later(one, grace_seconds, lambda: self._end(one, None, 9, kind))
        else:
            wait = min(does.stop_seconds, grace_seconds)
            self._later(one, wait, lambda: self._end(one, does.halted_exit_code, None, kind))

    def _finish(self, one: Learner) -> None:
        """Have a learner that looks whether it should stop end by itself."""
        if one.runs and not one.does.ignores_term:
            self._later(one, one.does.stop_seconds, lambda: self._end(one, 0, None, ""))

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask the learners of an attempt to stop that are there."""
        for one in self.of(attempt):
            self.ask(one, request.kind, request.grace_seconds, request.by)

    def remove(self, attempt: AttemptRef) -> None:
        """End an attempt's processes and remove its files; on this machine the files are the job's."""
        for one in self.of(attempt):
            was_over = one.is_over
            if not was_over:
                self.lose(one, Reason("the learner ended and left no reason", "S104"))
            if self.kind != "local":
                del self.learners[one.ref]
                self.world.removed.append(one)
        self.admit()
        self.tell()

    # Harm

    def reboot(self) -> None:
        """Restart the machine, with or without its boot id changing."""
        if self.world.chance.below("boot id", 4):
            why = Reason("the machine was restarted", "S203")
        else:
            why = Reason("the learner's agent was killed together with the learner", "S202")
        self.world.story(f"{self.name} reboots")
        self.reboots = True
        self._go_down(why)
        seconds = self.world.chance.between("how long a reboot takes", 1.0, 120.0)
        self.scheduler.after(seconds, self._back)

    def switch(self, *, on: bool) -> None:
        """Start the machine, or stop it, with all that runs there."""
        if self.is_off is not on:
            return
        self.world.story(f"{self.name} is {'up' if on else 'down'}")
        self.is_off = not on
        if not on:
            self._go_down(Reason("the machine was restarted", "S203"))
        self.tell()

    def _go_down(self, why: Reason) -> None:
        self.kill_waiter()
        for one in self.learners.values():
            if not one.is_cut_off:
                self.lose(one, why)
        self.cut()

    def _back(self) -> None:
        self.reboots = False
        self.tell()

    def evict(self, one: Learner) -> None:
        """Have a cluster end a learner."""
        self.lose(one, Reason("the pod was evicted", "S200"))

    def cut(self) -> None:
        """Cut all connections to it."""
        self.world.links_cut(self)
        self.tell()
