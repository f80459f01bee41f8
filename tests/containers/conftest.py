"""What tests of containers share: a runner over this machine's engine, and jobs that are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.runner import ContainerRunner
from tests.support.engine import MakeJob, own_home
from tests.support.images import DEBIAN
from tests.support.kept_agents import lend_agents
from workbench.paths import Home


@pytest.fixture
def runner(engine: None, home: Home) -> Iterator[ContainerRunner]:
    """A container runner on this machine."""
    host = LocalHost(lend_agents(home))
    runner = ContainerRunner(host, home_uuid=own_home())
    yield runner
    runner.close()
    host.close()


@pytest.fixture
def make_job(runner: ContainerRunner) -> Iterator[MakeJob]:
    """Plan container jobs, and remove them afterwards whatever became of them."""
    made: list[LaunchedAttempt] = []

    def make(command: str, *, image: str = DEBIAN, **spec: Any) -> LaunchedAttempt:
        made.append(
            LaunchedAttempt.planned(runner, request_of(command, home=own_home(), image=image, **spec))
        )
        return made[-1]

    yield make
    for job in made:
        runner.remove(job.request.attempt)
