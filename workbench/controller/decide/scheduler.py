"""Schedules the queue of one machine, by priority, then first come, and says why a job waits. Pure.

A job that asks for nothing reserves nothing and never waits. One that asks for CPUs or slots waits while
others hold them, and behind every earlier job that waits for the same kind of thing, so nobody starves. One
that asks for more CPUs than there are gets what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from runners.interface import HostGates, HostTurn, HostWait
from workbench.spec import DEFAULT_PRIORITY, DEFAULT_WEIGHT
from workbench.time_expressions import about_text
from workbench.values import dataclass

NAMED_HOLDERS: Final = 3
"""How many jobs a reason names before it counts the rest."""


NEXT_ONES: Final = 10
"""Of so many of those that wait each change of their place is shown at once."""

AT_ITS_HOST: Final = "waits at its host, which starts it"
"""The reason of a job that was handed over, until the host says how it stands there."""

LINE_LENGTH: Final = 8
"""How many jobs that need slots or several learners are launched at once where the backend has a queue of its own."""


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """The CPUs and slots that one job needs, all learners together."""

    job_id: str
    seq: int
    """Order of submission."""
    cpus: float = 0.0
    slots: int = 0
    busy: str = ""
    """Why the last try got no slots, until the next one is due."""
    learners: int = 1
    priority: int = DEFAULT_PRIORITY
    position: float = 0.0
    """Orders jobs of one priority, smaller first."""
    ends_us: int | None = None
    """When it is over at the latest, by its ``max_runtime``; None where nothing says that."""
    turn: HostTurn | None = None
    """What the host's queue says of it; None where the host has none, or was not asked yet."""
    is_handed_over: bool = False
    """Whether its host starts it: it waits, whatever is free, and those after it wait behind it."""

    @property
    def order(self) -> tuple[float, float, int]:
        """What jobs of one home are sorted by: priority, larger first, then position, then submission."""
        return (-self.priority, self.position, self.seq)

    @property
    def takes_turn(self) -> bool:
        """Whether it looks for its slots after the jobs before it, where the backend chooses them."""
        return self.slots > 0 or self.learners > 1


@dataclass(frozen=True, slots=True)
class LinedUpJob:
    """One job that waits for GPUs in its host's queue."""

    job: str
    gpus: int
    """For all learners together."""
    each: int
    """For each learner."""
    priority: int
    position: float = 0.0
    """Orders the jobs of one home and priority."""
    weight: float = DEFAULT_WEIGHT
    max_runtime_seconds: float | None = None
    tries: int = 0
    labels: str = ""
    """What stands for its labels, as entries have it."""
    group: str = ""
    """What stands for its sweep or search."""
    name: str = ""
    """Its name, where its person shares it with others at the host."""
    gates: HostGates | None = None
    """What holds one back that was handed over; None for one that never had gates."""
    attempt: int = 1
    """Its next attempt is another one, though all else of it is as before: its host has not been asked about that."""
    is_handed_over: bool = False
    """Whether its host starts it, whose waiter then has its entry."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The CPUs and slots of a machine."""

    cpus: float
    slots: int


@dataclass(frozen=True, slots=True)
class QueueVerdict:
    """Whether a job may start now, and why not."""

    start: bool
    reason: str = ""
    hand_over: bool = False
    """Whether it is given to its host meanwhile, which starts it when its turn comes."""
    wait: HostWait | None = None
    """What it waits for there, whatever is free; None leaves it to its launch to find its GPUs taken."""
    note: str = ""
    """A remark to show with a job that starts: it gets less than it asked for."""
    never: str = ""
    """Why it can never start; the job fails then."""
    is_far: bool = False
    """Whether many come before it: its reason is another one with each of them that starts."""

    @property
    def decisive(self) -> tuple[bool, str, bool, bool, str, str]:
        """What is decided by. What its host is given with a job is looked up once that is launched.

        Of a sweep that changes for each job that waits whenever another one starts.
        """
        return (self.start, self.reason, self.hand_over, self.wait is not None, self.note, self.never)


def schedule(
    capacity: Capacity,
    running: Sequence[SlotRequest],
    waiting: Sequence[SlotRequest],
    now_us: int = 0,
    *,
    are_in_order: bool = False,
) -> Mapping[str, QueueVerdict]:
    """Say of every waiting job whether it may start now; one that may counts as running for the next.

    Args:
        capacity: what the machine has.
        running: who holds some of it.
        waiting: who asks for it.
        now_us: the time of day, for times in reasons.
        are_in_order: whether those who ask are given as they come, which is not by their own order then.
    """
    holders = list(running)
    verdicts: dict[str, QueueVerdict] = {}
    behind: dict[str, QueueVerdict] = {}
    behind_limited: QueueVerdict | None = None
    waiting_count = 0
    for slot_request in waiting if are_in_order else sorted(waiting, key=lambda one: one.order):
        kinds = _kinds(slot_request)
        # Thousands may wait behind one.
        verdict = next((behind[kind] for kind in kinds if kind in behind), None)
        if verdict is None and slot_request.slots and slot_request.turn is None:
            verdict = behind_limited
        verdict = verdict or _verdict(capacity, holders, slot_request, now_us)
        verdicts[slot_request.job_id] = verdict
        if verdict.start:
            holders.append(slot_request)
            continue
        waiting_count += 1
        if waiting_count == NEXT_ONES:
            behind = {kind: replace(one, is_far=True) for kind, one in behind.items()}
        if slot_request.turn is not None and slot_request.turn.limit:
            # Its host lets others pass it. Of those whose turn it does not say, the first ones wait there only.
            behind_limited = behind_limited or _behind(slot_request)
            continue
        for kind in kinds:
            if kind not in behind:
                behind[kind] = replace(_behind(slot_request), is_far=waiting_count >= NEXT_ONES)
    return verdicts


