"""Hosts that run the learners of one job together, each with its own runner: what the real group of them calls.

Real are ``runners.multinode``, how a group is opened and measured, and what the connections of a controller share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn
from unittest.mock import patch

import backends.registry
import runners.multinode.calls
import runners.multinode.launch
import runners.multinode.runner
import runners.registry
from backends.contract import host_group
from backends.contract.absent_host import AbsentHost
from backends.contract.host import (
    Backend,
    BackendOptions,
    Cluster,
    Finding,
    Host,
    HostGroup,
    HostIdentity,
    Inventory,
    Node,
    Slot,
)
from runners.interface import (
    AttemptRef,
    Capabilities,
    HostGates,
    HostRestarts,
    LaunchPlan,
    LaunchProgress,
    LaunchRequest,
    LearnerRef,
    Predecessor,
    Runner,
    SweepLimit,
)
from runners.registry import load_runner
from runners.shared.capabilities import PROCESS
from runners.shared.earlier_files import FileChanges
from runners.shared.staged_launch import Rendezvous
from tests.simulation.lines import PERSON, SimulatedLine
from tests.simulation.runner import Connection, SimulatedRunner, refusals
from tests.simulation.targets import NO_GATES, Learner, Lease, SimulatedTarget
from tests.simulation.threads import OfEachProcess, SimulatedThreading, replaced_threads
from workbench.controller.runtime import connections
from workbench.controller.targets import opener
from workbench.errors import BackendUnreachable, LaunchRefused, NotAllowed, RunnerError, SlotsBusy
from workbench.learner.queue.entries import QueueEntry, entry_of
from workbench.learner.queue.line import turn_document
from workbench.paths import JobFolder
from workbench.spec import JobSpec
from workbench.store.db.rows import TargetRef

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOK_SECONDS: Final = 5.0
"""How often a host's waiter looks whose turn it is, while jobs wait there."""

FIRST_PORT: Final = 20_000


class MemberTarget(SimulatedTarget):
    """A host that may run a part of a job's learners."""

    def __init__(self, world: World, name: str, kind: Any, *, slots: int, cpus: float) -> None:
        self.ports = FIRST_PORT
        self._since_us: dict[tuple[str, str, int], int] = {}
        """By home, job and attempt, since when what the waiter has waits."""
        self._looks = False
        super().__init__(world, name, kind, slots=slots, cpus=cpus)
        self.leases: list[Lease] = []
        self.line: SimulatedLine = SimulatedLine(self)

    def held(self) -> int:
        self.leases = [one for one in self.leases if one.holder.is_open and one.slots]
        return super().held() + sum(one.slots for one in self.leases)

    # Its queue

    def entries_of_waiter(self) -> Iterator[QueueEntry]:
        """Yield the entries of those that its waiter has, and that nothing holds back but GPUs."""
        waiting = self._handed_over()
        for key in self._may_go_on(waiting):
            first, *others = waiting[key]
            if first.spec.gpus:
                yield self._entry(first.ref, first.spec, first.spec.gpus * (1 + len(others)))

    def _entry(self, ref: LearnerRef | AttemptRef, spec: JobSpec, gpus: int) -> QueueEntry:
        since_us = self._since_us.get((ref.home, ref.job_id, ref.attempt), self.now_us())
        facts = {"home": ref.home, "job": ref.job_id, "gpus": gpus, "each": spec.gpus}
        found = entry_of(PERSON, {**facts, "priority": spec.priority, "since_us": since_us}, self.now_us())
        assert found is not None
        return found

    def is_busy(self, attempt: AttemptRef, spec: JobSpec, needed: int) -> bool:
        if not needed:
            return False
        return needed > self.free() or not self.line.may_start(self._entry(attempt, spec, needed))

    def _is_turn_of(self, learners: Sequence[Learner]) -> bool:
        one = learners[0]
        if not one.spec.gpus:
            return True
        return self.line.may_start(self._entry(one.ref, one.spec, one.spec.gpus * len(learners)))

    def hand_over(
        self,
        refs: Sequence[LearnerRef],
        spec: JobSpec,
        gates: HostGates = NO_GATES,
        restarts: HostRestarts | None = None,
    ) -> None:
        first = refs[0]
        since_us = self.line.since(first.home, first.job_id)
        key = (first.home, first.job_id, first.attempt)
        self._since_us.setdefault(key, self.now_us() if since_us is None else since_us)
        super().hand_over(refs, spec, gates, restarts)
        self._look_again()

    def _look_again(self) -> None:
        if self._looks:
            return
        self._looks = bool(self._handed_over())
        if self._looks:
            self.scheduler.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looks = False
        self.admit()
        self._look_again()

    # Those that others are with

    def start_part(self, ref: LearnerRef, spec: JobSpec, rendezvous: Rendezvous) -> None:
        """Start a learner whose attempt has others at other hosts."""
        self.parts.setdefault((ref.job_id, ref.attempt), rendezvous)
        self.world.checks.meet_at_one_place((ref.job_id, ref.attempt), rendezvous)
        self.spawn(ref, spec)

    def decide(self, attempt: AttemptRef, *, failed: bool) -> None:
        """Note that a learner has decided an attempt, unless another one has."""
        key = (attempt.job_id, attempt.attempt)
        if key not in self.decisions:
            self.decisions[key] = failed
            for one in self.of(attempt):
                self._settle(one)

    def _settle(self, one: Learner) -> None:
        failed = self.decisions.get((one.ref.job_id, one.ref.attempt))
        if failed is not None and not one.is_over:
            wait = 0.3 if failed else one.spec.settle_seconds
            self._later(one, wait, partial(self.ask, one, "settle", one.spec.grace_seconds))

    def _start(self, one: Learner) -> None:
        super()._start(one)
        self._settle(one)

    def _settle_others(self, one: Learner) -> None:
        key = (one.ref.job_id, one.ref.attempt)
        if key not in self.parts:
            super()._settle_others(one)
            return
        failed = bool(one.signal or one.exit_code or one.stopped == "preempt")
        if not one.ended_by_itself or key in self.decisions or not (failed or one.spec.ends_when == "first"):
            return
        if not self.world.chance.goes_wrong("learner", "agents do not agree"):
            one.decided = True
            if not one.is_hidden:  # what it has decided lies in its files
                self.world.checks.is_heard_soon(key)
            self.decide(AttemptRef(one.ref.home, *key, one.spec.learners), failed=failed)

    def remove(self, attempt: AttemptRef) -> None:
        super().remove(attempt)
        if self.kind != "local":
            self.parts.pop((attempt.job_id, attempt.attempt), None)
            self.decisions.pop((attempt.job_id, attempt.attempt), None)


