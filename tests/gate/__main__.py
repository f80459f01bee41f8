"""Run the gate: ``python3 -m tests.gate``, from the top of a checkout.

1. Print what else uses this machine.
2. Run the README's test command: ruff, mypy, and pytest with all workers.
3. Run the tests that failed once more: one at a time, nothing beside them. One that passes then is *unsteady*: its
   first error is printed, and it does not make the run red. More than ``MOST_UNSTEADY`` of them do.
4. Print where the time went, what the run leaves behind and the closing line; append a line to ``fabric-gate/runs`` in
   the user's cache and what was unsteady to ``fabric-gate/unsteady.log``, and write the seconds of each module into
   ``fabric-gate/seconds.json``. Remove what is left.

A failure of ruff, mypy or a contract is red at once: tests are what may fail by chance.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.gate import leftovers, machine
from tests.gate.record import SECONDS, VARIABLE, Record, cache_folder, folder_of

MOST_UNSTEADY: Final = 8
"""More tests that fail only beside others are not chance: the run is red."""
MOST_RERUN: Final = 20
"""With more failed tests something is broken; running them again would tell nothing and may take an hour."""
ALONE: Final = (
    ".tools/bin/uv", "run", "-q", "pytest", "-n", "0", "--last-failed", "--last-failed-no-failures", "none",
)  # fmt: skip
README: Final = Path("README.md")
MARK: Final = "<!-- test command -->"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run of the gate came to."""

    passed: int
    failed: tuple[str, ...]
    """Tests that failed twice, or were not run again."""
    skipped: int
    unsteady: tuple[str, ...]
    """Tests that failed beside others and passed alone."""
    broken: str = ""
    """What went wrong besides tests: ruff, mypy, or pytest itself."""

    @property
    def green(self) -> bool:
        """Whether what was tried may land."""
        return not (self.failed or self.broken) and len(self.unsteady) <= MOST_UNSTEADY and self.passed > 0

    def __str__(self) -> str:
        """The closing line."""
        return (
            f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped, "
            f"{len(self.unsteady)} unsteady"
        )


def judge(status: int, first: Record | None, again: Record | None) -> Verdict:
    """Say what two runs come to: the first, with the exit status of its command, and that of its failed tests alone."""
    if first is None:
        return Verdict(0, (), 0, (), broken=f"the test command ended with {status} before its tests did")
    failed = sorted(first.of("failed"))
    steady_again = set(again.of("passed")) if again else set()
    unsteady = tuple(test for test in failed if test in steady_again)
    left = tuple(test for test in failed if test not in steady_again)
    broken = ""
    if status and not (status == first.exit_status == 1 and failed):
        broken = f"the test command ended with {status}, pytest with {first.exit_status}"
    return Verdict(
        len(first.of("passed")) + len(unsteady), left, len(first.of("skipped")), unsteady, broken=broken
    )


def command_of(readme: str) -> str:
    """Return the test command that the README shows.

    Raises:
        SystemExit: The README has none.
    """
    if found := re.search(re.escape(MARK) + r"\n```sh\n(.*?)\n```", readme, re.DOTALL):
        return found[1]
    raise SystemExit(f"README.md has no block of code behind {MARK}")


def run(command: Sequence[str], record: Path) -> int:
    """Run a command whose pytest writes its record into this file; return its exit status."""
    return subprocess.run(command, env={**os.environ, VARIABLE: str(record)}, check=False).returncode


def try_tests(command: Sequence[str], alone: Sequence[str], folder: Path) -> tuple[Verdict, Record | None]:
    """Run the tests, and those that failed once more alone; return the verdict and the record of the first run.

    Args:
        command: Runs everything.
        alone: Runs the tests that failed last, one at a time.
        folder: Where records are written.
    """
    status = run(command, folder / "first.json")
    first = Record.read(folder / "first.json")
    again = None
    if first and first.exit_status == 1 and len(first.of("failed")) <= MOST_RERUN:
        print(f"\n== once more, alone: {len(first.of('failed'))} failed tests", flush=True)
        run(alone, folder / "again.json")
        again = Record.read(folder / "again.json")
    return judge(status, first, again), first


