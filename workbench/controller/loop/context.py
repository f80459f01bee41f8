"""The state that the parts of the loop share: the store, the tracked jobs and the workers of their targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from workbench.clock import elapsed_seconds
from workbench.controller.decide.model import StopSent
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.runtime.concurrency import Concurrency, Lock
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.targets.backend_worker import BackendWorker, LaunchOrder
from workbench.controller.targets.ingest import JournalIngestion
from workbench.controller.targets.opener import Opener
from workbench.controller.targets.worker_pool import Post
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class AwaitedProbe:
    """A probe that was requested for one job."""

    serial: int
    """The probe with this number, or a later one, answers it."""
    attempt: int
    stopped: StopSent | None = None
    """The stop that the probe confirms."""


@dataclass(slots=True)
class ControllerContext:
    """The state of the loop. Only the loop's own thread touches it."""

    home: Home
    uuid: str
    store: Store
    log: ControllerLog
    post: Post
    open_target: Opener
    journals: JournalIngestion
    writing: Lock
    concurrency: Concurrency
    jobs: dict[str, TrackedJob] = field(default_factory=dict)
    by_target: dict[str, dict[str, TrackedJob]] = field(default_factory=dict)
    """The same jobs by the key of their target."""
    workers: dict[str, BackendWorker] = field(default_factory=dict)
    """Workers by the key of their target."""
    orders: dict[str, LaunchOrder] = field(default_factory=dict)
    """Launches under way, by job."""
    probes: dict[str, AwaitedProbe] = field(default_factory=dict)
    """Probes that are awaited, by job."""
    has_ended_jobs: bool = False
    """Whether a job ended or went: others may have waited for what it held, and people for its end."""
    queue_stale: bool = True
    """Whether the queue has to be evaluated again."""
    trouble: str = ""
    """Why the store takes nothing now."""

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Hold a transaction of the store; the journals' thread waits for it instead of trying again."""
        with self.writing, self.store.atomic():
            yield
        self.trouble = ""

    def worker(self, ref: TargetRef) -> BackendWorker:
        """Return the worker of a job's target; nothing is opened before the first call."""
        key = target_key(ref)
        if key not in self.workers:
            self.workers[key] = BackendWorker(
                key, ref, self.home, ref.home(self.uuid), self.post, self.open_target, self.concurrency
            )
        return self.workers[key]

    def leaves_entry(self, job: TrackedJob) -> bool:
        """Say whether a job that has begun may have an entry in its host's queue by another connection than its own."""
        if not (job.spec.gpus and job.has_begun):
            return False
        here = job.row.target.machine
        return sum(worker.ref.machine == here for worker in self.workers.values()) > 1

    def jobs_at(self, target: str) -> list[TrackedJob]:
        """List the open jobs at the target with this key."""
        return list(self.by_target.get(target, {}).values())

    def add(self, tracked: TrackedJob) -> None:
        """Look after a job from now on."""
        self.jobs[tracked.row.id] = tracked
        self.by_target.setdefault(target_key(tracked.row.target), {})[tracked.row.id] = tracked

    def watch(self, tracked: TrackedJob) -> None:
        """Update which attempts of a job its target's worker observes."""
        attempts = set()
        if tracked.is_launched:
            attempts.add(tracked.attempt)
        probe = self.probes.get(tracked.row.id)
        if probe is not None and probe.attempt != tracked.row.attempt:
            attempts.add(tracked.attempt_before)
        self.worker(tracked.row.target).watch(tracked.row.id, attempts)

    def drop(self, tracked: TrackedJob) -> None:
        """Forget an open job; the store still has it."""
        job_id = tracked.row.id
        for table in (
            self.jobs,
            self.orders,
            self.probes,
            self.by_target.get(target_key(tracked.row.target), {}),
        ):
            table.pop(job_id, None)
        self.journals.drop(job_id)
        self.worker(tracked.row.target).watch(job_id, set())

    def jobs_changed(self) -> None:
        """Have the queue and the open requests evaluated again."""
        self.has_ended_jobs = self.queue_stale = True

    def now(self) -> float:
        """Return the time on the clock that counts sleep and cannot jump."""
        return elapsed_seconds()


def target_key(ref: TargetRef) -> str:
    """Return the key of a target; jobs with the same key share threads, connections and a queue."""
    if ref.type == "local" and not ref.options:
        return f"{ref.backend} {ref.runner}"
    return json.dumps([ref.backend, ref.type, ref.runner, ref.address, dict(ref.options)], sort_keys=True)
