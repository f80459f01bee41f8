"""What real libraries measure in a job that is halted and resumed, held against what the program wrote down itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.examples.libraries import environment_folder, is_made
from tests.examples.truth import PROGRAMS, Fabric, check, fabric_in, halted_and_resumed, truth_of
from tests.support.kept_agents import lend_agents
from tests.support.processes import end_everything
from workbench.paths import Home

ENVIRONMENT = environment_folder()  # now: tests have another home

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not is_made(ENVIRONMENT), reason="no environment of libraries: python3 -m tests.examples.libraries"
    ),
]


LONGER = pytest.mark.soak(
    "another library, more than 15 s; the gate resumes one that writes with PyTorch's summary writer, and programs "
    "that count as these do (tests/cli)"
)


@pytest.fixture
def fabric(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    """Run the command in a folder with the programs, as somebody does who works in the libraries' environment."""
    monkeypatch.setenv("PATH", f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    folder = tmp_path / "code"
    shutil.copytree(PROGRAMS, folder)
    lend_agents(home)
    yield partial(fabric_in, folder)
    end_everything(home)


@LONGER
def test_hugging_face_trainer(fabric: Fabric, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    names = {name: name for name in ("loss", "grad_norm", "learning_rate", "eval_loss")}

    job = halted_and_resumed(
        fabric, ledger, ["--", "python", "huggingface.py", str(ledger), "11,19"], starts=3
    )

    check(fabric, job, truth_of(ledger, names), near=1e-3)


@LONGER
def test_lightning(fabric: Fabric, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    names = {name: name for name in ("train_loss", "val_loss", "val_accuracy")}

    job = halted_and_resumed(fabric, ledger, ["--", "python", "lightning_digits.py", str(ledger), "27"])

    check(fabric, job, truth_of(ledger, names), near=1e-6)


@pytest.mark.soak(
    "Keras itself, 20 s; the gate reads its bar as it was recorded (tests/quick/metrics/corpus/libraries), and resumes "
    "a program that counts epochs (tests/cli/test_given_up.py)"
)
def test_keras_on_torch(fabric: Fabric, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    names = {name: name for name in ("loss", "accuracy", "val_loss", "val_accuracy")}

    job = halted_and_resumed(fabric, ledger, ["--", "python", "keras_digits.py", str(ledger), "120"])

    check(fabric, job, truth_of(ledger, names), near=1e-3)


@LONGER
def test_two_learners_of_torch(fabric: Fabric, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    names = {name: name for name in ("loss", "accuracy")}

    job = halted_and_resumed(
        fabric, ledger, ["--set", "learners=2", "--", "python", "torch_ddp.py", str(ledger), "5"]
    )

    check(fabric, job, truth_of(ledger, names), near=1e-3)


@pytest.mark.parametrize(
    ("manner", "stops"),
    [
        ("plain", "13"),
        *(
            pytest.param(each, "13,22", marks=LONGER)
            for each in ("plain", "baseline", "jump", "only-given-up")
        ),
    ],
)
def test_a_summary_writer_with_a_folder_for_each_start(
    fabric: Fabric, tmp_path: Path, manner: str, stops: str
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    command = ["--", "python", "counts.py", str(ledger), stops, "events", manner]

    job = halted_and_resumed(fabric, ledger, command, starts=len(stops.split(",")) + 1)

    check(fabric, job, truth_of(ledger, {name: name for name in ("loss", "val_loss")}), near=1e-6)
