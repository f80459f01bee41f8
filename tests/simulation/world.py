"""One simulated history: a home, its controllers, its targets and the people who use it, on one clock."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from runners.interface import LearnerRef
from tests.simulation import disk as disks
from tests.simulation.chance import FAULTS, Chance
from tests.simulation.checks import Checks, Violation
from tests.simulation.disk import Disk
from tests.simulation.groups import MemberTarget, group_ref, groups_simulated
from tests.simulation.people import People
from tests.simulation.runner import Connection, OpenedSimulation
from tests.simulation.searches import LENGTH
from tests.simulation.shrink import Result
from tests.simulation.targets import FOR_EVER, Behaviour, Kind, Learner, SimulatedTarget, draw_behaviour
from tests.simulation.tasks import (
    TURNS_MAX,
    TURNS_OF_GROUPS,
    Process,
    RunsInCircles,
    Scheduler,
    SimulatedConcurrency,
    Task,
)
from workbench.clock import replace_clock
from workbench.controller.client import connect, requests
from workbench.controller.loop import experiments
from workbench.controller.loop.loop import Loop, Settings
from workbench.controller.runtime.lock import ControllerLock
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.targets import on_demand
from workbench.controller.targets.opener import OpenedTarget, open_target
from workbench.errors import BackendUnreachable, FabricError
from workbench.job import JobId, State, short_id
from workbench.paths import Home
from workbench.spec import JobSpec
from workbench.store.db import reserve
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef

HARM_SECONDS: Final = 60.0
"""How long things go wrong, at most."""

REST_SECONDS: Final = 6 * 3600.0
"""All must have come to rest so long after the last harm."""

RESERVE_SLICES: Final = 4
"""How large the home's reserve is."""

IDLE_SECONDS: Final = 90.0
"""After so long a host is stopped that was started for jobs."""

VISIT_SECONDS: Final = 20.0
"""How often somebody comes by, so that a controller is started where none runs."""


@dataclass(slots=True)
class Controller:
    """One controller's process."""

    process: Process
    concurrency: SimulatedConcurrency
    number: int
    loop: Loop | None = None
    accepts: bool = True
    is_over: bool = False


