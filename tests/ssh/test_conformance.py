"""Both runners keep every promise at a host over SSH, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from backends.interface import Cluster, Host
from runners.conformance import RunnerContract
from runners.container import ContainerRunner
from runners.interface import LearnerRef
from runners.process import ProcessRunner
from tests.containers.images import DEBIAN
from tests.ssh.conftest import Box
from workbench.learner import host_learners


class OverSsh(RunnerContract):
    """What both runners have in common."""

    @pytest.fixture
    def place(self, box: Box) -> Iterator[Host]:
        place = box.backend().open()
        yield place
        place.close()

    def kill_agent(self, place: Host | Cluster, learner: LearnerRef) -> None:
        marker = f"{learner.home}/{learner.job_id}/{learner.attempt}/{learner.learner}"
        agents = host_learners.markers("FABRIC_GUARD")[marker]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in agents:
                os.kill(pid, number)


class TestProcesses(OverSsh):
    runner_class = ProcessRunner


class TestContainers(OverSsh):
    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine_box: Box) -> None:
        """Every test needs one."""
