"""The examples, run as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import patience, until

ROOT = Path(__file__).resolve().parents[2]
FABRIC = Path(sys.executable).with_name("fabric")


@pytest.fixture
def fabric(clean_environment: Path) -> Any:
    """Run the real command; the controller that it started is ended with the test."""

    def run(*arguments: str | Path, code: int = 0) -> str:
        ran = subprocess.run(
            [FABRIC, *arguments], capture_output=True, text=True, cwd=clean_environment, timeout=patience(150)
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout

    yield run
    subprocess.run([FABRIC, "controller", "stop"], capture_output=True, timeout=patience(30))


def job_of(fabric: Any) -> dict[str, Any]:
    jobs = json.loads(fabric("list", "--json"))
    assert isinstance(jobs[0], dict)
    return jobs[0]


def metrics_of(fabric: Any, job: str) -> str:
    return str(fabric("metrics", job, "--csv"))


def weights_of(home: Path, job: str) -> bytes:
    return (home / "fabric" / "jobs" / job / "results" / "weights.bin").read_bytes()


def test_digits_learns(fabric: Any) -> None:
    started = time.monotonic()
    output = fabric("run", ROOT / "examples/digits/manifest.yml", "--runner", "process")
    took_seconds = time.monotonic() - started
    first = job_of(fabric)

    accuracies = [float(line.split()[-1]) for line in output.splitlines() if "held-out accuracy" in line]
    assert accuracies[-1] >= 0.9
    assert took_seconds < 60
    assert first["state"] == "COMPLETED"
    assert "held-out/accuracy" in metrics_of(fabric, first["id"])


def test_a_rerun_of_digits_writes_the_same_bytes(fabric: Any, clean_environment: Path) -> None:
    fabric("run", ROOT / "examples/digits/manifest.yml", "--runner", "process", "--set", "params.epochs=4")
    first = job_of(fabric)

    fabric("rerun", first["id"])
    second = job_of(fabric)

    assert second["id"] != first["id"]
    assert weights_of(clean_environment, second["id"]) == weights_of(clean_environment, first["id"])


def test_digits_goes_on_from_its_checkpoint_after_a_halt(fabric: Any, clean_environment: Path) -> None:
    words = (ROOT / "examples/digits/manifest.yml", "--runner", "process", "--set", "params.epochs=8")
    fabric("run", *words)
    uninterrupted = job_of(fabric)["id"]
    fabric("run", "-d", *words)
    job = job_of(fabric)["id"]
    folder = clean_environment / "fabric" / "jobs" / job / "checkpoints"
    until(lambda: folder.is_dir() and len(list(folder.glob("epoch-*.weights"))) >= 2)

    fabric("halt", job)
    fabric("wait", job, code=128 + signal.SIGTERM)
    assert job_of(fabric)["state"] == "HALTED"
    fabric("resume", job)
    fabric("wait", job)

    assert "resumed after epoch" in fabric("logs", job)
    assert weights_of(clean_environment, job) == weights_of(clean_environment, uninterrupted)


@pytest.mark.parametrize("example", ["digits", "digits-tensorboard", "report"])
def test_every_way_to_say_a_metric_gives_the_same_series(
    fabric: Any, example: str, clean_environment: Path
) -> None:
    fabric(
        "run", ROOT / f"examples/{example}/manifest.yml", "--runner", "process", "--set", "params.epochs=3"
    )

    rows = json.loads(fabric("metrics", job_of(fabric)["id"], "--json"))

    series = {entry["name"]: entry for entry in rows["series"]}
    assert set(series) >= {"train/loss", "train/accuracy", "held-out/accuracy"}
    assert series["train/loss"]["points"] == 3 * 14
    assert series["held-out/accuracy"]["points"] == 3
    assert series["held-out/accuracy"]["last_step"] == 3 * 1437


def test_report_example_records_its_checkpoints(fabric: Any, clean_environment: Path) -> None:
    fabric("run", ROOT / "examples/report/manifest.yml", "--runner", "process", "--set", "params.epochs=2")

    shown = json.loads(fabric("show", job_of(fabric)["id"], "--json"))

    assert [entry["step"] for entry in shown["checkpoints"]] == [1437, 2874]


def test_report_example_trains_without_fabric(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/report/train.py"],
        env={"PATH": os.environ["PATH"], "RESULT_DIR": str(tmp_path), "CHECKPOINT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(100),
    )

    assert ran.returncode == 0, ran.stderr
    assert "are read right" in ran.stdout