class World:
    """All there is in one history."""

    def __init__(self, chance: Chance, home: Home, *, jobs: int, keeps_story: bool) -> None:
        self.chance = chance
        self.home = home
        groups = chance.is_active("group")
        self.scheduler = Scheduler(
            chance,
            TURNS_OF_GROUPS if groups else TURNS_MAX,
            resumes_starters=not (groups or chance.is_active("demand")),
        )
        self.scheduler.on_died = self._thread_died
        self.disk = Disk(self.scheduler, chance)
        self.disk.on_killed = self._killed
        self.connections: list[Connection] = []
        self.removed: list[Learner] = []
        self.steps: Counter[tuple[State, State]] = Counter()
        self.judged: Counter[str] = Counter()
        """How often what holds of jobs over several hosts was looked at."""
        self.lines: list[str] = []
        self._keeps_story = keeps_story
        self._cut_until: dict[SimulatedTarget, float] = {}
        self.on_demand: list[SimulatedTarget] = []
        """Hosts that are started for jobs, and stopped when they idle."""
        self.targets = self._make_targets()
        self.refs = {target.name: self._ref(target) for target in self.targets}
        self.groups = self._make_groups()
        self.controllers: list[Controller] = []
        self.checks = Checks(self)
        _ = self.checks.store  # opened by nobody who can be killed
        self.disk.after_commit = self._after_commit
        if "rules" in chance.kinds:  # the stories of the first regressions stay what they were
            self.disk.after_mirrored = self.file_changed
        self._violation: BaseException | None = None
        self._deaf: set[LearnerRef] = set()
        self.people = People(self, jobs)

    # What others ask

    def story(self, text: str) -> None:
        """Add a line to the story; the home has another path each time."""
        if self._keeps_story:
            line = text.replace(str(self.home.path), "HOME")
            self.lines.append(f"{self.scheduler.now - 1000:9.3f}  {line}")

    def sleep(self, seconds: float) -> None:
        """Let the current task wait."""
        self.scheduler.park(None, seconds)

    def behaviour(self, ref: LearnerRef, spec: JobSpec) -> Behaviour:
        """Draw what a learner does."""
        does = draw_behaviour(self.chance, ref, is_to_fail=self.people.jobs_fail)
        is_trial = self.people.search.is_trial(spec)
        if (spec.stop_when or is_trial) and self.chance.of("who trains until it is stopped").random() < 0.3:
            does.run_seconds = FOR_EVER
        if is_trial:
            self.checks.allow(ref.job_id, spec.max_restarts, spec.max_platform_restarts)
            if self.chance.of("how far trials come").random() < 0.8:
                does.lines = LENGTH
        return does

    def started(self, target: SimulatedTarget, one: Learner) -> None:
        """Note that a learner's command starts."""
        self.story(f"{target.name}: {one.name} runs")
        self._guard(lambda: self.checks.learner_starts(target, one))
        self._guard(lambda: self.people.search.check_limit(one))

    def all_learners(self) -> Iterator[Learner]:
        """Yield every learner that ever was."""
        for target in self.targets:
            yield from target.learners.values()
        yield from self.removed

    def target_of(self, one: Learner) -> SimulatedTarget:
        """Return where a learner is."""
        return next(target for target in self.targets if target.name == one.target)

    def may_miss_records(self, one: Learner) -> bool:
        """Say whether a job may have ended without all that a learner left: somebody stopped it, or it is removed."""
        return one in self.removed or self.people.was_stopped(one.ref.job_id) or one.phase == "lost"

    def file_changed(self, path: str) -> None:
        """Report a changed file to the controller that watches it, if any, soon."""
        seconds = self.chance.between("until a change is seen", 0.0, 0.1)

        def report() -> None:
            for controller in self.controllers:
                for watcher in controller.concurrency.watchers:
                    watcher.report(path)

        self.scheduler.after(seconds, report)

    # Targets

    def _make_targets(self) -> list[SimulatedTarget]:
        draw = self.chance.of("targets")
        kinds: list[tuple[str, Kind]] = [("here", "local")]
        if draw.random() < 0.7:
            kinds.append(("far", "ssh"))
        if draw.random() < 0.4:
            kinds.append(("cluster", "kubernetes"))
        made = [
            SimulatedTarget(self, name, kind, slots=int(draw.random() * 4), cpus=2.0 + int(draw.random() * 3))
            for name, kind in kinds
        ]
        if self.chance.is_active("group"):
            return self._with_members(made)
        for target in made:
            target.is_off = target.kind == "ssh" and self.chance.is_active("demand")
        return made

    def _with_members(self, made: Sequence[SimulatedTarget]) -> list[SimulatedTarget]:
        """Return targets of which two at least are hosts that run jobs together, too."""
        draw = self.chance.of("members of groups")
        members: list[SimulatedTarget] = [
            one
            if one.kind == "kubernetes"
            else MemberTarget(self, one.name, one.kind, slots=max(1, one.slots), cpus=one.cpus)
            for one in made
        ]
        names = [name for name in ("far", "near", "third") if all(one.name != name for one in made)]
        members.extend(
            MemberTarget(self, name, "ssh", slots=1 + int(draw.random() * 3), cpus=4.0)
            for name in names[: 1 + int(draw.random() * 2)]
        )
        return members

    def _make_groups(self) -> list[str]:
        """Make groups of these hosts; return their names, by which their places are known."""
        hosts = [one for one in self.targets if isinstance(one, MemberTarget)]
        if not hosts:
            return []
        draw = self.chance.of("groups")
        far = [one for one in hosts if one.kind == "ssh"]
        found = []
        for _ in range(1 + int(draw.random() * 2)):
            some = list(hosts if draw.random() < 0.3 or len(far) < 2 else far)
            while len(some) > 2 and draw.random() < 0.6:
                some.pop(int(draw.random() * len(some)))
            draw.shuffle(some)
            ref = group_ref([(one, self.refs[one.name]) for one in some])
            self.refs[ref.backend] = ref
            found.append(ref.backend)
        return found

    def simulated_groups(self) -> AbstractContextManager[None]:
        """Have groups be opened with these hosts, where there are any."""
        return groups_simulated(self) if self.groups else nullcontext()

    def _ref(self, target: SimulatedTarget) -> TargetRef:
        if target.kind == "local":
            return TargetRef("local", "local", "process")
        runner = (
            "pod" if target.kind == "kubernetes" else "process"
        )  # whose capabilities the controller looks at
        options: dict[str, Any] = {}
        if target.is_off:
            commands = {what: f"{what} {target.name}" for what in ("start", "stop")}
            options = {"on_demand": {**commands, "idle_minutes": IDLE_SECONDS / 60}}
            self.on_demand.append(target)
        return TargetRef(target.name, target.kind, runner, f"{target.kind}://{target.name}", options)

    def open_target(self, ref: TargetRef, home_uuid: str) -> OpenedTarget:
        """Open a target, as the controller does."""
        if self.groups and ref.type != "kubernetes":
            return open_target(ref, home_uuid)
        name = "here" if ref.type == "local" else ref.backend
        target = next(one for one in self.targets if one.name == name)
        if target.kind != "local":
            self.sleep(self.chance.between("time to connect", 0.01, 1.0))
        if not target.is_up or not self.is_linked(target):
            self.sleep(self.chance.between("time until a connection fails", 0.05, 10.0))
            raise BackendUnreachable(f"{target.name} does not answer")
        return OpenedSimulation(Connection(target, self.disk.owner()), home_uuid)

    def is_linked(self, target: SimulatedTarget) -> bool:
        """Say whether a target can be reached."""
        return self.scheduler.now >= self._cut_until.get(target, 0.0)

    def links_cut(self, target: SimulatedTarget) -> None:
        """Note that all connections to a target are gone."""
        for connection in self.connections:
            if connection.target is target:
                connection.lost = True

    # Controllers

    def controller(self) -> Controller | None:
        """Return the controller that answers; None where none does."""
        for one in self.controllers:
            if not one.process.is_killed and not one.is_over and one.accepts:
                return one
        return None

    def ensure_controller(self) -> None:
        """Wake the controller, or start one where none answers."""
        found = self.controller()
        if found is None:
            self.start_controller()
        elif found.loop is not None:
            found.loop.wake()

    def start_controller(self) -> None:
        """Start a controller's process."""
        number = len(self.controllers) + 1
        process = Process(f"controller {number}")
        made = Controller(process, SimulatedConcurrency(self.scheduler, process), number)
        self.controllers.append(made)
        self.story(f"controller {number} starts")
        self.scheduler.start(process, lambda: self._be_controller(made), "loop")

    def send_message(self, home: Home, command: str, **fields: str) -> dict[str, bool] | None:
        """Send a word to the controller, as clients do on its socket."""
        found = self.controller()
        if found is None or found.loop is None:
            return None
        assert command == "ask"
        found.loop.ask(fields["job"], fields["kind"], fields["who"])
        return {"ok": True}

    def run_command(self, command: str) -> str:
        """Run the command that starts or stops a host; return why it failed, or nothing. It outlives its controller."""
        what, name = command.split()
        target = next(one for one in self.targets if one.name == name)
        seconds = self.chance.between("how long a command takes", 0.1, 60.0)
        fails = self.chance.goes_wrong("demand", f"{what} fails")
        controller = self.disk.owner()
        self.story(f"{name}: {what}")

        def takes_effect() -> None:
            if fails:
                return
            if what == "stop" and controller is not None and not controller.is_killed:
                self._guard(lambda: self.checks.machine_stops(target))
            target.switch(on=what == "start")

        self.scheduler.after(seconds, takes_effect)
        self.sleep(seconds + 0.1)
        return f"{what} has failed" if fails else ""

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Have clients reach its controllers, and ids of jobs be the same ones in each life."""

        def ensure(home: Home, *_: Any) -> str:
            self.ensure_controller()
            return ""

        with (
            patch.object(requests, "send_message", self.send_message),
            patch.object(connect, "ensure_controller", ensure),
            patch.object(connect, "ensure_heard", ensure),
            patch.object(experiments, "new_job_id", self.people.search.next_job_id),
            patch.object(on_demand, "_failure_of", self.run_command),
            patch.object(on_demand, "TAKEN_FOR_STOPPED_SECONDS", 3600.0),
        ):
            yield

    def _be_controller(self, one: Controller) -> None:
        try:
            lock = ControllerLock.take(self.home)
        except FabricError as error:
            self.story(f"controller {one.number} ends: {error}")
            one.is_over = True
            return
        if lock is None:
            self.story(f"controller {one.number} ends: another one has the lock")
            one.is_over = True
            return
        one.process.on_killed.append(lock.release)
        log = ControllerLog(self.home.controller_log)
        one.process.on_killed.append(lambda: os.close(log._descriptor))  # its lock may be held for ever
        why = ""
        try:
            lock.write_address("there")
            with Store.open(self.home, migrate=True, makes=False) as store:
                store.bind_controller()
                settings = Settings(
                    open_target=self.open_target,
                    linger=lambda: 30.0,
                    accept_clients=lambda accepts: setattr(one, "accepts", accepts),
                    is_ours=lock.is_ours,
                    beat=lock.beat,
                    concurrency=one.concurrency,
                    looked_us=lock.looked_us,
                )
                one.loop = Loop(self.home, store, log, settings)
                why = one.loop.run()
        except FabricError as error:
            why = str(error)
        self.story(f"controller {one.number} ends: {why}")
        one.is_over = True
        self.scheduler.kill(one.process)  # its other threads end with it

    # Harm

    def _plan_harm(self) -> None:
        chance, after = self.chance, self.scheduler.after
        for kind, every, do in (
            ("second", 40.0, self._second_controller),
            ("machine", 15.0, self._harm_a_machine),
            ("link", 10.0, self._cut_a_link),
            ("clock", 20.0, self._set_a_clock),
            ("sleep", 60.0, self._sleep),
            ("capacity", 8.0, self._change_capacity),
        ):
            if chance.is_active(kind):
                self._repeat(kind, every, do)
        for at in range(int(HARM_SECONDS / VISIT_SECONDS)):
            after(at * VISIT_SECONDS + chance.between("visits", 0, VISIT_SECONDS), self.people.visit)

    def _repeat(self, kind: str, every: float, do: Callable[[], None]) -> None:
        def again() -> None:
            if self.chance.ended:
                return
            if self.chance.goes_wrong(kind, "by itself", 2.0):
                do()
            self.scheduler.after(self.chance.between(f"when {kind} comes", 0.1, 2 * every), again)

        self.scheduler.after(self.chance.between(f"when {kind} comes", 0.1, every), again)

    def _second_controller(self) -> None:
        self.story("the lock file is removed, and another controller starts")
        self.home.controller_lock.unlink(missing_ok=True)
        self.start_controller()

    def _harm_a_machine(self) -> None:
        target = self.chance.choose("which machine", self.targets)
        if target.kind != "kubernetes" and self.chance.below("waiter or machine", 2):
            target.kill_waiter()
        elif target.kind == "ssh" and not target.is_off:
            target.reboot()
        elif target.kind == "kubernetes":
            drained = self.chance.below("how many are evicted", 3) == 0
            there = [one for one in target.learners.values() if not one.is_over]
            for one in there if drained else there[:1]:
                target.evict(one)

    def _cut_a_link(self) -> None:
        far = [target for target in self.targets if target.kind != "local"]
        if far:
            target = self.chance.choose("which link", far)
            seconds = self.chance.choose("how long links are cut", (0.1, 1.0, 5.0, 40.0, 200.0))
            self.story(f"{target.name} cannot be reached for {seconds:g} s")
            self._cut_until[target] = self.scheduler.now + seconds
            target.cut()

    def _set_a_clock(self) -> None:
        seconds = self.chance.choose(
            "by how much clocks jump", (-86400.0, -3600.0, -5.0, 5.0, 3600.0, 86400.0)
        )
        target = self.chance.choose("whose clock jumps", [None, *self.targets])
        if target is None or target.kind == "local":
            self.scheduler.jump_us += int(seconds * 1e6)
            self.targets[0].clock_us = self.scheduler.jump_us
        else:
            target.clock_us += int(seconds * 1e6)
        self.story(f"the clock {'here' if target is None else f'of {target.name}'} jumps by {seconds:g} s")

    def _sleep(self) -> None:
        seconds = self.chance.choose("how long the laptop sleeps", (40.0, 600.0, 8 * 3600.0))
        self.story(f"the laptop sleeps for {seconds:g} s")
        self.scheduler.freeze()

        def wake_up() -> None:
            for target in self.targets:
                if target.kind != "local":
                    target.cut()
            self.scheduler.thaw()
            self.story("the laptop wakes up")

        self.scheduler.after(seconds, wake_up)

    def _change_capacity(self) -> None:
        target = self.chance.choose("whose capacity changes", self.targets)
        target.taken_by_others = self.chance.below("how many GPUs others take", target.slots + 1)
        target.slots = max(0, target.slots + self.chance.below("how many GPUs come", 3) - 1)
        self.story(f"{target.name} has {target.slots} GPUs, others take {target.taken_by_others}")
        target.admit()

    def _killed(self, process: Process, where: str) -> None:
        self.story(f"{process.name} is killed {where}")

    # What must hold

    def _thread_died(self, task: Task, error: BaseException) -> None:
        if isinstance(error, Violation):
            self._violation = self._violation or error
        elif not self.chance.ended or not isinstance(error, FabricError):
            text = f"thread {task.name} of {task.process.name} died: {type(error).__name__}: {error}"
            self.fail(Violation(text).with_traceback(error.__traceback__))

    def nobody_waits_in_vain(self, left: Sequence[tuple[JobId, State]]) -> None:
        """Fail where jobs are open for long though nothing goes wrong any more, and no learner hangs."""
        hangs = any(
            one.does.run_seconds >= FOR_EVER and not one.is_over and not self.checks.is_to_be_stopped(one)
            for one in self.all_learners()
        )
        if self.chance.has_happened(("clock",)):  # it will be that time, perhaps in a day
            hangs |= any(self.checks.reason_of(job_id).startswith("waits until") for job_id, _ in left)
        if not hangs and not any(" now" in self.checks.reason_of(job_id) for job_id, _ in left):
            waiting = ", ".join(f"{short_id(job_id)} ({state})" for job_id, state in left)
            self.fail(Violation(f"waits for ever: {waiting or 'a request'}"))

    def _after_commit(self) -> None:
        self._guard(self.checks.after_commit)

    def _guard(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Violation as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Note what did not hold; the first such counts."""
        if self._violation is None:
            self._violation = error
            self.story(f"VIOLATION: {error}")

    def run(self) -> None:
        """Live the history.

        Raises:
            Violation: something did not hold.
        """
        self._plan_harm()
        self.people.begin()
        scheduler = self.scheduler

        def over() -> bool:
            return self._violation is not None

        scheduler.run(scheduler.now + HARM_SECONDS, over)
        if self._violation is None:
            self._end_harm()
            scheduler.run(scheduler.now + REST_SECONDS, lambda: over() or self._is_at_rest())
        if self._violation is None and (self.checks.leftover() or self.checks.left_up()):
            # The one before had ended before it tried again what a full disk had refused, or was killed before it
            # stopped a host.
            self.start_controller()
            scheduler.run(scheduler.now + REST_SECONDS, lambda: over() or self._is_at_rest())
        if self._violation is not None:
            raise self._violation
        self.checks.at_rest()
        self.people.search.at_rest()
        self._look_at_log()
        if self.chance.below("rebuild", 8) == 0:
            self.checks.rebuilt_alike()

    def _end_harm(self) -> None:
        """Let nothing go wrong any more; whoever hangs is killed by somebody."""
        self.chance.ended = True
        self.scheduler.may_give_way = False
        self.story("nothing goes wrong any more")
        self._cut_until.clear()
        self.disk.full_until = 0.0
        for target in self.targets:
            target.reboots, target.taken_by_others = False, 0
            if target.kind == "kubernetes":  # a pod waits for GPUs that are gone as long as it takes
                target.slots = max(target.slots, target.slots_at_first)
            target.admit()
            target.tell()
        self.scheduler.thaw()
        self.people.settle()

    def _is_at_rest(self) -> bool:
        return self.people.is_over and all(one.is_over or one.process.is_killed for one in self.controllers)

    def _look_at_log(self) -> None:
        for name in (self.home.controller_log, self.home.controller_log.with_suffix(".log.1")):
            if name.exists():
                for line in name.read_text(errors="replace").splitlines():
                    if "defect in" in line:
                        raise Violation(line)


