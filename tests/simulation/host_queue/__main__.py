"""``python -m tests.simulation.host_queue``: lives histories of a host's queue, and says what they visited and found.

Options are those of ``python -m tests.simulation``, without ``--coverage``.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.simulation.host_queue.world import FAULTS, HostGround
from tests.simulation.tool import Tool

REGRESSIONS: Final = Path(__file__).with_name("host_queue_regressions.jsonl")


def main() -> int:
    """Run; return the exit code."""
    tool = Tool("tests.simulation.host_queue", HostGround, tuple(FAULTS), REGRESSIONS, _show_seen, jobs=2)
    asked = tool.parser(__doc__).parse_args()
    tool.fix_order_of_sets()
    kinds = tool.kinds(asked)
    looked_back = tool.look_back(asked, kinds)
    return tool.run(asked, kinds) if looked_back is None else looked_back


def _show_seen(seen: Counter[str]) -> None:
    print("seen: " + ", ".join(f"{what} {times:,}" for what, times in sorted(seen.items())))


if __name__ == "__main__":
    sys.exit(main())
