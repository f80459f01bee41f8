"""Follows a job to its end: copies its output as it appears, tells its states, keeps a controller running."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Protocol, Self

from workbench.clock import elapsed_seconds
from workbench.errors import FabricError, UnknownName
from workbench.job import short_id
from workbench.services.follow.job_text import is_over

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.learner.platform.watch import Watcher
    from workbench.logs.journal import JournalReader
    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow


class Glances:
    """Waits between two looks at a job: moments at first, then until a journal grows.

    The kernel takes 15 ms to end a watch (measured), which the end of a short job would wait for.
    """

    SHORT_SECONDS = 2.0
    PAUSE_SECONDS = 0.005
    LONGEST_SECONDS = 0.04
    """How late a state may be seen, which nobody watches."""

    def __init__(self) -> None:
        self._began = elapsed_seconds()
        self._paths: list[str] = []
        self._watcher: Watcher | None = None

    def add(self, path: Path) -> None:
        """Have a file's growth end a wait."""
        self._paths.append(str(path))
        if self._watcher is not None:
            self._watcher.add(str(path))

    def wait(self) -> None:
        """Wait until it is time for another look."""
        if self._watcher is not None:
            self._watcher.wait(self.LONGEST_SECONDS)
        elif elapsed_seconds() - self._began < self.SHORT_SECONDS:
            time.sleep(self.PAUSE_SECONDS)
        else:
            from workbench.learner.platform.watch import Watcher

            self._watcher = Watcher(self._paths)

    def close(self) -> None:
        """Watch no more."""
        if self._watcher is not None:
            self._watcher.close()


COPY_BYTES = 1 << 20
"""Read at once; what a signal may have to wait for."""

METRICS_SECONDS = 0.25
"""How often the latest values are read, at most."""