def _behind(slot_request: SlotRequest) -> QueueVerdict:
    return QueueVerdict(False, f"waits behind {slot_request.job_id}, which goes first")


class LineAdmission:
    """Admits jobs to a backend with a queue of its own: only so many look for slots there at once, oldest first."""

    def __init__(self, launching: Sequence[SlotRequest]) -> None:
        self._ahead = [one for one in launching if one.takes_turn]

    def verdict(self, slot_request: SlotRequest) -> QueueVerdict:
        """Say whether a job may be launched now; one that may counts as launching for the next."""
        if not slot_request.takes_turn:
            return QueueVerdict(True)
        if len(self._ahead) >= LINE_LENGTH:
            return QueueVerdict(False, f"waits behind {self._ahead[-1].job_id}, which goes first")
        self._ahead.append(slot_request)
        return QueueVerdict(True)


def _verdict(
    capacity: Capacity,
    holders: Sequence[SlotRequest],
    slot_request: SlotRequest,
    now_us: int,
) -> QueueVerdict:
    """Return the verdict of a job that waits behind no other one."""
    if slot_request.slots:
        turn = slot_request.turn
        if turn is not None and not turn.start and (turn.others_ahead or turn.is_special):
            why = turn.reason(slot_request.slots, now_us=now_us)
            return QueueVerdict(False, why, is_far=turn.place > NEXT_ONES)
        held = sum(one.slots for one in holders)
        # More slots than there are: launching it says so, and at once.
        if slot_request.slots <= capacity.slots < held + slot_request.slots:
            have = f"{held} of {_count(capacity.slots, 'GPU')}"
            missing = held + slot_request.slots - capacity.slots
            until = _until([(one.ends_us, one.slots) for one in holders], missing, now_us)
            needs = _count(slot_request.slots, "GPU")
            return QueueVerdict(False, f"waits for {needs}: {_named(holders, 'slots', have)}{until}")
        if slot_request.busy:
            return QueueVerdict(False, slot_request.busy)
    if slot_request.cpus:
        held_cpus = sum(min(one.cpus, capacity.cpus) for one in holders)
        needed = min(slot_request.cpus, capacity.cpus)
        if held_cpus and held_cpus + needed > capacity.cpus:
            have = f"{_number(held_cpus)} of {_count(capacity.cpus, 'CPU')}"
            missing_cpus = held_cpus + needed - capacity.cpus
            ends = [(one.ends_us, min(one.cpus, capacity.cpus)) for one in holders]
            until = _until(ends, missing_cpus, now_us)
            return QueueVerdict(
                False, f"waits for {_count(needed, 'CPU')}: {_named(holders, 'cpus', have)}{until}"
            )
    if slot_request.is_handed_over:
        return QueueVerdict(False, AT_ITS_HOST)
    return QueueVerdict(True, note=_note(capacity, slot_request))


def _kinds(slot_request: SlotRequest) -> tuple[str, ...]:
    if slot_request.slots:
        return ("slots", "cpus") if slot_request.cpus else ("slots",)
    return ("cpus",) if slot_request.cpus else ()


def _named(holders: Sequence[SlotRequest], kind: str, have: str) -> str:
    names = [one.job_id for one in holders if getattr(one, kind)]
    if len(names) == 1:
        return f"{names[0]} holds {have}"
    if len(names) > NAMED_HOLDERS:
        names[NAMED_HOLDERS:] = [f"{len(names) - NAMED_HOLDERS} more"]
    return f"{', '.join(names[:-1])} and {names[-1]} hold {have}"


def _until(ends: Sequence[tuple[int | None, float]], missing: float, now_us: int) -> str:
    """Say by when enough is free, where the ends of those who hold it are known; to the minute, rounded up."""
    freed = 0.0
    for end_us, amount in sorted((end, amount) for end, amount in ends if end is not None and end > now_us):
        freed += amount
        if freed >= missing:
            return f"; enough is free by about {about_text(end_us, now_us)}"
    return ""


def _note(capacity: Capacity, slot_request: SlotRequest) -> str:
    if slot_request.cpus <= capacity.cpus:
        return ""
    return f"asks for {_count(slot_request.cpus, 'CPU')} and gets the {_number(capacity.cpus)} that there are"


def _count(number: float, noun: str) -> str:
    return f"{_number(number)} {noun}" + ("" if number == 1 else "s")


def _number(number: float) -> str:
    return f"{number:g}"
