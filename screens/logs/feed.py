"""The workers behind a log viewer: one indexes, filters and searches, the other reads the rows in view.

Both are apart, so that a row in view does not wait for a search that goes through gigabytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from textual.message import Message
from textual.widget import Widget

from screens.logs.document import DocumentLine, LogDocument, Sieve
from screens.workers.background import post, start_loop
from workbench.errors import PatternTooSlow
from workbench.logs.grep import Pattern
from workbench.values import dataclass

LOOK_SECONDS: Final = 0.04
"""How often a log in view is read for new lines: some microseconds each time."""
REST_SECONDS: Final = 1.0
"""The same for a log that is not in view."""
TELL_SECONDS: Final = 0.1
"""The viewer is notified of new lines no more often than that."""
PATIENCE_SECONDS: Final = 0.02
"""The drawing thread waits for rows no longer than that: a file in memory or on a healthy disk has long answered."""
KEPT: Final = 4000
"""So many rows are kept."""


class Grown(Message, bubble=False):
    """There are other rows than before."""


class SearchDone(Message, bubble=False):
    """A search is over; ``row`` None says that nothing was found."""

    def __init__(self, what: str, row: int | None, *, backward: bool) -> None:
        super().__init__()
        self.what = what
        self.row = row
        self.backward = backward


class GivenUp(Message, bubble=False):
    """An expression took too long: nothing is filtered, counted or searched by it any more."""

    def __init__(self, error: PatternTooSlow) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for, from where."""

    what: str
    """Its name for the viewer: ``find``, ``error``, ``time``, ``type`` (while the reader types)."""
    row: int
    backward: bool = False
    pattern: Pattern | None = None
    time_us: int | None = None