class MemberConnection(Connection):
    """A connection to such a host; its runner raises what a runner may, and never says that nothing was started."""

    def errors(self, what: str) -> tuple[Exception, ...]:
        return refusals(NotAllowed("no rights now"))


class AbsentConnection(Connection):
    """Stands for the connection to a host that could not be opened."""

    def __init__(self, host: AbsentHost, target: SimulatedTarget) -> None:
        self.target = target
        self.process = None
        self.lost = True
        self._host = host

    def call(self, what: str) -> None:
        self._host.call(what)  # raises why


class SimulatedHost(Host):
    """Such a host, as it is opened: a group calls a few of its operations, its runner does the rest."""

    def __init__(self, connection: Connection, target: MemberTarget) -> None:
        self.connection = connection
        self.target = target
        self._handed_over: dict[str, dict[str, Mapping[str, Any]]] = {}
        """By home and job, what it was sent of those that were handed over."""

    @property
    def lost(self) -> bool:
        return self.connection.lost

    def folder(self, home_uuid: str) -> str:
        return f"/homes/{home_uuid}"

    def call(self, operation: str, **arguments: Any) -> Any:
        self.connection.call(operation)
        answer = getattr(self, f"_{operation}")(**arguments)
        self.connection.answer(operation)
        return answer

    def close(self) -> None:
        self.connection.lost = True
        self.target.tell()

    def _identity(self) -> dict[str, Any]:
        return {"now_us": self.target.now_us()}

    def _line_up(
        self,
        home: str,
        waiting: Sequence[Mapping[str, Any]],
        keep: Sequence[str],
        handed_over: Sequence[Mapping[str, Any]],
        unchanged: Sequence[str],
        sparing: Sequence[str],
        aside: Sequence[str],
    ) -> dict[str, Any]:
        target, line = self.target, self.target.line
        before = self._handed_over.get(home, {})
        forgotten = [job for job in unchanged if job not in before]
        there = {job: before[job] for job in unchanged if job in before}
        there.update((str(one["job"]), one) for one in handed_over)
        self._handed_over[home] = there
        for one in handed_over:
            if "begin_us" in one:
                target.gates[str(one["job"])] = gates_of(home, one)
        target.admit()
        line.line_up(self.connection, home, waiting, {*keep, *there, *forgotten}, aside)
        target.world.checks.wait_since_one_time(home, [str(one["job"]) for one in waiting])
        turns = {key[2]: turn_document(turn) for key, turn in line.turns().items() if key[1] == home}
        machine = {
            "time_us": target.now_us(),
            "cpus": target.cpus,
            "slots": [_slot_document(slot) for slot in slots_of(target)],
        }
        return {
            "turns": turns,
            "machine": machine,
            "missed": forgotten,
            "heeds_weights": False,
            "has_room": [],
        }

    def _begin_meeting(self, port: int, seconds: float) -> dict[str, Any]:
        return {"addresses": [f"{self.target.name}.example"], "token": f"{self.target.name} {port}"}

    def _join_meeting(self, addresses: Sequence[str], port: int, token: str, seconds: float) -> list[str]:
        if self.target.world.chance.goes_wrong("link", "a firewall between hosts", 0.3):
            return []
        return list(addresses)

    def _end_meeting(self, token: str) -> None:
        return

    def identity(self) -> HostIdentity:
        self._refuse()

    def run(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse()

    spawn = put = read = follow = fetch = watch = lock = connect = run

    def _refuse(self) -> NoReturn:
        raise NotImplementedError("a simulated host does what groups call")


class SimulatedHostHere(SimulatedHost):
    """This machine."""

    here: ClassVar[bool] = True


def slots_of(target: MemberTarget) -> list[Slot]:
    """Return a host's GPUs with their holders."""
    free = target.free()
    return [
        Slot(f"GPU-{number}", number, "simulated", 1 << 30, holder="" if number < free else "somebody@laptop")
        for number in range(target.slots)
    ]


def _slot_document(slot: Slot) -> dict[str, Any]:
    return {name: getattr(slot, name) for name in ("uuid", "index", "model", "memory_bytes", "holder")}


def gates_of(home: str, document: Mapping[str, Any]) -> HostGates:
    """Read what ``HostGates.to_json`` returned."""
    limit = document["limit"]
    return HostGates(
        begin_us=document["begin_us"],
        after=tuple(_predecessor(home, one) for one in document["after"]),
        limit=None
        if limit is None
        else SweepLimit(
            limit["sweep"],
            limit["at_most"],
            tuple(_predecessor(home, one).attempt for one in limit["others"]),
        ),
        is_by_host_clock=True,
    )


def _predecessor(home: str, document: Mapping[str, Any]) -> Predecessor:
    return Predecessor(
        AttemptRef(home, document["job"], document["attempt"], len(document["learners"])),
        document["ended"],
        document["restarts_left"],
        document["platform_restarts_left"],
    )


class SimulatedBackend(Backend):
    """The backend of such a host."""

    type: ClassVar[str] = "simulated"

    def __init__(self, options: BackendOptions, world: World) -> None:
        super().__init__(options)
        self._world = world
        name = "here" if options.type == "local" else options.name
        self._target = next(one for one in world.targets if one.name == name)

    def probe(self) -> Iterator[Finding]:
        return iter(())

    def inventory(self) -> Inventory:
        raise NotImplementedError("it is asked over a connection that is open")

    def inventory_of(self, opened: Host | Cluster | HostGroup) -> Inventory:
        assert isinstance(opened, SimulatedHost)
        target = opened.target
        opened.connection.call("measure")
        node = Node(target.name, int(target.cpus), 1 << 30, slots=tuple(slots_of(target)))
        opened.connection.answer("measure")
        return Inventory((node,), target.now_us())

    def open(self) -> Host:
        world, target, chance = self._world, self._target, self._world.chance
        assert isinstance(target, MemberTarget)
        if target.kind != "local":
            world.sleep(chance.between("time to connect", 0.01, 1.0))
            if chance.goes_wrong("link", "slow connection"):
                world.sleep(chance.between("how slow a connection is", 1.0, 60.0))
        if not target.is_up or not world.is_linked(target):
            world.sleep(chance.between("time until a connection fails", 0.05, 10.0))
            raise BackendUnreachable(f"{target.name} does not answer")
        connection = MemberConnection(target, world.disk.owner())
        return (SimulatedHostHere if target.kind == "local" else SimulatedHost)(connection, target)


class MemberRunner(SimulatedRunner):
    """The runner of such a host, alone and for its part of a group's attempt."""

    name: ClassVar[str] = "process"
    capabilities: ClassVar[Capabilities] = PROCESS

    world: ClassVar[World]

    def __init__(self, connection: Any, *, home_uuid: str) -> None:
        if isinstance(connection, AbsentHost):
            any_other = next(one for one in self.world.targets if one.kind == "ssh")
            line: Connection = AbsentConnection(connection, any_other)
        else:
            line = connection.connection
        super().__init__(line, home_uuid=home_uuid)
        assert isinstance(line.target, MemberTarget)
        self.target = line.target

    def staged_launch(self, plan: LaunchPlan, progress: LaunchProgress) -> MemberLaunch:
        """Return the launch of the learners that a plan has."""
        return MemberLaunch(self._line, self.target, plan, progress)

    def decide(self, attempt: AttemptRef, decision: Mapping[str, Any]) -> None:
        """Let the learners here know that one at another host has decided the attempt."""
        self._line.call("decide")
        self._world.story(f"{self.target.name}: hears that {_name(attempt)} is decided")
        self.target.decide(attempt, failed=decision["failed"])
        self._line.answer("decide")

    def stop_with_others(self, attempt: AttemptRef, kind: str, by: str) -> None:
        """Ask the learners here to stop as those at another host did."""
        self._line.call("stop_with_others")
        self._world.story(f"{self.target.name}: {kind} of {_name(attempt)} with others")
        for one in self.target.of(attempt):
            self.target.ask(one, kind, one.spec.grace_seconds, by)
        self._line.answer("stop_with_others")

    def lacks_earlier_files(self, request: LaunchRequest) -> bool:
        """Say whether what earlier attempts have made at other hosts is to be brought here."""
        self._line.call("lacks_earlier_files")
        return self.target.kind != "local" and self._world.chance.of("earlier files").random() < 0.5

    def changed_files(self, attempt: AttemptRef) -> FileChanges:
        """Return what an attempt has deleted here."""
        self._line.call("changed_files")
        return FileChanges({}, frozenset())

    def download(self, attempt: AttemptRef, job: JobFolder, *, keep_newer: bool = False) -> None:
        super().download(attempt, job)


def _name(attempt: AttemptRef) -> str:
    return f"{attempt.job_id[-9:]}.{attempt.attempt}"


@dataclass(slots=True)
class MemberLaunch:
    """The launch of the part that one host has."""

    line: Connection
    target: MemberTarget
    plan: LaunchPlan
    progress: LaunchProgress
    _lease: Lease | None = None

    @property
    def _attempt(self) -> AttemptRef:
        return self.plan.request.attempt

    def _ref(self, number: int) -> LearnerRef:
        attempt = self._attempt
        return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)

    def pending(self) -> list[int]:
        """Return the numbers of the learners whose agents must be started."""
        self.line.call("pending")
        found = [number for number in self._attempt.numbers if self.target.lacks(self._ref(number))]
        self.line.answer("pending")
        return found

    def rendezvous(self) -> Rendezvous | None:
        """Return where learners that have begun here meet."""
        self.line.call("rendezvous")
        return self.target.parts.get((self._attempt.job_id, self._attempt.attempt))

    def prepare(self, waiting: Sequence[int]) -> None:
        """Bring what these learners need."""
        self.line.call("prepare")
        self.progress("downloading code", stage="preparing")
        world = self.target.world
        world.sleep(world.chance.between("time to prepare", 0.01, 1.5))
        self.line.answer("prepare")

    def lease(self, waiting: Sequence[int]) -> None:
        """Lease the GPUs of these learners."""
        self.line.call("lease")
        spec, target = self.plan.request.spec, self.target
        needed = self._refuse_too_few(waiting)
        if target.is_busy(self._attempt, spec, needed):
            raise SlotsBusy(f"{needed} GPUs are needed, {target.free()} are free")
        self._lease = Lease(self.line, self._attempt, needed, target.scheduler.now)
        target.leases.append(self._lease)
        self.line.answer("lease")

    def refuse_too_few(self, waiting: Sequence[int]) -> None:
        """Refuse the job if the host never has the GPUs of these learners."""
        self.line.call("inventory")
        self._refuse_too_few(waiting)
        self.line.answer("inventory")

    def _refuse_too_few(self, waiting: Sequence[int]) -> int:
        needed = self.plan.request.spec.gpus * len(waiting)
        if needed > self.target.slots:
            raise LaunchRefused(f"{self.target.name} has {self.target.slots} GPUs")
        return needed

    def leave_line(self) -> None:
        """Leave the host's queue."""
        self.line.call("leave_line")
        self.target.line.leave(self.line, self._attempt.home, self._attempt.job_id)
        self.target.admit()
        self.line.answer("leave_line")

    def choose_port(self, port: int | None = None) -> int:
        """Choose a free port, or this one."""
        self.line.call("choose_port")
        if port is not None and self.target.world.chance.goes_wrong("link", "a port is taken"):
            raise RunnerError(f"The port {port}, which is its MASTER_PORT, is taken.")
        self.target.ports += 1
        self.line.answer("choose_port")
        return self.target.ports if port is None else port

    def start(self, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        """Start the agents of these learners."""
        assert rendezvous is not None and self._lease is not None
        spec = self.plan.request.spec
        self.line.call("start")
        self.progress("starting", stage="starting")
        for number in waiting:
            self.line.call("start of a learner")
            if self.target.lacks(self._ref(number)):
                self._lease.slots -= spec.gpus
            self.target.start_part(self._ref(number), spec, rendezvous)
        self.line.answer("start")

    def release(self) -> None:
        """Release what no agent has inherited."""
        if self._lease is not None and self._lease.holder.is_open:
            self._lease.slots = 0
            self.target.admit()

    def await_begun(self, waiting: Sequence[int]) -> None:
        """Wait until the agents of these learners have begun."""
        self.line.call("await_begun")
        for number in waiting:
            if self.target.lacks(self._ref(number)):
                raise RunnerError(f"The agent of learner {number} could not be started.")
        self.line.answer("await_begun")

    def stop_begun(self) -> None:
        """Kill the learners that have begun here."""
        self.line.call("stop_begun")
        for one in self.target.of(self._attempt):
            self.target.ask(one, "kill", 0.0, "an incomplete launch")
        self.line.answer("stop_begun")


# The group as a target


def group_ref(members: Sequence[tuple[SimulatedTarget, TargetRef]]) -> TargetRef:
    """Return several hosts together as the target of a job."""
    name = "+".join(target.name for target, _ in members)
    documents = [
        {"name": ref.backend, "type": ref.type, "address": ref.address, "options": dict(ref.options)}
        for _, ref in members
    ]
    return TargetRef(name, "multinode", "multinode-process", name, {"members": documents})


class _OwnShared:
    """The open connections of the process that runs, as ``connections.SHARED`` is this process's."""

    def __init__(self, each: OfEachProcess[connections.SharedConnections]) -> None:
        self._each = each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._each.own(), name)


