"""What the controller's threads are made of: threads, what they wait on, and the random share of their pauses.

The controller takes all of it from one object, so that a simulation can run every thread in one, in an order that a
seed decides. The clock is replaced beside it, by :func:`workbench.clock.replace_clock`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from workbench.learner.platform.watch import Watcher

Item = TypeVar("Item")


class Thread(Protocol):
    """A thread that was started."""

    def is_alive(self) -> bool:
        """Say whether it still runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most this many seconds."""


Lock = AbstractContextManager[bool]


class ConditionVariable(Protocol):
    """A lock with threads that wait for a change of what it protects, as :class:`threading.Condition`."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *_: Any) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go, wait for a notice, and take the lock again."""

    def notify_all(self) -> None:
        """Have all who wait look again."""


class Flag(Protocol):
    """A flag that threads wait for, as :class:`threading.Event`."""

    def set(self) -> None:
        """Set it."""

    def clear(self) -> None:
        """Unset it."""

    def is_set(self) -> bool:
        """Say whether it is set."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""


class Queue(Protocol[Item]):
    """A queue between threads, as :class:`queue.SimpleQueue`; nothing to take raises :class:`queue.Empty`."""

    def put(self, item: Item) -> None:
        """Put something in; never waits."""

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Take the first out, and wait for one."""

    def get_nowait(self) -> Item:
        """Take the first out, if there is one."""

    def empty(self) -> bool:
        """Say whether nothing is in it."""


class FileWatcher(Protocol):
    """Waits until files change, as :class:`workbench.learner.platform.watch.Watcher`."""

    def add(self, path: str) -> None:
        """Watch a path."""

    def remove(self, path: str) -> None:
        """Stop watching a path."""

    def wait(self, timeout_seconds: float | None = None) -> list[str]:
        """Block until a path changes or :meth:`wake` is called; return the paths that changed."""

    def wake(self) -> None:
        """Make the waiting thread return."""

    def close(self) -> None:
        """Give its descriptors back."""


class Concurrency(Protocol):
    """Makes threads and what they wait on."""

    def start_thread(self, work: Callable[[], None], name: str) -> Thread:
        """Start a thread that does not keep the process from ending.

        Raises:
            RuntimeError: there is no room for one more.
            MemoryError: likewise.
        """

    def current_thread(self) -> Thread:
        """Return the thread that calls this."""

    def lock(self) -> Lock:
        """Make a lock."""

    def condition(self) -> ConditionVariable:
        """Make a condition with a lock of its own."""

    def flag(self) -> Flag:
        """Make a flag that is not set."""

    def queue(self) -> Queue[Any]:
        """Make a queue without a limit."""

    def local(self) -> Any:
        """Make an object whose attributes each thread has for itself."""

    def watcher(self) -> FileWatcher:
        """Make a watcher of files."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    def random_share(self) -> float:
        """Return a random number in [0, 1)."""


class _Threads:
    """The threads of the system."""

    def start_thread(self, work: Callable[[], None], name: str) -> Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def current_thread(self) -> Thread:
        return threading.current_thread()

    def lock(self) -> Lock:
        return threading.Lock()

    def condition(self) -> ConditionVariable:
        return threading.Condition()

    def flag(self) -> Flag:
        return threading.Event()

    def queue(self) -> Queue[Any]:
        return SimpleQueue()

    def local(self) -> Any:
        return threading.local()

    def watcher(self) -> FileWatcher:
        return Watcher()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_share(self) -> float:
        # Without the module of that name, which is slow to import.
        return int.from_bytes(os.urandom(4)) / (1 << 32)


THREADS: Final[Concurrency] = _Threads()
"""What the controller runs on, if nobody says otherwise."""
