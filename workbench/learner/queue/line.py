"""This connection's part in the host's queue: the entries that it holds, and whose turn it is."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from workbench.learner.platform import lease_holders
from workbench.learner.platform.system import now_us, user_name
from workbench.learner.queue import allocation, gpu_use, order
from workbench.learner.queue.entries import (
    PREEMPTED_AT_ONCE,
    HeldEntries,
    QueueEntry,
    entry_of,
    finite,
    group_in,
    marks_in,
    read_entries,
)
from workbench.learner.queue.limits import Group, Held, groups_of, sweep_group
from workbench.learner.queue.operators import drain_of
from workbench.learner.queue.policy import BadPolicy, Policy, heeds_weights, read_policy
from workbench.learner.queue.preemption import (
    PATIENCE_SECONDS,
    jobs_that_end,
    jobs_to_preempt,
    preemptible_jobs,
)
from workbench.learner.texts import clean

OFFER_SECONDS = 60.0
"""How long enough GPUs may be free for somebody who does not take them, before others may."""

FREED_SECONDS = 5.0
"""So long after a job has ended for another one nobody else is asked to."""

STEADY_SECONDS = 1.0
"""So long a lease must have been seen without a claim: one that is taken, or let go, has none for an instant."""

_NAME_LIMIT = 64

WAITING_AT_ONCE = 100
"""So many jobs of one home wait at a host; those after them follow as these start."""


class LeaseReading:
    """Who holds the GPUs of an inventory: read once at most, when it is first asked for, however many ask.

    Args:
        folder: where leases lie.
        slots: the GPUs; those that have a holder are looked at.
    """

    def __init__(self, folder: str, slots: Sequence[Mapping[str, Any]]) -> None:
        self.folder = folder
        self.slots = slots
        self._found: Optional[Dict[str, lease_holders.Holding]] = None

    def holdings(self) -> Dict[str, lease_holders.Holding]:
        """Return those that are held, each with its holder."""
        if self._found is None:
            names = [str(slot["uuid"]) for slot in self.slots if slot.get("holder")]
            self._found = lease_holders.holdings(self.folder, names)
        return self._found


class HostQueue:
    """Holds entries for one home, and looks at those of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = HeldEntries()
        self._offered: Dict[QueueEntry, float] = {}
        self._passed: Dict[order.Key, QueueEntry] = {}
        """Who let the turn pass, with the entry as it was: nobody waits for them until they write another."""
        self._asked: Dict[Tuple[Tuple[int, str], str], float] = {}
        """Since when which attempt is to end for which job of this home."""
        self._ended: Dict[str, float] = {}
        """When an attempt was last seen to have ended for a job of this home."""
        self._unclaimed: Dict[order.Key, Optional[Dict[str, Optional[float]]]] = {}
        """Since when leases without a claim are seen while an entry is the first that waits; None: since before."""

    @property
    def heeds_weights(self) -> bool:
        """Whether weights count by the host's policy."""
        return heeds_weights()

    def first(self, reading: LeaseReading, waiting: Sequence[Mapping[str, Any]]) -> List[str]:
        """Return which jobs of a home, given in their order, wait in the host's queue at once, as of :meth:`line_up`.

        Where weights count these are the first by weight: else a long sweep would leave no place to another one.
        """
        if (
            len(waiting) <= WAITING_AT_ONCE
            or len({one["weight"] for one in waiting}) < 2
            or not heeds_weights()
        ):
            return [str(one["job"]) for one in waiting[:WAITING_AT_ONCE]]
        found = (entry_of(os.geteuid(), one, now_us()) for one in waiting)
        entries = [entry for entry in found if entry is not None]
        coming = order.by_weight(entries, held_by_group(reading.holdings()), WAITING_AT_ONCE)
        return [entry.job for entry in coming]

    def line_up(
        self,
        folder: str,
        slots: Sequence[Mapping[str, Any]],
        home: str,
        waiting: List[Dict[str, Any]],
        keep: List[str],
        can_start: Callable[[str], bool] = lambda job: True,
        reading: Optional[LeaseReading] = None,
        aside: Iterable[str] = (),
        room: Optional[Set[str]] = None,
    ) -> Dict[str, Dict[str, Any]]:
        """Have exactly these jobs of a home wait; return the turn of each by its id.

        Args:
            folder: where leases lie.
            slots: the GPUs with their holders.
            home: the home's uuid.
            waiting: for each job ``job``, ``gpus``, ``each``, ``priority`` and what else an entry has.
            keep: jobs that are being launched: their entries stay if they are there.
            can_start: whether a job of these could start if it had its GPUs; else it preempts nobody.
            reading: who holds these slots, where that was looked at just now.
            aside: jobs that do not wait now, and may again: what is kept of them says since when.
            room: takes the first of them that waits where jobs may be preempted that would do, whether they are or not.
        """
        reading = reading or LeaseReading(folder, slots)
        with self._lock:
            for job in aside:
                self._held.let_go(folder, home, job)
            wanted = waiting[:WAITING_AT_ONCE]
            self._held.keep_only(folder, home, {str(one["job"]) for one in wanted} | set(keep))
            for one in wanted:
                facts = {key: value for key, value in one.items() if key != "job"}
                self._held.hold(folder, home, str(one["job"]), facts)
            entries = read_entries(folder)
            found, policy = self._turns(entries, reading)
            self._preempt(reading, home, wanted, can_start, entries, found, policy, room)
        mine = (os.geteuid(), home)
        return {key[2]: turn_document(turn) for key, turn in found.items() if key[:2] == mine}

    def _preempt(
        self,
        reading: LeaseReading,
        home: str,
        waiting: Sequence[Mapping[str, Any]],
        can_start: Callable[[str], bool],
        entries: Sequence[QueueEntry],
        turns: Dict[order.Key, order.Turn],
        policy: Policy,
        room: Optional[Set[str]],
    ) -> None:
        """Have the entries of these jobs name whom they preempt: nobody, but for one that is the first that waits."""
        mine = {entry.job: entry for entry in entries if entry.key[:2] == (os.geteuid(), home)}
        self._asked = {key: at for key, at in self._asked.items() if key[1] in mine}
        self._ended = {job: at for job, at in self._ended.items() if job in mine}
        for facts in waiting:
            entry = mine.get(str(facts["job"]))
            if entry is None:
                continue
            turn = turns[entry.key]
            names: Tuple[str, ...] = ()
            asks = can_start(entry.job)
            if turn.lacks and not turn.limit and (asks or room is not None):
                found = self._to_preempt(reading, entry, turn.lacks, entries, policy, asks=asks)
                names = found if asks else ()
                if room is not None and (found or self._has_just_freed(entry.job)):
                    room.add(entry.job)
            if names != entry.preempts:
                changed = {**facts, "preempts": list(names)}
                del changed["job"]
                if not self._held.hold(reading.folder, home, entry.job, changed):
                    continue
            turns[entry.key] = turn._replace(preempts=len(names))

    def _to_preempt(
        self,
        reading: LeaseReading,
        entry: QueueEntry,
        lacking: int,
        entries: Sequence[QueueEntry],
        policy: Policy,
        *,
        asks: bool,
    ) -> Tuple[str, ...]:
        """Return the names of the attempts that are to end for the first one that waits, or would have to."""
        usable = {str(slot["uuid"]) for slot in allocation.usable_gpus(reading.slots, entry.each)}
        below = policy.priority(entry.priority, user_name(entry.person))
        jobs = preemptible_jobs(reading.holdings(), usable, policy, below, now_us())
        ending = jobs_that_end(jobs, entries, policy)
        now = time.monotonic()
        since = {job.key: self._asked.get((job.key, entry.job), now) for job in jobs}
        punctual = [job for job in jobs if now - since[job.key] <= job.seconds + PATIENCE_SECONDS]
        chosen = jobs_to_preempt(punctual, lacking, ending)[: min(entry.gpus, PREEMPTED_AT_ONCE)]
        if not {job.key[1] for job in jobs}.issuperset(entry.preempts):
            self._ended[entry.job] = now
        if self._has_just_freed(entry.job):
            # What it held is free in a moment, though these GPUs were looked at before, or the driver does not know.
            chosen = [job for job in chosen if job.key[1] in ending]
        for job in chosen if asks else ():
            self._asked.setdefault((job.key, entry.job), now)
        return tuple(job.key[1] for job in chosen)

    def _has_just_freed(self, job: str) -> bool:
        """Say whether an attempt has ended for this job a moment ago."""
        return time.monotonic() - self._ended.get(job, float("-inf")) < FREED_SECONDS

    def waiting(self, folder: str, slots: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        """Return all that wait, in their order, each with its turn."""
        with self._lock:
            entries = read_entries(folder)
            found, _ = self._turns(entries, LeaseReading(folder, slots))
        return [entry_document(entry, found[entry.key]) for entry in order.in_order(entries)]

    def turn(
        self, folder: str, slots: Sequence[Mapping[str, Any]], home: str, wanted: Dict[str, Any]
    ) -> Dict[str, Any]:
        """Return the turn of a job that is about to take its GPUs; one without an entry comes last of its priority."""
        mine, job = os.geteuid(), str(wanted["job"])
        with self._lock:
            entries = read_entries(folder)
            if not any(entry.key == (mine, home, job) for entry in entries):
                fresh = entry_of(mine, {**wanted, "home": home}, now_us())
                entries += [] if fresh is None else [fresh]
            found = self._turns(entries, LeaseReading(folder, slots))[0].get((mine, home, job))
        return turn_document(order.Turn(True, 1, 1, 0) if found is None else found)

    def hold(self, folder: str, home: str, wanted: Mapping[str, Any]) -> bool:
        """Make or renew the entry of one job; return whether it is held."""
        facts = {key: value for key, value in wanted.items() if key != "job"}
        with self._lock:
            return self._held.hold(folder, home, str(wanted["job"]), facts)

    def facts(self, folder: str, home: str) -> Dict[str, Dict[str, Any]]:
        """Return what the entries of a home's jobs say, whoever of this user holds them, by job."""
        mine = (os.geteuid(), home)
        return {entry.job: entry._asdict() for entry in read_entries(folder) if entry.key[:2] == mine}

    def descriptor(self, folder: str, home: str, job: str) -> Optional[int]:
        """Return the descriptor that holds the entry of a job; None where it is not held here."""
        with self._lock:
            return self._held.descriptor(folder, home, job)

    def adopt(self, folder: str, home: str, job: str, descriptor: int) -> None:
        """Hold the entry of a job by the descriptor of another process that holds it."""
        with self._lock:
            self._held.adopt(folder, home, job, descriptor)

    def let_go(self, folder: str, home: str, job: str) -> None:
        """Let go of a job's entry, which another process holds from now on."""
        with self._lock:
            self._held.let_go(folder, home, job)

    def leave(self, folder: str, home: str, job: str) -> None:
        """Remove a job's entry: it has its GPUs."""
        with self._lock:
            self._held.release(folder, home, job)

    def close(self) -> None:
        """Let go of all entries."""
        with self._lock:
            self._held.close()

    def _turns(
        self, entries: Sequence[QueueEntry], reading: LeaseReading
    ) -> Tuple[Dict[order.Key, order.Turn], Policy]:
        """Return the turn of each entry, and the policy that it is by."""
        now, slots = time.monotonic(), reading.slots
        known = {entry.key: entry for entry in entries}
        late = (entry for entry, at in self._offered.items() if now - at > OFFER_SECONDS)
        self._passed.update((entry.key, entry) for entry in late)
        self._passed = {key: entry for key, entry in self._passed.items() if known.get(key) == entry}
        policy, trouble = Policy(), ""
        try:
            policy = read_policy()
        except BadPolicy as error:
            trouble = f"the host's policy is not used: {error}"
        held: Mapping[Group, Held] = {}
        if policy != Policy():
            uses = gpu_use.read_uses(reading.folder) if policy.counts_hours else ()
            held = held_by_group(reading.holdings(), uses)
        gpus = free_gpus(slots)
        usable = {str(slot["uuid"]) for slot in slots if slot.get("memory_bytes")}
        found_there = reading.holdings() if entries else {}
        holdings = {uuid: holding for uuid, holding in found_there.items() if uuid in usable}
        endings = endings_of(holdings)
        found = order.turns(entries, gpus, set(self._passed), policy, held, user_name, endings)
        found = order.with_times(found, entries, endings)
        first = [entry for entry in entries if found[entry.key].lacks]
        self._unclaimed = {key: self._unclaimed.get(key) for key in (entry.key for entry in first)}
        for entry in first:
            taken_by = self._out_of_turn(entry, unclaimed_gpus(holdings, slots, entry), now)
            found[entry.key] = found[entry.key]._replace(out_of_turn=taken_by)
        drain = drain_of(reading.folder, policy.operators)
        if drain is not None:
            why = f"the host is to be empty, by {drain.by}"
            found = {
                key: turn._replace(start=False, limit=why, limit_since_us=drain.since_us, free_at_us=None)
                for key, turn in found.items()
            }
        elif trouble:
            found = {key: turn if turn.start else turn._replace(limit=trouble) for key, turn in found.items()}
        offered = (known[key] for key, turn in found.items() if turn.start)
        self._offered = {entry: self._offered.get(entry, now) for entry in offered}
        return found, policy

    def _out_of_turn(
        self, entry: QueueEntry, unclaimed: Mapping[str, lease_holders.Holding], now: float
    ) -> str:
        """Say who has taken GPUs since the first that waits is that; empty where nobody has."""
        seen = self._unclaimed[entry.key]
        since = {uuid: None if seen is None else seen.get(uuid, now) for uuid in unclaimed}
        self._unclaimed[entry.key] = since
        taken = (uuid for uuid, at in since.items() if at is not None and now - at >= STEADY_SECONDS)
        return holders_of(unclaimed[uuid] for uuid in taken)


def free_gpus(slots: Sequence[Mapping[str, Any]]) -> order.FreeGpus:
    """Count the GPUs of an inventory: those that cannot be used are none."""
    usable = [slot for slot in slots if slot.get("memory_bytes")]
    counts: Dict[Tuple[bool, bool], int] = {}
    for slot in usable:
        key = (str(slot["uuid"]).startswith("MIG-"), not slot.get("holder") and not slot.get("foreign"))
        counts[key] = counts.get(key, 0) + 1
    whole, slices = counts.get((False, True), 0), counts.get((True, True), 0)
    return order.FreeGpus(
        whole + counts.get((False, False), 0), slices + counts.get((True, False), 0), whole, slices
    )


def held_by_group(
    held: Mapping[str, lease_holders.Holding], uses: Iterable[gpu_use.Use] = ()
) -> Dict[Group, Held]:
    """Return how many GPUs and jobs each person, home, label and sweep has: whose they are is the kernel's word.

    A lease for which the kernel vouches for nobody counts for nobody: one that an older version took, whose process is
    gone or in another container. What several people claim counts for each of them, and for no label or sweep.
    ``uses`` is what was used before.
    """
    gpus: Dict[Group, int] = {}
    jobs: Dict[Group, Set[Tuple[int, str]]] = {}
    hours: Dict[Group, float] = {}
    now = now_us()
    for uuid, holding in held.items():
        document = holding.document
        labels = marks_in(document.get(allocation.LABELS)) if holding.is_claimed else ()
        sweep = group_in(document.get(allocation.GROUP)) if holding.is_claimed else ""
        for person in holding.people:
            home = str(document.get("home") or "")
            use = gpu_use.Use(
                person, now if holding.since_us is None else holding.since_us, now, 1, home, labels
            )
            of_sweep = [sweep_group(person, sweep)] if sweep else []
            for group in (*groups_of(person, home, labels), *of_sweep):
                gpus[group] = gpus.get(group, 0) + 1
                jobs.setdefault(group, set()).add((person, str(document.get("job") or uuid)))
                hours[group] = hours.get(group, 0.0) + use.hours(now)
    for use in uses:
        for group in groups_of(use.person, use.home, use.labels):
            hours[group] = hours.get(group, 0.0) + use.hours(now)
    return {
        group: Held(gpus.get(group, 0), len(jobs.get(group, ())), hours[group]) for group in {*gpus, *hours}
    }


def endings_of(holdings: Mapping[str, lease_holders.Holding]) -> List[order.Ending]:
    """Return when GPUs that are held are free at the latest, as their holders say, by their ``max_runtime``."""
    found: List[order.Ending] = []
    now = now_us()
    for uuid, holding in holdings.items():
        runtime = holding.document.get(allocation.MAX_RUNTIME)
        seconds = finite(runtime, -1.0)
        if holding.since_us is None or seconds < 0:
            continue
        longest_us = int((seconds + order.AROUND_SECONDS) * 1e6)
        at_us = holding.since_us + longest_us
        is_slice = allocation.is_slice(uuid)
        found.append(order.Ending((at_us - now) / 1e6, int(not is_slice), int(is_slice), at_us))
    return found


def unclaimed_gpus(
    holdings: Mapping[str, lease_holders.Holding], slots: Sequence[Mapping[str, Any]], entry: QueueEntry
) -> Dict[str, lease_holders.Holding]:
    """Return the GPUs that this entry could use, and that somebody holds who is not in the order.

    Whoever knows the order claims what it takes. An older fabric does not, nor does one at a host without Python, nor a
    program that locks the file.
    """
    usable = {str(slot["uuid"]) for slot in allocation.usable_gpus(slots, entry.each)}
    return {
        uuid: holding
        for uuid, holding in holdings.items()
        if uuid in usable and not holding.is_claimed and len(holding.people) < 2
    }


def holders_of(holdings: Iterable[lease_holders.Holding]) -> str:
    """Say who holds how many GPUs without a claim.

    The text of such a lease is anybody's, so it counts where the kernel names the person.
    """
    found: Dict[str, int] = {}
    for holding in holdings:
        owner, job = (_one_line(holding.document.get(key)) for key in ("owner", "job"))
        holder = (f"{owner}'s job {job}" if job else owner) if holding.people and owner else "somebody"
        found[holder] = found.get(holder, 0) + 1
    return ", ".join(
        f"{holder} has {count} GPU{'' if count == 1 else 's'}" for holder, count in sorted(found.items())
    )


def _one_line(text: object) -> str:
    return " ".join(clean(str(text or ""), _NAME_LIMIT).split())


def turn_document(turn: order.Turn) -> Dict[str, Any]:
    """Return a turn as it crosses the pipe; who is ahead by name and job."""
    person, _, job = turn.ahead
    return {
        "start": turn.start,
        "place": turn.place,
        "of": turn.of,
        "free": turn.free,
        "ahead": job,
        "ahead_owner": user_name(person) if person >= 0 else "",
        "others_ahead": turn.others_ahead,
        "limit": turn.limit,
        "limit_since_us": turn.limit_since_us,
        "preempts": turn.preempts,
        "free_at_us": turn.free_at_us,
        "is_enough_then": turn.is_enough_then,
        "out_of_turn": turn.out_of_turn,
    }


def entry_document(entry: QueueEntry, turn: order.Turn) -> Dict[str, Any]:
    """Return an entry for people: the owner's name is the kernel's word."""
    facts = entry._asdict()
    del facts["labels"], facts["group"]  # they mean something to the policy alone
    return {**facts, "owner": user_name(entry.person), **turn_document(turn)}
