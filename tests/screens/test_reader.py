from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from textual.message import Message

from screens.workers.reader import QueryAnswer, StoreReader, StoreTrouble
from screens.workers.writer import StoreWriter, WriteDone
from tests.screens import seeding
from tests.support.waiting import patience
from workbench.clock import now_us
from workbench.errors import TryAgain
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import list_jobs


class Mailbox:
    """Takes messages from threads."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def post_message(self, message: Message) -> bool:
        self.messages.put(message)
        return True

    def next(self) -> Any:
        return self.messages.get(timeout=patience())


@pytest.fixture
def box() -> Mailbox:
    return Mailbox()


def started(loop: Callable[[], None]) -> threading.Thread:
    """Run a worker's loop in a thread, without an app."""
    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def reader(home: Home, box: Mailbox) -> Any:
    made = StoreReader(home, box)
    started(made.run)
    yield made
    made.close()


def count(store: Store) -> int:
    return len(list_jobs(store))


def test_a_query_is_answered_at_once_and_when_its_answer_changes(
    home: Home, reader: StoreReader, box: Mailbox
) -> None:
    reader.watch(box, "count", count)
    assert box.next().value == 0

    with Store.open(home) as store:
        seeding.add_job(store, 1)

    answer = box.next()
    assert isinstance(answer, QueryAnswer) and (answer.key, answer.value) == ("count", 1)


def test_a_query_is_not_run_when_nothing_that_it_depends_on_moved(
    home: Home, reader: StoreReader, box: Mailbox
) -> None:
    runs: list[int] = []

    def counted(store: Store) -> int:
        runs.append(1)
        return len(runs)

    reader.watch(box, "learners", counted, counters=("learners",))
    reader.watch(box, "count", count)
    assert {box.next().key, box.next().key} == {"learners", "count"}
    with Store.open(home) as store:
        seeding.add_job(store, 1)
    assert box.next().value == 1

    assert runs == [1]


def test_an_answer_that_stays_the_same_is_not_sent_again(
    home: Home, reader: StoreReader, box: Mailbox
) -> None:
    reader.watch(box, "same", lambda store: "same", counters=None, every_seconds=0.0)
    reader.watch(box, "ticks", lambda store: time.monotonic(), counters=None, every_seconds=0.01)

    seen = [box.next() for _ in range(10)]

    assert [answer.key for answer in seen].count("same") == 1


def test_what_is_forgotten_is_not_answered(home: Home, reader: StoreReader, box: Mailbox) -> None:
    other = Mailbox()
    reader.watch(box, "ticks", lambda store: time.monotonic(), counters=None, every_seconds=0.0)
    box.next()
    reader.forget(box)
    reader.watch(other, "count", count)
    other.next()
    while not box.messages.empty():
        box.messages.get()

    reader.watch(other, "again", count)
    other.next()
    assert box.messages.empty()


def test_nothing_is_answered_again_while_it_is_paused(home: Home, reader: StoreReader, box: Mailbox) -> None:
    reader.watch(box, "ticks", lambda store: time.monotonic(), counters=None, every_seconds=0.0)
    box.next()
    reader.paused = True
    with pytest.raises(queue.Empty):
        while True:  # what was under way comes yet
            box.messages.get(timeout=0.2)
    reader.paused = False

    assert box.next().key == "ticks"


def test_what_is_newly_watched_is_answered_once_while_it_is_paused(
    home: Home, reader: StoreReader, box: Mailbox
) -> None:
    reader.paused = True
    reader.watch(box, "ticks", lambda store: time.monotonic(), counters=None, every_seconds=0.0)

    assert box.next().key == "ticks"
    with pytest.raises(queue.Empty):
        box.messages.get(timeout=0.2)


