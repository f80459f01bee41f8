"""Threads that take turns in one: greenlets on a clock that jumps to the next thing that is due.

A :class:`Scheduler` has tasks (threads), processes that own them, and timers. A task runs until it waits for
something; then another one gets its turn. Where none can go on, the clock jumps to the next timer. Nothing here depends
on the machine: the same seed gives the same order.

A process that is killed never runs again, not even a ``finally``: its tasks are left where they are until the history
is over, and only then ended, when nothing they still do can be seen.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.chance import Chance
from workbench.controller.runtime.concurrency import ConditionVariable, FileWatcher, Flag, Lock, Queue, Thread

EPOCH_US: Final = 1_700_000_000_000_000
"""The time of day at which every history begins."""

TURN_SECONDS: Final = 2e-5
"""How much time each turn of a task takes: no loop runs for ever in no time."""

TURNS_MAX: Final = 15_000
"""More turns than this in one history are a defect: something runs in circles."""

TURNS_OF_GROUPS: Final = 40_000
"""Likewise where jobs run on several hosts: while one waits for another that hangs each host is asked every 2 s."""


class RunsInCircles(Exception):
    """A history does not come to its end though nothing new happens."""


class Process:
    """What owns tasks, and is killed as one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_killed = False
        self.on_killed: list[Callable[[], None]] = []
        """Called when it is killed: what the system does for it, as closing its files."""


class Task:
    """One thread. It is what the code under test sees as a thread, too."""

    def __init__(self, scheduler: Scheduler, process: Process, work: Callable[[], None], name: str) -> None:
        self.scheduler = scheduler
        self.process = process
        self.name = name
        self.frames = greenlet(self._run, scheduler.after_tasks)
        self._work = work
        self.is_over = False
        self.waits_for = 0
        """The number of its current wait, so that a late timer wakes nobody."""
        self.was_notified = False
        self.ended = Waiters(scheduler)

    def _run(self) -> None:
        try:
            self._work()
        except GreenletExit:
            pass
        except BaseException as error:
            if not self.process.is_killed:  # else it is what an end does to it that nobody sees
                self.scheduler.died(self, error)
        self.is_over = True
        self.ended.notify()

    def is_alive(self) -> bool:
        return not self.is_over

    def join(self, timeout: float | None = None) -> None:
        if not self.is_over:
            self.ended.wait(timeout)


