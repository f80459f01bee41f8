"""What must hold at the simulated host: looked at after each change of its queue, and when GPUs are taken or used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.checks import Violation
from workbench.learner.platform import leases
from workbench.learner.queue.entries import PREFIX, QueueEntry, attempt_name, file_name, read_entries
from workbench.learner.queue.line import OFFER_SECONDS
from workbench.learner.queue.order import Turn
from workbench.learner.queue.policy import Policy

if TYPE_CHECKING:
    from tests.simulation.host_queue.homes import SimulatedHome
    from tests.simulation.host_queue.kernel import HostProcess
    from tests.simulation.host_queue.world import HostWorld
    from tests.simulation.tasks import Task

Key = tuple[int, str, str]

ASKED_SECONDS: Final = 30.0
"""A guard may learn so late from an entry that it is to end, should its process hang meanwhile."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a process saw when it looked whose turn it is."""

    at: float
    entries: tuple[QueueEntry, ...]
    slots: tuple[Mapping[str, Any], ...]
    turns: Mapping[Key, Turn]
    policy: Policy
    passed: Mapping[Key, QueueEntry]


class HostChecks:
    """Compares what processes do with what the world knows."""

    def __init__(self, world: HostWorld) -> None:
        self._world = world
        self._waits: dict[Key, int] = {}
        """Whose entry must count, each with the time that its file says."""
        self._begun: dict[tuple[str, int, int], str] = {}
        self._uses: dict[HostProcess, tuple[tuple[str, int, int], tuple[str, ...]]] = {}
        self._withdrawn: set[tuple[str, int]] = set()
        self._started: set[tuple[str, int]] = set()
        """The attempts that have taken GPUs."""
        self._looks: dict[Task | None, Look] = {}
        """By thread: what it has seen last."""
        self._offered: dict[QueueEntry, float] = {}
        self._asked: dict[tuple[str, str], float] = {}
        """By whom and whom: when an entry last named an attempt that is to end."""
        self._taken: dict[str, tuple[int, str]] = {}
        """By GPU: the person and the job that took it last."""
        self.is_excused = False
        """Whether entries may be missing now: their disk is full, or somebody meddles with their folder."""

    # Entries

    def read(self) -> list[QueueEntry]:
        """Return the entries that count, as nobody else sees them."""
        with self._world.kernel.as_world():
            return read_entries(self._world.leases_folder)

    def waits(self, home: SimulatedHome, job: str) -> None:
        """Note that the host has said that a job waits."""
        key = (self._world.person_number(home), home.uuid, job)
        if self.is_excused or (job, self._world.jobs[job].attempt) in self._started:
            return
        found = {entry.key for entry in self.read()}
        if key in found:
            self._waits.setdefault(key, self._since(home.uuid, job))

    def leaves(self, home: SimulatedHome, job: str) -> None:
        """Note that a job need not wait any more."""
        self._waits.pop((self._world.person_number(home), home.uuid, job), None)

    def _since(self, home: str, job: str) -> int:
        path = os.path.join(self._world.leases_folder, file_name(home, job))
        try:
            with self._world.kernel.as_world(), open(path, encoding="utf-8") as stream:
                return int(json.load(stream)["since_us"])
        except (OSError, ValueError, KeyError):
            return 0

    def look_at_entries(self, why: str, *, is_kill: bool = False, is_written: bool = False) -> None:
        """See that whoever waits has an entry that counts."""
        if not self._waits and not is_written:
            return
        found = self.read()
        there = {entry.key for entry in found}
        for entry in found:
            for name in entry.preempts:
                self._asked[entry.job, name] = self._world.scheduler.now
                self._may_ask(entry, name)
        for key, since in list(self._waits.items()):
            if key not in there:
                if not is_kill and not self.is_excused:
                    raise Violation(f"the entry of {key[2]}, which waits, does not count any more: {why}")
                del self._waits[key]
                continue
            now = self._since(key[1], key[2])
            if now > since:
                raise Violation(f"{key[2]} waits since {now - since} us later than before: {why}")
            self._waits[key] = now

    def is_shown(self, home: SimulatedHome, job: str, facts: Mapping[str, Any]) -> None:
        """See that an entry says what its home has sent for the second time, and what has arrived there."""
        key = (self._world.person_number(home), home.uuid, job)
        for entry in self.read():
            if entry.key == key and key in self._waits and entry.priority != facts["priority"]:
                raise Violation(f"{job} has priority {facts['priority']}, and waits with {entry.priority}")

    def _may_ask(self, entry: QueueEntry, name: str) -> None:
        jobs = self._world.jobs
        own, other = jobs.get(entry.job), jobs.get(name.partition("/")[0])
        if own is not None and other is not None and other.lowest >= own.highest:
            raise Violation(f"{name} is to end for {entry.job}, whose priority is not higher")

    def excuse(self) -> None:
        """Let entries be missing: something was done to them that no code can prevent."""
        self._waits.clear()

    def looked(self, look: Look) -> None:
        """Note what the thread that runs has seen."""
        self._looks[self._world.scheduler.current] = look
        for entry in look.entries:
            if look.turns[entry.key].start:
                self._offered.setdefault(entry, look.at)

    def must_have_read(
        self, before: Sequence[QueueEntry], found: Sequence[QueueEntry], after: Sequence[QueueEntry]
    ) -> None:
        """See that who was there all the time was read."""
        keys = {entry.key for entry in found}
        later = {entry.key for entry in after}
        for entry in before:
            if entry.key in later and entry.key not in keys:
                raise Violation(f"the entry of {entry.job} was overlooked")

    # GPUs

    def took(self, uuids: Sequence[str], text: Mapping[str, Any]) -> None:
        """See that whoever has taken GPUs had its turn."""
        job = str(text.get("job"))
        home = self._world.home_of(job)
        key = (self._world.person_number(home), home.uuid, job)
        look = self._looks.get(self._world.scheduler.current)
        if look is None:
            raise Violation(f"{job} has taken GPUs, and nobody has looked whose turn it is")
        self._waits.pop(key, None)
        self._started.add((job, int(text.get("attempt") or 0)))
        own = next((entry for entry in look.entries if entry.key == key), None)
        if own is not None:
            self._had_turn(own, look)
        for uuid in uuids:
            self._taken[uuid] = (key[0], job)
        self._is_within_limits(key, look)

    def _had_turn(self, own: QueueEntry, look: Look) -> None:
        if not look.turns[own.key].start:
            raise Violation(f"{own.job} has taken GPUs, and it was not its turn")
        if look.policy.kind == "fair_share":
            return
        may_pass = look.policy.kind == "priority" and own.max_runtime_seconds is not None
        free = sum(
            1
            for one in look.slots
            if one["memory_bytes"] and not one.get("holder") and not one.get("foreign")
        )
        total = sum(1 for one in look.slots if one["memory_bytes"])
        needed = own.gpus
        for entry in _in_line(look.entries, look.policy):
            if entry.key == own.key:
                break
            if entry.gpus > total or look.turns[entry.key].limit:
                continue
            if look.passed.get(entry.key) == entry:
                self._world.seen["passed a turn that was not taken"] += 1
                offered = self._offered.get(entry)
                if offered is None or look.at - offered <= OFFER_SECONDS:
                    raise Violation(f"{entry.job} was passed, and has not let its turn pass")
                continue
            needed += entry.gpus
            if needed > free and not may_pass:
                raise Violation(f"{own.job} has passed {entry.job}: {needed} of {free} GPUs would be needed")
        if own.gpus > free:
            raise Violation(f"{own.job} was to start with {own.gpus} GPUs, and {free} are free")

    def _is_within_limits(self, key: Key, look: Look) -> None:
        most = look.policy.everybody.max_gpus
        if not most or self._world.policy_changed_at >= look.at - 1.0:
            return
        folder = self._world.leases_folder
        with self._world.kernel.as_world():
            held = [
                uuid
                for uuid, (person, _) in self._taken.items()
                if person == key[0] and leases.is_held(os.path.join(folder, leases.file_name(uuid)))
            ]
        if len(held) > most:
            raise Violation(f"person {key[0]} has {len(held)} GPUs, and the policy allows {most}")

    def begins(
        self, process: HostProcess, job: str, attempt: int, learner: int, uuids: tuple[str, ...]
    ) -> None:
        """See that a learner may begin now."""
        key = (job, attempt, learner)
        self._world.say(f"learner {learner} of attempt {attempt} of {job} begins with {', '.join(uuids)}")
        if key in self._begun:
            raise Violation(f"learner {learner} of attempt {attempt} of {job} begins a second time")
        if len(uuids) != self._world.jobs[job].each:
            raise Violation(f"learner {learner} of {job} has {len(uuids)} GPUs")
        for other, (used_key, used) in self._uses.items():
            if other.is_killed:
                continue
            if set(used) & set(uuids):
                raise Violation(f"{job} and {used_key[0]} use the same GPU")
            if used_key[0] == job and used_key[1] != attempt:
                raise Violation(f"attempt {attempt} of {job} begins, and {used_key[1]} runs")
        self._begun[key] = process.name
        self._uses[process] = (key, uuids)

    def ends(self, process: HostProcess) -> None:
        """Note that a learner's command is over."""
        self._uses.pop(process, None)

    def is_started(self, folder: str) -> None:
        """See that the agent of a learner may be started, by its folder."""
        *_, job, attempt, _ = folder.split("/")
        if (job, int(attempt.rpartition("-")[2])) in self._withdrawn:
            raise Violation(f"{attempt} of {job} is started, which was withdrawn")

    def withdrawn(self, job: str, attempt: int) -> None:
        """Note that an attempt was withdrawn, and that this was answered."""
        self._withdrawn.add((job, attempt))

    def preempted(self, job: str, attempt: int, why: str) -> None:
        """See that whoever ends for another one has a lower priority, and consents, and that somebody asks for it."""
        name = attempt_name(job, attempt)
        self._world.say(f"{name} is preempted: {why}")
        self._world.seen["preempted"] += 1
        asked = [other for (other, named) in self._asked if named == name]
        own = self._world.jobs[job]
        if not own.consent:
            raise Violation(f"{job} is preempted, which does not consent")
        now = self._world.scheduler.now
        if not any(
            self._world.jobs[other].highest > own.lowest and now - self._asked[other, name] < ASKED_SECONDS
            for other in asked
        ):
            raise Violation(f"{job} is preempted by nobody of a higher priority: {asked}")

    # Ends

    def has_given_back(self, process: HostProcess) -> None:
        """See that a process which has nothing left to do has nothing open of the host's."""
        paths = self._world.kernel.open_paths(process)
        left = [
            os.path.relpath(path, self._world.folder) for path in paths if path.startswith(self._world.folder)
        ]
        if left:
            raise Violation(f"{process.name} ends and has left open {', '.join(left)}")

    def at_rest(self) -> None:
        """See that nothing is left when all is over."""
        world = self._world
        open_jobs = [job.id for job in world.jobs.values() if job.phase != "over"]
        if open_jobs or not all(home.is_done for home in world.homes):
            phases = ", ".join(f"{job} {world.jobs[job].phase}" for job in open_jobs)
            raise Violation(f"never over: {phases or 'a client'}")
        living = [one.name for one in world.kernel.processes.values() if not one.is_killed]
        if living:
            raise Violation(f"still there: {', '.join(living)}")
        if found := self.read():
            raise Violation(f"entries are left: {found}")
        with world.kernel.as_world():
            names = os.listdir(world.leases_folder)
            locked = [
                name
                for name in names
                if name.startswith("GPU-") and leases.is_held(os.path.join(world.leases_folder, name))
            ]
            kept = (
                []
                if world.was_harmed or world.has_let_go
                else [  # else the next waiter removes them
                    name
                    for home in world.homes
                    for name in _names(os.path.join(home.folder, "waiting"))
                    if name.endswith(".json")
                ]
            )
            secret = [
                name
                for one in world.secret_folders()
                for name in _names(one)
                if not self._world.was_lost(name)
            ]
        if locked or kept or secret:
            raise Violation(f"left: locks {locked}, tickets {kept}, secrets {secret}")
        if not (world.was_harmed or world.has_let_go) and (
            files := [name for name in names if name.startswith(PREFIX) and "-0000" not in name]
        ):
            raise Violation(f"entries lie there: {files}")


def _in_line(entries: Iterable[QueueEntry], policy: Policy) -> list[QueueEntry]:
    """Return entries in their order, written down a second time: the code's own may be wrong."""
    most = policy.everybody.max_priority

    def priority(entry: QueueEntry) -> int:
        return 0 if policy.kind == "first_come" else min(entry.priority, most)

    places = sorted(entries, key=lambda one: (-priority(one), one.since_us, one.person, one.home, one.job))
    own: dict[tuple[int, str, int], list[QueueEntry]] = {}
    for entry in sorted(entries, key=lambda one: (one.position, one.since_us, one.person, one.home, one.job)):
        own.setdefault((entry.person, entry.home, priority(entry)), []).append(entry)
    return [own[one.person, one.home, priority(one)].pop(0) for one in places]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
