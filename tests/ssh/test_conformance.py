"""The process runner keeps every promise at a host over SSH, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from backends.interface import Cluster, Host
from runners.conformance import RunnerContract
from runners.interface import LearnerRef
from runners.process import ProcessRunner
from tests.ssh.conftest import Box
from workbench.learner import host_learners


class TestOverSsh(RunnerContract):
    runner_class = ProcessRunner

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
