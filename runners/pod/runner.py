"""The runner ``pod``: learners are pods of an Indexed Job, each with an agent inside; a side-car serves its journal."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar

from backends.contract.host import Chunk, Cluster, Host
from backends.kubernetes.rbac import may_exec
from runners.interface import (
    AttemptRef,
    Capabilities,
    EarlyBytes,
    ExecSession,
    FileEntry,
    LaunchPlan,
    LaunchProgress,
    LaunchRequest,
    LearnerRef,
    Observation,
    Runner,
    StopRequest,
)
from runners.pod.admission import demands_cpu_limits
from runners.pod.journals import Journals
from runners.pod.launch import PodLaunch
from runners.pod.names import HOME, attempt_of, ref_of
from runners.pod.observe import PodObservations
from runners.pod.options import options_for, options_of, without_readers
from runners.pod.plan import make_plan
from runners.pod.results import choose_results, download_attempt
from runners.pod.status import is_finished, is_over
from runners.pod.stop import StopRequests, delete_secrets, release_attempt, remove_attempt, remove_job
from runners.pod.watch import ClusterCache, enter, leave
from runners.shared.capabilities import POD
from workbench.errors import RunnerError
from workbench.paths import JobFolder

JOURNAL_BYTES = 4 << 20


class PodRunner(Runner):
    """Starts learners in pods.

    Different methods may be called from different threads. The watch of the cluster starts with the first call
    that needs it; all runners of a process share it.
    """

    name: ClassVar[str] = "pod"
    capabilities: ClassVar[Capabilities] = POD

    def __init__(self, connection: Host | Cluster, *, home_uuid: str) -> None:
        super().__init__(connection, home_uuid=home_uuid)
        if not isinstance(connection, Cluster):
            raise RunnerError("The runner 'pod' needs a cluster, and this backend is a host.")
        self._cluster = connection
        self._subscriber = uuid.uuid4().hex
        self._making = threading.Lock()
        self._entered: ClusterCache | None = None
        self._observing: PodObservations | None = None
        self._journals: Journals | None = None

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the objects of the cluster as they will be created; claims and quotas are only read."""
        options = options_for(self._cluster.options, request.spec)
        if request.spec.cpus is not None:  # without cpus: the learner has no CPU limit either
            options = replace(options, needs_cpu_limits=demands_cpu_limits(self._cluster))
        if not may_exec(self._cluster):
            options = without_readers(options)
        return make_plan(request, options, choose_results(self._cluster, request, options))

    @classmethod
    def plan_unconnected(cls, request: LaunchRequest, settings: Mapping[str, Any]) -> LaunchPlan:
        """Return the objects as they are created where the cluster has the claims that the job and backend name."""
        options = options_for(settings, request.spec)
        return make_plan(request, options, choose_results(None, request, options))

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Create the objects that do not exist, start the pods, and wait until several learners have met."""
        PodLaunch(plan, self._cluster, self._cache(), progress).launch()

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed."""
        return self._observer().observe(attempts, timeout_seconds)

    def interrupt(self) -> None:
        """Make a blocked observe, or the next one, return early."""
        self._observer().interrupt()

    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        """Read a learner's output, index and records from these offsets on."""
        self._cache().ready()
        return self._reader().read(learner, offsets, JOURNAL_BYTES)

    @property
    def journals_in_place(self) -> bool:
        """False: the journals are in the cluster."""
        return False

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it."""
        return self._reader().follow(known, timeout_seconds, early)

    def interrupt_follow(self) -> None:
        """Make a blocked follow, or the next one, return early."""
        self._reader().interrupt()

    def download(self, attempt: AttemptRef, job: JobFolder) -> None:
        """Copy what an attempt made into the job's folder here."""
        download_attempt(self._cluster, self._cache(), self._reader(), attempt, job)

    def release(self, attempt: AttemptRef) -> None:
        """Delete an ended attempt's Secrets; the cluster deletes the rest after ``ttl_seconds``."""
        release_attempt(self._cluster, attempt, options_of(self._cluster.options).ttl_seconds)

    def drop_secrets(self, attempt: AttemptRef) -> None:
        """Delete an ended attempt's Secrets; its pods stay, with its files."""
        delete_secrets(self._cluster, attempt)

    def retry_upload(self, request: LaunchRequest) -> Sequence[Mapping[str, Any]]:
        """Return nothing: what a store did not take came home before its pods went, and is stored from here."""
        return ()

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask all learners of an attempt to stop; what has not begun is deleted."""
        cache = self._cache()
        cache.ready()
        StopRequests(self._cluster, cache.stop_tries).stop(attempt, request, cache, self._reader())

    def remove(self, attempt: AttemptRef) -> None:
        """Delete all objects of an attempt, and wait until they are gone."""
        remove_attempt(self._cluster, attempt)

    def remove_job(self, job_id: str) -> None:
        """Delete what the attempts of a job share."""
        remove_job(self._cluster, self.home_uuid, job_id)

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command in a learner's container, on this process's standard streams."""
        from runners.pod.exec import PodExec

        return PodExec(self._cluster, learner, argv, terminal=terminal)

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List a path of a learner and everything below it."""
        from runners.pod.files import PodFiles

        return PodFiles(self._cluster, learner).list_files(path)

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path of a learner as one tar stream to ``receive``."""
        from runners.pod.files import PodFiles

        PodFiles(self._cluster, learner).fetch(path, receive)

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file of a learner."""
        from runners.pod.files import PodFiles

        PodFiles(self._cluster, learner).put(path, stream, mode)

    def close(self) -> None:
        """Close connections and end the watch; learners continue."""
        with self._making:
            journals, self._journals, self._observing = self._journals, None, None
            entered, self._entered = self._entered, None
        if journals is not None:
            journals.close()
        if entered is not None:
            leave(entered)

    def leftovers(self) -> Iterator[LearnerRef]:
        """Yield every learner of the namespace whose Job exists; of this home only those that have not ended."""
        over = {ref for pod in self._cluster.list("Pod", HOME).items if is_over(pod) and (ref := ref_of(pod))}
        for job in self._cluster.list("Job", HOME).items:
            attempt = attempt_of(job)
            if attempt is None or job["metadata"].get("deletionTimestamp"):
                continue
            for number in range(1, int(job["spec"].get("completions") or 1) + 1):
                ref = LearnerRef(*attempt, number)
                if ref.home != self.home_uuid or not (ref in over or is_finished(job)):
                    yield ref

    def _cache(self) -> ClusterCache:
        with self._making:
            if self._entered is None:
                self._entered = enter(self._cluster, self.home_uuid)
            return self._entered

    def _observer(self) -> PodObservations:
        cache = self._cache()
        with self._making:
            if self._observing is None:
                self._observing = PodObservations(self._cluster, cache)
            return self._observing

    def _reader(self) -> Journals:
        cache = self._cache()
        with self._making:
            if self._journals is None:
                self._journals = Journals(self._cluster, cache, self._subscriber)
            return self._journals
