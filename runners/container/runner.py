"""The runner ``container``: learners in containers of a job's image, each with an agent outside of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from backends.contract.host import Cluster, Host
from runners.interface import (
    AttemptRef,
    Capabilities,
    ExecSession,
    FileEntry,
    LaunchPlan,
    LaunchProgress,
    LaunchRequest,
    LearnerRef,
    Observation,
)
from runners.process.runner import ProcessRunner
from runners.shared.capabilities import CONTAINER
from workbench.job import learner_name
from workbench.learner.host.learners import is_over

if TYPE_CHECKING:  # reading the capabilities must not import all of it
    from runners.container.cleanup import AttemptCleanup
    from runners.container.engine import Engine
    from runners.container.files import ContainerFiles
    from runners.container.launch import ContainerLaunch


class ContainerRunner(ProcessRunner):
    """Starts learners in containers.

    The agent of a learner runs on the host, as for a process, and its command is a program that drives the
    container. So an image needs nothing but ``sh``, and journals, stops and leases are those of processes.
    """

    name: ClassVar[str] = "container"
    capabilities: ClassVar[Capabilities] = CONTAINER
    contained: ClassVar[bool] = True

    def __init__(self, connection: Host | Cluster, *, home_uuid: str) -> None:
        super().__init__(connection, home_uuid=home_uuid)
        self._engine_lock = threading.Lock()
        self._found_engine: Engine | None = None

    @cached_property
    def _cleanup(self) -> AttemptCleanup:
        from runners.container.cleanup import AttemptCleanup

        return AttemptCleanup(self._host)

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the containers and launch documents; the engine is not asked."""
        from runners.container.plan import make_plan

        plan = make_plan(request, self._site())
        return plan if plan.runner == self.name else replace(plan, runner=self.name)

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Pull the image, upload the code, lease all slots or none, and start the learners that have not begun."""
        self.staged_launch(plan, progress).launch()

    def staged_launch(self, plan: LaunchPlan, progress: LaunchProgress) -> ContainerLaunch:
        """Return the launch of this host's learners, which goes through its stages together with other hosts."""
        from runners.container.launch import ContainerLaunch

        subscriber = f"{self._subscriber}-launch"
        return ContainerLaunch(plan, self._host, self._site(), self._engine(), progress, subscriber)

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Return the statuses when one has changed; ended containers are cleaned up first."""
        observation = super().observe(attempts, timeout_seconds=timeout_seconds)
        self._cleanup.clean_up(attempts, observation, self._site(), self._engine)
        return observation

    def remove(self, attempt: AttemptRef) -> None:
        """Remove an attempt's containers, network and files, and end its processes."""
        self._withdraw(attempt)  # first: else its host might start it meanwhile
        for number in attempt.numbers:
            self._end(LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number))
        self._cleanup.remove(attempt, self._site(), self._engine)
        super().remove(attempt)

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command in a learner's container, on this process's standard streams."""
        from runners.container.exec import EngineStream
        from runners.shared.attach import JoinedExec

        stream = EngineStream(self._engine(), self._name(learner), argv, terminal=terminal)
        return JoinedExec(stream, terminal=terminal)

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List a path of a learner and everything below it."""
        return self._files(learner).list_files(path)

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path of a learner as one tar stream to ``receive``."""
        self._files(learner).fetch(path, receive)

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file of a learner."""
        self._files(learner).put(path, stream, mode)

    def leftovers(self) -> Iterator[LearnerRef]:
        """Yield all learners with a container on the host, of any home; one for an attempt that left only a network."""
        from runners.container.plan import LABEL_LEARNER, ref_of_labels, ref_of_network

        engine, known = self._engine(), set[tuple[str, str, int]]()
        for container in engine.containers(LABEL_LEARNER):
            ref = ref_of_labels(container.get("Labels") or {})
            if ref is None or container.get("State") == "removing":
                continue
            known.add((ref.home, ref.job_id, ref.attempt))
            if ref.home == self.home_uuid and self._is_ending(ref):
                engine.remove_of(ref.home, self._name(ref))
                continue
            yield ref
        # A network is left if the engine hung while the learners ended.
        for network in engine.networks(LABEL_LEARNER):
            ref = ref_of_network(network.get("Labels") or {})
            if ref is None or (ref.home, ref.job_id, ref.attempt) in known:
                continue
            if ref.home == self.home_uuid and self._is_ending(ref):
                engine.remove_network(ref.home, str(network["Name"]))
                continue
            yield ref

    def _is_ending(self, ref: LearnerRef) -> bool:
        """Return whether a learner of this home has ended: its container is then being removed already."""
        return is_over(self._host.call("learner", folder=str(self._learner(ref).path)))

    def _engine(self) -> Engine:
        from runners.container.engine import engine_at

        with self._engine_lock:
            if self._found_engine is None:
                self._found_engine = engine_at(self._host, self._site().environment)
            return self._found_engine

    def _files(self, ref: LearnerRef) -> ContainerFiles:
        from runners.container.files import ContainerFiles
        from runners.shared.job_files import JobFiles, mounted_folders_of

        job_files = JobFiles(self._host, mounted_folders_of(ref, self._site()))
        return ContainerFiles(job_files, self._engine, self._name(ref))

    def _name(self, ref: LearnerRef) -> str:
        return learner_name(ref.job_id, ref.attempt, ref.learner)
