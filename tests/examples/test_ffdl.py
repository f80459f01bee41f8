"""FfDL's first example, byte for byte, against the store that this machine serves in place of FfDL's own."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.images import DEBIAN, ensure_images, why_not
from tests.support.waiting import patience
from workbench.data.stores.rclone import find_rclone
from workbench.errors import FabricError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ffdl"
FABRIC = Path(sys.executable).with_name("fabric")
IMAGE = "tensorflow/tensorflow:1.5.0-py3"
SHA256 = "d184fc6b6c0c73bdc1f69ee03849240bf54fffda4204858812466b5528980af1"
"""Of etc/examples/tf-model/manifest.yml in FfDL's repository, at its last commit."""


def fabric(*args: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [FABRIC, *args], capture_output=True, text=True, cwd=Path.home(), timeout=patience(150)
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran


@pytest.fixture
def store(clean_environment: Path) -> Iterator[Path]:
    """Serve a folder, with the containers that the manifest names and the data that it reads."""
    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    folder = clean_environment / "store"
    words: list[str | Path] = [
        FABRIC,
        "store",
        "serve",
        folder,
        "--port",
        "0",
        "--manifest",
        EXAMPLE / "manifest.yml",
        "--json",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["made"] == ["tf_training_data", "tf_trained_model"]
        subprocess.run([sys.executable, EXAMPLE / "make_data.py", clean_environment / "mnist"], check=True)
        fabric("data", "put", clean_environment / "mnist", "served:tf_training_data")
        yield folder
        fabric("controller", "stop")
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


@pytest.fixture(
    params=[
        pytest.param(
            "process",
            marks=pytest.mark.soak("as a process; the gate has it in a container, and digits as a process"),
        ),
        "container",
    ]
)
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way to run it; in a container an image of ours answers to the name of FfDL's."""
    if request.param == "process":
        yield "process"
        return
    monkeypatch.delenv("DOCKER_HOST")
    if reason := why_not():
        pytest.skip(reason)
    ensure_images()
    subprocess.run(["docker", "tag", DEBIAN, IMAGE], check=True)
    yield "container"
    subprocess.run(["docker", "rmi", IMAGE], check=True, capture_output=True)


def test_the_first_example_runs_as_it_is(store: Path, runner: str, clean_environment: Path) -> None:
    before = (EXAMPLE / "manifest.yml").read_bytes()

    ran = fabric("run", EXAMPLE / "manifest.yml", "--runner", runner)

    assert "Testing Accuracy: 0.9" in ran.stdout
    (job,) = json.loads(fabric("list", "--json").stdout)
    assert (job["state"], job["runner"]) == ("COMPLETED", runner)
    results = store / "tf_trained_model" / job["id"]
    assert (results / "model" / "weights.bin").stat().st_size == 10 * 65 * 8
    assert (results / "learner-1" / "output.log").read_text() == ran.stdout
    assert list((results / "learner-1" / "logs" / "tb").iterdir())
    shown: dict[str, Any] = json.loads(fabric("show", job["id"], "--json").stdout)
    assert {"tb/loss", "tb/accuracy"} <= set(shown["metrics"])
    fabric("download", job["id"], "results", clean_environment / "out")
    assert (clean_environment / "out" / "results" / "model" / "weights.bin").exists()
    assert (EXAMPLE / "manifest.yml").read_bytes() == before


def test_the_manifest_is_ffdls_own() -> None:
    assert hashlib.sha256((EXAMPLE / "manifest.yml").read_bytes()).hexdigest() == SHA256
