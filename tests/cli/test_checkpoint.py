"""``fabric checkpoint`` lists what a job saved, fetches it from where it is, and removes it there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Fabric, Serve
from workbench.job import short_id
from workbench.paths import Home

TRAIN = """\
import os
from fabric_learner import checkpoint
for step in (100, 200):
    path = os.path.join(os.environ["CHECKPOINT_DIR"], "step-%d.pt" % step)
    open(path, "w").write("x" * step)
    checkpoint(path, step=step, metrics={"loss": 1 / step})
"""


@pytest.fixture
def job(fabric: Fabric, serve: Serve) -> str:
    """A job with two checkpoints, here and in the store."""
    serve(str(fabric.folder / "store"))
    fabric("data", "mkbucket", "served:saved")
    (fabric.folder / "code").mkdir()
    (fabric.folder / "code" / "train.py").write_text(TRAIN)
    fabric("run", "--quiet", "--results", "served:saved", "code", "--", "python3", "train.py")
    job_id: str = fabric.json("list", "--json")[0]["id"]
    return job_id


def stored(fabric: Fabric, job: str) -> list[str]:
    folder = fabric.folder / "store" / "saved" / job / "_checkpoints"
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith("metadata.json"))


def test_checkpoints_are_listed_with_size_metrics_and_where_they_are(
    fabric: Fabric, home: Home, job: str
) -> None:
    (home.job(job).checkpoints / "step-100.pt").unlink(missing_ok=True)

    first, second = fabric.json("checkpoint", "list", job, "--json")

    assert (first["name"], first["step"], first["size_bytes"], first["where"]) == (
        "step-100.pt",
        100,
        100,
        ["store"],
    )
    assert (second["where"], second["metrics"]) == (["here", "store"], {"loss": 0.005})
    assert len(second["sha256"]) == 64
    assert "step-200.pt" in fabric("checkpoint", "list", job).stdout


def test_one_step_is_fetched_from_the_store_when_nothing_is_here(
    fabric: Fabric, home: Home, job: str
) -> None:
    shutil.rmtree(home.job(job).checkpoints)

    fabric("checkpoint", "download", job, "out", "--step", "200")
    fabric("checkpoint", "download", job, "all")

    there = sorted(path.name for path in (fabric.folder / "out" / "checkpoints").iterdir())
    assert there == ["step-200.pt", "step-200.pt.metadata.json"]
    assert len(list((fabric.folder / "all" / "checkpoints").glob("*.pt"))) == 2
    refused = fabric("checkpoint", "download", job, "out", "--step", "300", expect=64)
    assert "no checkpoint of step 300" in refused.stderr
    assert "100, 200" in refused.stderr


def test_a_checkpoint_is_removed_here_and_in_the_store(fabric: Fabric, home: Home, job: str) -> None:
    assert "There is no terminal" in fabric("checkpoint", "delete", job, "--step", "100", expect=64).stderr
    assert "which checkpoints?" in fabric("checkpoint", "delete", job, "--yes", expect=64).stderr

    fabric("checkpoint", "delete", job, "--step", "100", "--yes")

    assert stored(fabric, job) == ["step-200.pt"]
    assert sorted(path.name for path in home.job(job).checkpoints.glob("*.pt")) == ["step-200.pt"]
    first, _ = fabric.json("checkpoint", "list", job, "--json")
    assert first["where"] == []
    assert [
        each["name"] for each in fabric.json("checkpoint", "delete", job, "--all", "--yes", "--json")
    ] == ["step-200.pt"]
    assert not list((fabric.folder / "store").rglob("step-*"))


def test_a_job_that_runs_keeps_its_checkpoints(fabric: Fabric) -> None:
    job = fabric("run", "-d", "--", "sleep", "600").stdout.strip()

    refused = fabric("checkpoint", "delete", job, "--all", "--yes", expect=64)

    assert f"{short_id(job)} has not ended" in refused.stderr
    fabric("kill", job)
    assert "no checkpoint" in fabric("checkpoint", "list", job).stderr
    assert not (Path(job) / "checkpoints").exists()
