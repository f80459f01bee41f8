"""An agent is killed between any two of its operations on files, and what is recovered from each such cut is checked.

What holds is in ``crash_points/promises.py``; how to do one point again is in docs/reliability.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.learner.crash_points.cases import SERIES, Case, Run, points_behind
from tests.learner.crash_points.promises import check

GATE_POINTS: Final = 4
"""So many points of each series are tried in the gate."""

MISSED: Final = 0.5
"""The part of points that may not be reached: two processes do not come equally far each time."""

FOUND: Final = (
    "plain: scribe1.1 pwrite output.log 2 torn",
    "plain: scribe1.1 pwrite output.log 2 torn both",
    "plain: guard1 link decision.json 1 after both; guard2 write decision.json.learner-1 1 after",
)
"""Points at which a promise was once broken."""


def done(folder: Path, case: Case, defect: Sequence[str] = ()) -> Run:
    """Run a learner that is killed at the points of a case until its end is recorded, and check what is promised."""
    run = Run(folder, case, defect)
    try:
        run.finish()
        check(run)
    finally:
        run.learner.clear()
    return run


def try_all(folder: Path, cases: Iterable[Case]) -> list[str]:
    """Try cases one after another; return those in which no process was killed: their point was not reached."""
    missed = []
    for number, case in enumerate(cases):
        part = folder / str(number)
        part.mkdir()
        if len(done(part, case).hit()) < len(case.points):
            missed.append(str(case))
        shutil.rmtree(part)
    return missed


def cases_behind(folder: Path, series: Case) -> list[Case]:
    """Run a case and return those that it has a point more than."""
    folder.mkdir()
    points = points_behind(done(folder, series))
    return [Case(series.scenario, (*series.points, point)) for point in points]


@pytest.mark.parametrize("series", SERIES, ids=str)
def test_what_is_promised_holds_at_points_of_each_kind(tmp_path: Path, series: Case) -> None:
    cases = cases_behind(tmp_path / "series", series)
    print(f"{len(cases)} points")
    chosen = cases[:: len(cases) // GATE_POINTS][:GATE_POINTS]

    assert len(try_all(tmp_path, chosen)) <= MISSED * len(chosen)


@pytest.mark.soak("the gate tries some of these points, and all that ever failed")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("series", SERIES, ids=str)
def test_what_is_promised_holds_at_all_points(
    tmp_path: Path, series: Case, note_harm: Callable[[str], None]
) -> None:
    cases = cases_behind(tmp_path / "series", series)
    print(f"{len(cases)} points")
    for _ in cases:
        note_harm("an agent killed at an operation on files")

    assert len(try_all(tmp_path, cases)) <= MISSED * len(cases)


@pytest.mark.parametrize("case", FOUND)
def test_what_is_promised_holds_where_it_did_not_once(tmp_path: Path, case: str) -> None:
    assert try_all(tmp_path, [Case.parse(case)]) == []