def unsteady_text(verdict: Verdict, first: Record) -> str:
    """Return the first error of each unsteady test, with its traceback, those that are marked so included."""
    return "".join(
        f"\n{title} {test}: {first_error(error)}\n{error}\n"
        for title, errors in (
            ("UNSTEADY", {test: first.errors[test] for test in verdict.unsteady}),
            ("MARKED UNSTEADY", first.excused),
        )
        for test, error in errors.items()
    )


def first_error(traceback: str) -> str:
    """Return the line of a traceback that says what went wrong."""
    lines = [line for line in traceback.splitlines() if line.startswith("E ")] or traceback.splitlines()
    return lines[0].removeprefix("E ").strip() if lines else "no message"


def seconds_by_folder(seconds: Mapping[str, float]) -> list[str]:
    """Return a line for each folder of tests, the dearest first: the seconds of its tests, all workers together."""
    folders: Counter[str] = Counter()
    for module, taken in seconds.items():
        folders[folder_of(module)] += round(taken)
    return [f"{taken:6} s {folder}" for folder, taken in folders.most_common()]


def record_line(commit: str, verdict: Verdict, seconds: float, load: float, addition_ns: float) -> str:
    """Return the line of a run: commit, verdict, seconds, counts, the machine's load and speed, and when it ended."""
    counts = f"tests={verdict.passed} failed={len(verdict.failed)} skipped={verdict.skipped}"
    return (
        f"{commit} {'passed' if verdict.green else 'failed'} seconds={seconds:.0f} {counts} "
        f"unsteady={len(verdict.unsteady)} load={load:.2f} addition_ns={addition_ns:.0f} "
        f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"
    )


def commit_of_checkout() -> str:
    """Return the commit that is tried, with ``-dirty`` behind it where files differ from it."""
    argv = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def main() -> int:
    """Run the gate and return 0 when it is green."""
    started, load = time.monotonic(), machine.load_average()
    at_begin_ns = machine.addition_ns()
    print(
        f"== load {load:.2f} on {os.cpu_count()} processors, {at_begin_ns:.0f} ns an addition; the largest processes:"
    )
    print("\n".join(machine.largest_processes()))
    before = machine.traces()
    command = command_of(README.read_text())
    print(f"== the README's test command\n{command}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fabric-gate-") as folder:
        verdict, first = try_tests(["bash", "-euo", "pipefail", "-c", command], ALONE, Path(folder))
    cache_folder().mkdir(parents=True, exist_ok=True)
    unsteady = ""
    if first:
        unsteady = unsteady_text(verdict, first)
        print(unsteady, end="")
        print("\n== seconds of tests", *seconds_by_folder(first.seconds), sep="\n")
        (cache_folder() / SECONDS).write_text(json.dumps(first.seconds))
    left = machine.left_behind(before, machine.traces())
    print("\n== left behind" + (":" if left else ": nothing"), *left, sep="\n")
    leftovers.remove_when_alone()
    for test in verdict.failed:
        print(f"FAILED {test}")
    if len(verdict.unsteady) > MOST_UNSTEADY:
        print(f"more than {MOST_UNSTEADY} unsteady tests: this is not chance")
    if verdict.broken:
        print(f"RED: {verdict.broken}")
    seconds = time.monotonic() - started
    speed_ns = (at_begin_ns + machine.addition_ns()) / 2
    line = record_line(commit_of_checkout(), verdict, seconds, load, speed_ns)
    with (cache_folder() / "runs").open("a") as stream:
        stream.write(line + "\n")
    if unsteady:
        with (cache_folder() / "unsteady.log").open("a") as stream:
            stream.write(f"== {line}\n{unsteady}")
    print(verdict, flush=True)
    return 0 if verdict.green else 1


if __name__ == "__main__":
    sys.exit(main())
