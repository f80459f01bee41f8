"""An agent is killed between any two of its operations on files, and what is recovered from each such cut is checked.

What holds is in ``crash_points/promises.py``; how to do one point again is in docs/reliability.md.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.learner.crash_points.cases import SERIES, Case, Run, points_behind
from tests.learner.crash_points.defects import DEFECTS, Defect
from tests.learner.crash_points.promises import check

GATE_POINTS: Final = 1
"""So many points of each series are tried in the gate; the soak tries all."""

OF_THE_SOAK: Final = (
    "tail: scribe1.1 splice output.log 2 torn",
    "plain: guard1 rename state.json 4 after",
    "usage: guard1 link decision.json 1 after both",
)
"""Series of which the soak alone tries points.

The gate cuts another one at the same kind of call, or this one itself in ``FOUND``.
"""

MISSED: Final = 0.5
"""The part of points that may not be reached: two processes do not come equally far each time."""

FOUND: Final = (
    "plain: scribe1.1 pwrite output.log 2 torn",
    "plain: scribe1.1 pwrite output.log 2 torn both",
    "plain: guard1 link decision.json 1 after both; guard2 write decision.json.learner-1 1 after",
    "usage: guard1 link decision.json 1 after both",
)
"""Points at which a promise was once broken."""


def done(folder: Path, case: Case, defect: str = "") -> Run:
    """Run a learner that is killed at the points of a case until its end is recorded, and check what is promised."""
    run = Run(folder, case, defect)
    try:
        run.finish()
        check(run)
    finally:
        run.clear()
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


@pytest.mark.parametrize(
    "series",
    [
        pytest.param(
            each,
            marks=pytest.mark.soak("the gate has another place at which as much is left to recover")
            if str(each) in OF_THE_SOAK
            else (),
            id=str(each),
        )
        for each in SERIES
    ],
)
def test_what_is_promised_holds_at_points_of_each_kind(tmp_path: Path, series: Case) -> None:
    cases = cases_behind(tmp_path / "series", series)
    chosen = random.Random(str(series)).sample(cases, GATE_POINTS)

    missed = try_all(tmp_path, chosen)

    print(f"{len(cases)} points; not reached of {len(chosen)}: {missed}")


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


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(
            defect,
            marks=() if number < 2 else pytest.mark.soak("the gate puts two other defects in"),
            id=str(defect),
        )
        for number, defect in enumerate(DEFECTS)
    ],
)
def test_a_defect_of_an_agent_is_found(tmp_path: Path, defect: Defect) -> None:
    for part in ("with", "without"):
        (tmp_path / part).mkdir()
    case = Case.parse(defect.case)

    with pytest.raises(AssertionError):
        done(tmp_path / "with", case, defect.lines)
    done(tmp_path / "without", case)


CHANGES: Final = ("pwrite64", "rename", "link", "symlink", "fsync", "ftruncate", "mkdir", "write")


@pytest.mark.soak("the gate relies on what is counted")
def test_all_that_changes_a_file_is_counted(tmp_path: Path) -> None:
    """As the kernel sees it. What moves nothing, as each splice from an empty pipe, is not."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    trace = tmp_path / "trace"
    run = Run(
        tmp_path, Case("setup"), watched_by=["strace", "-f", "-y", "-o", str(trace), "-e", "trace=file,desc"]
    )
    run.finish()
    if not trace.stat().st_size:
        pytest.skip("strace may not trace here")

    folder = str(run.learner.folder.parent)
    # Agents reach their folder by a descriptor.
    calls = re.sub(r"/proc/self/fd/\d+/\.", str(run.learner.folder), trace.read_text(errors="replace"))
    found = Counter(
        (call.removesuffix("64"), name)
        for line in calls.splitlines()
        if folder in line
        and str(run.work) not in line
        and (call := line.split()[1].partition("(")[0]) in CHANGES
        and (name := Path(re.split(r'[">]', line.rpartition(folder)[2])[0]).name) != "report.jsonl"
    )
    counted = Counter(
        (each["operation"], each["target"])
        for each in run.operations()
        if each.get("operation") in {call.removesuffix("64") for call in CHANGES}
        and not each["target"].startswith("pipe:")
    )

    assert found == counted