class Ground:
    """Where histories are lived: a folder in memory with a home to copy. Replaces this process's calls and clock."""

    faults = tuple(FAULTS)

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._threshold = gc.get_threshold()
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._folder = Path(
            self._stack.enter_context(
                tempfile.TemporaryDirectory(dir=base, prefix=f"fabric-lives-{os.getpid()}-")
            )
        )
        self._template = self._folder / "template"
        self._home = self._folder / "home"
        with Store.open(Home(self._home)):
            pass
        shutil.copytree(self._home, self._template)

    def __enter__(self) -> Ground:
        # What is imported by now stays, and what histories leave is thrown away by the hundred thousand.
        gc.freeze()
        gc.set_threshold(100_000, 20, 100)
        self._stack.enter_context(disks.calls_replaced())
        # What is the same in each history need not be found out each time, nor a large reserve be filled.
        self._stack.enter_context(patch.dict(os.environ, FABRIC_FILESYSTEM="tmpfs"))
        self._stack.enter_context(
            patch.object(reserve, "RESERVE_BYTES", RESERVE_SLICES * reserve.SLICE_BYTES)
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()
        gc.set_threshold(*self._threshold)
        gc.unfreeze()

    def live(
        self, chance: Chance, *, jobs: int = 3, keeps_story: bool = False, turns_max: int | None = None
    ) -> Result:
        """Live one history; return what became of it."""
        folder = self._home
        for entry in list(folder.iterdir()):
            # The folder itself stays: a home knows when it is a copy.
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(self._template, folder, dirs_exist_ok=True)
        violation = ""
        world = World(chance, Home(folder), jobs=jobs, keeps_story=keeps_story)
        world.scheduler.limit_turns(turns_max)
        with (
            replace_clock(world.scheduler),
            disks.in_use(world.disk),
            world.reached(),
            world.simulated_groups(),
        ):
            began = world.scheduler.now
            try:
                world.run()
            except Violation as error:
                violation = str(error)
            except (FabricError, RunsInCircles) as error:
                violation = f"{type(error).__name__}: {error}"
            finally:
                chance.ended = True
                passed = world.scheduler.now - began
                world.checks.close()
                world.scheduler.end()
                world.disk.close()
        visited: Counter[Any] = Counter(world.steps)
        visited.update(world.judged)
        return Result(
            chance.seed,
            violation,
            tuple(chance.faults),
            tuple(world.lines),
            world.scheduler.turns,
            world.people.jobs,
            passed,
            visited,
        )
