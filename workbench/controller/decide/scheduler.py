"""Schedules the queue of one machine, first come, first served, and says why a job waits. Pure.

A job that asks for nothing reserves nothing and never waits. One that asks for CPUs or slots waits while
others hold them, and behind every earlier job that waits for the same kind of thing, so nobody starves. One
that asks for more CPUs than there are gets what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NAMED_HOLDERS: Final = 3
"""How many jobs a reason names before it counts the rest."""


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
    note: str = ""
    """A remark to show with a job that starts: it gets less than it asked for."""
    never: str = ""
    """Why it can never start; the job fails then."""


def schedule(
    capacity: Capacity, running: Sequence[SlotRequest], waiting: Sequence[SlotRequest]
) -> Mapping[str, QueueVerdict]:
    """Say of every waiting job whether it may start now; one that may counts as running for the next."""
    holders = list(running)
    verdicts: dict[str, QueueVerdict] = {}
    ahead: dict[str, SlotRequest] = {}
    for slot_request in sorted(waiting, key=lambda one: one.seq):
        verdict = _verdict(capacity, holders, ahead, slot_request)
        verdicts[slot_request.job_id] = verdict
        if verdict.start:
            holders.append(slot_request)
            continue
        for kind in _kinds(slot_request):
            ahead.setdefault(kind, slot_request)
    return verdicts


def _verdict(
    capacity: Capacity,
    holders: Sequence[SlotRequest],
    ahead: Mapping[str, SlotRequest],
    slot_request: SlotRequest,
) -> QueueVerdict:
    for kind in _kinds(slot_request):
        if kind in ahead:
            return QueueVerdict(False, f"waits behind {ahead[kind].job_id}, which came first")
    if slot_request.slots:
        held = sum(one.slots for one in holders)
        # More slots than there are: launching it says so, and at once.
        if slot_request.slots <= capacity.slots < held + slot_request.slots:
            have = f"{held} of {_count(capacity.slots, 'GPU')}"
            return QueueVerdict(
                False, f"waits for {_count(slot_request.slots, 'GPU')}: {_named(holders, 'slots', have)}"
            )
        if slot_request.busy:
            return QueueVerdict(False, slot_request.busy)
    if slot_request.cpus:
        held_cpus = sum(min(one.cpus, capacity.cpus) for one in holders)
        needed = min(slot_request.cpus, capacity.cpus)
        if held_cpus and held_cpus + needed > capacity.cpus:
            have = f"{_number(held_cpus)} of {_count(capacity.cpus, 'CPU')}"
            return QueueVerdict(False, f"waits for {_count(needed, 'CPU')}: {_named(holders, 'cpus', have)}")
    return QueueVerdict(True, note=_note(capacity, slot_request))


def _kinds(slot_request: SlotRequest) -> tuple[str, ...]:
    return tuple(kind for kind in ("slots", "cpus") if getattr(slot_request, kind))


def _named(holders: Sequence[SlotRequest], kind: str, have: str) -> str:
    names = [one.job_id for one in holders if getattr(one, kind)]
    if len(names) == 1:
        return f"{names[0]} holds {have}"
    if len(names) > NAMED_HOLDERS:
        names[NAMED_HOLDERS:] = [f"{len(names) - NAMED_HOLDERS} more"]
    return f"{', '.join(names[:-1])} and {names[-1]} hold {have}"


def _note(capacity: Capacity, slot_request: SlotRequest) -> str:
    if slot_request.cpus <= capacity.cpus:
        return ""
    return f"asks for {_count(slot_request.cpus, 'CPU')} and gets the {_number(capacity.cpus)} that there are"


def _count(number: float, noun: str) -> str:
    return f"{_number(number)} {noun}" + ("" if number == 1 else "s")


def _number(number: float) -> str:
    return f"{number:g}"
