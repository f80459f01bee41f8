"""Simulated histories hold, the same ones each time; and defects that are put in are found."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS, ROOT, Mutant, find

COUNT: Final = 40
"""How many histories the gate lives, the same ones each time: some 7 s of one core; `make simulation` lives others."""
SOAK_SECONDS: Final = 600

QUICKLY_FOUND: Final = ("dropped-event", "back-is-not-reported", "purged-before-removed")
"""Defects that one of the first histories finds."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation; its order of sets is the same each time, whatever this process has."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_must_hold_does_in_each_history() -> None:
    done = simulate("--seed", "1", "--count", str(COUNT), "--seconds", "600")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{COUNT} histories" in done.stdout


def test_two_processes_live_the_same_histories_as_one() -> None:
    two = simulate("--seed", "1", "--count", "2", "--seconds", "600", "--processes", "2")
    one = simulate("--seed", "1", "--count", "2", "--seconds", "600")

    assert two.returncode == one.returncode == 0, two.stdout + two.stderr
    assert two.stdout.splitlines()[1:] == one.stdout.splitlines()[1:]


def test_what_was_found_once_does_not_come_back() -> None:
    done = simulate("--regressions")

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_has_the_same_story_each_time() -> None:
    first, again = simulate("--replay", "11"), simulate("--replay", "11")

    assert first.stdout.count("\n") > 20
    assert first.stdout == again.stdout


def test_a_story_can_be_lived_with_some_of_its_faults_only() -> None:
    none = simulate("--replay", "11", "--only", "")

    assert "faults: none" in none.stdout
    assert "all held" in none.stdout


@pytest.mark.parametrize(
    "name",
    [
        QUICKLY_FOUND[0],
        *(
            pytest.param(name, marks=pytest.mark.soak("another defect; the gate puts one in"))
            for name in QUICKLY_FOUND[1:]
        ),
    ],
)
def test_a_defect_that_is_put_in_is_found(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    seconds, violation = find(mutant, seconds=SOAK_SECONDS, count=COUNT)

    assert violation.startswith("seed ")
    assert seconds > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_defect_can_be_put_in(mutant: Mutant) -> None:
    compile(mutant.source(), mutant.file, "exec")


@pytest.mark.soak("ten minutes of histories that the gate does not live")
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_what_must_hold_does_for_long() -> None:
    seed = int.from_bytes(os.urandom(4))
    done = simulate("--seed", str(seed), "--seconds", str(SOAK_SECONDS))

    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
