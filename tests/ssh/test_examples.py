"""The digits example runs unchanged at a host, with the results that it has here."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Fabric, end_everything
from tests.ssh.conftest import Box
from workbench.paths import Home

MANIFEST = Path(__file__).parents[2] / "examples" / "digits" / "manifest.yml"


@pytest.fixture
def fabric(box: Box, clean_environment: Path, home: Home) -> Iterator[Fabric]:
    """The command line, with a working folder."""
    folder = clean_environment / "work"
    folder.mkdir()
    yield Fabric(folder)
    end_everything(home)


def test_digits_learns_the_same_there_and_here(box: Box, fabric: Fabric, home: Home) -> None:
    made, metrics = [], []
    for backend in ("local", "ssh://box"):
        fabric("run", str(MANIFEST), "--backend", backend, "--runner", "process")
        job = fabric.json("list", "--json")[0]
        made.append((home.job(job["id"]).results / "weights.bin").read_bytes())
        rows = csv.DictReader(fabric("metrics", job["id"], "--csv").stdout.splitlines())
        metrics.append([{name: row[name] for name in row if name not in ("time", "job")} for row in rows])

    assert made[0] == made[1]
    assert len(metrics[0]) > 10
    assert metrics[0] == metrics[1]
