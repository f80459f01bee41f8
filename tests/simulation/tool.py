"""The program that lives histories of one kind, whichever: explores seeds, replays one, shrinks what fails."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.simulation.shrink import LivingGround, Result, Scenario, shrink

FAILURES_MAX: Final = 5


class Totals:
    """What the histories of one run visited."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.visited: Counter[Any] = Counter()
        self.failures = 0
        self._count = self._turns = self._jobs = 0
        self._seconds = 0.0
        self._last = 0
        """The highest seed."""

    def __add__(self, other: Totals) -> Totals:
        """Return what both visited."""
        both = Totals()
        both.faults, both.visited = self.faults + other.faults, self.visited + other.visited
        both._count, both.failures = self._count + other._count, self.failures + other.failures
        both._turns, both._jobs = self._turns + other._turns, self._jobs + other._jobs
        both._seconds, both._last = self._seconds + other._seconds, max(self._last, other._last)
        return both

    def add(self, result: Result) -> None:
        """Count one more."""
        self._count += 1
        self.failures += bool(result.violation)
        self._last = max(self._last, result.seed)
        self.faults.update(fault.kind for fault in result.faults)
        self.visited.update(result.visited)
        self._turns += result.turns
        self._jobs += result.jobs
        self._seconds += result.seconds

    def show(self, seconds: float, first: int, kinds: Sequence[str]) -> None:
        """Print how many there were, and how often each kind of fault happened."""
        count = max(1, self._count)
        print(
            f"{count:,} histories in {seconds:.0f} s ({count / seconds * 60:,.0f} a minute), "
            f"seeds {first} to {self._last}; "
            f"each {self._jobs / count:.0f} jobs, {self._turns / count:.0f} turns, {self._seconds / count:.0f} s"
        )
        print("faults: " + ", ".join(f"{kind} {self.faults[kind]:,}" for kind in kinds))


@dataclass(frozen=True)
class Tool:
    """The program for one kind of histories."""

    module: str
    """Its name for ``python -m``."""
    ground: Callable[[], AbstractContextManager[LivingGround]]
    faults: tuple[str, ...]
    regressions: Path
    show: Callable[[Counter[Any]], None]
    """Prints what was visited."""
    jobs: int = 3

    def fix_order_of_sets(self) -> None:
        """Have the order of sets of texts be the same each time."""
        if os.environ.get("PYTHONHASHSEED") != "0":
            os.execve(
                sys.executable,
                [sys.executable, "-m", self.module, *sys.argv[1:]],
                os.environ | {"PYTHONHASHSEED": "0"},
            )

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Return what understands the options."""
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=description)
        parser.add_argument("--seconds", type=float, default=60.0)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--count", type=int)
        parser.add_argument("--jobs", type=int, default=self.jobs)
        parser.add_argument("--faults", default="")
        parser.add_argument("--processes", type=int, default=1)
        parser.add_argument("--replay", type=int)
        parser.add_argument("--only")
        parser.add_argument("--regressions", action="store_true")
        parser.add_argument(
            "--first", action="store_true", help="end at the first violation, and do not shrink it"
        )
        return parser

    def kinds(self, asked: argparse.Namespace) -> tuple[str, ...]:
        """Return the kinds of faults that were asked for.

        Raises:
            SystemExit: there is no such kind.
        """
        kinds = tuple(asked.faults.split(",")) if asked.faults else self.faults
        if unknown := set(kinds) - set(self.faults):
            print(f"unknown: {', '.join(sorted(unknown))}; the kinds of faults are {', '.join(self.faults)}")
            raise SystemExit(2)
        return kinds

    def look_back(self, asked: argparse.Namespace, kinds: tuple[str, ...]) -> int | None:
        """Tell one story, or live the list; return the exit code, None where neither was asked for."""
        if asked.replay is None and not asked.regressions:
            return None
        with self.ground() as ground:
            if asked.regressions:
                return self._check_regressions(ground)
            only = None if asked.only is None else tuple(filter(None, asked.only.split(",")))
            return _replay(ground, Scenario(asked.replay, asked.jobs, kinds, only))

    def run(self, asked: argparse.Namespace, kinds: tuple[str, ...]) -> int:
        """Live histories until the time is over; return the exit code."""
        began, totals = monotonic(), Totals()
        for explored in (
            self._explore_on_all_cores(asked, kinds)
            if asked.processes > 1
            else [self._explore(asked, kinds, 0)]
        ):
            totals += explored
        if not (asked.first and totals.failures):
            totals.show(monotonic() - began, asked.seed, self.faults)
            self.show(totals.visited)
        return 1 if totals.failures else 0

    def _check_regressions(self, ground: LivingGround) -> int:
        failed = 0
        for line in self.regressions.read_text().splitlines():
            document = json.loads(line)
            result = Scenario.from_json(document).live(ground)
            if result.violation:
                failed += 1
                print(f"{document['found']}: {result.violation}\n  {line}")
        return 1 if failed else 0

    def _explore_on_all_cores(self, asked: argparse.Namespace, kinds: tuple[str, ...]) -> list[Totals]:
        """Have each of some processes live the next seed of as many."""
        with ProcessPoolExecutor(asked.processes, mp_context=get_context("fork")) as pool:
            return list(pool.map(partial(self._explore, asked, kinds), range(asked.processes)))

    def _explore(self, asked: argparse.Namespace, kinds: tuple[str, ...], process: int) -> Totals:
        began, totals = monotonic(), Totals()
        with self.ground() as ground:
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
                    self._report(ground, scenario, result)
                    if totals.failures >= FAILURES_MAX:
                        break
        return totals

    def _report(self, ground: LivingGround, scenario: Scenario, failed: Result) -> None:
        shortest = shrink(ground, scenario, failed)
        shown = shortest.live(ground, keeps_story=True)
        print(f"seed {scenario.seed}: {failed.violation}")
        print("\n".join(f"    {line}" for line in shown.story))
        only = f" --only '{','.join(shortest.only)}'" if shortest.only is not None else ""
        print(f"  replay: python -m {self.module} --replay {shortest.seed} --jobs {shortest.jobs}{only}")
        print(
            f"  for {self.regressions.name}: {json.dumps(shortest.to_json() | {'found': failed.violation})}",
            flush=True,
        )


def _replay(ground: LivingGround, scenario: Scenario) -> int:
    result = scenario.live(ground, keeps_story=True)
    print("\n".join(result.story))
    print(f"faults: {', '.join(fault.name for fault in result.faults) or 'none'}")
    print(result.violation or f"all held; {result.seconds:.0f} s passed in {result.turns} turns")
    return 1 if result.violation else 0
