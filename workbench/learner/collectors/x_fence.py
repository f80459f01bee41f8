"""Keeps the fault of a collector from its learner: one that raises is put aside, and a note says so."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

from workbench.learner.collectors.batches import note
from workbench.learner.collectors.interface import Collector, Record


class Fence(Collector):
    """A collector that never raises: all calls go to another one until that one does."""

    def __init__(self, name: str, build: Callable[[], Collector]) -> None:
        self.name = name
        self._inner: Optional[Collector] = None
        self._cursor: Any = None
        self._notes: List[Record] = []
        try:
            self._inner = build()
            self.name = self._inner.name
            self.wants_output = self._inner.wants_output
        except Exception as error:  # whatever a plug-in or a user's regular expression raises
            self._put_aside("cannot be used", error)

    @property
    def inner(self) -> Optional[Collector]:
        """The collector inside, None once it was put aside."""
        return self._inner

    @property
    def output_offset(self) -> int:
        """From where the collector inside wants to be fed."""
        return 0 if self._inner is None else self._inner.output_offset

    @property
    def waiting(self) -> bool:
        """Whether the collector inside is waiting."""
        return self._inner is not None and self._inner.waiting

    def restore(self, cursor: Any) -> None:
        """Hand the cursor on, if there is one; one that cannot be read puts the collector aside."""
        if cursor is not None:
            self._cursor = cursor
            self._call(lambda inner: inner.restore(cursor))

    def cursor(self) -> Any:
        """Say where the collector inside goes on, or where it was put aside."""
        found = self._call(lambda inner: inner.cursor())
        return self._cursor if self._inner is None else found

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Hand output on."""
        self._call(lambda inner: inner.output(data, end_offset, time_us))

    def line(self, text: bytes, end_offset: int, time_us: int) -> None:
        """Hand a line on."""
        self._call(lambda inner: inner.line(text, end_offset, time_us))

    def poll(self, now_us: int) -> bool:
        """Let the collector inside look."""
        return bool(self._call(lambda inner: inner.poll(now_us)))

    def take(self) -> List[Record]:
        """Give the records of the collector inside, or the note that it was put aside."""
        records: List[Record] = self._call(lambda inner: inner.take()) or []
        if records:
            self._cursor = records[-1].get("cursor", self._cursor)
        records.extend({**record, "source": self.name, "cursor": self._cursor} for record in self._notes)
        self._notes = []
        return records

    def finish(self, now_us: int) -> bool:
        """Let the collector inside read on to the end."""
        return bool(self._call(lambda inner: inner.finish(now_us)))

    def _call(self, action: Callable[[Collector], Any]) -> Any:
        if self._inner is None:
            return None
        try:
            return action(self._inner)
        except Exception as error:  # a collector's fault is never the learner's
            self._put_aside("stopped", error)
            return None

    def _put_aside(self, what: str, error: Exception) -> None:
        self._inner = None
        self.wants_output = False
        text = "the collector %s %s: %s" % (self.name, what, str(error) or type(error).__name__)
        self._notes.append(note(text, int(time.time() * 1e6), level="error"))