class Feed:
    """Keeps one document up to date. Its methods are called by the thread that draws; none waits."""

    def __init__(self, viewer: Widget) -> None:
        self._viewer = viewer
        self._wake = threading.Condition()
        self._document: LogDocument | None = None
        self._sieve: Sieve | None = None
        self._search: Search | None = None
        self._count: list[Pattern | None] = []
        """What is to be counted from now on, where that has changed."""
        self._closed = False
        self._resting = False
        self._announced_at = 0.0
        self._has_news = False
        self._retired: list[LogDocument] = []
        self._started = False

    def open(self, document: LogDocument) -> None:
        """Keep another document up to date from now on."""
        with self._wake:
            if self._document is not None:
                self._retired.append(self._document)
            self._document, self._sieve, self._search = document, None, None
            self._count.clear()
            self._wake.notify()
        if not self._started:
            self._started = True
            start_loop(self._viewer, "log feed", self._run)

    def sift(self, sieve: Sieve) -> None:
        """Show other lines."""
        with self._wake:
            self._sieve = sieve
            self._wake.notify()

    def count(self, pattern: Pattern | None) -> None:
        """Count the rows that match, or none; a search goes on meanwhile."""
        with self._wake:
            self._count = [pattern]
            self._wake.notify()

    def search(self, search: Search) -> None:
        """Search for something, instead of what was searched for before; a :class:`SearchDone` answers."""
        with self._wake:
            self._search = search
            self._wake.notify()

    def rest(self, *, resting: bool) -> None:
        """Look less often while nobody looks at the log."""
        with self._wake:
            self._resting = resting
            self._wake.notify()

    def close(self) -> None:
        """End the loop after what it does now."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _interrupted(self) -> bool:
        return self._closed or self._sieve is not None or self._search is not None or bool(self._retired)

    def _run(self) -> None:
        while not self._closed:
            document, sieve, search, count = self._take()
            busy = False
            if document is not None:
                for pattern in count:
                    document.count_hits(pattern)
                busy = self._work(document, sieve, search)
            self._tell(force=False)
            with self._wake:
                if not busy and not self._count and not self._interrupted():
                    self._wake.wait(REST_SECONDS if self._resting else LOOK_SECONDS)
        for document in (*self._retired, *filter(None, (self._document,))):
            document.close()

    def _take(self) -> tuple[LogDocument | None, Sieve | None, Search | None, list[Pattern | None]]:
        with self._wake:
            taken = self._document, self._sieve, self._search, self._count
            self._sieve = self._search = None
            self._count = []
            retired, self._retired = self._retired, []
        for document in retired:
            document.close()
        return taken

    def _work(self, document: LogDocument, sieve: Sieve | None, search: Search | None) -> bool:
        """Do one bounded piece; return whether there is more to do at once."""
        try:
            if sieve is not None:
                document.sift(sieve)
                self._tell(force=True)
            if search is not None:
                row = _look(document, search, self._interrupted)
                if not self._interrupted():
                    post(self._viewer, SearchDone(search.what, row, backward=search.backward))
            changed = document.update(self._interrupted)
        except PatternTooSlow as error:
            document.give_up(error.pattern)
            post(self._viewer, GivenUp(error))
            return True
        self._has_news |= changed
        return changed

    def _tell(self, *, force: bool) -> None:
        """Notify the viewer, but not too often; what is held back follows soon."""
        now = time.monotonic()
        if force or (self._has_news and now - self._announced_at >= TELL_SECONDS):
            self._announced_at, self._has_news = now, False
            post(self._viewer, Grown())


def _look(document: LogDocument, search: Search, cancelled: Callable[[], bool]) -> int | None:
    if search.time_us is not None:
        return document.row_of_time(search.time_us)
    if search.pattern is None:
        return document.next_error(search.row, backward=search.backward, cancelled=cancelled)
    return document.search(search.pattern, search.row, backward=search.backward, cancelled=cancelled)


class Pages:
    """The rows that were read last."""

    def __init__(self, viewer: Widget) -> None:
        self._viewer = viewer
        self._wake = threading.Condition()
        self._document: LogDocument | None = None
        self._timed = False
        self._epoch = -1
        self._known: dict[int, DocumentLine] = {}
        self._requested: list[int] = []
        self._closed = False
        self._missed = False
        self._started = False

    def open(self, document: LogDocument) -> None:
        """Read another document from now on."""
        with self._wake:
            self._document, self._requested = document, []
            self._known.clear()
        if not self._started:
            self._started = True
            start_loop(self._viewer, "log rows", self._run)

    def get(self, rows: Iterable[int], *, timed: bool) -> dict[int, DocumentLine]:
        """Return those of the rows that are at hand within a moment; the others follow."""
        with self._wake:
            document = self._document
            if document is None:
                return {}
            if document.epoch != self._epoch or timed != self._timed or len(self._known) > KEPT:
                self._known.clear()
                self._epoch, self._timed = document.epoch, timed
            requested = list(rows)
            self._requested = [row for row in requested if row not in self._known]
            if self._requested:
                self._wake.notify_all()
                self._missed = not self._wake.wait_for(lambda: not self._requested, PATIENCE_SECONDS)
            found = {row: self._known[row] for row in requested if row in self._known}
            # A line that is not ended yet may be longer the next time.
            for row in [row for row, line in found.items() if not line.settled]:
                del self._known[row]
            return found

    def close(self) -> None:
        """End the loop."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or bool(self._requested))
                if self._closed:
                    return
                document, requested, epoch = self._document, list(self._requested), self._epoch
                timed = self._timed
            read = _read(document, requested, timed) if document is not None else {}
            with self._wake:
                if document is self._document and epoch == self._epoch and timed == self._timed:
                    self._known |= read
                if self._requested == requested:
                    self._requested = []
                missed, self._missed = self._missed and bool(read), False
                self._wake.notify_all()
            if missed:
                post(self._viewer, Grown())


def _read(document: LogDocument, rows: list[int], timed: bool) -> dict[int, DocumentLine]:
    read = {}
    for row in rows:
        try:
            read[row] = document.line(row, timed=timed)
        except (IndexError, OSError):  # filtered away, cut or replaced meanwhile
            continue
    return read
