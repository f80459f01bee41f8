"""Opens targets by the registries of backends and runners: each loads when it is first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from backends.contract.absent_host import AbsentHost, at_member
from backends.contract.host import (
    SHARE_NAMES,
    Backend,
    BackendOptions,
    Host,
    Inventory,
    Slot,
    is_set,
)
from backends.contract.host_group import (
    asked_together,
    learners_by_host,
    member_options,
    opened_group,
)
from runners.interface import HostTurn, Runner, reason_for_busy
from workbench.clock import elapsed_seconds, now_us
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity, LinedUpJob
from workbench.controller.runtime.connections import SHARED, LateConnections, SharedConnection
from workbench.errors import BackendUnreachable, FabricError
from workbench.paths import Home
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass

Answer = TypeVar("Answer")


class OpenedTarget(Protocol):
    """A target that was reached."""

    @property
    def lost(self) -> bool:
        """Whether the connection is gone for good, and the target has to be opened again."""

    def runner(self) -> Runner:
        """Make a runner; each thread has its own."""

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        """Return the capacity of the target with this key, and whose turn it is of those that line up there."""

    def in_use(self) -> str:
        """Describe what runs there, of any user; empty when nothing does."""

    def close(self) -> None:
        """Release the connection."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """The jobs of this home that are to wait in a host's queue."""

    waiting: tuple[LinedUpJob, ...]
    keep: tuple[str, ...] = ()
    """Jobs that are being launched: their entries stay until they have their GPUs."""
    handed_over: tuple[LinedUpJob, ...] = ()
    """Jobs that the host starts, with the position that each has now."""
    known: frozenset[LinedUpJob] = frozenset()
    """What the host was sent before, by the same connection: of those that were handed over it is not sent again."""

    @property
    def kept(self) -> frozenset[LinedUpJob]:
        """Those of which it has an entry as before, since they are being launched."""
        return frozenset(one for one in self.known if one.job in self.keep)


Opener = Callable[[TargetRef, str], OpenedTarget]
"""Opens a target for the home with this uuid; raises a ``FabricError``."""


class SentEntries:
    """What one connection has sent a host of the jobs that were handed over: the rest alone is sent again."""

    def __init__(self) -> None:
        self._sent: dict[LinedUpJob, LinedUpJob] = {}
        """By the controller's entry: that of its host, by whose clock its times are."""

    @contextmanager
    def what_is_new(
        self, line: LineUp, entries: Sequence[LinedUpJob]
    ) -> Iterator[tuple[list[LinedUpJob], list[str]]]:
        """Yield which of a line's entries, as they are for the host, are to be sent, and the jobs of the others.

        Should the block fail nobody knows what the host took, and all is sent again.
        """
        before, self._sent = self._sent, {}
        pairs = list(zip(line.handed_over, entries, strict=True))
        known = [one in line.known and before.get(one) == entry for one, entry in pairs]
        changed = [entry for entry, is_known in zip(entries, known, strict=True) if not is_known]
        yield changed, [entry.job for entry in compress(entries, known)]
        self._sent = dict(pairs)


