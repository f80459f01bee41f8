"""Simulated queues of a host hold, the same ones each time; and defects that are put in are found."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from tests.simulation.host_queue.mutants import MODULE, MUTANTS
from tests.simulation.mutants import ROOT, Mutant, find

COUNT: Final = 12
"""How many histories the gate lives: some three seconds of one core."""
SOAK_SECONDS: Final = 600

QUICKLY_FOUND: Final = ("entry-removed-as-it-goes", "since-forgotten")
"""Defects that the first history finds."""


def live(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation; its order of sets is the same each time, whatever this process has."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.host_queue", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_must_hold_does_in_each_history_of_a_host() -> None:
    done = live("--seed", "1", "--count", str(COUNT), "--seconds", "600")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{COUNT} histories" in done.stdout


def test_what_was_found_once_at_a_host_does_not_come_back() -> None:
    done = live("--regressions")

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_has_the_same_story_of_a_host_each_time() -> None:
    first, again = live("--replay", "5"), live("--replay", "5")

    assert first.stdout.count("\n") > 20
    assert first.stdout == again.stdout


def test_a_story_of_a_host_can_be_lived_without_its_faults() -> None:
    none = live("--replay", "5", "--only", "")

    assert "faults: none" in none.stdout
    assert "all held" in none.stdout


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_defect_of_the_hosts_queue_is_found(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    seconds, violation = find(mutant, seconds=SOAK_SECONDS, count=COUNT, module=MODULE)

    assert violation.startswith("seed ")
    assert seconds > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_defect_of_the_hosts_queue_can_be_put_in(mutant: Mutant) -> None:
    compile(mutant.source(), mutant.file, "exec")


@pytest.mark.soak("ten minutes of histories that the gate does not live")
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_what_must_hold_at_a_host_does_for_long() -> None:
    seed = int.from_bytes(os.urandom(4))
    done = live("--seed", str(seed), "--seconds", str(SOAK_SECONDS))

    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
