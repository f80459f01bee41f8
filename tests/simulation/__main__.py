"""``python -m tests.simulation``: lives histories until the time is over, and says what they visited and found.

Options: ``--seconds 60``, ``--seed FIRST``, ``--count N``, ``--jobs 3``, ``--faults link,kill``, ``--processes 2`` for
two cores; ``--replay SEED`` prints a story (with ``--only FAULT,FAULT`` those faults alone), ``--regressions`` lives
the list alone, ``--coverage`` measures the branches of ``decide``, ``--first`` ends with the first finding. It ends
with 1 where there was one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.simulation.chance import FAULTS
from tests.simulation.tool import Tool
from tests.simulation.world import Ground
from workbench.job import LEGAL_STEPS, State

REGRESSIONS: Final = Path(__file__).with_name("regressions.jsonl")
DECIDE: Final = Path(__file__).parents[2] / "workbench/controller/decide"


def main() -> int:
    """Run; return the exit code."""
    tool = Tool("tests.simulation", Ground, tuple(FAULTS), REGRESSIONS, _show_steps)
    parser = tool.parser(__doc__)
    parser.add_argument("--coverage", action="store_true")
    asked = parser.parse_args()
    tool.fix_order_of_sets()
    kinds = tool.kinds(asked)
    if asked.coverage and asked.processes > 1:
        print("the branches are measured in one process")
        return 2
    looked_back = tool.look_back(asked, kinds)
    if looked_back is not None:
        return looked_back
    with _branches(asked.coverage):
        return tool.run(asked, kinds)


def _show_steps(steps: Counter[Any]) -> None:
    for before in State:
        if seen := [f"{after} {steps[before, after]:,}" for after in State if steps[before, after]]:
            print(f"{before} to {', '.join(seen)}")
    legal = [(before, after) for before in State for after in LEGAL_STEPS[before]]
    never = [f"{before} to {after}" for before, after in legal if not steps[before, after]]
    print(f"never seen: {', '.join(never) or 'no legal step'}")
    judged = (f"{what} {steps[what]:,}" for what in sorted(key for key in steps if isinstance(key, str)))
    print(f"judged: {', '.join(judged) or 'nothing of jobs over several hosts'}")


@contextmanager
def _branches(is_asked: bool) -> Iterator[None]:
    """Measure which branches of the decisions are taken, and name those that never are."""
    if not is_asked:
        yield
        return
    import coverage

    measured = coverage.Coverage(
        branch=True, include=[f"{DECIDE}/*"], data_file=None, concurrency=["greenlet"], messages=False
    )
    measured.start()
    try:
        yield
    finally:
        measured.stop()
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            measured.json_report(outfile=file.name)
            _show_branches(json.loads(Path(file.name).read_text()))


def _show_branches(report: dict[str, Any]) -> None:
    for name, found in sorted(report["files"].items()):
        summary = found["summary"]
        print(
            f"{Path(name).name}: {summary['covered_branches']} of {summary['num_branches']} branches", end=""
        )
        missing = [
            f"{source}->{'end' if target < 0 else target}" for source, target in found["missing_branches"]
        ]
        print(f"; never taken: {', '.join(missing)}" if missing else "")


if __name__ == "__main__":
    sys.exit(main())
