"""One history of a host's queue: homes with their clients, waiters and learners, and what goes wrong."""

from __future__ import annotations

import gc
import json
import os
import pwd
import random
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.chance import Chance
from tests.simulation.checks import Violation
from tests.simulation.host_queue import kernel as kernels
from tests.simulation.host_queue.agents import SimulatedAgent
from tests.simulation.host_queue.checks import HostChecks, Look, WrittenPolicy
from tests.simulation.host_queue.homes import HostClient, QueuedJob, SimulatedHome
from tests.simulation.host_queue.kernel import HostProcess, Kernel, kernel_in_use
from tests.simulation.shrink import Result
from tests.simulation.tasks import RunsInCircles, Scheduler, SimulatedConcurrency, Task
from workbench.learner.gpu.types import Gpus
from workbench.learner.host import machine
from workbench.learner.host.agent_forks import ForkServer
from workbench.learner.platform import descriptors, leases, owned_files, run, system
from workbench.learner.platform.inotify import Inotify
from workbench.learner.queue import channel, line, policy, preemption
from workbench.learner.queue.entries import PREFIX, QueueEntry, file_name, group_mark, read_entries
from workbench.learner.waiter import start, waiter

FAULTS: Final = {
    "kill": "a client, a waiter or a learner's agent is killed, at any call that touches files",
    "cut": "a connection is cut before a call, or before its answer",
    "slow": "a process hangs for seconds, at any such call",
    "order": "processes lose the processor at any such call",
    "clock": "the host's clock is set",
    "gpus": "GPUs come and go, and programs use them that have leased none",
    "garbage": "somebody puts other files into the folder of leases",
    "emptied": "somebody empties the folder of leases",
    "policy": "root changes the host's policy",
    "disk": "there is no room for entries and leases",
    "people": "somebody withdraws a job, stops it, or changes its priority or place",
    "away": "a home's client is away for a while",
    "waiter": "a waiter is asked to end",
    "drain": "root wants the host to be empty for a while",
}
"""The kinds of faults, and what each does."""

HARM_SECONDS: Final = 70.0
REST_SECONDS: Final = 1500.0
TURNS_MAX: Final = 15_000
"""Many times what any history needs that comes to its end."""
MEMORY: Final = "/dev/shm"
"""Where histories are lived, if it is there; else where temporary files lie, which root's people must reach."""
GPUS: Final = 4
GPU_BYTES: Final = 16 << 30
PEOPLE: Final = (54_001, 54_002)
"""The accounts that the homes belong to, where the tests are root's: root itself may do what no other person may."""
STRANGER: Final = 54_003
"""Somebody who has no home here, and writes into the folder of leases all the same."""

INOTIFY_INSTANCES: Final = 2
"""How many each person may have at the simulated host, whatever this machine allows: its third waiter gets none."""

GARBAGE_AT_ONCE: Final = 5
LOCKED_GARBAGE: Final = 0.7
"""How often somebody holds what is put into the folder of leases: what nobody holds no reader looks into."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that is no entry of a home's."""

    inode: int
    number: int | None
    """The open file by which somebody holds it; None where nobody does."""
    entry: QueueEntry | None
    """The entry that it is, where it counts."""