class RegistryTarget:
    """A target of the installed backends and runners."""

    def __init__(self, ref: TargetRef, home_uuid: str) -> None:
        from backends.registry import load_backend
        from runners.registry import load_runner

        self._kind = load_runner(ref.runner)
        self._backend = load_backend(BackendOptions.of(ref))
        self._shared = SHARED.open(ref, self._backend)
        self._opened = self._shared.opened
        self._sent = SentEntries()
        self._home_uuid = home_uuid

    @property
    def lost(self) -> bool:
        """Whether the connection to the backend is gone."""
        return isinstance(self._opened, Host) and self._opened.lost

    def runner(self) -> Runner:
        """Make a runner on this connection."""
        return self._kind(self._opened, home_uuid=self._home_uuid)

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        """Return the target's capacity; a cluster has a queue of its own."""
        if self._kind.capabilities.needs == "cluster":
            return CapacityMeasured(target, None, 0, "")
        if line is not None and isinstance(self._opened, Host):
            return self._line_up(target, line, self._opened)
        return measured(target, self._backend.inventory_of(self._opened))

    def _line_up(self, target: str, line: LineUp, host: Host) -> CapacityMeasured:
        home = Home(Path(host.folder(self._home_uuid))) if line.handed_over else None
        handed_over = [_by_clock_of(host, entry) for entry in line.handed_over]
        begun_us = now_us()
        with self._sent.what_is_new(line, handed_over) as (changed, unchanged):
            found = self._shared.line.ask(
                host,
                target,
                home=self._home_uuid,
                waiting=[host_entry(entry) for entry in line.waiting],
                keep=line.keep,
                handed_over=[host_entry(entry, home) for entry in changed],
                unchanged=unchanged,
            )
        missed = found["missed"]
        lined_up = frozenset(one for one in (*line.waiting, *line.handed_over) if one.job not in missed)
        return replace(_answered(target, host, found, begun_us), lined_up=lined_up | line.kept)

    def in_use(self) -> str:
        """Describe what runs there: learners of all homes, and who holds slots or computes on them."""
        if not isinstance(self._opened, Host):
            return "it is a cluster"
        if learners := self._opened.call("markers"):
            return "a learner runs there" if len(learners) == 1 else f"{len(learners)} learners run there"
        return measured("", self._backend.inventory_of(self._opened)).holders

    def close(self) -> None:
        """Release the connection; the last user closes it."""
        SHARED.close(self._shared)


PATIENCE_SECONDS: Final = 5.0
"""How long the others are waited for once a host of a group is open: a stop is not to wait for one that is away."""

ANSWER_SECONDS: Final = 12.0
"""How long hosts of a group are waited for once one has answered a question, or until one does. All that a measurement
asks takes less than its call may."""

RENEW_SECONDS: Final = 20.0
"""How often a job that is the first at all of its hosts says so: well before those where it could start pass it."""


FORGOTTEN_SECONDS: Final = 3600.0
"""How long a group knows since when a job waits that does not wait now: longer than any pause before the next try."""


