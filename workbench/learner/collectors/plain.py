"""FfDL's simple log collector: the output is kept, and nothing is read out of it."""

from __future__ import annotations

from typing import Any, List

from workbench.learner.collectors.interface import Collector, Record


class PlainCollector(Collector):
    """Collects nothing; the output is kept by the scribe anyway."""

    name = "plain"

    def restore(self, cursor: Any) -> None:
        """Nothing to go on with."""

    def cursor(self) -> Any:
        """Nothing to go on with."""
        return None

    @property
    def is_watched(self) -> bool:
        """There is nothing to find."""
        return True

    def take(self) -> List[Record]:
        """No records."""
        return []

    def finish(self, now_us: int) -> bool:
        """Nothing is left."""
        return False
