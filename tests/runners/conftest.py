"""What tests of runners share: this machine as a host, and jobs that are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from tests.runners.jobs import Jobs
from tests.stubs import Gpus, pretend
from tests.support.kept_agents import lend_agents
from workbench.paths import Home


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
