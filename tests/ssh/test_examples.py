"""The digits example runs unchanged at a host, with the results that it has here."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import DEBIAN
from workbench.paths import Home

MANIFEST = Path(__file__).parents[2] / "examples" / "digits" / "manifest.yml"


def run_digits(fabric: Fabric, home: Home, *args: str) -> tuple[bytes, list[dict[str, str]]]:
    """Run a few epochs of the example and return what it learned and what it measured."""
    fabric("run", str(MANIFEST), "--set", "params.epochs=4", *args)
    job = fabric.json("list", "--json")[0]
    rows = csv.DictReader(fabric("metrics", job["id"], "--csv").stdout.splitlines())
    measured = [{name: row[name] for name in row if name not in ("time", "job")} for row in rows]
    assert len(measured) > 10
    return (home.job(job["id"]).results / "weights.bin").read_bytes(), measured


def test_digits_learns_the_same_here_there_and_there_in_a_container(
    engine_box: Box, fabric: Fabric, home: Home
) -> None:
    here = run_digits(fabric, home, "--backend", "local", "--runner", "process")
    there = run_digits(fabric, home, "--backend", "ssh://box", "--runner", "process")
    in_container = run_digits(
        fabric, home, "--backend", "ssh://box", "--runner", "container", "--image", DEBIAN
    )

    assert here == there
    assert here == in_container
