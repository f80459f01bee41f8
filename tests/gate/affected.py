"""Run the tests that a change can reach: ``python -m tests.gate.affected [--since COMMIT] [--minutes 2]``.

A test module is affected when it, a ``conftest.py`` above it or something that these import has changed, and when a
file beside it has. Nearest first: tests are ordered by how many imports lie between them and the change, and taken
until they need more time than was asked for, as the last run of the gate measured it. What is left out is counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tests.gate.record import read_seconds
from tests.project.structure import ROOT, TOPS, imports, modules

UNKNOWN_SECONDS: Final = 5.0
"""What a module is taken to need that no run of the gate on this machine has measured."""
STARTED: Final = {
    "tests.support.command": (
        "workbench.cli.",
        "workbench.controller.main",
        "workbench.learner.main",
    ),
    "tests.learner.agent": ("workbench.learner.main",),
    "tests.support.real_jobs": ("workbench.controller.main", "workbench.learner.main"),
}
"""What modules of tests start as processes, which no import shows; with a dot at its end, all of a package."""
READ_BY: Final = {
    "docs": ("tests/docs", "tests/project"),
    "examples": ("tests/examples", "tests/docs"),
    "README.md": ("tests/docs", "tests/project"),
    "": ("tests/project",),
}
"""The folders of tests that read files which are not modules, by the first part of such a file's path."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A test module that a change can reach."""

    path: str
    distance: int
    """How many imports lie between it and the change."""
    seconds: float
    """What its tests need, all workers together."""


def changed_files(since: str) -> list[str]:
    """Return the files that differ from where this branch left another, and those that git does not know yet."""
    base = _git("merge-base", since, "HEAD") or [since]
    return sorted({*_git("diff", "--name-only", base[0]), *_git("ls-files", "-o", "--exclude-standard")})


def _git(*args: str) -> list[str]:
    ran = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def arrows_of(root: Path = ROOT, tops: Sequence[str] = (*TOPS, "tests")) -> dict[str, set[str]]:
    """Return what each module of the product and of its tests imports, has a ``conftest.py`` for, or starts."""
    found = modules(root, tops)
    arrows = imports(found)
    for name in arrows:
        if name.startswith("tests."):
            parts = name.split(".")[:-1]
            above = (".".join([*parts[:length], "conftest"]) for length in range(1, len(parts) + 1))
            arrows[name] |= {one for one in above if one in found and one != name}
        for started in STARTED.get(name, ()):
            arrows[name] |= {one for one in found if f"{one}.".startswith(started.rstrip(".") + ".")}
    return arrows


def distances(arrows: Mapping[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """Return how many imports each module is away from a change, for those that reach one."""
    importers: dict[str, set[str]] = defaultdict(set)
    for source, targets in arrows.items():
        for target in targets:
            importers[target].add(source)
    away = dict.fromkeys(changed, 0)
    ring = set(away)
    while ring:
        ring = {one for module in ring for one in importers[module]} - away.keys()
        away.update(dict.fromkeys(ring, max(away.values()) + 1))
    return away


def is_test(module: str) -> bool:
    """Say whether a module holds tests."""
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def path_of(module: str) -> str:
    """Return a module's file."""
    return f"{module.replace('.', '/')}.py"


def affected(
    files: Iterable[str], arrows: Mapping[str, set[str]], seconds: Mapping[str, float]
) -> list[Affected]:
    """Return the test modules that a change of these files can reach, the nearest and then the cheapest first."""
    changed: set[str] = set()
    folders: set[str] = set()
    for file in files:
        path = PurePosixPath(file)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if path.suffix == ".py" and module in arrows:
            changed.add(module)
        elif path.parts[0] == "tests":
            folders.add("/".join(path.parts[:3] if path.parts[1] == "quick" else path.parts[:2]))
        else:
            folders.update(READ_BY.get(path.parts[0], READ_BY[""]))
    away = distances(arrows, changed)
    away.update({one: 0 for one in arrows if path_of(one).startswith(tuple(f"{one}/" for one in folders))})
    found = [
        Affected(path_of(one), distance, seconds.get(path_of(one), UNKNOWN_SECONDS))
        for one, distance in away.items()
        if is_test(one)
    ]
    return sorted(found, key=lambda one: (one.distance, one.seconds, one.path))


def within(found: Iterable[Affected], limit_seconds: float) -> tuple[list[Affected], list[Affected]]:
    """Return those that fit into so much time, with all that have changed themselves, and those that are left out."""
    taken: list[Affected] = []
    left: list[Affected] = []
    total = 0.0
    for one in found:
        if one.distance == 0 or total + one.seconds <= limit_seconds:
            taken.append(one)
            total += one.seconds
        else:
            left.append(one)
    return taken, left


def main() -> int:
    """Read the command line, say what is run and what is left out, and run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.affected", description=__doc__)
    parser.add_argument(
        "--since", default="origin/main", help="the branch or commit to compare with (origin/main)"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long it may take (2)")
    parser.add_argument("--list", action="store_true", help="print the modules and run nothing")
    asked, options = parser.parse_known_args()
    since = asked.since if _git("rev-parse", "--verify", asked.since) else "HEAD"
    files = changed_files(since)
    taken, left = within(
        affected(files, arrows_of(), read_seconds()), asked.minutes * 60 * (os.cpu_count() or 1)
    )
    print(f"{len(files)} files changed since {since}; {len(taken)} modules of tests, nearest first:")
    for one in taken:
        print(f"  {one.path} ({one.distance} away, {one.seconds:.0f} s)")
    if left:
        print(
            f"{len(left)} more are further away or take longer ({sum(one.seconds for one in left):.0f} s): make test"
        )
    if asked.list or not taken:
        return 0
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *options, *(one.path for one in taken)]
    return subprocess.run(argv, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
