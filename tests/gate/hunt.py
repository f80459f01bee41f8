"""Hunt an unsteady test: ``python -m tests.gate.hunt TEST... --times 50 --load 2``.

Runs the tests again and again beside busy loops, each time in a pytest of its own, and prints how often each
one failed, with its first error. Exits with 1 when one failed. With ``--jitter`` the widgets of tests of screens take
some messages late, other ones in each run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.gate.__main__ import first_error
from tests.gate.record import VARIABLE, Record

BUSY: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""Keeps one processor busy for as long as its parent lives."""


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep so many processors busy."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(tests: Sequence[str], workers: int, record: Path, more: Mapping[str, str]) -> Record | None:
    """Run the tests once with more variables; return what came of them, None when pytest did not come to its end."""
    record.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), *tests]
    environment = {**os.environ, VARIABLE: str(record), **more}
    subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, check=False)
    return Record.read(record)


def hunt(tests: Sequence[str], *, times: int, load: int, workers: int, jitter: bool = False) -> bool:
    """Run the tests so many times and print how often each failed; say whether none did."""
    failed: Counter[str] = Counter()
    errors: dict[str, str] = {}
    tried = 0
    with tempfile.TemporaryDirectory(prefix="fabric-hunt-") as folder, busy(load):
        for number in range(1, times + 1):
            more = {"FABRIC_TEST_JITTER": str(number)} if jitter else {}
            record = run(tests, workers, Path(folder) / "record.json", more)
            if record is None or not record.outcomes:
                print(f"run {number}: pytest ran no test: {' '.join(tests)}")
                return False
            tried = max(tried, len(record.outcomes))
            found = {**record.errors, **record.excused}
            failed.update(found.keys())
            for test, error in found.items():
                errors.setdefault(test, error)
            marks = ", ".join(f"{test}: {first_error(error)}" for test, error in found.items())
            print(f"run {number} of {times}: {marks or 'passed'}", flush=True)
    for test, count in failed.most_common():
        print(f"\n{count} of {times} failed: {test}\n{errors[test]}")
    print(f"{tried} tests, {times} runs beside {load} busy loops: {len(failed)} of them failed at least once")
    return not failed


def main() -> int:
    """Read the command line, and hunt."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.hunt", description=__doc__)
    parser.add_argument("tests", nargs="+", help="what pytest takes: modules, node ids, folders")
    parser.add_argument("--times", type=int, default=20, help="how often (20)")
    parser.add_argument("--load", type=int, default=2, help="how many busy loops beside (2)")
    parser.add_argument("--workers", type=int, default=0, help="pytest's workers (0: none)")
    parser.add_argument("--jitter", action="store_true", help="widgets of screens take some messages late")
    asked = parser.parse_args()
    steady = hunt(asked.tests, times=asked.times, load=asked.load, workers=asked.workers, jitter=asked.jitter)
    return 0 if steady else 1


if __name__ == "__main__":
    sys.exit(main())
