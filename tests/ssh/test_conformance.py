"""Both runners keep every promise at a host over SSH, too."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

import pytest

from backends.contract.host import Host
from runners.conformance.suite import RunnerContract
from runners.container.runner import ContainerRunner
from runners.process.runner import ProcessRunner
from tests.containers.core import CONTAINERS_OVER_A_LINK, OVER_A_LINK
from tests.runners.local_hosts import AgentsHere
from tests.support.images import DEBIAN

OF_JOBS: Final = (
    "test_an_exit_code_is_seen[3]",
    "test_a_halt_lets_the_command_end_by_itself",
    "test_output_is_there_while_the_command_runs",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
)
"""What jobs of processes show in tests/ssh/test_jobs.py."""


class OverSsh(AgentsHere, RunnerContract):
    """What both runners have in common."""

    in_gate: ClassVar[Collection[str]] = tuple(name for name in OVER_A_LINK if name not in OF_JOBS)
    why_soak: ClassVar[str] = (
        "all of the suite over SSH; the gate runs all of it on this machine directly, and jobs over SSH in test_jobs.py"
    )

    @pytest.fixture
    def connection(self, class_host: Host) -> Host:
        return class_host


class TestProcesses(OverSsh):
    runner_class = ProcessRunner


class TestContainers(OverSsh):
    in_gate: ClassVar[Collection[str]] = CONTAINERS_OVER_A_LINK
    why_soak: ClassVar[str] = (
        "the gate runs all of the suite in containers here, and what a link carries by processes"
    )
    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture
    def connection(self, class_engine_host: Host) -> Host:
        return class_engine_host
