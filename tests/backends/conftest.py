"""The two hosts that every test of the seam runs over: this machine directly, and through a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.contract.host import Host
from backends.local.host import LocalHost
from tests.support.pipe_host import PipeHost
from workbench.paths import Home

SERVE = (
    "import sys; from workbench.learner.host.server import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"
)
REPOSITORY = Path(__file__).parents[2]


def pipe_host(root: Path, python: str = sys.executable) -> PipeHost:
    """Open a host through a pipe to a Python here, its homes under a folder of its own."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return PipeHost([python, "-c", SERVE], root=str(root), env=env)


@pytest.fixture(params=["local", "pipe"])
def host(request: pytest.FixtureRequest, home: Home, tmp_path: Path) -> Iterator[Host]:
    opened: Host = LocalHost(home) if request.param == "local" else pipe_host(tmp_path / "place")
    yield opened
    opened.close()