def test_trouble_is_reported_once_and_its_end_too(
    home: Home, reader: StoreReader, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.workers.reader.RETRY_SECONDS", 0.01)
    broken = threading.Event()
    broken.set()
    tried: list[int] = []

    def locked(store: Store) -> int:
        tried.append(1)
        if broken.is_set():
            raise TryAgain("the store is locked")
        return 7

    reader.watch(box, "locked", locked, counters=None, every_seconds=0.0)
    trouble = box.next()
    assert isinstance(trouble, StoreTrouble) and str(trouble.error) == "the store is locked"
    _until(lambda: len(tried) > 3)
    broken.clear()

    messages = [box.next(), box.next()]
    assert {type(message) for message in messages} == {QueryAnswer, StoreTrouble}
    assert next(m for m in messages if isinstance(m, StoreTrouble)).error is None


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_writes_are_done_in_order_and_answered(home: Home, box: Mailbox) -> None:
    writer = StoreWriter(home)
    started(writer.run)

    def refused(store: Store) -> str:
        raise TryAgain("busy")

    def wrong(store: Store) -> str:
        raise ZeroDivisionError("oops")

    writer.give(box, "first", lambda store: f"{count(store)} jobs")
    writer.give(box, "second", refused)
    writer.give(box, "third", wrong)
    writer.give(box, "fourth", lambda store: "still here")
    answers: list[WriteDone] = [box.next() for _ in range(4)]
    writer.close()

    assert [done.label for done in answers] == ["first", "second", "third", "fourth"]
    assert [done.text for done in answers] == ["0 jobs", "", "", "still here"]
    assert [str(done.error) for done in answers[1:3]] == ["busy", "third failed: ZeroDivisionError: oops"]
    assert answers[0].error is None and answers[3].error is None


class Ended:
    """An app that has ended: whoever posts to it meets a closed event loop."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def post_message(self, message: Message) -> bool:
        self.posted.put(message)
        raise RuntimeError("Event loop is closed")


def test_threads_that_outlive_the_app_fall_silent(home: Home, box: Mailbox) -> None:
    # An exception in a thread would fail the test: pytest turns its warning into an error.
    gone, reader, writer = Ended(), StoreReader(home, box), StoreWriter(home)
    started(reader.run)
    reader.watch(gone, "count", count)
    started(writer.run)
    writer.give(gone, "write", lambda store: "done")

    assert {type(gone.posted.get(timeout=patience())) for _ in range(2)} == {QueryAnswer, WriteDone}
    reader.watch(box, "count", count)
    assert box.next().value == 0
    reader.close()
    writer.close()


def test_closing_waits_for_what_was_asked_for(home: Home, box: Mailbox) -> None:
    writer = StoreWriter(home)
    started(writer.run)
    writer.give(box, "job", lambda store: seeding.add_job(store, 1).id)
    writer.close()

    assert box.next().error is None


def test_open_jobs_that_no_controller_looks_after_are_dated_and_have_one_started(
    home: Home, reader: StoreReader, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(home) as store:
        seeding.add_job(store, 1)
    started_for: queue.SimpleQueue[Home] = queue.SimpleQueue()
    monkeypatch.setattr("screens.workers.reader.attend", started_for.put)
    reader.watch(box, "dates", lambda store: [row.as_of_us for row in list_jobs(store)])
    assert box.next().value == [None]
    at = now_us() - 60_000_000
    lock = {"pid": 2**22 + 1, "version": "0.1.0", "socket": "/none", "host": os.uname().nodename}
    home.controller_lock.write_text(json.dumps({**lock, "looked_us": at}))

    assert box.next().value == [at]
    assert started_for.get(timeout=patience()) == home


def test_a_bug_outside_of_a_query_is_shown_and_reading_goes_on(reader: StoreReader, box: Mailbox) -> None:
    class Broken:
        def __ne__(self, other: object) -> bool:
            raise ValueError("cannot be compared")

    answers = iter([Broken(), 5])
    reader.watch(box, "odd", lambda store: next(answers, 5), counters=None, every_seconds=0.01)

    trouble, answer, fine = box.next(), box.next(), box.next()

    assert isinstance(trouble, StoreTrouble) and "ValueError: cannot be compared" in str(trouble.error)
    assert (answer.key, answer.value) == ("odd", 5)
    assert isinstance(fine, StoreTrouble) and fine.error is None
