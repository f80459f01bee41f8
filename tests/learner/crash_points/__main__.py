"""Lists the points at which agents are killed, or kills them at one and checks what is promised."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.gate.leftovers import Session
from tests.learner.crash_points.cases import SERIES, Case, Point, Run, points_behind
from tests.learner.crash_points.promises import check


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.learner.crash_points", description=__doc__)
    parser.add_argument(
        "case", nargs="?", help="as it is listed: 'plain: guard1 rename state.json 3 after both'"
    )
    parser.add_argument("--times", type=int, default=1)
    arguments = parser.parse_args()
    session = Session()  # else tests that begin meanwhile take what runs here for left over
    if arguments.case is None:
        count = 0
        for series in SERIES:
            for point in _points(series):
                count += 1
                print(Case(series.scenario, (*series.points, point)))
        print(f"{count} points")
    for _ in range(arguments.times if arguments.case else 0):
        _do_again(Case.parse(arguments.case))
    session.pytest_unconfigure()


def _points(series: Case) -> list[Point]:
    with tempfile.TemporaryDirectory(prefix="fab-points-") as folder:
        run = Run(Path(folder), series)
        run.finish()
        return points_behind(run)


def _do_again(case: Case) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-points-") as folder:
        run = Run(Path(folder), case)
        try:
            run.finish()
            print(*run.operations(), sep="\n")
            print(run.learner.state())
            check(run)
        finally:
            run.clear()


if __name__ == "__main__":
    main()
