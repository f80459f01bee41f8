"""``python -m tests.simulation.host_queue``: lives histories of a host's queue, and says what they visited and found.

Options are those of ``python -m tests.simulation``, without ``--coverage``.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.simulation.host_queue.world import FAULTS, HostGround, HostResult
from tests.simulation.tool import Tool

REGRESSIONS: Final = Path(__file__).with_name("host_queue_regressions.jsonl")


def main() -> int:
    """Run; return the exit code."""
    tool: Tool[HostResult] = Tool(
        "tests.simulation.host_queue", HostGround, tuple(FAULTS), REGRESSIONS, HostTotals, jobs=2
    )
    asked = tool.parser(__doc__).parse_args()
    tool.fix_order_of_sets()
    kinds = tool.kinds(asked)
    looked_back = tool.look_back(asked, kinds)
    return tool.run(asked, kinds) if looked_back is None else looked_back


class HostTotals:
    """What the histories of one run visited."""

    def __init__(self) -> None:
        self._faults: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._count = self._turns = self._jobs = self.failures = 0
        self._seconds = 0.0

    def __add__(self, other: HostTotals) -> HostTotals:
        """Return what both visited."""
        both = HostTotals()
        both._faults, both._seen = self._faults + other._faults, self._seen + other._seen
        both._count, both.failures = self._count + other._count, self.failures + other.failures
        both._turns, both._jobs = self._turns + other._turns, self._jobs + other._jobs
        both._seconds = self._seconds + other._seconds
        return both

    def add(self, result: HostResult) -> None:
        """Count one more."""
        self._count += 1
        self.failures += bool(result.violation)
        self._faults.update(fault.kind for fault in result.faults)
        self._seen.update(result.seen)
        self._turns += result.events
        self._jobs += result.jobs
        self._seconds += result.seconds

    def show(self, seconds: float, first: int) -> None:
        """Print all."""
        count = max(1, self._count)
        print(
            f"{count:,} histories in {seconds:.0f} s ({count / seconds * 60:,.0f} a minute), from seed {first} on; "
            f"each {self._jobs / count:.0f} jobs, {self._turns / count:.0f} turns, {self._seconds / count:.0f} s"
        )
        print("faults: " + ", ".join(f"{kind} {self._faults[kind]:,}" for kind in FAULTS))
        print("seen: " + ", ".join(f"{what} {times:,}" for what, times in sorted(self._seen.items())))


if __name__ == "__main__":
    sys.exit(main())
