"""One learner's records as they are followed: what is new in them, and how soon it should be in the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from workbench.paths import LearnerFolder

EVERY_SECONDS: Final = 0.1
"""How often a learner's records are committed while it records all the time."""

PEEK_BYTES: Final = 1 << 13
"""More than this in one go is no handful of usage samples."""


@dataclass(slots=True)
class Followed:
    """The records of one learner, from when it was first followed. Times are of the monotonic clock."""

    job_id: str
    attempt: int
    learner: int
    folder: LearnerFolder
    news: bool = True
    hurry: bool = True
    """Whether there is more than usage in what is new."""
    _peeked: int = 0
    _taken_at: float = field(default=-1e9)

    @property
    def records(self) -> Path:
        """The file."""
        return self.folder.records

    def note(self) -> bool:
        """Note that the file has changed; return whether what is new is in a hurry."""
        self.news = True
        self.hurry = self.hurry or not self._only_usage()
        return self.hurry

    def due_at(self, lazy_at: float) -> float | None:
        """Return when it is to be taken in: at ``lazy_at`` if it is in no hurry; None for nothing new."""
        if not self.news:
            return None
        return self._taken_at + EVERY_SECONDS if self.hurry else lazy_at

    def taken(self, now: float, *, again: bool) -> None:
        """Note that it was taken in, and whether there may be more."""
        self.news = self.hurry = again
        self._taken_at = now

    def put_off(self, until: float) -> None:
        """Leave it until then."""
        self._taken_at = until - EVERY_SECONDS

    def transcribe(self) -> None:
        """Make records of what an agent left that makes none."""

    def finish_transcript(self) -> None:
        """Make records of all that it left; nothing comes any more."""

    def close(self) -> None:
        """Give everything back."""

    def _only_usage(self) -> bool:
        try:
            with self.records.open("rb") as stream:
                stream.seek(self._peeked)
                data = stream.read(PEEK_BYTES)
        except OSError:
            return False
        whole = data.rfind(b"\n") + 1
        self._peeked += whole
        lines = data[:whole].splitlines()
        return len(data) < PEEK_BYTES and all(b'"usage"' in line[:80] for line in lines)
