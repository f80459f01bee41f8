"""Jobs that are halted and resumed: every output has what counts of them by their programs' own ledgers."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.truth import PROGRAMS, check, halted_and_resumed, truth_of
from tests.support.command import Fabric

NAMES = {name: name for name in ("loss", "val_loss")}


MANNERS = ["plain", "epochs", "baseline", "only-given-up", "jump", "last", "no-steps", "no-steps-last"]
SPEAKERS = ["lines", "report", "jsonl"]
TWICE = pytest.mark.soak("twice, and at other places; the gate halts each program once")
ONCE = dict(
    zip(MANNERS, ["lines", "report", "lines", "jsonl", "jsonl", "report", "lines", "report"], strict=True)
)
"""Who speaks in the gate for each manner of counting."""
OTHERS = pytest.mark.soak(
    "another speaker; the gate halts each manner of counting, and each speaker, once or more"
)


def variants() -> Iterator[Any]:
    """Yield how programs speak and count, and after how many batches their starts are halted."""
    for stops, says, manner in itertools.product(("13", "13,22", "21,23"), SPEAKERS, MANNERS):
        if says == "jsonl" and "no-steps" in manner:
            continue  # rows without a step are no log
        if (stops, says, manner) == ("21,23", "lines", "jump"):
            continue  # its second start prints two lines, which make no series
        yield pytest.param(
            stops, says, manner, marks=TWICE if "," in stops else OTHERS if says != ONCE[manner] else ()
        )


@pytest.mark.parametrize(("stops", "says", "manner"), [*variants()])
def test_what_a_halted_program_gave_up_is_what_every_output_leaves_out(
    fabric: Fabric, tmp_path: Path, stops: str, says: str, manner: str
) -> None:
    for name in ("ledger.py", "counts.py"):
        shutil.copy(PROGRAMS / name, fabric.folder)
    ledger = tmp_path / "ledger.jsonl"

    def run(*args: str) -> str:
        return fabric(*args).stdout

    command = ["--", "python3", "counts.py", str(ledger), stops, says, manner]
    job = halted_and_resumed(run, ledger, command, starts=len(stops.split(",")) + 1)

    check(run, job, truth_of(ledger, NAMES), near=1e-6)
