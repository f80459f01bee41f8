"""Follows a job to its end: its output, its states, its metrics. A controller is kept running meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from workbench.clock import elapsed_seconds
from workbench.errors import UnknownName
from workbench.job import State, short_id
from workbench.services.follow.events import (
    AttemptPrinted,
    DataCopied,
    Idle,
    JobEnded,
    JobEvent,
    LogBytes,
    MetricsChanged,
    Notice,
    StateChanged,
)
from workbench.services.follow.keeper import Keeper
from workbench.store.db.rows import is_over

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.learner.platform.watch import Watcher
    from workbench.logs.journal import JournalReader
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

COPY_BYTES = 1 << 20
"""How much is read at once: a signal may have to wait for it."""

METRICS_SECONDS = 0.25
"""How often the latest values are read, at most."""


def follow(
    store: Store,
    row: JobRow,
    *,
    tail: int | None = None,
    fresh: bool = False,
    copy_to: int | None = None,
) -> Generator[JobEvent]:
    """Yield what happens to a job until it is over. Close the iterator to leave the job before.

    Args:
        store: The store.
        row: The job.
        tail: Begin with the last so many lines of the current attempt; None: with all of them.
        fresh: Whether the controller has just been started, so that nobody has to check at once.
        copy_to: A descriptor that learners' bytes are copied to, by the kernel where it can; no
            :class:`~workbench.services.follow.events.LogBytes` come then.

    Raises:
        UnknownName: the job was deleted meanwhile.
        BrokenPipeError: nobody reads ``copy_to`` any more; the job keeps running.
    """
    yield from _Follower(store, row, tail, copy_to).events(check_controller=not fresh)


class _PollingWait:
    """Waits between two reads of a job: moments at first, then until a journal grows.

    The kernel takes 15 ms to end a watch (measured), which the end of a short job would wait for.
    """

    SHORT_SECONDS = 2.0
    PAUSE_SECONDS = 0.005
    PART_OF_WAIT = 1 / 32
    """Where nothing came for long it is looked for less often: it is seen by this part of the wait later."""
    LONGEST_SECONDS = 0.04
    """How late a change of state may be noticed: no file is watched for it."""

    def __init__(self) -> None:
        self._began = self._moved = elapsed_seconds()
        self._paths: list[str] = []
        self._watcher: Watcher | None = None

    def add(self, path: Path) -> None:
        """Have a file's growth end a wait."""
        self._paths.append(str(path))
        if self._watcher is not None:
            self._watcher.add(str(path))

    def go_on(self) -> None:
        """Look often again, since something came."""
        self._moved = elapsed_seconds()

    def wait(self) -> None:
        """Wait until it is time to read again."""
        if self._watcher is not None:
            self._watcher.wait(self.LONGEST_SECONDS)
        elif (now := elapsed_seconds()) - self._began < self.SHORT_SECONDS:
            pause = max(self.PAUSE_SECONDS, (now - self._moved) * self.PART_OF_WAIT)
            time.sleep(min(pause, self.LONGEST_SECONDS))
        else:
            from workbench.learner.platform.watch import Watcher

            self._watcher = Watcher(self._paths)

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.close()