class Waiters:
    """Tasks that wait for one thing."""

    __slots__ = ("scheduler", "tasks")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.tasks: deque[Task] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the current task until it is notified, or the time is over; return whether it was notified."""
        return self.scheduler.park(self, timeout)

    def notify(self, count: int | None = None) -> None:
        """Let those go on that wait, in their order; ``count`` limits how many."""
        tasks = self.tasks
        while tasks and count != 0:
            task = tasks.popleft()
            if task.process.is_killed:
                continue
            task.was_notified = True
            self.scheduler.make_ready(task)
            if count is not None:
                count -= 1


class Scheduler:
    """Gives turns to tasks, and passes the time."""

    def __init__(self, chance: Chance, turns_max: int = TURNS_MAX, *, resumes_starters: bool = False) -> None:
        """Begin.

        Args:
            chance: draws whose turn it is.
            turns_max: more turns are a defect.
            resumes_starters: whether the task goes on that started one which ends, though nobody notified it, as in the
                stories of the first regressions.
        """
        self.chance = chance
        self._turns_max = turns_max
        self.now = 1000.0
        """Seconds on the clock that cannot jump."""
        chance.clock = self.elapsed_seconds
        self.jump_us = 0
        """How far the time of day of this machine was set forth."""
        self.turns = 0
        self.on_died: Callable[[Task, BaseException], None] = lambda task, error: None
        self.on_turn: Callable[[Task | None], None] = lambda task: None
        """Called with a task before its turn, and with None after it."""
        self.hub = getcurrent()
        self.after_tasks = None if resumes_starters else self.hub
        """What goes on where a task ends."""
        self._ready: deque[Task] = deque()
        self._is_frozen = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._current: Task | None = None
        self._tasks: list[Task] = []
        self._order = chance.of("order of turns") if chance.is_active("order") else None
        self.may_give_way = self._order is not None
        """Whether any task loses the processor in this history where it need not wait."""
        self.give_way_share = chance.rates["order"]
        """How often a task loses the processor where it may."""

    def limit_turns(self, turns_max: int | None) -> None:
        """Have fewer turns be a defect already; None leaves it at what it is."""
        self._turns_max = min(self._turns_max, turns_max or self._turns_max)

    # The clock, as workbench.clock has it

    def now_us(self) -> int:
        return EPOCH_US + int(self.now * 1e6) + self.jump_us

    def elapsed_seconds(self) -> float:
        return self.now

    # Tasks

    @property
    def current(self) -> Task | None:
        """The task that runs; None while the world does something."""
        return self._current

    def start(self, process: Process, work: Callable[[], None], name: str) -> Task:
        """Start a task of a process."""
        task = Task(self, process, work, name)
        self._tasks.append(task)
        self.make_ready(task)
        return task

    def make_ready(self, task: Task) -> None:
        """Let a task have its turn when it comes."""
        if task.process.is_killed:
            return
        self._ready.append(task)

    def park(self, waiters: Waiters | None, timeout: float | None) -> bool:
        """Block the current task; return whether it was notified."""
        task = self._current
        if task is None or task.process.is_killed:
            raise GreenletExit
        task.waits_for += 1
        task.was_notified = False
        if waiters is not None:
            waiters.tasks.append(task)
        if timeout is not None:
            self._call_for(task, waiters, max(0.0, timeout))
        self.hub.switch()
        if task.process.is_killed:
            raise GreenletExit
        return task.was_notified

    def _call_for(self, task: Task, waiters: Waiters | None, seconds: float) -> None:
        self.after(seconds, partial(self._time_is_over, task, task.waits_for, waiters))

    def _time_is_over(self, task: Task, number: int, waiters: Waiters | None) -> None:
        if task.waits_for == number and not task.was_notified and not task.process.is_killed:
            if waiters is not None:
                waiters.tasks.remove(task)
            self._ready.append(task)

    def give_way(self) -> None:
        """Let others have a turn first, where chance takes the processor away here."""
        if self._order is not None and not self.chance.ended and self._order.random() < self.give_way_share:
            task = self._current
            if task is not None and not task.process.is_killed:
                task.waits_for += 1
                self.make_ready(task)
                self.hub.switch()
                if task.process.is_killed:
                    raise GreenletExit

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have something done later, by the world."""
        self._count += 1
        heapq.heappush(self._timers, (self.now + seconds, self._count, do))

    def kill(self, process: Process) -> None:
        """End a process at once. Called by one of its own tasks this does not return."""
        process.is_killed = True
        for close in process.on_killed:
            close()
        if self._current is not None and self._current.process is process:
            self.hub.switch()

    def freeze(self) -> None:
        """Let no task run for a while: the machine sleeps."""
        self._is_frozen = True

    def thaw(self) -> None:
        """Let all go on."""
        self._is_frozen = False

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Pass the time until then, or until it is over; return whether it is.

        Raises:
            RunsInCircles: more turns were taken than any history needs.
        """
        ready, timers = self._ready, self._timers
        while not is_over():
            if ready and not self._is_frozen:
                self._turn()
                continue
            if not timers or timers[0][0] > until:
                self.now = max(self.now, until)
                return is_over()
            at, _, do = heapq.heappop(timers)
            if at > self.now:
                self.now = at
            do()
        return True

    def _turn(self) -> None:
        ready = self._ready
        if self._order is not None and len(ready) > 1 and not self.chance.ended:
            ready.rotate(-int(self._order.random() * len(ready)))
        task = ready.popleft()
        if task.process.is_killed or task.is_over:
            return
        self.turns += 1
        if self.turns > self._turns_max:
            raise RunsInCircles(
                f"{task.name} of {task.process.name} and others have taken {self.turns} turns"
            )
        self.now += TURN_SECONDS
        self._current = task
        self.on_turn(task)
        try:
            task.frames.switch()
        finally:
            self._current = None
            self.on_turn(None)

    def died(self, task: Task, error: BaseException) -> None:
        """Note that a task ended with an error that nobody caught."""
        self.on_died(task, error)

    def end(self) -> None:
        """End all tasks, whatever they still want to do."""
        for task in self._tasks:
            task.process.is_killed = True
        for task in self._tasks:
            while not task.is_over and task.frames:
                self._current = task
                task.frames.throw(GreenletExit)
            self._current = None
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()


class _Lock:
    __slots__ = ("_is_held", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters = Waiters(scheduler)
        self._is_held = False

    def __enter__(self) -> bool:
        if self._scheduler.may_give_way:
            self._scheduler.give_way()
        while self._is_held:
            self._waiters.wait()
        self._is_held = True
        return True

    def __exit__(self, *_: Any) -> None:
        self._is_held = False
        if self._waiters.tasks:
            self._waiters.notify(1)

    def take(self) -> None:
        while self._is_held:
            self._waiters.wait()
        self._is_held = True

    def let_go(self) -> None:
        self._is_held = False
        if self._waiters.tasks:
            self._waiters.notify(1)


class _Condition:
    __slots__ = ("_lock", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = _Lock(scheduler)
        self._waiters = Waiters(scheduler)

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: Any) -> None:
        self._lock.let_go()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.let_go()
        notified = self._waiters.wait(timeout)
        self._lock.take()
        return notified

    def notify_all(self) -> None:
        self._waiters.notify()


class _Flag:
    __slots__ = ("_is_set", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = Waiters(scheduler)
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._waiters.notify()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiters.wait(timeout)
        return self._is_set


class _Queue:
    __slots__ = ("_items", "_scheduler", "_waiters")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._waiters = Waiters(scheduler)

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.notify(1)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if timeout == 0 and not self._items:
            self._scheduler.park(None, TURN_SECONDS)  # whoever does not wait takes time, too
        elif not self._items:
            until = None if timeout is None else self._scheduler.now + timeout
            while not self._items:
                left = None if until is None else until - self._scheduler.now
                if left is not None and left <= 0:
                    break
                self._waiters.wait(left)
        return self.get_nowait()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class _Local:
    """Attributes that each task has for itself."""

    def __init__(self, scheduler: Scheduler) -> None:
        object.__setattr__(self, "_scheduler", scheduler)
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[self._scheduler.current, name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[self._scheduler.current, name] = value


class SimulatedWatcher:
    """Waits for changes of files that the simulated learners report."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = Waiters(scheduler)
        self._watched: set[str] = set()
        self._changed: list[str] = []
        self._is_woken = False

    def add(self, path: str) -> None:
        self._watched.add(path)

    def remove(self, path: str) -> None:
        self._watched.discard(path)

    def wait(self, timeout_seconds: float | None = None) -> list[str]:
        if not self._changed and not self._is_woken and timeout_seconds != 0:
            self._waiters.wait(timeout_seconds)
        changed, self._changed, self._is_woken = sorted(set(self._changed)), [], False
        return changed

    def wake(self) -> None:
        self._is_woken = True
        self._waiters.notify()

    def close(self) -> None:
        self._watched.clear()

    def report(self, path: str) -> None:
        """Report that a file has changed."""
        if path in self._watched:
            self._changed.append(path)
            self._waiters.notify()


class SimulatedConcurrency:
    """What one process makes its threads of."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self.watchers: list[SimulatedWatcher] = []
        self._random = scheduler.chance.of("random shares")

    def start_thread(self, work: Callable[[], None], name: str) -> Thread:
        return self._scheduler.start(self._process, work, name)

    def current_thread(self) -> Thread:
        task = self._scheduler.current
        assert task is not None
        return task

    def lock(self) -> Lock:
        return _Lock(self._scheduler)

    def condition(self) -> ConditionVariable:
        return _Condition(self._scheduler)

    def flag(self) -> Flag:
        return _Flag(self._scheduler)

    def queue(self) -> Queue[Any]:
        return _Queue(self._scheduler)

    def local(self) -> Any:
        return _Local(self._scheduler)

    def watcher(self) -> FileWatcher:
        made = SimulatedWatcher(self._scheduler)
        self.watchers.append(made)
        return made

    def sleep(self, seconds: float) -> None:
        self._scheduler.park(None, seconds)

    def random_share(self) -> float:
        return self._random.random()
