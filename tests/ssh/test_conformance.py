"""Both runners keep every promise at a host over SSH, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.contract.host import Host
from runners.conformance.suite import RunnerContract
from runners.container.runner import ContainerRunner
from runners.process.runner import ProcessRunner
from tests.containers.images import DEBIAN
from tests.runners.local_hosts import AgentsHere
from tests.ssh.conftest import Box


class OverSsh(AgentsHere, RunnerContract):
    """What both runners have in common."""

    @pytest.fixture
    def connection(self, box: Box) -> Iterator[Host]:
        host = box.backend().open()
        yield host
        host.close()


class TestProcesses(OverSsh):
    runner_class = ProcessRunner


class TestContainers(OverSsh):
    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine_box: Box) -> None:
        """Every test needs one."""
