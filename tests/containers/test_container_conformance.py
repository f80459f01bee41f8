"""The container runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import pytest

from backends.contract.host import Host
from runners.conformance.suite import RunnerContract
from runners.container.runner import ContainerRunner
from tests.runners.local_hosts import AgentsHere, OverLocalHost, OverPipeHost
from tests.support.engine import tell_limits
from tests.support.images import DEBIAN
from tests.support.pipe_host import PipeHost


class ContainerContract(AgentsHere, RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ContainerRunner
    image = DEBIAN

    @pytest.fixture(autouse=True)
    def _engine(self, engine: None, connection: Host, home_uuid: str) -> None:
        """Every test needs one."""
        if isinstance(connection, PipeHost):
            tell_limits(connection, home_uuid)


class TestOverLocalHost(OverLocalHost, ContainerContract):
    """Directly."""


class TestOverPipeHost(OverPipeHost, ContainerContract):
    """Through a pipe."""

    in_gate: ClassVar[Collection[str]] = ()
    why_soak: ClassVar[str] = (
        "all of the suite through a pipe; the gate has it on this machine directly, what a link carries over SSH"
        " (tests/ssh/test_conformance.py)"
    )
