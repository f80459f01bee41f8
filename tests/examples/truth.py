"""What counts of a job that was halted and resumed, by what its program wrote down itself (``halted/ledger.py``).

A start went on from a state; of what led to that state, what had been measured by then counts, and all else was given
up: also the whole of a start that had begun with this state itself. Nothing here looks at how fabric finds that out:
neither at times nor at checkpoints.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command import Fabric as Command
from tests.support.waiting import until

PROGRAMS: Final = Path(__file__).with_name("halted")

Fabric = Callable[..., str]
"""Runs the command with some words, and returns what it printed."""


@dataclass(frozen=True, order=True)
class Measured:
    """One value of one metric, as the program, or fabric, has it."""

    learner: int
    name: str
    start: int
    x: float
    """-1 where nothing counts its steps."""
    value: float


@dataclass(frozen=True)
class Truth:
    """All that a program measured."""

    counts: Sequence[Measured]
    given_up: Sequence[Measured]
    starts: int

    def last(self, name: str, learner: int = 1) -> float:
        """The last value of a metric that counts."""
        return [each for each in self.counts if (each.name, each.learner) == (name, learner)][-1].value


def truth_of(ledger: Path, names: Mapping[str, str]) -> Truth:
    """Read what a program wrote down.

    Args:
        ledger: Its file.
        names: By the program's names of metrics, those that fabric gives them; others are not looked at.
    """
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    counts: list[Measured] = []
    given_up: list[Measured] = []
    for learner in sorted({line["learner"] for line in lines}):
        kept: list[tuple[int, Measured]] = []
        begins: dict[int, int] = {}
        for line in (each for each in lines if each["learner"] == learner):
            at = line["at"]
            if line["kind"] == "start":
                given_up += [one for done, one in kept if done > at or begins[one.start] >= at]
                kept = [(done, one) for done, one in kept if done <= at and begins[one.start] < at]
                begins[line["start"]] = at
            for name, value in line.get("values", {}).items():
                if name in names:
                    place = (learner, names[name], line["start"], _x(line["x"]))
                    kept.append((at, Measured(*place, value)))
        counts += [one for _, one in kept]
    return Truth(counts, given_up, max(line["start"] for line in lines))


def halted_and_resumed(fabric: Fabric, ledger: Path, program: Sequence[str], *, starts: int = 2) -> str:
    """Run a program, halt each start but the last one where it waits for that, resume it, and return the job."""
    fabric("run", "-d", *program)
    (job,) = json.loads(fabric("list", "--json"))
    for start in range(1, starts):
        until(
            partial(_all_wait, ledger, start, job["learners"]),
            lambda: fabric("show", job["id"]) + fabric("logs", job["id"]),
            seconds=200,
        )
        fabric("halt", job["id"])
        fabric("resume", job["id"])
    fabric("wait", job["id"])
    return str(job["id"])


def _all_wait(ledger: Path, start: int, learners: int) -> bool:
    """Say whether all learners wait in a start of a program."""
    lines = ledger.read_text().splitlines(keepends=True) if ledger.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(each["kind"], each["start"]) for each in found].count(("waits", start)) >= learners


def check(fabric: Fabric, job: str, truth: Truth, *, near: float = 1e-9) -> None:
    """Compare what every output says with the truth.

    Args:
        fabric: The command.
        job: Which job.
        truth: What its program measured.
        near: How much values may differ, of each: what is printed is rounded.
    """
    assert truth.counts
    assert truth.given_up
    names = {each.name for each in (*truth.counts, *truth.given_up)}
    document = json.loads(fabric("metrics", job, "--json"))
    every = json.loads(fabric("metrics", job, "--json", "--superseded"))
    marked = [row for row in every["rows"] if row["superseded"]]
    unmarked = [row for row in every["rows"] if not row["superseded"]]

    _same("given up", _of_rows(marked, names), truth.given_up, near)
    _same("counts", _of_rows(unmarked, names), truth.counts, near)
    _same("metrics --json", _of_rows(document["rows"], names), truth.counts, near)
    _same("metrics --csv", _of_csv(fabric("metrics", job, "--csv"), names), truth.counts, near)
    whole = [*truth.counts, *truth.given_up]
    _same("--csv --superseded", _of_csv(fabric("metrics", job, "--csv", "--superseded"), names), whole, near)
    for start in range(1, truth.starts + 1):
        own = json.loads(fabric("metrics", job, "--json", "--attempt", str(start)))["rows"]
        _same(f"attempt {start}", _of_rows(own, names), [each for each in whole if each.start == start], near)
    for each in document["series"]:
        if each["kind"] == "value" and each["name"] in names:
            _check_series(each, truth, near)
    shown = json.loads(fabric("show", job, "--json"))["metrics"]
    for name in names:
        lasts = [each for each in truth.counts if each.name == name]
        if lasts:
            first = min(each.learner for each in lasts)
            assert shown[name] == pytest.approx(truth.last(name, first), rel=near)
        else:
            assert shown.get(name) is None


def _check_series(series: Mapping[str, Any], truth: Truth, near: float) -> None:
    def own(measured: Iterable[Measured]) -> list[float]:
        key = series["learner"], series["name"]
        return [each.value for each in measured if (each.learner, each.name) == key]

    counts = own(truth.counts)
    found = series["points"], series["superseded"]
    assert found == (len(counts), len(own(truth.given_up))), series
    if counts:
        assert series["last"] == pytest.approx(counts[-1], rel=near)
        assert series["minimum"] == pytest.approx(min(counts), rel=near)
        assert series["maximum"] == pytest.approx(max(counts), rel=near)


def _of_rows(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> list[Measured]:
    return [
        Measured(row["learner"], name, row["attempt"], _x(row["step"]), value)
        for row in rows
        for name, value in row["values"].items()
        if name in names
    ]


def _of_csv(text: str, names: Iterable[str]) -> list[Measured]:
    return [
        Measured(int(row["learner"]), name, int(row["attempt"]), float(row["step"] or -1), float(row[name]))
        for row in csv.DictReader(io.StringIO(text))
        for name in names
        if row.get(name)
    ]


def _x(step: float | None) -> float:
    return -1 if step is None else step


def _same(what: str, found: Sequence[Measured], expected: Sequence[Measured], near: float) -> None:
    wrong = []
    left = sorted(expected)
    for one in sorted(found):
        alike = [
            each
            for each in left
            if (each.learner, each.name, each.start) == (one.learner, one.name, one.start)
            and one.x == pytest.approx(each.x, rel=1e-3)
            and one.value == pytest.approx(each.value, rel=near)
        ]
        if alike:
            left.remove(alike[0])
        else:
            wrong.append(one)
    assert not wrong, f"{what}: not so: {wrong}; missing: {left}"
    assert not left, f"{what}: missing: {left}"


def fabric_in(folder: Path, *args: str | Path, code: int = 0) -> str:
    """Run the command in a folder, by its path: Lightning has a command of this name, too."""
    return Command(folder)(*map(str, args), expect=code).stdout
