"""What tests of runners share: this machine as a place, and jobs that are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner
from tests.learner.kept_agents import lend_agents
from tests.stubs import Gpus, pretend
from workbench.paths import Home

HOME = "00000000-0000-0000-0000-00000000000a"


class Jobs:
    """Makes jobs over this machine."""

    def __init__(self, host: LocalHost) -> None:
        self.host = host
        self.made: list[LaunchedAttempt] = []

    def runner(self, home: str = HOME) -> ProcessRunner:
        """Make a runner of its own, as another thread or another controller has."""
        return ProcessRunner(self.host, home_uuid=home)

    def plan(self, command: str, **said: Any) -> LaunchedAttempt:
        """Plan a job."""
        said.setdefault("home", HOME)
        self.made.append(LaunchedAttempt.planned(self.runner(said["home"]), request_of(command, **said)))
        return self.made[-1]

    def run(self, command: str, **said: Any) -> LaunchedAttempt:
        """Plan a job and launch it."""
        return self.plan(command, **said).launch()


@pytest.fixture
def jobs(home: Home) -> Iterator[Jobs]:
    host = LocalHost(lend_agents(home))
    made = Jobs(host)
    yield made
    for job in made.made:
        job.runner.remove(job.request.attempt)
        job.runner.close()
    host.close()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch)
