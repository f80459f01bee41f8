"""The base of the conformance suite: what subclasses set or override, and the fixtures of the tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.interface import LearnerRef, Runner

FOREVER: Final = "echo ready; while :; do sleep 1; done"
"""A command that runs until it is stopped."""

MakeJob = Callable[..., LaunchedAttempt]


class ContractBase:
    """What a subclass sets or overrides, and fixtures that plan and launch jobs with its runner."""

    runner_class: ClassVar[type[Runner]]
    image: ClassVar[str] = ""
    """The image of the tests' jobs, for runners that use images; it must contain ``sh``."""
    left_out: ClassVar[Mapping[str, str]] = {}
    """The names of tests that this runner cannot pass by design, each with the reason; they are skipped."""
    has: ClassVar[frozenset[str]] = frozenset({"python3"})
    """The programs that commands can use on the backend, besides a shell and the POSIX tools."""

    @pytest.fixture
    def connection(self) -> Iterator[Host | Cluster | HostGroup]:
        """Open the backend and close it after the test; override this."""
        raise NotImplementedError("override the fixture 'connection': it yields what your backend opens")

    def kill_agent(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
        """Kill the agent of a learner with all of its processes, as a crash would.

        Tests that need it are skipped where it is not overridden.
        """
        pytest.skip("kill_agent is not overridden for this runner")

    def transcribe(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
        """Write a learner's index and records, where the agent leaves that to the reader of the journal."""

    @pytest.fixture(autouse=True)
    def _leave_out(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname or request.node.name
        if name in self.left_out:
            pytest.skip(f"not promised: {self.left_out[name]}")

    @pytest.fixture
    def home_uuid(self) -> str:
        """The uuid of the home that the jobs belong to; a new one for each test."""
        return str(uuid.uuid4())

    @pytest.fixture
    def make_runner(
        self, connection: Host | Cluster | HostGroup, home_uuid: str
    ) -> Iterator[Callable[[], Runner]]:
        """Make runners on the same connection, as a restarted controller does."""
        made: list[Runner] = []

        def make(home: str = home_uuid) -> Runner:
            made.append(self.runner_class(connection, home_uuid=home))
            return made[-1]

        yield make
        for runner in made:
            runner.close()

    @pytest.fixture
    def runner(self, make_runner: Callable[[], Runner]) -> Runner:
        """The runner under test."""
        return make_runner()

    @pytest.fixture
    def make_job(
        self, connection: Host | Cluster | HostGroup, runner: Runner, home_uuid: str
    ) -> Iterator[MakeJob]:
        """Plan jobs; they are removed after the test, whatever their state."""
        made: list[LaunchedAttempt] = []

        def make(
            command: str, *, runner: Runner = runner, home: str = home_uuid, **spec: Any
        ) -> LaunchedAttempt:
            job = LaunchedAttempt.planned(runner, request_of(command, home=home, image=self.image, **spec))
            job.transcribe = lambda learner: self.transcribe(connection, learner)
            made.append(job)
            return job

        yield make
        for job in made:
            job.runner.remove(job.request.attempt)