class _OwnReturned:
    """What a process has returned of its groups last."""

    def __init__(self, each: OfEachProcess[dict[Any, Any]]) -> None:
        self._each = each

    def get(self, key: Any) -> Any:
        return self._each.own().get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._each.own()[key] = value


@contextmanager
def groups_simulated(world: World) -> Iterator[None]:
    """Have groups be opened with the hosts of a world, and each process have its own of what they share."""
    threading: Any = SimulatedThreading(world.scheduler)

    def shared_connection(key: str, opened: Any) -> connections.SharedConnection:
        line = connections.SharedLine(_lock=threading.Lock())
        return of_connections(key, opened, line=line)

    class _Runner(MemberRunner):
        pass

    _Runner.world = world

    def runner(name: str) -> type[Runner]:
        return _Runner if name == "process" else load_runner(name)

    of_connections = connections.SharedConnection
    shared = OfEachProcess(world.scheduler, lambda: connections.SharedConnections(_lock=threading.Lock()))
    returned = OfEachProcess(world.scheduler, dict[Any, Any])
    modules = (
        runners.multinode.calls,
        runners.multinode.launch,
        runners.multinode.runner,
        host_group,
        connections,
    )
    with ExitStack() as stack:
        stack.enter_context(replaced_threads(world.scheduler, modules))
        for where, name, new in (
            (connections, "SharedConnection", shared_connection),
            (opener, "SHARED", _OwnShared(shared)),
            (runners.multinode.calls, "_returned", _OwnReturned(returned)),
            (runners.multinode.runner, "default_home", lambda: world.home.path),
            (runners.multinode.runner, "load_runner", runner),
            (runners.registry, "load_runner", runner),
            (backends.registry, "load_backend", partial(SimulatedBackend, world=world)),
        ):
            stack.enter_context(patch.object(where, name, new))
        yield
