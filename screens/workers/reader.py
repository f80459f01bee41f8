"""Reads for the screens in a worker of its own, when something changed and at most a few times a second.

A widget *watches* a query; the reader runs it, and posts the answer to the widget when it differs from the
last one. So no store is ever waited for on the thread that draws.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from textual.message import Message

from screens.workers.background import Receiver, post
from workbench.errors import FabricError, PatternTooSlow, TryAgain
from workbench.paths import Home
from workbench.services.controller_watch import attend, hang_sentence, is_unattended, last_look_us
from workbench.store.db.database import Store
from workbench.store.queries.jobs import counters
from workbench.values import dataclass

LOOK_SECONDS: Final = 0.05
"""How often the reader looks for changes: one PRAGMA, some microseconds."""
ATTEND_SECONDS: Final = 1.0
"""How often the reader checks whether a controller looks after the open jobs."""
RETRY_SECONDS: Final = 1.0
"""How long a store that cannot be opened is left alone."""
LOCKED_SECONDS: Final = 2.0
"""How long a locked database is waited for before the screens say so; it is tried again all the same."""


class QueryAnswer(Message, bubble=False):
    """What a query gives now."""

    def __init__(
        self, key: str, value: Any
    ) -> None:  # each query has its own type; its one receiver knows it
        super().__init__()
        self.key = key
        self.value = value


class StoreTrouble(Message, bubble=False):
    """What is shown is old: the store cannot be read, or a controller hangs; ``error`` None says that all is well."""

    def __init__(self, error: FabricError | None, *, since_us: int) -> None:
        super().__init__()
        self.error = error
        self.since_us = since_us


Read = Callable[[Store], Any]


@runtime_checkable
class ReadsAgain(Protocol):
    """A query that may be wanted once more though nothing changes."""

    @property
    def again_at(self) -> float | None:
        """When (``time.monotonic``); None: it needs not."""


@dataclass(slots=True)
class _Watch:
    receiver: Receiver
    key: str
    read: Read
    counters: tuple[str, ...] | None
    every_seconds: float
    reads_again: ReadsAgain | None
    """The query, where it is one: to find that out at each look would take a third of what the looks take."""
    next_run: float = 0.0
    is_answered: bool = False
    counters_read: Mapping[str, int] | None = None
    last: Any = field(default_factory=object)


class StoreReader:
    """The queries that are watched, and the loop that answers them; all but ``run`` may be called by any thread.

    It is a loop, and not a call for each change: one connection serves all queries, and whether anything changed is one
    PRAGMA of some microseconds, where opening the store takes milliseconds.
    """

    def __init__(self, home: Home, trouble: Receiver) -> None:
        self.home = home
        self.paused = False
        """While somebody looks closely at what is there, only what is newly watched is answered, once."""
        self.slowest: dict[str, float] = {}
        """The longest that each query took, in seconds."""
        self._trouble = trouble
        self._wake = threading.Condition()
        self._watches: dict[tuple[int, str], _Watch] = {}
        self._closed = False
        self._store: Store | None = None
        self._troubled: str | None = None
        self._fine_us = time.time_ns() // 1000
        self._version = -1
        self._counters: Mapping[str, int] = {}
        self._attend_at = 0.0
        self._looked_us: int | None = None
        self._hang: FabricError | None = None
        """That there is a controller, and that it does nothing."""

    def watch(
        self,
        receiver: Receiver,
        key: str,
        read: Read,
        *,
        counters: tuple[str, ...] | None = ("jobs",),
        every_seconds: float = 0.1,
    ) -> None:
        """Have a query answered now and after each change, instead of the receiver's last one of that key.

        ``counters`` are the store's revision counters that it depends on; None asks again every time. It is
        run no more often than every ``every_seconds``.
        """
        again = read if isinstance(read, ReadsAgain) else None
        with self._wake:
            self._watches[id(receiver), key] = _Watch(receiver, key, read, counters, every_seconds, again)
            self._wake.notify()

    def forget(self, receiver: Receiver, key: str | None = None) -> None:
        """Answer one query, or all of a receiver's, no more."""
        with self._wake:
            for known in [k for k in self._watches if k[0] == id(receiver) and key in (None, k[1])]:
                del self._watches[known]

    def close(self) -> None:
        """End the loop after what it does now; nobody waits for it."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def run(self) -> None:
        """Read until it is closed: the loop of a worker."""
        while True:
            with self._wake:
                if self._closed:
                    break
                watches = list(self._watches.values())
            pause = LOOK_SECONDS
            if self.paused:
                watches = [watch for watch in watches if not watch.is_answered]
            if watches:
                try:
                    trouble = self._round(watches)
                except FabricError as error:
                    trouble = error
                    self._drop_store()
                except Exception as error:  # of ours: without the loop screens stay as they are
                    trouble = _bug(error)
                    self._drop_store()
                if trouble is None and self._hang is not None:
                    self._say(self._hang, since_us=self._looked_us)
                elif trouble is None:
                    self._fine()
                else:
                    self._say(trouble)
                    pause = RETRY_SECONDS
            with self._wake:
                if not self._closed and not self._has_new(pause):
                    self._wake.wait(pause)
        self._drop_store()

    def _has_new(self, pause: float) -> bool:
        return pause == LOOK_SECONDS and any(watch.next_run == 0.0 for watch in self._watches.values())

    def _round(self, watches: list[_Watch]) -> FabricError | None:
        """Run every query that is due: its time has come and a counter that it depends on has moved.

        Return what is wrong with one of them; the others are run all the same.
        """
        if self._store is None:
            self._store = Store.open(self.home, wait_seconds=LOCKED_SECONDS)
            self._store.date_rows_by(partial(last_look_us, self.home))
            self._version, self._counters = -1, {}
        store = self._store
        self._attend(store, watches)
        version = store.data_version()
        if version != self._version:
            self._counters = counters(store)
            self._version = version
        now = time.monotonic()
        wrong: FabricError | None = None
        for watch in watches:
            if watch.next_run > now or not self._changed(watch):
                continue
            watch.next_run = now + watch.every_seconds
            began = time.perf_counter()
            try:
                value = watch.read(store)
            except PatternTooSlow as error:  # of one list's filter; the others go on
                wrong = error
                continue
            except FabricError:
                raise
            except Exception as error:  # a bug of ours in one query must not take the others down
                wrong = _bug(error)
                continue
            took = time.perf_counter() - began
            self.slowest[watch.key] = max(took, self.slowest.get(watch.key, 0.0))
            watch.counters_read, watch.is_answered = self._counters, True
            if value != watch.last and self._still(watch):
                watch.last = value
                post(watch.receiver, QueryAnswer(watch.key, value))
        return wrong

    def _attend(self, store: Store, watches: list[_Watch]) -> None:
        """Have a controller look after the open jobs; where that begins or ends, their rows are read again."""
        now = time.monotonic()
        if now < self._attend_at:
            return
        self._attend_at = now + ATTEND_SECONDS
        if (looked_us := store.looked_us) != self._looked_us:
            self._looked_us = looked_us
            for watch in watches:
                watch.counters_read = None
        self._hang = None
        if is_unattended(store):
            attend(self.home)
            if text := hang_sentence(self.home):
                self._hang = TryAgain(text)

    def _changed(self, watch: _Watch) -> bool:
        counters_read = watch.counters_read
        if counters_read is None or watch.counters is None:
            return True
        again_at = watch.reads_again.again_at if watch.reads_again is not None else None
        if again_at is not None and time.monotonic() >= again_at:
            return True
        return any(counters_read.get(name) != self._counters.get(name) for name in watch.counters)

    def _still(self, watch: _Watch) -> bool:
        """Say whether somebody still watches a query now that its answer is there."""
        with self._wake:
            return self._watches.get((id(watch.receiver), watch.key)) is watch

    def _say(self, error: FabricError, *, since_us: int | None = None) -> None:
        if self._troubled != str(error):
            self._troubled = str(error)
            shown_us = self._fine_us if since_us is None else since_us
            post(self._trouble, StoreTrouble(error, since_us=shown_us))

    def _fine(self) -> None:
        self._fine_us = time.time_ns() // 1000
        if self._troubled is not None:
            self._troubled = None
            post(self._trouble, StoreTrouble(None, since_us=self._fine_us))

    def _drop_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _bug(error: Exception) -> FabricError:
    return FabricError(f"reading failed: {type(error).__name__}: {error}", hint="internal error (bug)")
