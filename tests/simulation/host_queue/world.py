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
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.chance import Chance
from tests.simulation.checks import Violation
from tests.simulation.host_queue import kernel as kernels
from tests.simulation.host_queue.agents import SimulatedAgent
from tests.simulation.host_queue.checks import HostChecks, Look
from tests.simulation.host_queue.homes import HostClient, QueuedJob, SimulatedHome
from tests.simulation.host_queue.kernel import HostProcess, Kernel, kernel_in_use
from tests.simulation.shrink import Result
from tests.simulation.tasks import RunsInCircles, Scheduler, SimulatedConcurrency, Task
from workbench.learner.gpu.types import Gpus
from workbench.learner.host import machine
from workbench.learner.host.fork_server import ForkServer
from workbench.learner.platform import descriptors, leases, run, system
from workbench.learner.platform.inotify import Inotify
from workbench.learner.queue import channel, line, policy, preemption
from workbench.learner.queue.entries import PREFIX, QueueEntry, read_entries
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
}
"""The kinds of faults, and what each does."""

HARM_SECONDS: Final = 70.0
REST_SECONDS: Final = 1500.0
TURNS_MAX: Final = 60_000
GPUS: Final = 4
GPU_BYTES: Final = 16 << 30
PEOPLE: Final = (0, 54_001)
"""The accounts that the homes belong to, where the tests are root's."""


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
        self.checks = HostChecks(self)
        self.lines: list[str] = []
        self.policy_changed_at = float("-inf")
        self.was_harmed = False
        """Whether a process was killed, or files were removed."""
        self.has_let_go = False
        """Whether a waiter was asked to end: it leaves the files of entries, for whoever goes on."""
        self.seen: Counter[str] = Counter()
        self._keeps_story = keeps_story
        self._began = self.scheduler.now
        self._violation: Violation | None = None
        self._is_root = os.geteuid() == 0
        self._people = PEOPLE if self._is_root else (os.geteuid(),)
        self._foreign: set[int] = set()
        self._gone: set[int] = set()
        self._locks: list[int] = []
        self._guards: dict[int, str] = {}
        self.homes = self._make_homes(jobs)
        self.homes_by_uuid = {home.uuid: home for home in self.homes}
        self.jobs = {job.id: job for home in self.homes for job in home.jobs}

    # What there is

    def _make_homes(self, jobs: int) -> list[SimulatedHome]:
        chance, homes = self.chance, []
        for number in range(2 if chance.of("homes").random() < 0.7 else 3):
            person = PEOPLE[chance.below("person", len(PEOPLE))] if self._is_root else 0
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
        each = 1 + chance.below("gpus", GPUS // learners)
        runs = chance.choose("runs", (4.0, 12.0, 25.0, 70.0))
        priority = chance.choose("priority", (50, 50, 50, 30, 70))
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
            highest=priority,
            lowest=priority,
        )

    def person_number(self, home: SimulatedHome) -> int:
        """Return the user of a home's files."""
        return home.person if self._is_root else os.geteuid()

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
        if self.policy_changed_at > 0:
            self._write_policy("")  # nobody is under a limit that no job of theirs can be within
        self._gone.clear()
        self._foreign.clear()
        for one in self._locks:
            kernels.close_really(one)
        self._locks.clear()
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
            "garbage": self._put_garbage,
            "emptied": self._empty,
            "policy": self._change_policy,
            "disk": self._fill_disk,
            "people": self._change_mind,
            "away": self._go_away,
            "waiter": self._end_waiter,
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
        seconds = self.chance.choose("jump", (-3600.0, -30.0, 30.0, 3600.0, 100_000.0))
        self.scheduler.jump_us += int(seconds * 1e6)
        self.say(f"the clock is set by {seconds:g} s")

    def _change_gpus(self) -> None:
        which = self.chance.below("gpu", GPUS)
        group = self.chance.choose("kind of change", (self._gone, self._foreign))
        group ^= {which}
        there = "gone" if which in self._gone else "there"
        self.say(f"GPU {which}: {there}{', used by a program' if which in self._foreign else ''}")

    def _put_garbage(self) -> None:
        what = self.chance.below("garbage", 5)
        name = f"{PREFIX}{'0' * 12}-{self.chance.below('name of garbage', 9):016d}"
        path = os.path.join(self.leases_folder, name)
        texts = ("", "{", json.dumps({"gpus": 1, "priority": 100, "format": 9}), "x" * 100_000, "[1]")
        self.say(f"{name} is put there: {texts[what][:40]!r}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.write(descriptor, texts[what].encode())
        except OSError:
            return
        self._locks.append(descriptor)

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
        texts = (
            'policy = "first_come"\n',
            'policy = "fair_share"\n',
            'preemption = "all"\n',
            'preemption = "none"\n',
            "max_gpus = 2\n",
            "max_gpus = 2\n",
            "max_gpus = 3\n",
            "max_jobs = 1\n",
            "max_priority = 50\n",
            "min_run_minutes = 0.2\n",
            "nonsense\n",
            "",
        )
        self._write_policy(self.chance.choose("policy", texts))

    def _write_policy(self, text: str) -> None:
        path = os.path.join(self.folder, "policy.toml")
        new = path + ".new"
        Path(new).write_text(text)
        os.chmod(new, 0o644)
        os.rename(new, path)
        self.policy_changed_at = self.scheduler.now
        self.say(f"the policy is {text.strip()!r}")

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
                self.checks.excuse()
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
            self.kernel.start(process, partial(waiter.main, folder, home))
        self.say(f"{process.name} is started by {parent.name}")
        return process.pid

    def end_agents(self, job: QueuedJob) -> None:
        """Kill what runs of an attempt, as its removal does once nothing of it begins any more."""
        for process in list(self.kernel.processes.values()):
            if f" {job.id}/attempt-{job.attempt}/" in process.name and not process.is_killed:
                self.kernel.kill(process, "since its attempt is removed")

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
            return read_entries(folder)
        before = self.checks.read()
        found = read_entries(folder)
        self._judge(lambda: self.checks.must_have_read(before, found, self.checks.read()))
        return found

    def turns(self, queue: line.HostQueue, entries: Sequence[QueueEntry], reading: line.LeaseReading) -> Any:
        """Say whose turn it is, and remember what that was seen by."""
        at = self.scheduler.now
        slots = tuple(dict(slot) for slot in reading.slots)
        found, known = _TURNS(queue, entries, reading)
        process = self.kernel.running()
        if process is not None:
            look = Look(at, tuple(entries), slots, dict(found), known, dict(queue._passed))
            self.checks.looked(look)
        return found, known

    # What the kernel tells

    def _called(self, process: HostProcess | None, call: str, path: str) -> None:
        if call == "exit":
            self._judge(lambda: self.checks.look_at_entries(f"{path} has ended", is_kill=True))
            return
        if call in ("unlink", "rename", "close") and os.path.basename(path).startswith(PREFIX):
            who = "the world" if process is None else process.name
            why = f"{who} did {call} {os.path.basename(path)}"
            self._judge(lambda: self.checks.look_at_entries(why, is_written=call == "rename"))

    def _killed(self, process: HostProcess, where: str) -> None:
        self.was_harmed = True
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
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(dir=base, prefix=f"fabric-queues-{os.getpid()}-")
        )
        os.chmod(self._folder, 0o755)
        self._number = os.getpid()
        self._world: HostWorld | None = None

    def __enter__(self) -> HostGround:
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
        enter = self._stack.enter_context
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

        def open_inotify() -> Inotify:
            made = Inotify(system.libc())
            process = kernel_in_use().running()
            assert process is not None
            process.closers.append(made.close)
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

    def live(self, chance: Chance, *, jobs: int = 3, keeps_story: bool = False) -> Result:
        """Live one history; return what became of it."""
        folder = os.path.join(self._folder, "host")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        random.seed(chance.seed)
        violation = ""
        world = self._world = HostWorld(chance, folder, jobs=jobs, keeps_story=keeps_story)
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