class HostWorld:
    """All there is in one history."""

    def __init__(self, chance: Chance, folder: str, *, jobs: int, keeps_story: bool) -> None:
        self.chance = chance
        self.folder = folder
        self.leases_folder = os.path.join(folder, "leases")
        self.scheduler = Scheduler(chance, TURNS_MAX)
        self.scheduler.on_died = self._thread_died
        self.kernel = Kernel(self.scheduler, chance, folder)
        self.kernel.on_call = self._called
        self.kernel.on_killed = self._killed
        self.kernel.on_exit = self._exited
        self.kernel.on_hindered = self._hinder
        self.checks = HostChecks(self)
        self.lines: list[str] = []
        self._policies: list[tuple[float, WrittenPolicy]] = [(float("-inf"), WrittenPolicy())]
        """Each with the time from which on it is in force."""
        self.was_harmed = False
        """Whether a process was killed, or files were removed."""
        self.has_let_go = False
        """Whether a waiter was asked to end: it leaves the files of entries, for whoever goes on."""
        self._drains: list[tuple[float, float]] = []
        """From when until when root wants the host to be empty."""
        self.has_gone = False
        """Whether a client was away: nobody removes the file of an entry whose job has ended meanwhile."""
        self.seen: Counter[str] = Counter()
        self._keeps_story = keeps_story
        self._began = self.scheduler.now
        self._violation: Violation | None = None
        self._is_root = os.geteuid() == 0
        self._people = PEOPLE if self._is_root else (os.geteuid(),)
        self._foreign: set[int] = set()
        self._gone: set[int] = set()
        self._garbage: dict[str, Garbage] = {}
        """By path: what others put into the folder of leases."""
        self.garbage_names: set[str] = set()
        """The names that such files have had: nobody has to remove these at the end."""
        self._written = 0
        """How many such files there were."""
        self.inotify_instances: Counter[int] = Counter()
        """How many each person has open."""
        self._asked_to_end: set[HostProcess] = set()
        """Waiters that were asked to."""
        self._guards: dict[int, str] = {}
        self.homes = self._make_homes(jobs)
        self.homes_by_uuid = {home.uuid: home for home in self.homes}
        self.jobs = {job.id: job for home in self.homes for job in home.jobs}

    # What there is

    def _make_homes(self, jobs: int) -> list[SimulatedHome]:
        chance, homes = self.chance, []
        for number in range(2 if chance.of("homes").random() < 0.7 else 3):
            person = self._people[chance.below("person", len(self._people))]
            uuid = f"{chance.of('uuid').getrandbits(64):016x}"
            letter = "abc"[number]
            homes.append(
                SimulatedHome(
                    uuid,
                    person,
                    os.path.join(self.folder, f"home-{letter}"),
                    self.leases_folder,
                    [self._make_job(letter, one) for one in range(1, 1 + jobs)],
                    lines=1 + chance.below("connections", 2),
                    hands_over=chance.choose("hands over", (0.0, 0.5, 1.0, 1.0)),
                    secrets={"TOKEN": "x"} if chance.of("secrets").random() < 0.3 else {},
                    keeps=chance.of("keeps").random() < 0.4,
                )
            )
            homes[-1].jobs = [job for job in homes[-1].jobs if job.line < homes[-1].lines]
        return homes

    def _make_job(self, letter: str, number: int) -> QueuedJob:
        chance = self.chance
        learners = 2 if chance.of("learners").random() < 0.2 else 1
        each = chance.choose("gpus", (1, 1, 2) if learners > 1 else (1, 1, 1, 2, 2, 3, 4))
        runs = chance.choose("runs", (4.0, 12.0, 25.0, 70.0))
        priority = chance.choose("priority", (50, 50, 30, 30, 70))
        consent = chance.choose("consent", ("", "asked", "by_policy"))
        return QueuedJob(
            id=f"{letter}{number}",
            number=number,
            each=each,
            learners=learners,
            priority=priority,
            position=float(number),
            max_runtime_seconds=2 * runs if chance.of("max runtime").random() < 0.3 else None,
            consent=consent,
            runs_seconds=runs * chance.between("share of a run", 0.8, 1.2),
            line=chance.below("line", 2),
            comes_at=self.scheduler.now + chance.between("comes", 0.0, HARM_SECONDS / 3),
            is_followed=learners == 1 and chance.of("followed").random() < 0.5,
            weight=chance.choose("weight", (1.0, 1.0, 4.0)),
            group=group_mark(chance.choose("sweep", ("", "s1", "s2"))),
            highest=priority,
            lowest=priority,
        )

    def person_number(self, home: SimulatedHome) -> int:
        """Return the user of a home's files."""
        return home.person

    def home_of(self, job: str) -> SimulatedHome:
        """Return the home of a job."""
        return next(home for home in self.homes if any(one.id == job for one in home.jobs))

    def secret_folders(self) -> list[str]:
        """Return where secrets lie."""
        return [os.path.join(self.folder, f"secrets-{person}") for person in self._people]

    def was_lost(self, name: str) -> bool:
        """Say whether whoever was to remove a file of secrets may have been killed."""
        return self.was_harmed

    def guard_argv(self, folder: str) -> list[str]:
        """Return the command that is a learner's agent."""
        return ["agent", "guard", folder]

    def waiter_argv(self, folder: str) -> list[str]:
        """Return the command that is a home's waiter, without the home."""
        return ["agent", "waiter", folder]

    # One history

    def run(self) -> None:
        """Live it.

        Raises:
            Violation: something does not hold.
        """
        os.mkdir(self.leases_folder)
        os.chmod(self.leases_folder, 0o1777)
        for home in self.homes:
            os.mkdir(home.folder)
            if home.keeps:
                Path(home.folder, "resume.sh").write_text("")
            if self._is_root:
                os.chown(home.folder, home.person, home.person)
                if home.keeps:
                    os.chown(os.path.join(home.folder, "resume.sh"), home.person, home.person)
            self._start_client(home)
        for person, folder in zip(self._people, self.secret_folders(), strict=True):
            os.mkdir(folder, 0o700)
            if self._is_root:
                os.chown(folder, person, person)
        self._draw_harm()
        self._pass(self._began + HARM_SECONDS, lambda: False)
        self._calm()
        self._pass(self.scheduler.now + REST_SECONDS, self._is_at_rest)
        self.checks.at_rest()

    def _pass(self, until: float, is_over: Callable[[], bool]) -> None:
        self.scheduler.run(until, lambda: self._violation is not None or is_over())
        if self._violation is not None:
            raise self._violation

    def _is_at_rest(self) -> bool:
        return all(home.is_done for home in self.homes) and all(
            one.is_killed for one in self.kernel.processes.values()
        )

    def _start_client(self, home: SimulatedHome) -> None:
        if home.is_done or self._has_client(home):
            return
        home.starts += 1
        process = HostProcess(
            self.kernel, f"client {home.starts} of {home.folder[-1]}", "client", home.person
        )
        home.client = HostClient(self, home, process)
        self.kernel.start(process, home.client.run)
        self.say(f"{process.name} begins")

    def _has_client(self, home: SimulatedHome) -> bool:
        return home.client is not None and not home.client.process.is_killed

    def _calm(self) -> None:
        """Let nothing go wrong any more, and all clients be back."""
        self.chance.ended = True
        self.kernel.full = ""
        self.checks.is_excused = False
        if len(self._policies) > 1:
            self._write_policy(WrittenPolicy())  # nobody is under a limit that no job of theirs can be within
        self._end_drain()
        self._gone.clear()
        self._foreign.clear()
        for path in list(self._garbage):
            self._remove_garbage(path)
        self.say("nothing goes wrong any more")
        for home in self.homes:
            self._start_client(home)
        self.scheduler.after(20.0, self._look_after_clients)

    def _look_after_clients(self) -> None:
        for home in self.homes:
            self._start_client(home)
        self.scheduler.after(20.0, self._look_after_clients)

    # What goes wrong

    def _draw_harm(self) -> None:
        harms: dict[str, Callable[[], None]] = {
            "clock": self._set_clock,
            "gpus": self._change_gpus,
            "garbage": self._put_much_garbage,
            "emptied": self._empty,
            "policy": self._change_policy,
            "disk": self._fill_disk,
            "people": self._change_mind,
            "away": self._go_away,
            "waiter": self._end_waiter,
            "drain": self._drain,
        }
        if self.chance.goes_wrong("policy", "first", 10.0):
            self._change_policy()
        for kind, harm in harms.items():
            if self.chance.is_active(kind):
                for _ in range(8 if kind == "people" else 3):
                    self.scheduler.after(
                        self.chance.between(f"time of {kind}", 0.5, HARM_SECONDS),
                        partial(self._harm, kind, harm),
                    )

    def _harm(self, kind: str, harm: Callable[[], None]) -> None:
        if self.chance.goes_wrong(kind, "host", 2.0):
            harm()

    def _set_clock(self) -> None:
        seconds = self.chance.choose("jump", (-3600.0, -30.0, 30.0, 3600.0, 100_000.0, 100_000.0))
        self.scheduler.jump_us += int(seconds * 1e6)
        self.say(f"the clock is set by {seconds:g} s")

    def _change_gpus(self) -> None:
        which = self.chance.below("gpu", GPUS)
        group = self.chance.choose("kind of change", (self._gone, self._foreign))
        group ^= {which}
        there = "gone" if which in self._gone else "there"
        self.say(f"GPU {which}: {there}{', used by a program' if which in self._foreign else ''}")

    def _put_much_garbage(self) -> None:
        for _ in range(GARBAGE_AT_ONCE):
            self._put_garbage()

    def _put_garbage(self) -> None:
        """Put a file there that is no entry of a home's: of somebody, who may hold it, and under whatever name."""
        chance = self.chance
        person = (
            chance.choose("person of garbage", (*self._people, STRANGER))
            if self._is_root
            else self._people[0]
        )
        name = f"{PREFIX}{'0' * 12}-{chance.below('name of garbage', 99):016d}"
        if chance.of("name of garbage of a home").random() < 0.3:
            home = self.homes[chance.below("home of garbage", len(self.homes))]
            job = chance.choose("job of garbage", home.jobs).id if home.jobs else "x1"
            name = file_name(home.uuid, job)
        self.garbage_names.add(name)
        kind, text, counts = chance.choose("garbage", self._texts_of_garbage())
        mode = chance.choose("mode of garbage", (0o644, 0o644, 0o644, 0o666))
        is_linked = chance.of("links of garbage").random() < 0.15
        path = os.path.join(self.leases_folder, name)
        if os.path.lexists(path) or (
            counts and counts[0] == self.homes[0].uuid and person == self.homes[0].person
        ):
            return  # a person may say about the own jobs whatever they like
        self._remove_garbage(path)
        entry = None
        with self.kernel.as_person(person):
            try:
                if kind == "a link":
                    os.symlink(text, path)
                    number = None
                else:
                    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
                    os.write(number, text.encode())
                    os.fchmod(number, mode)
                    if is_linked:
                        os.link(path, os.path.join(self.leases_folder, f"other-{name}"))
            except OSError:
                return
            if number is not None and chance.of("holder of garbage").random() < LOCKED_GARBAGE:
                owned_files.lock_own(number)
                if counts and mode == 0o644 and not is_linked:
                    entry = QueueEntry(person, *counts)
                self.scheduler.after(
                    chance.between("time of garbage", 5.0, HARM_SECONDS / 2),
                    partial(self._remove_garbage, path),
                )
            elif number is not None:
                kernels.close_really(number)
                number = None
        self._garbage[path] = Garbage(os.lstat(path).st_ino, number, entry)
        if entry is not None:
            self.checks.count_other(entry, float("inf"))
        self.seen["garbage that counts" if entry else "garbage that is held" if number else "garbage"] += 1
        self.say(f"person {person} puts {name} there, {'held' if number else 'not held'}: {kind}")

    def _texts_of_garbage(self) -> Sequence[tuple[str, str, tuple[str, str, int] | None]]:
        """Return what others write: its name, the text, and home, job and GPUs of the entry that it is, if any."""
        home = self.homes[0]
        job = home.jobs[0].id if home.jobs else "x1"
        self._written += 1
        stranger, mine = "f" * 16, f"z{self._written}"
        plain = {"gpus": 1, "priority": 40, "home": stranger, "job": mine}
        other = 1 + (home.jobs[0].gpus if home.jobs else 1) % GPUS
        another = {"gpus": other, "priority": 60, "home": home.uuid, "job": job, "person": home.person}
        return (
            ("nothing", "", None),
            ("half a text", '{"gpus": 1, "home"', None),
            ("a long text", "x" * 100_000, None),
            ("a deep text", "[" * 4000, None),
            ("a list", "[1]", None),
            ("no GPUs", json.dumps({**plain, "gpus": 0}), None),
            ("too many GPUs", json.dumps({**plain, "gpus": 1 << 40}), None),
            ("other types", json.dumps({**plain, "gpus": "2", "priority": [], "since_us": {}}), None),
            (
                "odd types",
                json.dumps(
                    {**plain, "priority": [], "since_us": "x", "labels": 7, "preempts": {}, "tries": None}
                ),
                (stranger, mine, 1),
            ),
            ("a newer format", json.dumps({**plain, "format": 9, "colour": "red"}), (stranger, mine, 1)),
            ("an older format", json.dumps({**plain, "format": 0}), (stranger, mine, 1)),
            (
                "an infinite place",
                f'{{"gpus": 1, "position": Infinity, "weight": NaN, "job": "{mine}"}}',
                ("", mine, 1),
            ),
            ("the job of somebody else", json.dumps(another), (home.uuid, job, other)),
            ("a link", "/etc/passwd", None),
        )

    def _remove_garbage(self, path: str) -> None:
        """Have who put a file there let go of it, and remove it where it bars the name of a home's entry."""
        garbage = self._garbage.pop(path, None)
        if garbage is None:
            return
        entry = garbage.entry
        if entry is not None:
            left = (one.entry for one in self._garbage.values() if one.entry is not None)
            is_left = any((one.key, one.gpus) == (entry.key, entry.gpus) for one in left)
            self.checks.count_other(entry, float("inf") if is_left else self.scheduler.now)
        if garbage.number is not None:
            kernels.close_really(garbage.number)
            self.kernel.is_changed = True
        if f"{PREFIX}{'0' * 12}-" not in path:
            with suppress(OSError):
                if os.lstat(path).st_ino == garbage.inode:  # else the home has it now
                    os.unlink(path)

    def _empty(self) -> None:
        self.say("the folder of leases is emptied")
        self.was_harmed = True
        self.checks.excuse()
        for name in os.listdir(self.leases_folder):
            if name.startswith((PREFIX, ".queue")):
                os.unlink(os.path.join(self.leases_folder, name))
        self.checks.excuse()

    def _change_policy(self) -> None:
        if not self._is_root:
            return
        choose = self.chance.choose
        if choose("sense of the policy", (True,) * 9 + (False,)):
            limit = choose("limit", ("", "", "gpus2", "gpus3", "jobs1", "jobs1"))
            policy = WrittenPolicy(
                choose(
                    "kind of policy",
                    ("priority", "priority", "priority", "first_come", "fair_share", "fair_share"),
                ),
                choose("preemption", ("asked", "all", "all", "none")),
                choose("least run", (0.0, 0.0, 12.0)),
                max_gpus=int(limit[4:]) if limit.startswith("gpus") else 0,
                max_jobs=int(limit[4:]) if limit.startswith("jobs") else 0,
                max_priority=choose("highest priority", (100, 100, 50)),
                weights={str(self._people[0]): choose("weight of a person", (1.0, 4.0, 0.25))},
            )
        else:
            policy = WrittenPolicy(is_understood=False)
        self._write_policy(policy)

    def _write_policy(self, policy: WrittenPolicy) -> None:
        path = os.path.join(self.folder, "policy.toml")
        new = path + ".new"
        Path(new).write_text(policy.text)
        os.chmod(new, 0o644)
        os.rename(new, path)
        self._policies.append((self.scheduler.now, policy))
        self.say(f"the policy is {policy.text.strip()!r}")

    def policies_between(self, begin: float, end: float) -> list[WrittenPolicy]:
        """Return those that were in force at some time between two."""
        begun = [number for number, (at, _) in enumerate(self._policies) if at <= begin]
        return [policy for at, policy in self._policies[begun[-1] :] if at <= end]

    def _drain(self) -> None:
        path = os.path.join(self.folder, "drain")
        if not self._is_root or os.path.exists(path):
            return
        seconds = self.chance.between("drained for", 5.0, 25.0)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
        self._drains.append((self.scheduler.now, float("inf")))
        self.say(f"the host is to be empty for {seconds:.0f} s")
        self.scheduler.after(seconds, self._end_drain)

    def _end_drain(self) -> None:
        if self._drains and self._drains[-1][1] > self.scheduler.now:
            os.unlink(os.path.join(self.folder, "drain"))
            self._drains[-1] = (self._drains[-1][0], self.scheduler.now)
            self.say("the host need not be empty any more")

    def drained_between(self, begin: float, end: float, *, all_the_time: bool) -> bool:
        """Say whether the host was to be empty at some time between two, or all of that."""
        if all_the_time:
            return any(since <= begin and end < until for since, until in self._drains)
        return any(since <= end and begin <= until for since, until in self._drains)

    def _fill_disk(self) -> None:
        seconds = self.chance.between("full for", 1.0, 20.0)
        self.say(f"no room for leases for {seconds:.0f} s")
        self.kernel.full = self.leases_folder
        self.checks.is_excused = True
        self.checks.excuse()
        self.scheduler.after(seconds, self._free_disk)

    def _free_disk(self) -> None:
        self.kernel.full = ""
        self.checks.is_excused = False

    def _change_mind(self) -> None:
        chance = self.chance
        jobs = [job for job in self.jobs.values() if job.phase not in ("new", "over", "ending")]
        if not jobs:
            return
        job = jobs[chance.below("whose", len(jobs))]
        what = chance.choose("what people do", ("withdraw", "halt", "priority", "priority", "position"))
        if what in ("withdraw", "halt"):
            job.wish = what
            self.say(f"somebody wants {job.id} to end: {what}")
        elif what == "priority":
            job.priority = chance.choose("new priority", (20, 50, 60, 90))
            job.highest, job.lowest = max(job.highest, job.priority), min(job.lowest, job.priority)
            self.say(f"{job.id} has priority {job.priority}")
        else:
            job.position = chance.between("new position", 0.0, 9.0)
            self.say(f"{job.id} has position {job.position:g}")

    def _go_away(self) -> None:
        home = self.homes[self.chance.below("who goes", len(self.homes))]
        if self._has_client(home):
            assert home.client is not None
            self.kernel.kill(home.client.process, "the laptop is closed")

    def _end_waiter(self) -> None:
        living = [one for one in self.kernel.processes.values() if one.kind == "waiter" and not one.is_killed]
        if living:
            one = living[self.chance.below("which waiter", len(living))]
            self.say(f"{one.name} is asked to end")
            served = self.waiters.get(one)
            if served is not None:
                self._asked_to_end.add(one)
                self._hinder(one)
                self.has_let_go = True
                served._end()
                self.kernel.is_changed = True
                self.kernel.pollers.notify()

    # What the code under test asks the system for

    waiters: dict[HostProcess, waiter.Waiter]

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, output: str, holding: Sequence[int]
    ) -> int:
        """Start a process of the host, as ``run.spawn`` does."""
        parent = self.kernel.running()
        assert parent is not None
        if argv[-2] == "guard":
            folder = argv[-1]
            self._judge(lambda: self.checks.is_started(folder))
            process = HostProcess(
                self.kernel, f"agent of {'/'.join(folder.split('/')[-3:])}", "agent", parent.person
            )
            lock = env.get("FABRIC_AGENT_LOCK")
            inherited = {number: self.kernel.give(process, number) for number in holding}
            agent = SimulatedAgent(self, folder, inherited[int(lock)] if lock else None)
            marker = env.get("FABRIC_GUARD", "")
            self._guards[process.pid] = marker
            self.kernel.start(process, agent.run)
        else:
            folder, home = argv[-2:]
            process = HostProcess(self.kernel, f"waiter of {folder[-1]}", "waiter", parent.person)
            self.kernel.start(process, partial(self._wait, process, folder, home))
        self.say(f"{process.name} is started by {parent.name}")
        return process.pid

    def _wait(self, process: HostProcess, folder: str, home: str) -> None:
        """Be a waiter until it ends by itself."""
        waiter.main(folder, home)
        if process not in self._asked_to_end:  # else its end gives back what it holds
            self.checks.has_given_back(process)

    def end_agents(self, job: QueuedJob) -> None:
        """Kill what runs of an attempt, and drop its secrets, as its removal does once nothing of it begins."""
        for process in list(self.kernel.processes.values()):
            if f" {job.id}/attempt-{job.attempt}/" in process.name and not process.is_killed:
                self.kernel.kill(process, "since its attempt is removed")
        with self.kernel.as_world():
            stem = f"{self.home_of(job.id).uuid}.{job.id}-{job.attempt}-"
            for folder in self.secret_folders():
                for name in os.listdir(folder):
                    if name.startswith(stem):
                        os.unlink(os.path.join(folder, name))

    def markers(self, variable: str) -> dict[str, list[int]]:
        """Return which learners have agents."""
        return {marker: [pid] for pid, marker in self._guards.items() if marker and self.kernel.is_alive(pid)}

    def gpus(self) -> Gpus:
        """Return what the driver says."""
        slots: list[dict[str, Any]] = [
            {
                "uuid": f"GPU-{number}",
                "index": number,
                "model": "simulated",
                "memory_bytes": 0 if number in self._gone else GPU_BYTES,
                "memory_used_bytes": 0,
                "utilization_percent": 0.0,
                "foreign": "a program" if number in self._foreign else "",
                "processes": [],
            }
            for number in range(GPUS)
        ]
        return Gpus(slots, "simulated")

    def take(self, names: Sequence[str], folder: str, text: str) -> leases.Lease | None:
        """Take leases, and see whether that may be."""
        found = _TAKE(names, folder, text)
        process = self.kernel.running()
        gpus = [name for name in names if name.startswith("GPU-")]
        if found is not None and gpus and process is not None:
            self.say(f"{process.name} takes {', '.join(gpus)} for {json.loads(text).get('job')}")
            self.seen[f"started by a {process.kind}"] += 1
            self._judge(lambda: self.checks.took(gpus, json.loads(text)))
        return found

    def read_entries(self, folder: str) -> list[QueueEntry]:
        """Read entries, and see whether none is overlooked."""
        if not self.kernel.may_switch:
            found = read_entries(folder)
            self._judge(lambda: self.checks.must_have_read((), found, (), self.scheduler.now))
            return found
        before, began = self.checks.read(), self.scheduler.now
        found = read_entries(folder)
        self._judge(lambda: self.checks.must_have_read(before, found, self.checks.read(), began))
        return found

    def turns(self, queue: line.HostQueue, entries: Sequence[QueueEntry], reading: line.LeaseReading) -> Any:
        """Say whose turn it is, and remember what that was seen by."""
        at = self.scheduler.now
        slots = tuple(dict(slot) for slot in reading.slots)
        process = self.kernel.running()
        hung = 0.0 if process is None else process.hung_seconds
        found, known = _TURNS(queue, entries, reading)
        if process is not None:
            shared = reading.holdings().values() if known.kind == "fair_share" else ()
            held = [(one.people, str(one.document.get("group") or "")) for one in shared]
            look = Look(at, tuple(entries), slots, dict(found), known, dict(queue._passed), hung, held)
            self._judge(lambda: self.checks.looked(look))
        return found, known

    # What the kernel tells

    def _called(self, process: HostProcess | None, call: str, path: str) -> None:
        if call == "close" and process in self._asked_to_end:
            self.checks.excuse_files([path])
        if call in ("unlink", "rename", "close") and os.path.basename(path).startswith(PREFIX):
            who = "the world" if process is None else process.name
            why = f"{who} did {call} {os.path.basename(path)}"
            self._judge(lambda: self.checks.look_at_entries(why, is_written=call == "rename"))

    def _exited(self, process: HostProcess, held: Sequence[str], is_kill: bool) -> None:
        if is_kill or process in self._asked_to_end:
            self._hinder(process)
            self.checks.excuse_files(held)
        self._judge(lambda: self.checks.look_at_entries(f"{process.name} has ended"))

    def _hinder(self, process: HostProcess, seconds: float = 0.0) -> None:
        """Note that something happened to a process of a home's that may keep its jobs from what they were given to."""
        letter = process.name.split("agent of ")[-1][0] if process.kind == "agent" else process.name[-1]
        for home in self.homes:
            if home.folder[-1] == letter:
                home.harmed_at = max(home.harmed_at, self.scheduler.now + seconds)

    def _killed(self, process: HostProcess, where: str, is_fault: bool) -> None:
        self.was_harmed |= is_fault
        self.has_gone |= process.kind == "client"
        self.say(f"{process.name} is killed {where}")
        for home in self.homes:
            if home.client is not None and home.client.process is process:
                self.scheduler.after(
                    self.chance.between("back after", 0.5, 30.0), partial(self._start_client, home)
                )

    def _judge(self, check: Callable[[], None]) -> None:
        """Check something; what does not hold ends the history, whatever the code would make of it."""
        try:
            check()
        except Violation as error:
            self._violation = self._violation or error

    def fail(self, violation: Violation) -> None:
        """End the history: something does not hold."""
        self._violation = self._violation or violation

    def report(self, text: str) -> None:
        """Hear what a waiter writes into its log."""
        self.say(f"a waiter reports: {text}")
        if text.startswith("a request failed") or any(
            f"{name}: " in text for name in ("TypeError", "KeyError", "AttributeError", "ValueError")
        ):
            self._violation = self._violation or Violation(f"a waiter reports: {text}")

    def say(self, text: str) -> None:
        """Write a line of the story."""
        if self._keeps_story:
            self.lines.append(f"{self.scheduler.now - self._began:10.3f}  {text}")

    def _thread_died(self, task: Task, error: BaseException) -> None:
        if isinstance(error, Violation):
            self._violation = self._violation or error
            return
        import traceback

        shown = traceback.format_exception(error)
        self.say("".join(shown))
        self._violation = self._violation or Violation(f"{task.name} died: {type(error).__name__}: {error}")


