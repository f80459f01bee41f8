"""Connections to this machine for the conformance suites: directly and over a pipe; and how an agent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from backends.local.host import LocalHost
from runners.interface import LearnerRef
from tests.support.kept_agents import agent, lend_agents
from tests.support.pipe_host import PipeHost
from workbench.learner.host import learners
from workbench.paths import Home


class AgentsHere:
    """For suites whose agents are processes of this machine."""

    def kill_agent(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
        """Kill a learner's agent, all of its processes at once."""
        marker = f"{learner.home}/{learner.job_id}/{learner.attempt}/{learner.learner}"
        agents = learners.markers("FABRIC_GUARD")[marker]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in agents:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, number)


class OverLocalHost:
    """This machine directly."""

    def prepared(self, home: Home) -> Home:
        """Return the home that jobs are in, with what takes long to make."""
        return lend_agents(home)

    @pytest.fixture
    def connection(self, home: Home) -> Iterator[Host]:
        host = LocalHost(self.prepared(home))
        yield host
        host.close()


class OverPipeHost:
    """The same at the other end of a pipe."""

    def built(self, folder: Path) -> str:
        """Return the agent's archive, which a suite may build into a folder of the test."""
        return agent()

    @pytest.fixture
    def connection(self, tmp_path: Path) -> Iterator[Host]:
        agent = self.built(tmp_path / "agents")
        host = PipeHost([sys.executable, "-I", agent, "host"], root=str(tmp_path / "place"))
        yield host
        host.close()