class GroupTarget:
    """Several hosts together, each over the connection that it shares with jobs of its own."""

    def __init__(self, ref: TargetRef, home_uuid: str) -> None:
        from backends.registry import load_backend
        from runners.registry import load_runner

        self._kind = load_runner(ref.runner)
        self._home_uuid = home_uuid
        self._shared: dict[str, SharedConnection] = {}
        members = member_options(BackendOptions.of(ref))
        self._members = {options.name: options for options in members}
        self._backends: Mapping[str, Backend] = {one.name: load_backend(one) for one in members}
        # Of this target alone: another one with the same hosts has other jobs.
        self._standing = SHARED.remembered(f"{home_uuid} {ref}", lambda: GroupStanding(self._members))
        self._standing.opened_again()
        self._late = LateConnections(SHARED, self._connect, self._note_why)
        found = asked_together(
            {name: partial(self._connect, name) for name in self._members},
            patience_seconds=PATIENCE_SECONDS,
            late=self._late.keep,
        )
        for name, one in found.items():
            if isinstance(one, SharedConnection):
                self._shared[name] = one
            else:
                self._late.is_away(name)
        self._group = opened_group(
            {name: one.opened if isinstance(one, SharedConnection) else one for name, one in found.items()}
        )

    @property
    def lost(self) -> bool:
        """Whether a connection is gone, or a host answers that was away; one that is away is tried meanwhile."""
        return self._group.lost or self._late.have_come()

    def _connect(self, name: str) -> SharedConnection:
        one = self._members[name]
        member = TargetRef(one.name, one.type, "", one.address, one.options)
        return SHARED.open(member, self._backends[name])

    def _note_why(self, name: str, error: FabricError) -> None:
        if isinstance(away := self._group.hosts[name], AbsentHost):
            away.why = at_member(error, name)

    def runner(self) -> Runner:
        """Make a runner on these connections."""
        return self._kind(self._group, home_uuid=self._home_uuid)

    def measure(self, target: str, line: LineUp | None = None) -> CapacityMeasured:
        """Return what the hosts have in all; a job may start once its turn has come at each of them.

        Raises:
            FabricError: one of them does not answer; then these jobs wait at none of them, and keep their time.
        """
        if line is None:
            found = self._ask_all(
                lambda name: measured(target, self._backends[name].inventory_of(self._group.hosts[name]))
            )
            return combined(target, found, ())
        try:
            for name, host in self._group.hosts.items():
                if name not in self._shared:
                    host.folder(self._home_uuid)  # raises why it does not answer
                elif host.lost:
                    raise BackendUnreachable(f"{name} does not answer")
            found = self._line_up(target, line)
        except FabricError:
            self._set_aside(target, line)
            raise
        return replace(
            combined(target, found, line.waiting),
            lined_up=frozenset(line.waiting) | line.kept,
            heeds_weights=all(one.heeds_weights for one in found.values()),
        )

    def _ask_all(self, ask: Callable[[str], Answer]) -> dict[str, Answer]:
        """Ask all hosts at the same time.

        Raises:
            FabricError: of the first that raised one, or has not answered.
        """
        answers: dict[str, Answer] = {}
        for name, one in asked_together(
            {name: partial(ask, name) for name in self._members},
            patience_seconds=ANSWER_SECONDS,
            deadline_seconds=ANSWER_SECONDS,
        ).items():
            if isinstance(one, FabricError):
                raise one
            answers[name] = one
        return answers

    def _line_up(self, target: str, line: LineUp) -> dict[str, CapacityMeasured]:
        """Have jobs wait at each host for the GPUs of those learners that it has."""
        self._standing.keep_only({one.job for one in line.waiting}.union(line.keep))
        found = self._ask_all(partial(self._line_up_at, target, line))
        answers = {name: one for name, (one, _) in found.items()}
        rooms = {name: room for name, (_, room) in found.items()}
        if self._standing.heard(line.waiting, answers, rooms, elapsed_seconds()):
            # Whom it may preempt now is to end now, and not once the hosts are asked the next time.
            answers = {
                name: one for name, (one, _) in self._ask_all(partial(self._line_up_at, target, line)).items()
            }
        return answers

    def _line_up_at(self, target: str, line: LineUp, name: str) -> tuple[CapacityMeasured, frozenset[str]]:
        """Return what a host answers, and for which jobs it could have others end."""
        host = self._group.hosts[name]
        begun_us = now_us()
        entries = [
            self._standing.entry(one, self._members[name], host.clock_ahead_us()) for one in line.waiting
        ]
        found = self._shared[name].line.ask(
            host,
            target,
            home=self._home_uuid,
            waiting=entries,
            keep=line.keep,
            sparing=self._standing.spared(line.waiting, name),
        )
        return _answered(target, host, found, begun_us), frozenset(found.get("has_room", ()))

    def _set_aside(self, target: str, line: LineUp) -> None:
        """Have nobody wait at those hosts that answer for a job that cannot start."""
        waiting = {one.job for one in line.waiting}
        asked_together(
            {
                name: partial(
                    shared.line.set_aside,
                    self._group.hosts[name],
                    target,
                    home=self._home_uuid,
                    waiting=waiting,
                    keep=line.keep,
                )
                for name, shared in self._shared.items()
            },
            patience_seconds=ANSWER_SECONDS,
            deadline_seconds=ANSWER_SECONDS,
        )

    def in_use(self) -> str:
        """Say nothing of what runs there: none of these is started or stopped for a job."""
        return "it is several hosts"

    def close(self) -> None:
        """Release the connections; the last user of each closes it."""
        for shared in self._shared.values():
            SHARED.close(shared)