_TAKE: Final = leases.take
_TURNS: Final = line.HostQueue._turns


class HostGround:
    """Where histories of a host's queue are lived: a folder in memory. Replaces calls, clocks and processes here."""

    faults = tuple(FAULTS)

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._threshold = gc.get_threshold()
        base = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
        self._folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(dir=base, prefix=f"fabric-queues-{os.getpid()}-")
        )
        os.chmod(self._folder, 0o755)
        self._number = os.getpid()
        self._world: HostWorld | None = None

    def __enter__(self) -> HostGround:
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        enter = self._stack.enter_context
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 8192), before[1]))
        self._stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        enter(kernels.calls_replaced())
        for owner, name, stand_in in self._stand_ins():
            enter(patch.object(owner, name, stand_in))
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()
        gc.set_threshold(*self._threshold)
        gc.unfreeze()

    def _here(self) -> HostWorld:
        assert self._world is not None
        return self._world

    def _stand_ins(self) -> list[tuple[Any, str, Any]]:
        here = self._here
        folder = os.path.join(self._folder, "host")

        def address(home: str) -> str:
            return f"\0fabric-simulated-{self._number}-{os.geteuid()}-{home}"

        def open_inotify() -> Inotify | None:
            process, world = kernel_in_use().running(), here()
            assert process is not None
            person = process.person
            if world.inotify_instances[person] >= INOTIFY_INSTANCES:
                world.seen["no inotify"] += 1
                return None
            try:
                made = Inotify(system.libc())
            except OSError as error:  # another story would come of it
                world.fail(Violation(f"this machine has no inotify left: {error}"))
                return None
            world.inotify_instances[person] += 1

            def close() -> None:
                world.inotify_instances[person] -= 1
                made.close()

            process.closers.append(close)
            return made

        def concurrency() -> Any:
            kernel = kernel_in_use()
            process = kernel.running()
            assert process is not None
            return SimulatedConcurrency(kernel.scheduler, process).lock()

        def secret_folder() -> str:
            return os.path.join(folder, f"secrets-{os.geteuid()}")

        def listen(one: waiter.Waiter) -> None:
            process = kernel_in_use().running()
            assert process is not None
            os.set_blocking(one._woken, False)
            here().waiters[process] = one

        policy_file, drain_file = os.path.join(folder, "policy.toml"), os.path.join(folder, "drain")
        memory = {"total": 64 << 30, "used": 1 << 30}
        return [
            (waiter, "select", kernels.SELECT),
            (channel, "select", kernels.SELECT),
            (channel, "socket", kernels.SOCKET),
            (channel, "_address", address),
            (channel, "_begun", _Begun()),
            (run, "spawn", lambda *arguments: here().spawn(*arguments)),
            (run, "reap", lambda: None),
            (system, "start_ticks", lambda pid: int(pid) if kernel_in_use().is_alive(pid) else 0),
            (system, "boot_id", lambda: "boot"),
            (system, "keep_descriptors_from_children", lambda: None),
            (system, "hide_memory", lambda: True),
            (descriptors, "restore_limit", lambda: None),
            (descriptors, "raise_limit", lambda: None),
            (line, "threading", SimpleNamespace(Lock=concurrency)),
            (line, "read_entries", lambda one: here().read_entries(one)),
            (line.HostQueue, "_turns", lambda *arguments: here().turns(*arguments)),
            (leases, "_locks", lambda: kernel_in_use().locks()),
            (leases, "take", lambda *arguments: here().take(*arguments)),
            (start, "markers", lambda variable: here().markers(variable)),
            (pwd, "getpwuid", lru_cache(pwd.getpwuid)),
            (ForkServer, "start", lambda *_: 0),
            (ForkServer, "warm", lambda *_: None),
            (machine, "nvml", SimpleNamespace(read_gpus=lambda: here().gpus())),
            (machine, "memory", lambda: memory),
            (machine, "free_bytes", lambda _: 1 << 40),
            (machine, "secret_folder", secret_folder),
            (machine, "bindable", list),
            (waiter, "open_inotify", open_inotify),
            (waiter.Waiter, "_listen_for_signals", listen),
            (waiter.Waiter, "_report", lambda _, text: here().report(text)),
            (policy, "POLICY_FILE", policy_file),
            (policy, "DRAIN_FILE", drain_file),
            (preemption, "POLICY_FILE", policy_file),
            (preemption, "DRAIN_FILE", drain_file),
        ]

    def live(
        self, chance: Chance, *, jobs: int = 3, keeps_story: bool = False, turns_max: int | None = None
    ) -> Result:
        """Live one history; return what became of it."""
        folder = os.path.join(self._folder, "host")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        random.seed(chance.seed)
        violation = ""
        world = self._world = HostWorld(chance, folder, jobs=jobs, keeps_story=keeps_story)
        world.scheduler.limit_turns(turns_max)
        world.waiters = {}
        with kernels.in_use(world.kernel):
            began = world.scheduler.now
            try:
                world.run()
            except Violation as error:
                violation = str(error)
            except RunsInCircles as error:
                violation = f"{type(error).__name__}: {error}"
            finally:
                world.say(f"VIOLATION: {violation}" if violation else "all is over")
                chance.ended = True
                passed = world.scheduler.now - began
                world.scheduler.end()
        self._world = None
        return Result(
            chance.seed,
            violation,
            tuple(chance.faults),
            tuple(world.lines),
            world.scheduler.turns,
            len(world.jobs),
            passed,
            world.seen,
        )


class _Begun:
    """What each process knows of the waiters that it has started."""

    def get(self, home: str, otherwise: tuple[float, int]) -> tuple[float, int]:
        return self._own().get(home, otherwise)

    def __setitem__(self, home: str, begun: tuple[float, int]) -> None:
        self._own()[home] = begun

    def pop(self, home: str, otherwise: Any) -> Any:
        return self._own().pop(home, otherwise)

    @staticmethod
    def _own() -> dict[str, tuple[float, int]]:
        process = kernel_in_use().running()
        assert process is not None, kernel_in_use().scheduler.current
        return process.begun
