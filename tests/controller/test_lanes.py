"""Calls at a place: as many at once as there are threads, and one that hangs holds up no other."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from tests.support.waiting import patience, until
from workbench.controller.decide.messages import Event, LogNote
from workbench.controller.targets.worker_pool import Call, WorkerPool

NEVER = 3600.0


class QueueThatPauses(SimpleQueue[Call | None]):
    """Its first taker is interrupted right after it took something."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.go_on = threading.Event(), threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Call | None:
        call = super().get(block, timeout)
        if not self.taken.is_set():
            self.taken.set()
            self.go_on.wait()
        return call


def call_of(text: str, held: threading.Event | None = None, deadline_seconds: float = NEVER) -> Call:
    def run() -> Event:
        if held is not None:
            held.wait()
        return LogNote(text)

    return Call(run, lambda: LogNote(f"{text} hangs"), deadline_seconds)


def notes_of(events: SimpleQueue[Event], count: int) -> list[str]:
    """Wait until so many events of calls have come; return the texts of their notes, sorted."""
    received = [events.get(timeout=patience()) for _ in range(count)]
    return sorted(event.text for event in received if isinstance(event, LogNote))


def test_a_call_does_not_wait_for_one_that_another_thread_has_just_taken() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    lane, queue = WorkerPool("test", events.put, width=2), QueueThatPauses()
    lane._queue = queue
    lane.submit(call_of("first"))
    queue.taken.wait()
    lane.submit(call_of("second"))

    assert notes_of(events, 1) == ["second"]
    queue.go_on.set()
    assert notes_of(events, 1) == ["first"]
    lane.close()


def test_what_waits_behind_a_call_that_hangs_is_made_by_another_thread() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    lane, held = WorkerPool("test", events.put), threading.Event()
    lane.submit(call_of("first", held, deadline_seconds=0.0))
    lane.submit(call_of("second"))
    until(lambda: lane.check(0.0) is not None)  # the first has begun

    lane.check(NEVER * 1000)
    assert notes_of(events, 2) == ["first hangs", "second"]
    held.set()
    lane.submit(call_of("third"))
    assert notes_of(events, 1) == ["third"]
    lane.close()


def test_no_more_threads_than_its_width_make_calls() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    lane, held = WorkerPool("test", events.put, width=2), threading.Event()
    for number in range(5):
        lane.submit(call_of(str(number), held))

    assert len(lane._running) == 2
    held.set()
    assert notes_of(events, 5) == ["0", "1", "2", "3", "4"]
    lane.close()
