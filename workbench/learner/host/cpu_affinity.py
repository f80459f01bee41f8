"""Chooses the CPUs that a learner may use: those that the fewest other learners of this machine use."""

from __future__ import annotations

import os
import threading
import time
from typing import Dict, List, Optional, Sequence, Tuple

from workbench.learner.host import learners, machine

_START_SECONDS = 30.0
"""How long a choice counts before the processes that were chosen for must be there to be counted."""


class CpuChooser:
    """Remembers its recent choices. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chosen: Dict[str, Tuple[float, Sequence[int]]] = {}

    def choose(self, count: int, marker: str) -> Optional[List[int]]:
        """Choose so many CPUs for the learner with this marker; None when it may have all that there are."""
        available = machine.processors()
        if count >= len(available):
            return None
        with self._lock:
            now = time.monotonic()
            claimed = claims(len(available))
            self._chosen = {
                other: choice
                for other, choice in self._chosen.items()
                if now - choice[0] < _START_SECONDS and other not in claimed and other != marker
            }
            uses = dict.fromkeys(available, 0)
            for cpus in [*claimed.values(), *(cpus for _, cpus in self._chosen.values())]:
                for cpu in cpus:
                    uses[cpu] = uses.get(cpu, 0) + 1
            chosen = sorted(sorted(available, key=lambda cpu: (uses[cpu], cpu))[:count])
            self._chosen[marker] = (now, chosen)
            return chosen


def claims(available: int) -> Dict[str, Sequence[int]]:
    """Return which CPUs each learner's processes are bound to; one that may use all claims none."""
    found: Dict[str, Sequence[int]] = {}
    for marker, pids in learners.markers().items():
        for pid in pids:
            try:
                allowed = os.sched_getaffinity(pid)
            except (OSError, AttributeError):
                continue  # it has ended, or this system binds nothing
            if len(allowed) < available:
                found[marker] = sorted(allowed)
    return found
