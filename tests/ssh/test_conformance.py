"""Both runners keep every promise at a host over SSH, too."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pytest

from backends.contract.host import Host
from runners.conformance.suite import RunnerContract
from runners.container.runner import ContainerRunner
from runners.process.runner import ProcessRunner
from tests.containers.core import CORE, OVER_A_LINK
from tests.runners.local_hosts import AgentsHere
from tests.support.images import DEBIAN


class OverSsh(AgentsHere, RunnerContract):
    """What both runners have in common."""

    in_gate: ClassVar[Collection[str]] = OVER_A_LINK
    why_soak: ClassVar[str] = "all of the suite over SSH; the gate runs all of it on this machine directly"

    @pytest.fixture
    def connection(self, class_host: Host) -> Host:
        return class_host


class TestProcesses(OverSsh):
    runner_class = ProcessRunner


class TestContainers(OverSsh):
    in_gate: ClassVar[Collection[str]] = (
        *(name for name in CORE if name in OVER_A_LINK),
        "test_an_exit_code_is_seen[3]",
    )
    why_soak: ClassVar[str] = (
        "the gate runs all of the suite in containers here, and what a link carries by processes"
    )
    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture
    def connection(self, class_engine_host: Host) -> Host:
        return class_engine_host
