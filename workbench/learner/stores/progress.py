"""Says how far a copy is: percent, bytes, rate and time left, as records of progress and in the learner's state."""

from __future__ import annotations

import time

from workbench.learner.platform import system
from workbench.learner.stores.cache import format_bytes

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

EVERY_SECONDS = 1.0


class ProgressReporter:
    """Reports the progress of one transfer after the other: as records, and as the state's current activity."""

    def __init__(self, write: Callable[[dict[str, Any]], None], show: Callable[[str], None]) -> None:
        self._write = write
        self._show = show
        self._due = 0.0
        self._verb = ""
        self._total = 0

    def begin(self, verb: str, total_bytes: int = 0) -> None:
        """Start a new transfer; ``verb`` is shown as the activity: ``downloads tf_training_data``."""
        self._verb, self._total, self._due = verb, total_bytes, 0.0
        self._show(verb)

    def take(self, statistics: Mapping[str, Any]) -> None:
        """Take rclone's statistics, and pass them on now and then."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY_SECONDS
        done = float(statistics.get("bytes") or 0)
        total = max(float(self._total or statistics.get("totalBytes") or 0), done)
        rate = float(statistics.get("speed") or 0)
        fraction = done / total if total else None
        parts = ["%s of %s" % (format_bytes(done), format_bytes(total))]
        if fraction is not None:
            parts.insert(0, "%d%%" % (fraction * 100))
        if rate > 0:
            parts += ["%s/s" % format_bytes(rate), "%s left" % _duration((total - done) / rate)]
        self.record(fraction, "%s: %s" % (self._verb, ", ".join(parts)))

    def end(self) -> None:
        """Record that no transfer is running."""
        self.record(None, "")

    def record(self, fraction: float | None, text: str) -> None:
        """Write one record of progress."""
        self._write({"time": system.now_us(), "kind": "progress", "fraction": fraction, "text": text})

    def note(self, text: str, level: str = "warning") -> None:
        """Write a note for people."""
        self._write({"time": system.now_us(), "kind": "note", "level": level, "text": text})


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return "%d h %d min" % (seconds // 3600, seconds % 3600 // 60)
    return "%d min %d s" % (seconds // 60, seconds % 60) if seconds >= 60 else "%d s" % seconds