class _Follower:
    """Reads one job again and again, and knows what it has yielded of it."""

    def __init__(self, store: Store, row: JobRow, tail: int | None, copy_to: int | None) -> None:
        self._store = store
        self._row = row
        self._tail = tail
        self._copy_to = copy_to
        self._version = -1
        self._last_transition = 0
        self._attempt = 0
        self._journals: dict[int, JournalReader] = {}
        self._offsets: dict[int, int] = {}
        self._moved = False
        """Whether the last round brought output."""
        self._metrics_stale = True
        self._metrics_due = 0.0
        self._recognised: set[str] = set()
        self._stall = ""
        self._stall_due = 0.0

    def events(self, *, check_controller: bool) -> Iterator[JobEvent]:
        """Yield all events."""
        with ExitStack() as stack:
            keeper = Keeper(self._store.home, at_once=check_controller)
            if not is_over(self._row):
                stack.enter_context(keeper)
            pause = stack.enter_context(closing(_PollingWait()))
            error = ""
            while True:
                yield from self._state()
                yield from self._metrics(elapsed_seconds())
                over = is_over(self._row)
                yield from self._output(pause)
                if over and not self._moved:
                    break
                if (found := self._trouble(keeper)) != error:
                    error = found
                    yield Notice(error)
                yield Idle()
                if self._moved:
                    pause.go_on()
                else:
                    pause.wait()
        yield AttemptPrinted()
        self._metrics_stale = True
        yield from self._metrics(math.inf)
        yield JobEnded(self._row, self._results())

    def _trouble(self, keeper: Keeper) -> str:
        """Return what hinders the job, or its being recorded; empty where all is well."""
        from workbench.services.follow.full_disk import stall_of

        if (now := elapsed_seconds()) >= self._stall_due:
            self._stall_due = now + keeper.EVERY_SECONDS
            self._stall = stall_of(self._store.home, self._row)
        return keeper.error or self._stall

    def _results(self) -> str:
        from workbench.controller.runtime.result_store import result_store
        from workbench.store.queries.jobs import detail

        stored = result_store(detail(self._store, self._row.id).spec, self._row.id)
        return stored.location if stored else str(self._store.home.job(self._row.id).results)

    def _state(self) -> Iterator[JobEvent]:
        version = self._store.data_version()
        if version == self._version:
            return
        self._version = version
        from workbench.store.queries.jobs import job, transitions

        row = job(self._store, self._row.id)
        if row is None or row.deleted_us is not None:
            raise UnknownName(f"{short_id(self._row.id)} was deleted while it was followed")
        history = transitions(self._store, row.id, after=self._last_transition)
        if history:
            self._last_transition = history[-1].id
        self._row = row
        self._metrics_stale = True
        yield StateChanged(row, tuple(history))

    def _metrics(self, now: float) -> Iterator[JobEvent]:
        if not self._metrics_stale or now < self._metrics_due:
            return
        from workbench.metrics import series

        self._metrics_stale = False
        self._metrics_due = now + METRICS_SECONDS
        yield DataCopied(self._copied())
        yield MetricsChanged(tuple(series(self._store, self._row.id)), self._newly_recognised())

    def _newly_recognised(self) -> tuple[str, ...]:
        """Return the notes about recognised metrics that were not given yet; several learners say the same."""
        from workbench.metrics import notes

        found = [each.text for each in notes(self._store, self._row.id) if each.level == "info"]
        new = [
            text
            for text in dict.fromkeys(found)
            if text not in self._recognised and text.startswith("metrics: ")
        ]
        self._recognised.update(new)
        return tuple(new)

    def _copied(self) -> str:
        from workbench.metrics import progress

        if self._row.state not in (State.DOWNLOADING, State.STORING):
            return ""
        current = [each for each in progress(self._store, self._row.id) if each.attempt == self._row.attempt]
        return next((each.text for each in current if each.text and each.fraction is not None), "")

    def _output(self, pause: _PollingWait) -> Iterator[JobEvent]:
        """Copy or yield what is published; an attempt is read to its end before the next one is begun."""
        from workbench.logs.file_copy import copy_published

        self._moved = False
        for learner, journal in self._journals.items():
            before = self._offsets[learner]
            if self._copy_to is not None:
                self._offsets[learner] = copy_published(journal, self._copy_to, before)
            elif data := journal.read(before, COPY_BYTES):
                self._offsets[learner] += len(data)
                yield LogBytes(self._attempt, learner, data)
            self._moved = self._moved or self._offsets[learner] > before
        if not self._moved and self._attempt < self._row.attempt:
            if self._journals:
                yield AttemptPrinted()
            self._begin_attempt(pause)
            self._moved = True

    def _begin_attempt(self, pause: _PollingWait) -> None:
        from workbench.logs.journal import JournalReader

        self._attempt = self._attempt + 1 if self._attempt else self._row.attempt
        folder = self._store.home.job(self._row.id).attempt(self._attempt)
        for learner in range(1, self._row.learners + 1):
            journal = JournalReader(folder.learner(learner))
            self._journals[learner] = journal
            self._offsets[learner] = 0 if self._tail is None else journal.tail_offset(self._tail)
            pause.add(folder.learner(learner).index)
        self._tail = None
