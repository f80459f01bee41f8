"""Threads that call a target one call after the other, with deadlines: a thread that hangs is left behind."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Final

from workbench.clock import elapsed_seconds
from workbench.controller.decide.messages import Event
from workbench.controller.runtime.concurrency import THREADS, Concurrency, Queue, Thread
from workbench.values import dataclass

LEFT_BEHIND_LIMIT: Final = 4
"""With this many threads that hang, and as many as the pool is wide, no call is made until one of them returns."""

STARVED_SECONDS: Final = 10.0
"""How long calls wait for a thread that cannot be started before they are given up."""

START_AGAIN_SECONDS: Final = 1.0

Post = Callable[[Event], None]


@dataclass(slots=True)
class Call:
    """One call to a target."""

    run: Callable[[], Event | None]
    """Makes the call and returns the event to post; raises nothing."""
    overdue: Callable[[], Event | None]
    """Returns the event to post when the call takes too long."""
    deadline_seconds: float
    alive_at: float = 0.0
    """When it began, or last made progress."""
    starved: Callable[[BaseException], Event | None] | None = None
    """Returns the event to post when no thread can be started for it for a while; None: it waits on."""
    left: bool = False
    """Whether it took too long and nobody waits for it any more."""

    def heartbeat(self) -> None:
        """Note progress: the deadline starts again."""
        self.alive_at = elapsed_seconds()


class WorkerPool:
    """Calls are made by ``width`` threads at most, which are started when there is something to do."""

    def __init__(self, name: str, post: Post, *, width: int = 1, concurrency: Concurrency = THREADS) -> None:
        self._concurrency = concurrency
        self._name = name
        self._post = post
        self._width = width
        self._lock = concurrency.lock()
        self._queue: Queue[Call | None] = concurrency.queue()
        self._running: dict[Thread, Call | None] = {}
        self._open = 0
        """Calls that wait or are being made: a call that a thread just took is in neither collection."""
        self._left: list[Thread] = []
        self._starved_since: float | None = None
        """Since when calls wait and no thread can be started."""
        self._no_thread: BaseException | None = None

    def submit(self, call: Call) -> None:
        """Make a call as soon as a thread is free; if too many threads hang, it is overdue at once."""
        with self._lock:
            self._left = [thread for thread in self._left if thread.is_alive()]
            is_exhausted = len(self._left) >= max(LEFT_BEHIND_LIMIT, self._width)
            if not is_exhausted:
                self._queue.put(call)
                self._open += 1
                if self._open > len(self._running) < self._width:
                    self._start_thread()
        if is_exhausted:
            self._post_event(call.overdue())

    def withdraw(self, call: Call) -> bool:
        """Take out a call that still waits for a thread; False if a thread has it, or had it."""
        with self._lock:
            waiting = _taken(self._queue)
            for one in waiting:
                if one is not call:
                    self._queue.put(one)
            was_waiting = any(one is call for one in waiting)
            self._open -= was_waiting
        return was_waiting

    def check(self, now: float) -> float | None:
        """Leave overdue calls behind; return when the next one would be overdue, None when none runs."""
        overdue = []
        with self._lock:
            if not self._open and not self._running:
                return None  # most pools have nothing to do most of the time, and this is asked in each turn
            due = []
            for thread, call in list(self._running.items()):
                until = None if call is None else call.alive_at + call.deadline_seconds
                if call is not None and until is not None and now >= until:
                    call.left = True
                    overdue.append(call)
                    self._left.append(thread)
                    del self._running[thread]
                    self._open -= 1
                elif not thread.is_alive():
                    # It is forgotten with the call that it was making: the event of that will not come.
                    del self._running[thread]
                    self._open -= call is not None
                elif until is not None:
                    due.append(until)
            if overdue or not self._running:
                while self._open > len(self._running) < self._width and self._start_thread():
                    pass
            starved = self._give_up(now)
            if self._starved_since is not None:
                due.append(now + START_AGAIN_SECONDS)
        for call in overdue:
            self._post_event(call.overdue())
        for call, error in starved:
            self._post_event(call.starved(error) if call.starved is not None else None)
        return min(due, default=None)

    def close(self) -> None:
        """End idle threads; threads that hang end with the process."""
        with self._lock:
            for _ in self._running:
                self._queue.put(None)

    def _start_thread(self) -> bool:
        try:
            thread = self._concurrency.start_thread(self._work, self._name)
        except (RuntimeError, MemoryError) as error:
            # Without memory there is no thread. It is tried again; one that runs serves the others meanwhile.
            if not self._running and self._starved_since is None:
                self._starved_since = elapsed_seconds()
            self._no_thread = error
            return False
        self._starved_since = None
        self._running[thread] = None
        return True

    def _give_up(self, now: float) -> list[tuple[Call, BaseException]]:
        """Take out the calls that have waited too long for a thread."""
        error, since = self._no_thread, self._starved_since
        if error is None or since is None or now < since + STARVED_SECONDS:
            return []
        self._starved_since = now
        waiting = [call for call in _taken(self._queue) if call is not None]
        for call in waiting:
            if call.starved is None:
                self._queue.put(call)
        given_up = [(call, error) for call in waiting if call.starved is not None]
        self._open -= len(given_up)
        if not self._open:
            self._starved_since = None
        return given_up

    def _work(self) -> None:
        me = self._concurrency.current_thread()
        while True:
            call = self._queue.get()
            if call is None:
                return
            with self._lock:
                call.heartbeat()
                self._running[me] = call
            try:
                event = call.run()
            except BaseException as error:  # without memory even the handling of an error fails
                event = None if call.starved is None else call.starved(error)
            with self._lock:
                if call.left:
                    return  # another thread replaced this one
                self._running[me] = None
                self._open -= 1
            self._post_event(event)

    def _post_event(self, event: Event | None) -> None:
        if event is not None:
            self._post(event)


def _taken(queue: Queue[Call | None]) -> list[Call | None]:
    calls: list[Call | None] = []
    try:
        while True:
            calls.append(queue.get_nowait())
    except Empty:
        return calls


def drain(queue: Queue[Event], timeout_seconds: float | None) -> list[Event]:
    """Wait for an event, then return all that have come; ``timeout_seconds`` None waits without end."""
    events: list[Event] = []
    try:
        events.append(queue.get(timeout=timeout_seconds))
        while True:
            events.append(queue.get_nowait())
    except Empty:
        return events
