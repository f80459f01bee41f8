"""The container runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.interface import Cluster, Host
from backends.local_host import LocalHost
from backends.pipe_host import PipeHost
from runners.conformance import RunnerContract
from runners.container import ContainerRunner
from runners.interface import LearnerRef
from tests.containers.images import DEBIAN
from workbench.learner import archive, host_learners
from workbench.paths import Home


class ContainerContract(RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine: None) -> None:
        """Every test needs one."""

    def kill_agent(self, place: Host | Cluster, learner: LearnerRef) -> None:
        marker = f"{learner.home}/{learner.job_id}/{learner.attempt}/{learner.learner}"
        agents = host_learners.markers("FABRIC_GUARD")[marker]
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        for pid in agents:
            os.kill(pid, signal.SIGKILL)


class TestOverLocalHost(ContainerContract):
    @pytest.fixture
    def place(self, home: Home) -> Iterator[Host]:
        place = LocalHost(home)
        yield place
        place.close()


class TestOverPipeHost(ContainerContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Host]:
        agent = archive.build(str(tmp_path / "agents"))
        place = PipeHost([sys.executable, "-I", agent, "host"], root=str(tmp_path / "place"))
        yield place
        place.close()