class GroupStanding:
    """What a group says of its jobs to each host beside the facts that a host alone is sent.

    Each job has one time at all hosts, by which two jobs are in the same order at all of them: it outlives connections,
    since a host may hear of a job first by a later one. While one is the first at each host it renews its entries, so
    that those where it could start do not pass it for the sake of one where it cannot. And it preempts somebody only
    where every other host has its GPUs, or could preempt for it, too.
    """

    def __init__(self, members: Mapping[str, BackendOptions]) -> None:
        self._numbers = {name: number for number, name in enumerate(members)}
        self._since_us: dict[tuple[str, int], int] = {}
        """Since when each attempt of a job waits, by our clock. Threads of all hosts ask for it at once."""
        self._seen_at: dict[str, float] = {}
        """When each of these waited last, on the clock that cannot jump."""
        self._renewed: dict[str, tuple[int, float]] = {}
        """How often each job has renewed its entries, and when it did last."""
        self._preempting: dict[str, frozenset[str]] = {}
        """At which hosts each job may preempt others."""

    def opened_again(self) -> None:
        """Note that the hosts are asked by other connections: nobody is preempted by what was heard before."""
        self._preempting.clear()

    def keep_only(self, jobs: AbstractSet[str]) -> None:
        """Forget all jobs but these, and the times of others that have not waited for long.

        One whose launch has failed comes back after a while, and a host that did not answer then has its time still.
        """
        # The answers of connections before these may still come, in threads of their own: nothing is iterated twice.
        for known in (self._renewed, self._preempting):
            for job in set(known) - jobs:
                known.pop(job, None)
        now = elapsed_seconds()
        self._seen_at |= dict.fromkeys(jobs, now)
        self._seen_at = {job: at for job, at in self._seen_at.items() if now - at <= FORGOTTEN_SECONDS}
        for attempt in set(self._since_us):
            if attempt[0] not in self._seen_at:
                self._since_us.pop(attempt, None)

    def entry(self, one: LinedUpJob, member: BackendOptions, ahead_us: int) -> dict[str, Any]:
        """Return a job's entry at a host whose clock is so far ahead of ours."""
        part = replace(
            one,
            gpus=gpus_at(one, self._numbers[member.name], len(self._numbers)),
            tries=one.tries + self._renewed.get(one.job, (0, 0.0))[0],
            name=one.name if is_set(member.options, SHARE_NAMES) else "",
        )
        since_us = self._since_us.setdefault((one.job, one.attempt), now_us())
        return {**host_entry(part), "since_us": since_us + ahead_us}

    def spared(self, waiting: Sequence[LinedUpJob], name: str) -> list[str]:
        """Return the jobs that preempt nobody at a host."""
        return [one.job for one in waiting if name not in self._preempting.get(one.job, ())]

    def heard(
        self,
        waiting: Sequence[LinedUpJob],
        found: Mapping[str, CapacityMeasured],
        rooms: Mapping[str, AbstractSet[str]],
        now: float,
    ) -> bool:
        """Take over what all hosts have answered; return whether some job may preempt where it could not before."""
        may_more = False
        for one in waiting:
            turns = {name: answer.turns.get(one.job) for name, answer in found.items()}
            count, at = self._renewed.get(one.job, (0, float("-inf")))
            if now >= at + RENEW_SECONDS and _is_first_at_all(one, found):
                self._renewed[one.job] = (count + 1, now)
            lacking = {
                name
                for name, turn in turns.items()
                if turn is None or not (turn.start or one.job in rooms[name])
            }
            preempting = frozenset(name for name in found if lacking <= {name})
            may_more |= any(
                one.job in rooms[name] for name in preempting - self._preempting.get(one.job, frozenset())
            )
            self._preempting[one.job] = preempting
        return may_more


def open_target(ref: TargetRef, home_uuid: str) -> OpenedTarget:
    """Open a target of the installed backends and runners.

    Raises:
        FabricError: it cannot be reached.
    """
    from runners.registry import load_runner

    if load_runner(ref.runner).capabilities.needs == "hosts":
        return GroupTarget(ref, home_uuid)
    return RegistryTarget(ref, home_uuid)


def gpus_at(entry: LinedUpJob, number: int, hosts: int) -> int:
    """Return how many GPUs a job needs at one of its hosts, by the number of that, from 0."""
    learners = entry.gpus // entry.each if entry.each else 0
    return entry.each * len(learners_by_host(learners, hosts)[number])


def combined(
    target: str, found: Mapping[str, CapacityMeasured], waiting: Sequence[LinedUpJob]
) -> CapacityMeasured:
    """Return what several hosts have in all, and the turns of jobs that need all of them. Pure.

    The first host whose turn has not come says why a job waits.
    """
    capacities = [one.capacity or Capacity(0.0, 0) for one in found.values()]
    # Each gives about the same part of the CPUs, too: what one has more is of no use to the others.
    cpus = min(one.cpus for one in capacities) * len(capacities)
    capacity = Capacity(cpus, sum(one.slots for one in capacities))
    # So many that each can give its part of them.
    free = min(one.free_slots for one in found.values()) * len(found)
    holders = "; ".join(f"{name}: {one.holders}" for name, one in found.items() if one.holders)
    lacking = {entry.job: text for entry in waiting if (text := _lacking(entry, found))}
    turns = {
        entry.job: turn
        for entry in waiting
        # A job that can never start as its hosts are has no turn: it is launched, and its error says why.
        if entry.job not in lacking and (turn := _turn_at_all(entry, found)) is not None
    }
    return CapacityMeasured(target, capacity, free, holders, turns=turns, lacking=lacking)


