"""The examples, run as a user runs them."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Fabric
from tests.support.folders import environment_of, make_folder
from tests.support.processes import end_everything
from tests.support.waiting import patience, until

ROOT = Path(__file__).resolve().parents[2]
EPOCHS = 8
"""Of the job of digits that several tests look at."""


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    """The command, in a home that the tests of this module have in common."""
    root = make_folder()
    command = Fabric(root / "work", environment_of(root))
    yield command
    end_everything(command.jobs_home)
    shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Trained:
    """A job that has ended."""

    job: dict[str, Any]
    output: str
    took_seconds: float

    @property
    def id(self) -> str:
        return str(self.job["id"])


def train(fabric: Fabric, example: str, epochs: int) -> Trained:
    """Run an example for some epochs of the 40 that its manifest says."""
    return run(fabric, example, "--set", f"params.epochs={epochs}")


def run(fabric: Fabric, example: str, *args: str) -> Trained:
    started = time.monotonic()
    ran = fabric("run", str(ROOT / f"examples/{example}/manifest.yml"), "--runner", "process", *args)
    return Trained(newest(fabric), ran.stdout, time.monotonic() - started)


@pytest.fixture(scope="module")
def digits(fabric: Fabric) -> Trained:
    """A job of digits that no test changes."""
    return train(fabric, "digits", EPOCHS)


@pytest.fixture(scope="module")
def report(fabric: Fabric) -> Trained:
    """A job of the example that reports by call."""
    return train(fabric, "report", 2)


def newest(fabric: Fabric) -> dict[str, Any]:
    job = fabric.json("list", "--json")[0]
    assert isinstance(job, dict)
    return job


def weights_of(fabric: Fabric, job: str) -> bytes:
    return (fabric.jobs_home.path / "jobs" / job / "results" / "weights.bin").read_bytes()


def check_that_it_learns(fabric: Fabric, digits: Trained) -> None:
    accuracies = [
        float(line.split()[-1]) for line in digits.output.splitlines() if "held-out accuracy" in line
    ]
    assert accuracies[-1] >= 0.9
    assert digits.took_seconds < 60
    assert digits.job["state"] == "COMPLETED"
    assert "held-out/accuracy" in fabric("metrics", digits.id, "--csv").stdout


def test_digits_learns(fabric: Fabric, digits: Trained) -> None:
    check_that_it_learns(fabric, digits)


@pytest.mark.soak("all 40 epochs; the gate does 8, after which it reads as many digits right")
def test_digits_learns_as_its_manifest_says(fabric: Fabric) -> None:
    check_that_it_learns(fabric, run(fabric, "digits"))


def test_a_rerun_of_digits_writes_the_same_bytes(fabric: Fabric, digits: Trained) -> None:
    fabric("rerun", digits.id)
    second = newest(fabric)["id"]

    assert second != digits.id
    assert weights_of(fabric, second) == weights_of(fabric, digits.id)


def test_digits_goes_on_from_its_checkpoint_after_a_halt(fabric: Fabric, digits: Trained) -> None:
    manifest = str(ROOT / "examples/digits/manifest.yml")
    fabric("run", "-d", manifest, "--runner", "process", "--set", f"params.epochs={EPOCHS}")
    job = newest(fabric)["id"]
    folder = fabric.jobs_home.path / "jobs" / job / "checkpoints"
    until(lambda: folder.is_dir() and len(list(folder.glob("epoch-*.weights"))) >= 2)

    fabric("halt", job)
    fabric("wait", job, expect=128 + signal.SIGTERM)
    assert newest(fabric)["state"] == "HALTED"
    fabric("resume", job)
    fabric("wait", job)

    assert "resumed after epoch" in fabric("logs", job).stdout
    assert weights_of(fabric, job) == weights_of(fabric, digits.id)


@pytest.mark.parametrize(
    ("example", "epochs"), [("digits", EPOCHS), ("digits-tensorboard", 2), ("report", 2)]
)
def test_every_way_to_say_a_metric_gives_the_same_series(
    fabric: Fabric, request: pytest.FixtureRequest, example: str, epochs: int
) -> None:
    shared = {"digits", "report"} & {example}
    job: Trained = request.getfixturevalue(example) if shared else train(fabric, example, epochs)

    rows = fabric.json("metrics", job.id, "--json")

    series = {entry["name"]: entry for entry in rows["series"]}
    assert set(series) >= {"train/loss", "train/accuracy", "held-out/accuracy"}
    assert series["train/loss"]["points"] == epochs * 14
    assert series["held-out/accuracy"]["points"] == epochs
    assert series["held-out/accuracy"]["last_step"] == epochs * 1437


def test_report_example_records_its_checkpoints(fabric: Fabric, report: Trained) -> None:
    shown = fabric.json("show", report.id, "--json")

    assert [entry["step"] for entry in shown["checkpoints"]] == [1437, 2874]


def test_report_example_trains_without_fabric(tmp_path: Path) -> None:
    """It does its 40 epochs on a twelfth of the images."""
    for example in ("report", "digits"):
        shutil.copytree(ROOT / "examples" / example, tmp_path / example)
    images = tmp_path / "digits" / "digits.csv.gz"
    lines = gzip.decompress(images.read_bytes()).splitlines(keepends=True)
    images.write_bytes(gzip.compress(b"".join(lines[:150])))
    ran = subprocess.run(
        [sys.executable, tmp_path / "report" / "train.py"],
        env={"PATH": os.environ["PATH"], "RESULT_DIR": str(tmp_path), "CHECKPOINT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(100),
    )

    assert ran.returncode == 0, ran.stderr
    assert "are read right" in ran.stdout
