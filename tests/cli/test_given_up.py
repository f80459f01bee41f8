"""Jobs that are halted and resumed: every output has what counts of them by their programs' own ledgers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Fabric
from tests.examples.truth import PROGRAMS, check, halted_and_resumed, truth_of

NAMES = {name: name for name in ("loss", "val_loss")}


MANNERS = ["plain", "epochs", "baseline", "only-given-up", "jump", "last", "no-steps", "no-steps-last"]
TOLD = [
    (says, manner)
    for says in ("lines", "report", "jsonl")
    for manner in MANNERS
    if says != "jsonl" or "no-steps" not in manner  # rows without a step are no log
]


@pytest.mark.parametrize(("says", "manner"), TOLD)
@pytest.mark.parametrize(
    "stops",
    [
        "13",
        pytest.param("13,22", marks=pytest.mark.soak("twice; the gate has it once")),
        pytest.param("21,23", marks=pytest.mark.soak("at other places")),
    ],
)
def test_what_a_halted_program_gave_up_is_what_every_output_leaves_out(
    fabric: Fabric, tmp_path: Path, says: str, manner: str, stops: str
) -> None:
    for name in ("ledger.py", "counts.py"):
        shutil.copy(PROGRAMS / name, fabric.folder)
    ledger = tmp_path / "ledger.jsonl"

    def run(*words: str) -> str:
        return fabric(*words).stdout

    command = ["--", "python3", "counts.py", str(ledger), stops, says, manner]
    job = halted_and_resumed(run, ledger, command, starts=len(stops.split(",")) + 1)

    check(run, job, truth_of(ledger, NAMES), near=1e-6)
