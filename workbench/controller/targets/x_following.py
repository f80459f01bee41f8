"""One learner's records as they are followed: what is new in them, and how soon it should be in the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workbench.controller.targets.transcripts import Transcript
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
    transcript: Transcript | None = None
    """Makes the records, where the learner's agent makes none."""
    given_up: bool = False
    """Whether no records can be made of what it leaves."""
    _peeked: int = 0
    _taken_at: float = -1e9
    _put_off: float = -1e9

    @property
    def records(self) -> Path:
        """The file."""
        return self.folder.records

    def note(self) -> bool:
        """Note that one of its files has changed; return whether what is new is in a hurry."""
        self.news = True
        if self.transcript is not None:
            self.transcript.due = 0.0
            return True
        self.hurry = self.hurry or not self._only_usage()
        return self.hurry

    def due_at(self, lazy_at: float) -> float | None:
        """Return when it is to be taken in: at ``lazy_at`` if it is in no hurry; None for nothing new."""
        times = [] if self.transcript is None else [max(self.transcript.due, self._taken_at + EVERY_SECONDS)]
        if self.news:
            times.append(self._taken_at + EVERY_SECONDS if self.hurry else lazy_at)
        return max(min(times), self._put_off) if times else None

    def taken(self, now: float, *, again: bool) -> None:
        """Note that it was taken in, and whether there may be more."""
        self.news = self.hurry = again
        self._taken_at = now

    def put_off(self, until: float) -> None:
        """Leave it until then."""
        self._put_off = until

    def close(self) -> None:
        """Give everything back."""
        if self.transcript is not None:
            self.transcript.close()

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
