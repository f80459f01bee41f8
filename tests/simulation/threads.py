"""What stands for ``threading`` and ``time`` in modules that use these directly, for the time of a history.

The hosts of a group are asked by threads that the product makes by itself. Here each is a task of the process whose
task has started it, and dies with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar
from unittest.mock import patch

from tests.simulation.tasks import Process, Scheduler, Task, Waiters

Own = TypeVar("Own")


class _Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiters = Waiters(scheduler)
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._scheduler.may_give_way:
            self._scheduler.give_way()
        until = None if timeout < 0 else self._scheduler.now + timeout
        while self._is_held:
            left = None if until is None else until - self._scheduler.now
            if not blocking or (left is not None and left <= 0):
                return False
            self._waiters.wait(left)
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
        if self._waiters.tasks:
            self._waiters.notify(1)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


class _Condition:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = _Lock(scheduler)
        self._waiters = Waiters(scheduler)

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        notified = self._waiters.wait(timeout)
        self._lock.acquire()
        return notified

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else self._scheduler.now + timeout
        while not (holds := predicate()):
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return holds

    def notify_all(self) -> None:
        self._waiters.notify()


class _Event:
    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


class _Thread:
    def __init__(
        self,
        scheduler: Scheduler,
        *,
        target: Callable[..., object],
        name: str,
        args: Sequence[Any] = (),
        daemon: bool,
    ) -> None:
        assert daemon, f"{name} would keep the controller from its end"
        self._scheduler = scheduler
        self._work = partial(target, *args)
        self._name = name
        self._task: Task | None = None

    def start(self) -> None:
        starter = self._scheduler.current
        assert starter is not None, f"{self._name} is started by nobody"
        self._task = self._scheduler.start(starter.process, self._run, self._name)

    def _run(self) -> None:
        self._work()

    def join(self, timeout: float | None = None) -> None:
        assert self._task is not None
        self._task.join(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and self._task.is_alive()


class SimulatedThreading:
    """Stands for the module ``threading``: as much of it as these modules use."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Thread(self, **arguments: Any) -> _Thread:
        return _Thread(self._scheduler, **arguments)

    def Lock(self) -> _Lock:
        return _Lock(self._scheduler)

    def Condition(self) -> _Condition:
        return _Condition(self._scheduler)

    def Event(self) -> _Event:
        return _Event()


class SimulatedTime:
    """Stands for the module ``time``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.park(None, seconds)


class OfEachProcess(Generic[Own]):
    """What each process has one of for itself: what is a module's own in the product."""

    def __init__(self, scheduler: Scheduler, make: Callable[[], Own]) -> None:
        self._scheduler = scheduler
        self._make = make
        self._made: dict[Process, Own] = {}

    def own(self) -> Own:
        """Return that of the process that runs."""
        task = self._scheduler.current
        assert task is not None
        if task.process not in self._made:
            self._made[task.process] = self._make()
        return self._made[task.process]


@contextmanager
def replaced_threads(scheduler: Scheduler, modules: Sequence[ModuleType]) -> Iterator[None]:
    """Have these modules make their threads of a scheduler's tasks, and wait on its clock."""
    threading, time = SimulatedThreading(scheduler), SimulatedTime(scheduler)
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "threading", threading))
            if hasattr(module, "time"):
                stack.enter_context(patch.object(module, "time", time))
        yield
