"""What must hold at the simulated host: looked at after each change of its queue, and when GPUs are taken or used."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


LOOKS_AT_ONCE: Final = 5
"""A thread looks so often at most before the one whose turn it is begins."""

LOOK_SECONDS: Final = 8.0
"""Whoever takes GPUs has looked whose turn it is so short a time before, but for what it hung since."""


@dataclass(frozen=True, slots=True)
class WrittenPolicy:
    """A policy as root wrote it, known without the code that reads it."""

    kind: str = "priority"
    preemption: str = "asked"
    min_run_seconds: float = 0.0
    max_gpus: int = 0
    max_jobs: int = 0
    max_priority: int = 100
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of people, by their names."""
    is_understood: bool = True

    @property
    def text(self) -> str:
        """As it stands in its file."""
        if not self.is_understood:
            return "nonsense\n"
        return (
            f'policy = "{self.kind}"\npreemption = "{self.preemption}"\n'
            f"min_run_minutes = {self.min_run_seconds / 60:g}\n"
            f"max_gpus = {self.max_gpus}\nmax_jobs = {self.max_jobs}\nmax_priority = {self.max_priority}\n"
        ) + "".join(f"[people.{name}]\nweight = {weight:g}\n" for name, weight in self.weights.items())

    def allows(self, consent: str, *, by_root: bool = False) -> bool:
        """Say whether a job that consents so may be preempted for another one, or for root."""
        if not (by_root or self.kind == "priority") or self.preemption == "none" or not self.is_understood:
            return False
        return consent == "asked" or (consent == "by_policy" and self.preemption == "all")