class Keeper:
    """Sees within a second that the controller is gone, and starts another, in a thread of its own.

    ``at_once`` looks at the beginning, too; who has just woken the controller need not.
    """

    EVERY_SECONDS = 0.7

    def __init__(self, home: Home, *, at_once: bool = True) -> None:
        self._home = home
        self._at_once = at_once
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self.trouble = ""
        """Why no controller can be started, or empty."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _keep(self) -> None:
        from workbench.controller.runtime.client import ensure_controller

        wait = 0.0 if self._at_once else self.EVERY_SECONDS
        while not self._ended.wait(wait):
            wait = self.EVERY_SECONDS
            try:
                ensure_controller(self._home)
                self.trouble = ""
            except (FabricError, OSError) as error:
                self.trouble = f"no controller can be started: {error}"


class View(Protocol):
    """What a follower tells; every call returns soon, but for output that nobody reads."""

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Take the job as it is now, and what happened since the last call."""

    def output(self, attempt: int, learner: int, data: bytes) -> None:
        """Take bytes that a learner printed."""

    def descriptor(self, learner: int) -> int | None:
        """Return where a learner's bytes may be copied to as they are; None: give them to ``output``."""

    def finish_output(self) -> None:
        """Take note that this attempt prints no more."""

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Take the latest values."""

    def progress(self, text: str) -> None:
        """Take how far data or results are on their way; an empty text where they are not."""

    def trouble(self, text: str) -> None:
        """Take a sentence about what hinders the following, not the job."""

    def tick(self) -> None:
        """Take the chance to draw what depends on time alone."""

    def ended(self, row: JobRow, results: str) -> None:
        """Take the end."""


class Follower:
    """Follows one job; ``follow`` returns when nothing more will happen to it by itself.

    ``tail`` begins with the last so many lines; ``fresh`` says that the controller has just been woken.
    """

    def __init__(
        self, store: Store, row: JobRow, view: View, *, tail: int | None = None, fresh: bool = False
    ) -> None:
        self._fresh = fresh
        self._store = store
        self._row = row
        self._view = view
        self._tail = tail
        self._version = -1
        self._seen_transition = 0
        self._attempt = 0
        self._journals: dict[int, JournalReader] = {}
        self._offsets: dict[int, int] = {}
        self._metrics_stale = True
        self._metrics_due = 0.0

    def follow(self) -> JobRow:
        """Follow to the end; raises UnknownName when the job is deleted meanwhile."""
        with ExitStack() as stack:
            keeper = Keeper(self._store.home, at_once=not self._fresh)
            if not is_over(self._row):
                stack.enter_context(keeper)
            glances = stack.enter_context(closing(Glances()))
            told = ""
            while True:
                self._refresh()
                self._read_metrics(elapsed_seconds())
                over = is_over(self._row)
                moved = self._copy(glances)
                if over and not moved:
                    break
                if keeper.trouble != told:
                    told = keeper.trouble
                    if told:
                        self._view.trouble(told)
                self._view.tick()
                if not moved:
                    glances.wait()
        self._view.finish_output()
        self._metrics_stale = True
        self._read_metrics(math.inf)
        self._view.ended(self._row, self._results())
        return self._row

    def _results(self) -> str:
        """Say where the results are: in the job's store, else in its folder here."""
        from workbench.services.result_store import result_store
        from workbench.store.jobs import detail

        stored = result_store(detail(self._store, self._row.id).spec, self._row.id)
        return stored.words if stored else str(self._store.home.job(self._row.id).results)

    def _refresh(self) -> None:
        version = self._store.data_version()
        if version == self._version:
            return
        self._version = version
        from workbench.store.jobs import job, transitions

        row = job(self._store, self._row.id)
        if row is None or row.deleted_us is not None:
            raise UnknownName(f"{short_id(self._row.id)} was deleted while it was followed")
        history = transitions(self._store, row.id, after=self._seen_transition)
        if history:
            self._seen_transition = history[-1].id
        self._row = row
        self._view.state(row, history)
        self._metrics_stale = True

    def _read_metrics(self, now: float) -> None:
        if not self._metrics_stale or now < self._metrics_due:
            return
        from workbench.metrics import series

        self._metrics_stale = False
        self._metrics_due = now + METRICS_SECONDS
        self._view.progress(self._copying())
        self._view.metrics(series(self._store, self._row.id))

    def _copying(self) -> str:
        """Say how far data or results are on their way; nothing while they are not."""
        from workbench.job import State
        from workbench.metrics import progress

        if self._row.state not in (State.DOWNLOADING, State.STORING):
            return ""
        current = [each for each in progress(self._store, self._row.id) if each.attempt == self._row.attempt]
        return next((each.text for each in current if each.text and each.fraction is not None), "")

    def _copy(self, glances: Glances) -> bool:
        """Copy what is published; an attempt is read to its end before the next one is begun."""
        from workbench.logs.copying import copy_published

        moved = False
        for learner, journal in self._journals.items():
            before = self._offsets[learner]
            if (descriptor := self._view.descriptor(learner)) is not None:
                self._offsets[learner] = copy_published(journal, descriptor, before)
            elif data := journal.read(before, COPY_BYTES):
                self._offsets[learner] += len(data)
                self._view.output(self._attempt, learner, data)
            moved = moved or self._offsets[learner] > before
        if not moved and self._attempt < self._row.attempt:
            self._begin_attempt(glances)
            moved = True
        return moved

    def _begin_attempt(self, glances: Glances) -> None:
        from workbench.logs.journal import JournalReader

        if self._journals:
            self._view.finish_output()
        self._attempt = self._attempt + 1 if self._attempt else self._row.attempt
        folder = self._store.home.job(self._row.id).attempt(self._attempt)
        for learner in range(1, self._row.learners + 1):
            journal = JournalReader(folder.learner(learner))
            self._journals[learner] = journal
            self._offsets[learner] = 0 if self._tail is None else journal.tail_offset(self._tail)
            glances.add(folder.learner(learner).index)
        self._tail = None
