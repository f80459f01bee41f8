"""What tests of runners share: this machine as a host, and jobs that are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.container.runner import ContainerRunner
from tests.runners.jobs import HOME, Jobs
from tests.stubs import Gpus, pretend
from tests.support.kept_agents import lend_agents
from workbench.paths import Home


@pytest.fixture
def job_home() -> str:
    """The uuid of the home of a test's jobs; overridden where each test needs one of its own."""
    return HOME


@pytest.fixture
def jobs(home: Home, job_home: str) -> Iterator[Jobs]:
    host = LocalHost(lend_agents(home))
    made = Jobs(host, job_home)
    yield made
    for job in made.made:
        job.runner.remove(job.request.attempt)
        job.runner.close()
    host.close()


@pytest.fixture
def host(home: Home) -> Iterator[LocalHost]:
    """This machine, with an engine that a test has in memory."""
    host = LocalHost(home, engine="unix:///nowhere")
    yield host
    host.close()


@pytest.fixture
def runner(host: LocalHost) -> Iterator[ContainerRunner]:
    runner = ContainerRunner(host, home_uuid=HOME)
    yield runner
    runner.close()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch)