def _lacking(entry: LinedUpJob, found: Mapping[str, CapacityMeasured]) -> str:
    """Say which host has fewer GPUs than a job needs there, even if all were free; empty where none has."""
    for number, (name, one) in enumerate(found.items()):
        needed = gpus_at(entry, number, len(found))
        if one.capacity is not None and needed > one.capacity.slots:
            return f"{_alone(entry, needed)}: {name} has {one.capacity.slots} now"
    return ""


def _alone(entry: LinedUpJob, needed: int) -> str:
    return f"waits for {needed} of {entry.gpus} GPUs"


def _turn_at_all(entry: LinedUpJob, found: Mapping[str, CapacityMeasured]) -> HostTurn | None:
    turns = [one.turns.get(entry.job) for one in found.values()]
    known = [turn for turn in turns if turn is not None]
    if len(known) < len(found):
        return None
    for number, (name, one) in enumerate(found.items()):
        turn, needed = known[number], gpus_at(entry, number, len(found))
        if turn.start:
            continue
        why = turn.reason(needed, now_us=now_us())
        if one.holders:
            why = reason_for_busy(turn, needed, _alone(entry, needed), one.holders, now_us())
        others_ahead = any(each.others_ahead for each in known)
        return replace(turn, others_ahead=others_ahead, text=f"{name}: {why}")
    return known[0]


def _is_first_at_all(entry: LinedUpJob, found: Mapping[str, CapacityMeasured]) -> bool:
    """Say whether a job cannot start at all of its hosts, and nothing but its GPUs keeps it from it at the others."""
    turns = []
    for number, one in enumerate(found.values()):
        turn, needed = one.turns.get(entry.job), gpus_at(entry, number, len(found))
        if turn is None or (one.capacity is not None and needed > one.capacity.slots):
            return False
        turns.append(turn)
    if all(turn.start for turn in turns):
        return False
    return all(turn.start or not (turn.ahead or turn.limit) for turn in turns)


def _answered(target: str, host: Host, found: Mapping[str, Any], begun_us: int) -> CapacityMeasured:
    """Return what a host's answer to ``line_up`` says."""
    machine = found["machine"]
    host.compare_clock(int(machine["time_us"]), begun_us)
    ahead_us = host.clock_ahead_us()
    return replace(
        _sum(target, machine["cpus"], [Slot(**slot) for slot in machine["slots"]]),
        turns={job: HostTurn.from_host(turn, ahead_us) for job, turn in found["turns"].items()},
        heeds_weights=found["heeds_weights"],
    )


def _by_clock_of(host: Host, entry: LinedUpJob) -> LinedUpJob:
    return entry if entry.gates is None else replace(entry, gates=entry.gates.at(host))


def host_entry(entry: LinedUpJob, home: Home | None = None) -> dict[str, Any]:
    """Return a job as its host's queue has it; with a home also its attempt and gates, for who starts it there."""
    own = ("gates", "attempt", "is_handed_over")
    facts = {name: value for name, value in asdict(entry).items() if name not in own}
    if home is None:
        return facts
    gates = {} if entry.gates is None else entry.gates.to_json(home)
    return {**facts, "attempt": entry.attempt, **gates}


def measured(target: str, inventory: Inventory) -> CapacityMeasured:
    """Sum up an inventory as the capacity of the target with this key."""
    slots = [slot for node in inventory.nodes for slot in node.slots]
    return _sum(target, sum(node.cpus for node in inventory.nodes), slots)


def _taker(slot: Slot) -> str:
    return f"{slot.holder} ({slot.holder_job})" if slot.holder_job else slot.holder or slot.foreign


def _sum(target: str, cpus: float, slots: Sequence[Slot]) -> CapacityMeasured:
    holders = ", ".join(f"GPU {slot.index} by {_taker(slot)}" for slot in slots if not slot.free)
    return CapacityMeasured(
        target, Capacity(cpus, len(slots)), sum(1 for slot in slots if slot.free), holders
    )
