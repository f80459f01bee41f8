"""The container runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.interface import Cluster, Host
from backends.local_host import LocalHost
from backends.pipe_host import PipeHost
from runners.conformance import MakeJob, RunnerContract
from runners.conformance_tools import Job, request_of
from runners.container import ContainerRunner
from runners.interface import LearnerRef, Runner
from tests.containers.images import DEBIAN
from workbench.learner import archive, host_learners
from workbench.manifest.model import Framework
from workbench.paths import Home


class ContainerContract(RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine: None) -> None:
        """Every test needs one."""

    @pytest.fixture
    def make_job(self, runner: Runner, home_uuid: str) -> Iterator[MakeJob]:
        """Plan jobs of an image, and remove them afterwards whatever became of them."""
        made: list[Job] = []

        def make(command: str, *, runner: Runner = runner, home: str = home_uuid, **spec: Any) -> Job:
            request = request_of(command, home=home, **spec)
            framework = Framework(command=command, version=self.image)
            request = replace(request, spec=replace(request.spec, framework=framework))
            made.append(Job.planned(runner, request))
            return made[-1]

        yield make
        for job in made:
            job.runner.remove(job.request.attempt)

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
