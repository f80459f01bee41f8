"""What is done in the background while one goes on: each a task that says how far it is and how it went."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from textual.message import Message

from screens.workers.reader import Receiver, post
from workbench.errors import FabricError

KEPT: Final = 50
"""So many tasks that are over are listed."""
TELL_SECONDS: Final = 0.1
"""News of a task is passed on no more often than that."""
T = TypeVar("T")
_PERCENT: Final = re.compile(r"\b(\d{1,3})(?:\.\d+)? ?%")


class Report(Protocol):
    """Told how far a task is, from its thread."""

    def __call__(self, said: str, fraction: float | None = None) -> None:
        """Take what it does now, and the share that is done; without one, a percentage in the words serves."""


@dataclass(slots=True)
class Task:
    """One thing that is done in the background."""

    title: str
    """What it does, in a few words: ``download digits``."""
    said: str = ""
    fraction: float | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    error: FabricError | None = None

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return (self.ended if self.ended is not None else time.monotonic()) - self.began


class TaskNews(Message, bubble=False):
    """A task has moved on, or is over: then ``then`` is called with what it gave."""

    def __init__(self, task: Task, then: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.task = task
        self.then = then


class Tasks:
    """All tasks of this session, the newest last."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.all: list[Task] = []

    @property
    def running(self) -> list[Task]:
        """Those that are not over."""
        return [task for task in self.all if task.ended is None]

    def begin(self, title: str, work: Callable[[Report], T], then: Callable[[T], Any]) -> Task:
        """Do something in a thread of its own; ``then`` is called with what it gave, by the app's thread."""
        task = Task(title)
        self.all = (
            [*(one for one in self.all if one.ended is None), task]
            if len(self.all) > KEPT
            else [*self.all, task]
        )
        thread = threading.Thread(
            target=self._run, args=(task, work, then), name=f"task {title}", daemon=True
        )
        thread.start()
        post(self._receiver, TaskNews(task))
        return task

    def _run(self, task: Task, work: Callable[[Report], T], then: Callable[[T], Any]) -> None:
        told = 0.0

        def report(said: str, fraction: float | None = None) -> None:
            nonlocal told
            task.said = said
            task.fraction = fraction if fraction is not None else percentage(said)
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                post(self._receiver, TaskNews(task))

        after: Callable[[], Any] | None = None
        try:
            value = work(report)
        except FabricError as error:
            task.error = error
        except Exception as error:  # a bug of ours must be said, and must not end the thread in silence
            task.error = FabricError(f"{task.title} failed: {type(error).__name__}: {error}")
        else:
            after = lambda: then(value)  # noqa: E731 - it carries the value to the app's thread
        task.ended = time.monotonic()
        post(self._receiver, TaskNews(task, after))


def percentage(said: str) -> float | None:
    """Return the share that a sentence names, from 0 to 1: ``copied 43 %``."""
    found = _PERCENT.search(said)
    return min(1.0, int(found[1]) / 100) if found else None