@dataclass(frozen=True, slots=True)
class Look:
    """What a process saw when it looked whose turn it is."""

    at: float
    entries: tuple[QueueEntry, ...]
    slots: tuple[Mapping[str, Any], ...]
    turns: Mapping[Key, Turn]
    policy: Policy
    passed: Mapping[Key, QueueEntry]
    hung_seconds: float
    """For how long its process had hung by then."""
    held: Sequence[tuple[Iterable[int], str]]
    """Of each GPU that was seen to be held: whose it is, and the mark of the sweep that it is for."""


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
        self._looks_at: dict[tuple[Task | None, Key], list[Look]] = {}
        """By thread and job: what it has seen with that job in it, the latest ones last."""
        self._offered: dict[QueueEntry, float] = {}
        self._asked: dict[tuple[str, str], float] = {}
        """By whom and whom: when an entry last named an attempt that is to end."""
        self._taken: dict[str, tuple[int, str]] = {}
        """By GPU: the person and the job that took it last."""
        self._taken_at: dict[str, tuple[float, int]] = {}
        """By attempt: when it took GPUs last, and how far the clock was set then."""
        self._let_go_at: dict[str, float] = {}
        """By an entry's file: when somebody last ended who could have held it."""
        self._others: dict[tuple[Key, int], float] = {}
        """Entries that count and of which homes know nothing: whose, for how many GPUs, and until when."""
        self.is_excused = False
        """Whether entries may be missing now: their disk is full, or somebody meddles with their folder."""

    # Entries

    def read(self) -> list[QueueEntry]:
        """Return the entries that count, as nobody else sees them."""
        with self._world.kernel.as_world():
            try:
                return read_entries(self._world.leases_folder)
            except Exception as error:
                raise Violation(f"entries cannot be read: {type(error).__name__}: {error}") from error

    def waits(self, home: SimulatedHome, job: str, attempt: int | None = None) -> None:
        """Note that the host has said that a job waits: the attempt that its home knows, or the next one."""
        key = (self._world.person_number(home), home.uuid, job)
        if self.is_excused or (job, attempt or self._world.jobs[job].attempt) in self._started:
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

    def look_at_entries(self, why: str, *, is_written: bool = False) -> None:
        """See that whoever waits has an entry that counts, also from the time on at which it has one once more."""
        if not self._waits and not is_written:
            return
        found = self.read()
        for entry in found:
            if entry.key not in self._waits and self._is_to_wait(entry):
                self._waits[entry.key] = self._since(entry.home, entry.job)
                self._world.seen["entries seen once more"] += 1
        there = {entry.key for entry in found}
        for entry in found:
            named = [name for name in entry.preempts if (entry.job, name) not in self._asked]
            for name in entry.preempts:
                self._asked[entry.job, name] = self._world.scheduler.now
            if named and entry.key not in {key for key, _ in self._others}:
                self._may_ask(entry, named)
        for key, since in list(self._waits.items()):
            if key not in there:
                if not self.is_excused:
                    raise Violation(f"the entry of {key[2]}, which waits, does not count any more: {why}")
                del self._waits[key]
                continue
            now = self._since(key[1], key[2])
            if now > since:
                raise Violation(f"{key[2]} waits since {now - since} us later than before: {why}")
            self._waits[key] = now

    def _is_to_wait(self, entry: QueueEntry) -> bool:
        """Say whether an entry is that of a job which does not begin, and which nobody wants to end."""
        home, job = self._world.homes_by_uuid.get(entry.home), self._world.jobs.get(entry.job)
        return (
            home is not None
            and job in home.jobs
            and home.person == entry.person
            and (job.phase == "queued" or (job.phase == "handed" and not job.has_lost_waiter))
            and not job.wish
            and not self.is_excused
            and (job.id, job.attempt) not in self._started
        )

    def is_given_back(self, job: str, attempt: int) -> None:
        """Note that an attempt which has taken GPUs has let go of them without having begun."""
        self._started.discard((job, attempt))

    def excuse_files(self, paths: Sequence[str]) -> None:
        """Let the entries be missing that these files are: who held them was killed, or asked to end.

        So may those of jobs whose learners' locks it held: the next waiter knows nothing of these, and says so.
        """
        files = {os.path.basename(path) for path in paths}
        self._let_go_at.update(dict.fromkeys(files, self._world.scheduler.now))
        jobs = {path.rpartition("/jobs/")[2].partition("/")[0] for path in paths if "/jobs/" in path}
        for key in list(self._waits):
            if file_name(key[1], key[2]) in files or key[2] in jobs:
                del self._waits[key]
        for job in jobs:
            self._world.jobs[job].has_lost_waiter = True

    def is_shown(self, home: SimulatedHome, job: str, facts: Mapping[str, Any]) -> None:
        """See that an entry says what its home has sent for the second time, and what has arrived there."""
        key = (self._world.person_number(home), home.uuid, job)
        for entry in self.read():
            if entry.key == key and key in self._waits and entry.priority != facts["priority"]:
                raise Violation(f"{job} has priority {facts['priority']}, and waits with {entry.priority}")

    def _may_ask(self, entry: QueueEntry, names: Sequence[str]) -> None:
        """See that an entry may name these attempts, which it names from now on, and has to."""
        world, own = self._world, self._world.jobs[entry.job]
        look = self._looks.get(world.scheduler.current)
        if look is None:
            return  # who held the entry before has named them
        now = world.scheduler.now
        policies = world.policies_between(look.at, now)
        for name in names:
            other = world.jobs[name.partition("/")[0]]
            if other.lowest >= own.highest:
                raise Violation(f"{name} is to end for {entry.job}, whose priority is not higher")
            if not any(policy.allows(other.consent) for policy in policies):
                raise Violation(f"{name} is to end for {entry.job}, which the policy does not allow")
            # One that could not take its GPUs after all may have had their locks for an instant.
            taken_at, jump_us = self._taken_at.get(name, (now, -1))
            least = min(policy.min_run_seconds for policy in policies)
            if jump_us == world.scheduler.jump_us and now - taken_at < least:
                raise Violation(
                    f"{name} is to end for {entry.job} after {now - taken_at:.1f} s, of {least:g} s"
                )
        self._needs(entry, names, look)

    def _needs(self, entry: QueueEntry, names: Sequence[str], look: Look) -> None:
        """See that an entry lacks GPUs, and names no more attempts than it has to."""
        free = _free(look.slots)
        for other in look.entries:
            if other.key != entry.key and look.turns[other.key].start:
                free -= other.gpus
        lacking = entry.gpus - free
        if lacking <= 0:
            raise Violation(
                f"{names} are to end for {entry.job}, which needs {entry.gpus} of {free} free GPUs"
            )
        self._world.seen["asked others to end"] += 1
        if len(names) < len(entry.preempts):
            return  # the others were asked before
        counts = Counter(self._taken[slot["uuid"]][1] for slot in look.slots if _is_held(slot, self._taken))
        held = sorted((counts[name.partition("/")[0]] for name in names), reverse=True)
        if len(held) > 1 and sum(held[:-1]) >= lacking:
            raise Violation(
                f"{names} are to end for {entry.job}, which lacks {lacking} GPUs, and fewer would do"
            )

    def excuse(self) -> None:
        """Let entries be missing: something was done to them that no code can prevent."""
        self._waits.clear()

    def looked(self, look: Look) -> None:
        """Note what the thread that runs has seen."""
        task = self._world.scheduler.current
        self._looks[task] = look
        self._are_in_order(look)
        for entry in look.entries:
            looks = self._looks_at.setdefault((task, entry.key), [])
            looks.append(look)
            del looks[:-LOOKS_AT_ONCE]
            if look.turns[entry.key].start:
                self._offered.setdefault(entry, look.at)

    def must_have_read(
        self,
        before: Sequence[QueueEntry],
        found: Sequence[QueueEntry],
        after: Sequence[QueueEntry],
        began: float,
    ) -> None:
        """See that who was there all the time was read, and nobody who was not."""
        for entry in found:
            self._counts_rightly(entry, began)
        keys = {entry.key for entry in found}
        later = {entry.key for entry in after}
        for entry in before:
            was_let_go = self._let_go_at.get(file_name(entry.home, entry.job), 0.0) >= began
            if entry.key in later and entry.key not in keys and not was_let_go:
                raise Violation(f"the entry of {entry.job} was overlooked")

    def count_other(self, entry: QueueEntry, until: float) -> None:
        """Note that somebody who is no home's holds an entry that counts, until a time."""
        self._others[entry.key, entry.gpus] = until

    def _counts_rightly(self, entry: QueueEntry, began: float) -> None:
        """See that an entry is that of a home's person, or of somebody else who has held such a file since."""
        home = self._world.homes_by_uuid.get(entry.home)
        jobs = home.jobs if home is not None and home.person == entry.person else []
        is_of_home = any(job.id == entry.job and job.gpus == entry.gpus for job in jobs)
        if not is_of_home and self._others.get((entry.key, entry.gpus), -1.0) < began:
            raise Violation(f"an entry counts that is none: {entry}")

    # GPUs

    def took(self, uuids: Sequence[str], text: Mapping[str, Any]) -> None:
        """See that whoever has taken GPUs had its turn."""
        job = str(text.get("job"))
        home = self._world.home_of(job)
        key = (self._world.person_number(home), home.uuid, job)
        looks = self._looks_at.get((self._world.scheduler.current, key))
        process = self._world.kernel.running()
        if not looks or process is None:
            raise Violation(f"{job} has taken GPUs, and nobody has looked whether it is its turn")
        # After a look at all, one that has no entry is looked at by itself: the others' turns are of the former.
        look = next((one for one in reversed(looks) if one.turns[key].start), looks[-1])
        seconds = self._world.scheduler.now - look.at - (process.hung_seconds - look.hung_seconds)
        if seconds > LOOK_SECONDS:
            raise Violation(f"{job} has taken GPUs {seconds:.0f} s after {process.name} has looked")
        self._waits.pop(key, None)
        attempt = int(text.get("attempt") or 0)
        self._started.add((job, attempt))
        self._taken_at[attempt_name(job, attempt)] = (
            self._world.scheduler.now,
            self._world.scheduler.jump_us,
        )
        if self._world.drained_between(look.at, self._world.scheduler.now, all_the_time=True):
            raise Violation(f"{job} has taken GPUs, and the host is to be empty")
        own = next(entry for entry in look.entries if entry.key == key)
        self._had_turn(own, look)
        for uuid in uuids:
            self._taken[uuid] = (key[0], job)
        self._is_within_limits(key, uuids, look)

    def _had_turn(self, own: QueueEntry, look: Look) -> None:
        if not look.turns[own.key].start:
            raise Violation(f"{own.job} has taken GPUs, and it was not its turn")
        line = self._line(look)
        if line is None:
            return
        may_pass = look.policy.kind == "priority" and own.max_runtime_seconds is not None
        free = _free(look.slots)
        total = _total(look.slots)
        needed = own.gpus
        for entry in line:
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

    def _are_in_order(self, look: Look) -> None:
        """See that those who wait have the places that the policy gives them."""
        line = self._line(look)
        if line is None or len(look.turns) < 2:
            return
        self._world.seen[f"an order by {look.policy.kind}"] += 1
        found = sorted(look.turns, key=lambda key: look.turns[key].place)
        if found != [entry.key for entry in line]:
            jobs = [key[2] for key in found]
            raise Violation(f"jobs wait in the order {jobs}, not {[entry.job for entry in line]}")

    def _line(self, look: Look) -> list[QueueEntry] | None:
        """Return those who wait in the order of the policy; None where nobody can say."""
        if len({entry.key for entry in look.entries}) < len(look.entries):
            return None  # it is not promised which of two files stands for a job
        if look.policy.kind != "fair_share":
            return _in_line(look.entries, look.policy)
        if any("to be empty" in turn.limit for turn in look.turns.values()):
            return None  # who is aside is not known
        return list(self._shared(look, _total(look.slots)))

    def _shared(self, look: Look, total: int) -> Iterator[QueueEntry]:
        """Give entries as they come under ``fair_share``, written down a second time: the code's own may be wrong."""
        weights = {person: look.policy.limits(str(person)).weight for person, _, _ in look.turns}
        has: Counter[object] = Counter()
        for people, mark in look.held:
            for person in people:
                has[person] += 1
                has[person, mark] += 1
        left = _in_line(look.entries, look.policy)
        places = {entry.key: place for place, entry in enumerate(left)}
        most = look.policy.everybody.max_priority

        def group(entry: QueueEntry) -> tuple[int, str]:
            return (entry.person, entry.group or entry.job)

        def share(entry: QueueEntry) -> float:
            return (has[group(entry)] if entry.group else 0) / entry.weight

        while left:
            coming: list[QueueEntry] = []
            for person in {entry.person for entry in left}:
                own = [entry for entry in left if entry.person == person]
                level = [entry for entry in own if min(entry.priority, most) == min(own[0].priority, most)]
                first = {group(entry): entry for entry in reversed(level)}
                if len({entry.weight for entry in level}) > 1:
                    coming.append(min(first.values(), key=lambda one: (share(one), places[one.key])))
                else:
                    coming.append(level[0])
            chosen = min(coming, key=lambda one: (has[one.person] / weights[one.person], places[one.key]))
            left.remove(chosen)
            yield chosen
            is_aside = chosen.gpus > total or look.turns[chosen.key].limit
            if not is_aside and look.passed.get(chosen.key) != chosen:
                has[chosen.person] += chosen.gpus
                has[group(chosen)] += chosen.gpus

    def _is_within_limits(self, key: Key, uuids: Sequence[str], look: Look) -> None:
        policies = self._world.policies_between(look.at - 1.0, self._world.scheduler.now)
        if len(policies) > 1 or not (policies[0].max_gpus or policies[0].max_jobs):
            return
        most_gpus, most_jobs = policies[0].max_gpus, policies[0].max_jobs
        held = [
            job
            for uuid, (person, job) in self._taken.items()
            if person == key[0] and (uuid in uuids or self._has(job, uuid))
        ]
        self._world.seen["within a limit"] += 1
        if most_gpus and len(held) > most_gpus:
            raise Violation(f"person {key[0]} has {len(held)} GPUs, and the policy allows {most_gpus}")
        if most_jobs and len(set(held)) > most_jobs:
            raise Violation(f"person {key[0]} has {len(set(held))} jobs, and the policy allows {most_jobs}")

    def _has(self, job: str, uuid: str) -> bool:
        """Say whether an agent of a job has the lease of a GPU: somebody else may be about to take it."""
        path = os.path.join(self._world.leases_folder, leases.file_name(uuid))
        return any(
            f" {job}/" in process.name and path in self._world.kernel.open_paths(process)
            for process in self._world.kernel.processes.values()
            if process.kind == "agent" and not process.is_killed
        )

    def begins(
        self, process: HostProcess, job: str, attempt: int, learner: int, uuids: tuple[str, ...]
    ) -> None:
        """See that a learner may begin now."""
        key = (job, attempt, learner)
        self._started.add((job, attempt))
        self.leaves(self._world.home_of(job), job)  # its agent may begin after its home has given it up
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

    def preempted(self, job: str, attempt: int, why: str, looked_at: float, ran_seconds: float) -> None:
        """See that whoever ends for another one may, by its consent and the policy, and that somebody asks for it.

        Args:
            job: its id.
            attempt: which of its attempts.
            why: what it was told.
            looked_at: when its agent began to look.
            ran_seconds: for how long it had its GPUs then, by the clock that cannot jump.
        """
        world, name = self._world, attempt_name(job, attempt)
        world.say(f"{name} is preempted: {why}")
        world.seen["preempted"] += 1
        own, now = world.jobs[job], world.scheduler.now
        if not own.consent:
            raise Violation(f"{job} is preempted, which does not consent")
        by_root = "is to be empty" in why
        policies = world.policies_between(looked_at, now)
        policies = [one for one in policies if one.allows(own.consent, by_root=by_root)]
        if not policies:
            raise Violation(f"{job} is preempted, which the policy does not allow")
        if by_root:
            world.seen["preempted by root"] += 1
            if not world.drained_between(looked_at, now, all_the_time=False):
                raise Violation(f"{job} is preempted, and nobody wants the host to be empty")
            return
        if ran_seconds < min(policy.min_run_seconds for policy in policies):
            raise Violation(f"{job} is preempted after {ran_seconds:.1f} s")
        asked = [other for (other, named) in self._asked if named == name]
        if not any(
            min(world.jobs[other].highest, policy.max_priority) > min(own.lowest, policy.max_priority)
            and now - self._asked[other, name] < ASKED_SECONDS
            for other in asked
            for policy in policies
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
        if not (world.was_harmed or world.has_let_go or world.has_gone) and (
            files := [name for name in names if name.startswith(PREFIX) and name not in world.garbage_names]
        ):
            raise Violation(f"entries lie there: {files}")


def _total(slots: Sequence[Mapping[str, Any]]) -> int:
    """Count the GPUs that can be used at all."""
    return sum(1 for one in slots if one["memory_bytes"])


def _free(slots: Sequence[Mapping[str, Any]]) -> int:
    """Count the GPUs that somebody can get."""
    return sum(1 for one in slots if one["memory_bytes"] and not one.get("holder") and not one.get("foreign"))


def _is_held(slot: Mapping[str, Any], taken: Mapping[str, object]) -> bool:
    """Say whether a GPU serves whoever waits once its holder has ended."""
    return bool(slot["memory_bytes"] and slot.get("holder") and slot["uuid"] in taken)


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
