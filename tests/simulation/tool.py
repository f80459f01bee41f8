"""The program that lives histories of one kind, whichever: explores seeds, replays one, shrinks what fails."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Final, Generic, Protocol, Self, TypeVar

from tests.simulation.shrink import Lived, LivingGround, Scenario, shrink

FAILURES_MAX: Final = 5


class Story(Lived, Protocol):
    """What became of a history that can be told."""

    @property
    def story(self) -> tuple[str, ...]:
        """Its lines, where they were kept."""

    @property
    def events(self) -> int:
        """How many turns its threads took."""

    @property
    def seconds(self) -> float:
        """How much time passed in it."""


S = TypeVar("S", bound=Story)
S_contra = TypeVar("S_contra", bound=Story, contravariant=True)


class Counts(Protocol[S_contra]):
    """What the histories of one run visited."""

    failures: int

    def __add__(self, other: Self) -> Self:
        """Return what both visited."""

    def add(self, result: S_contra) -> None:
        """Count one more."""

    def show(self, seconds: float, first: int) -> None:
        """Print all."""


@dataclass(frozen=True)
class Tool(Generic[S]):
    """The program for one kind of histories."""

    module: str
    """Its name for ``python -m``."""
    ground: Callable[[], AbstractContextManager[LivingGround[S]]]
    faults: tuple[str, ...]
    regressions: Path
    totals: Callable[[], Counts[S]]
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
        began, totals = monotonic(), self.totals()
        for explored in (
            self._explore_on_all_cores(asked, kinds)
            if asked.processes > 1
            else [self._explore(asked, kinds, 0)]
        ):
            totals += explored
        if not (asked.first and totals.failures):
            totals.show(monotonic() - began, asked.seed)
        return 1 if totals.failures else 0

    def _check_regressions(self, ground: LivingGround[S]) -> int:
        failed = 0
        for line in self.regressions.read_text().splitlines():
            document = json.loads(line)
            result = Scenario.from_json(document).live(ground)
            if result.violation:
                failed += 1
                print(f"{document['found']}: {result.violation}\n  {line}")
        return 1 if failed else 0

    def _explore_on_all_cores(self, asked: argparse.Namespace, kinds: tuple[str, ...]) -> list[Counts[S]]:
        """Have each of some processes live the next seed of as many."""
        with ProcessPoolExecutor(asked.processes, mp_context=get_context("fork")) as pool:
            return list(pool.map(partial(self._explore, asked, kinds), range(asked.processes)))

    def _explore(self, asked: argparse.Namespace, kinds: tuple[str, ...], process: int) -> Counts[S]:
        began, totals = monotonic(), self.totals()
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

    def _report(self, ground: LivingGround[S], scenario: Scenario, failed: S) -> None:
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


def _replay(ground: LivingGround[Story], scenario: Scenario) -> int:
    result = scenario.live(ground, keeps_story=True)
    print("\n".join(result.story))
    print(f"faults: {', '.join(fault.name for fault in result.faults) or 'none'}")
    print(result.violation or f"all held; {result.seconds:.0f} s passed in {result.events} turns")
    return 1 if result.violation else 0
