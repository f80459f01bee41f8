"""Reads the rows in view in a thread, so that a slow disk cannot hold up the one that draws.

The drawing thread waits for a moment, in which a file in memory or on a healthy disk has long answered;
what is not there by then is drawn as soon as it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from screens.logs.document import LogDocument, LogLine
from screens.logs.feed import Grown
from screens.workers.reader import Receiver, post

PATIENCE_SECONDS: Final = 0.02
KEPT: Final = 4000
"""So many rows are kept."""


class Pages:
    """The rows that were read last."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._wake = threading.Condition()
        self._document: LogDocument | None = None
        self._timed = False
        self._epoch = -1
        self._known: dict[int, LogLine] = {}
        self._wanted: list[int] = []
        self._closed = False
        self._missed = False
        self._thread: threading.Thread | None = None

    def open(self, document: LogDocument) -> None:
        """Read another document from now on."""
        with self._wake:
            self._document, self._wanted = document, []
            self._known.clear()

    def get(self, rows: Iterable[int], *, timed: bool) -> dict[int, LogLine]:
        """Return those of the rows that are at hand within a moment; the others follow."""
        with self._wake:
            document = self._document
            if document is None:
                return {}
            if document.epoch != self._epoch or timed != self._timed or len(self._known) > KEPT:
                self._known.clear()
                self._epoch, self._timed = document.epoch, timed
            wanted = list(rows)
            self._wanted = [row for row in wanted if row not in self._known]
            if self._wanted:
                self._start()
                self._wake.notify_all()
                self._missed = not self._wake.wait_for(lambda: not self._wanted, PATIENCE_SECONDS)
            found = {row: self._known[row] for row in wanted if row in self._known}
            # A line that is not ended yet may be longer the next time.
            for row in [row for row, line in found.items() if not line.settled]:
                del self._known[row]
            return found

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-pages", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or bool(self._wanted))
                if self._closed:
                    return
                document, wanted, epoch = self._document, list(self._wanted), self._epoch
                timed = self._timed
            read = _read(document, wanted, timed) if document is not None else {}
            with self._wake:
                if document is self._document and epoch == self._epoch and timed == self._timed:
                    self._known |= read
                if self._wanted == wanted:
                    self._wanted = []
                missed, self._missed = self._missed and bool(read), False
                self._wake.notify_all()
            if missed:
                post(self._receiver, Grown())


def _read(document: LogDocument, rows: list[int], timed: bool) -> dict[int, LogLine]:
    read = {}
    for row in rows:
        try:
            read[row] = document.line(row, timed=timed)
        except (IndexError, OSError):  # filtered away, cut or replaced meanwhile
            continue
    return read
