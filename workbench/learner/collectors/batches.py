"""Gives records their cursors, so that a restart after any of them neither repeats nor leaves out a point.

A position says how far each stream (the output, a file) was read. Records come in batches: all that lies
between two positions. Reading from the first to the second again gives the same records again, so a cursor
in the middle of a batch says where the batch begins (``at``), where it ends (``to``: streams that moved)
and how many of its records are ``done``; that of its last record says where the next batch begins.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from workbench.learner.texts import clean

Record = Dict[str, Any]
Position = Dict[str, Any]
"""Stream's key to how far it was read, plain JSON."""

FLUSH_US = 100_000
"""How long points wait for others to share a record with."""

NOTE_CHARACTERS = 2000


class Batches:
    """The records of one collector on their way out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.begin: Position = {}
        """Where the batch begins that is being gathered."""
        self.until: Optional[Position] = None
        """Where the batch ends that a restart cut off; what lies before it is read again and closed first."""
        self._done = 0
        self._ready: List[Record] = []
        self._closed_us = 0

    def restore(self, cursor: Any) -> None:
        """Go on where a record with this cursor ended: read from :attr:`begin` on.

        Raises:
            ValueError: it is not a cursor of this version.
        """
        if not isinstance(cursor, dict) or not isinstance(cursor.get("at"), dict):
            raise ValueError("a cursor that this version cannot read")
        self.begin = dict(cursor["at"])
        self.until = cursor.get("to")
        self._done = int(cursor.get("done", 0))

    def cursor(self, position: Position) -> Any:
        """Return where to go on when all that was taken is written and no point lies before this position."""
        if self.until is not None:
            return {"at": self.begin, "to": self.until, "done": self._done}
        return {"at": position}

    def due(self, now_us: int) -> bool:
        """Whether the last batch was closed long enough ago, or the clock jumped back."""
        return not 0 <= now_us - self._closed_us < FLUSH_US

    def close(self, records: List[Record], position: Position, now_us: int) -> None:
        """End the batch here with these records; those that were written before a restart are left out."""
        moved = {key: offset for key, offset in position.items() if self.begin.get(key) != offset}
        for done, record in enumerate(records, 1):
            if done <= self._done:
                continue
            record["source"] = self._source
            if done == len(records):
                record["cursor"] = {"at": position}
            else:
                record["cursor"] = {"at": self.begin, "to": moved, "done": done}
            self._ready.append(record)
        self.begin, self._done, self.until = position, 0, None
        if records:
            self._closed_us = now_us

    def take(self) -> List[Record]:
        """Return the records that are finished, in order."""
        ready, self._ready = self._ready, []
        return ready


def note(text: str, now_us: int, *, level: str = "warning") -> Record:
    """Return a record that tells a person something."""
    return {"kind": "note", "time": now_us, "level": level, "text": clean(text, NOTE_CHARACTERS)}


def counted_note(count: int, what: str, now_us: int) -> Record:
    """Return a note whose text begins with a number; those of one collector are shown as one, which has their sum."""
    return {**note("%d %s" % (count, what), now_us), "count": count}
