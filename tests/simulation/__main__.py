"""``python -m tests.simulation``: lives histories until the time is over, and says what they visited and found.

Options: ``--seconds 60``, ``--seed FIRST``, ``--count N``, ``--jobs 3``, ``--faults link,kill``, ``--processes 2`` for
two cores; ``--replay SEED`` prints a story (with ``--only FAULT,FAULT`` those faults alone), ``--regressions`` lives
the list alone, ``--coverage`` measures the branches of ``decide``, ``--first`` ends with the first finding. It ends
with 1 where there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.simulation.chance import FAULTS
from tests.simulation.shrink import Scenario, shrink
from tests.simulation.world import Ground, Result
from workbench.job import LEGAL_STEPS, State

REGRESSIONS: Final = Path(__file__).with_name("regressions.jsonl")
DECIDE: Final = Path(__file__).parents[2] / "workbench/controller/decide"
FAILURES_MAX: Final = 5


def main() -> int:
    """Run; return the exit code."""
    asked = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts must be the same each time.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    kinds = tuple(asked.faults.split(",")) if asked.faults else tuple(FAULTS)
    if unknown := set(kinds) - set(FAULTS):
        print(f"unknown: {', '.join(sorted(unknown))}; the kinds of faults are {', '.join(FAULTS)}")
        return 2
    if asked.coverage and asked.processes > 1:
        print("the branches are measured in one process")
        return 2
    if asked.replay is not None or asked.regressions:
        with Ground() as ground:
            if asked.regressions:
                return _check_regressions(ground)
            only = None if asked.only is None else tuple(filter(None, asked.only.split(",")))
            return _replay(ground, Scenario(asked.replay, asked.jobs, kinds, only))
    began = monotonic()
    with _branches(asked.coverage):
        explored = _explore_on_all_cores(asked, kinds) if asked.processes > 1 else [_explore(asked, kinds, 0)]
    totals = sum(explored, Totals())
    if not (asked.first and totals.failures):
        totals.show(monotonic() - began, asked.seed)
    return 1 if totals.failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--faults", default="")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--only")
    parser.add_argument("--regressions", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument(
        "--first", action="store_true", help="end at the first violation, and do not shrink it"
    )
    return parser.parse_args()


def _replay(ground: Ground, scenario: Scenario) -> int:
    result = scenario.live(ground, keeps_story=True)
    print("\n".join(result.story))
    print(f"faults: {', '.join(fault.name for fault in result.faults) or 'none'}")
    print(result.violation or f"all held; {result.seconds:.0f} s passed in {result.events} turns")
    return 1 if result.violation else 0


def _check_regressions(ground: Ground) -> int:
    failed = 0
    for line in REGRESSIONS.read_text().splitlines():
        document = json.loads(line)
        result = Scenario.from_json(document).live(ground)
        if result.violation:
            failed += 1
            print(f"{document['found']}: {result.violation}\n  {line}")
    return 1 if failed else 0


def _explore_on_all_cores(asked: argparse.Namespace, kinds: tuple[str, ...]) -> list[Totals]:
    """Have each of some processes live the next seed of as many."""
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("fork")) as pool:
        return list(pool.map(partial(_explore, asked, kinds), range(asked.processes)))


def _explore(asked: argparse.Namespace, kinds: tuple[str, ...], process: int) -> Totals:
    began, totals = monotonic(), Totals()
    with Ground() as ground:
        for seed in count(asked.seed + process, asked.processes):
            is_last = asked.count is not None and seed >= asked.seed + asked.count
            if is_last or monotonic() >= began + asked.seconds:
                break
            scenario = Scenario(seed, asked.jobs, kinds)
            result = scenario.live(ground)
            totals.add(result)
            if result.violation and asked.first:
                print(f"seed {seed}: {result.violation}", flush=True)
                break
            if result.violation:
                _report(ground, scenario, result)
                if totals.failures >= FAILURES_MAX:
                    break
    return totals


def _report(ground: Ground, scenario: Scenario, failed: Result) -> None:
    shortest = shrink(ground, scenario, failed)
    shown = shortest.live(ground, keeps_story=True)
    print(f"seed {scenario.seed}: {failed.violation}")
    print("\n".join(f"    {line}" for line in shown.story))
    only = f" --only '{','.join(shortest.only)}'" if shortest.only is not None else ""
    print(f"  replay: python -m tests.simulation --replay {shortest.seed} --jobs {shortest.jobs}{only}")
    print(
        f"  for {REGRESSIONS.name}: {json.dumps(shortest.to_json() | {'found': failed.violation})}",
        flush=True,
    )


class Totals:
    """What the histories of one run visited."""

    def __init__(self) -> None:
        self._faults: Counter[str] = Counter()
        self._steps: Counter[tuple[State, State]] = Counter()
        self._count = self._turns = self._jobs = self.failures = 0
        self._seconds = 0.0
        self._last = 0
        """The highest seed."""

    def __add__(self, other: Totals) -> Totals:
        """Return what both visited."""
        both = Totals()
        both._faults, both._steps = self._faults + other._faults, self._steps + other._steps
        both._count, both.failures = self._count + other._count, self.failures + other.failures
        both._turns, both._jobs = self._turns + other._turns, self._jobs + other._jobs
        both._seconds, both._last = self._seconds + other._seconds, max(self._last, other._last)
        return both

    def add(self, result: Result) -> None:
        """Count one more."""
        self._count += 1
        self.failures += bool(result.violation)
        self._last = max(self._last, result.seed)
        self._faults.update(fault.kind for fault in result.faults)
        self._steps.update(result.steps)
        self._turns += result.events
        self._jobs += result.jobs
        self._seconds += result.seconds

    def show(self, seconds: float, first: int) -> None:
        """Print all."""
        count = max(1, self._count)
        print(
            f"{count:,} histories in {seconds:.0f} s ({count / seconds * 60:,.0f} a minute), "
            f"seeds {first} to {self._last}; "
            f"each {self._jobs / count:.0f} jobs, {self._turns / count:.0f} turns, {self._seconds / count:.0f} s"
        )
        print("faults: " + ", ".join(f"{kind} {self._faults[kind]:,}" for kind in FAULTS))
        for before in State:
            seen = [
                f"{after} {self._steps[before, after]:,}" for after in State if self._steps[before, after]
            ]
            if seen:
                print(f"{before} to {', '.join(seen)}")
        legal = [(before, after) for before in State for after in LEGAL_STEPS[before]]
        never = [f"{before} to {after}" for before, after in legal if not self._steps[before, after]]
        print(f"never seen: {', '.join(never) or 'no legal step'}")


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
