"""The container runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import pytest

from runners.conformance import RunnerContract
from runners.container import ContainerRunner
from tests.containers.images import DEBIAN
from tests.runners.places import AgentsHere, OverLocalHost, OverPipeHost


class ContainerContract(AgentsHere, RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine: None) -> None:
        """Every test needs one."""


class TestOverLocalHost(OverLocalHost, ContainerContract):
    """Directly."""


class TestOverPipeHost(OverPipeHost, ContainerContract):
    """Through a pipe."""
