"""A queue of many jobs at one machine, eight of which run, without a store and a backend."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from tests.quick.controller.values import HOME, LOCAL, row, spec
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity
from workbench.controller.loop.context import ControllerContext, target_key
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.queue import JobQueue
from workbench.job import JobId, State
from workbench.spec import SWEEP_LABEL
from workbench.store.queries.home_queue import QueuePosition

RUNNING: Final = 8
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "of a sweep": {"at_most": RUNNING},
    "for GPUs": {"gpus": 1},
    "for CPUs": {"cpus": 1.0},
    "of a sweep for GPUs": {"at_most": RUNNING, "gpus": 1},
    "for GPUs by weight": {"gpus": 1},
}
"""What the jobs wait for, and the keys of their spec."""
BY_WEIGHT: Final = "for GPUs by weight"


class LongQueue:
    """The queue, and its jobs in their order.

    Those by weight are of two sweeps, the first of which has ``first`` of them, and a third of the other one's weight.
    """

    def __init__(self, count: int, kind: str, first: int | None = None) -> None:
        keys = KINDS[kind]
        worker = SimpleNamespace(key=target_key(LOCAL), measure=lambda line_up=None: None)
        first = count // 2 if first is None else first
        self.jobs = []
        for number in range(1, count + 1):
            state = State.PROCESSING if number <= RUNNING else State.QUEUED
            job_id = JobId(f"training-{number:09}")
            labels = {SWEEP_LABEL: "s"} if "at_most" in keys else {}
            if kind == BY_WEIGHT:
                labels = {SWEEP_LABEL: "a" if number <= first else "b"}
                keys = {**keys, "weight": 1.0 if number <= first else 3.0}
            of = spec(**keys)
            tracked = TrackedJob(row(state, id=job_id, seq=number, target=LOCAL, labels=labels), of, HOME)
            tracked.begun = state is State.PROCESSING
            tracked.stands_at(QueuePosition(of.priority, float(number), weight=of.weight))
            self.jobs.append(tracked)
        by_id = {one.row.id: one for one in self.jobs}
        context = SimpleNamespace(
            jobs=by_id,
            uuid=HOME,
            store=None,
            now=lambda: 0.0,
            worker=lambda ref: worker,
            jobs_at=lambda key: list(by_id.values()),
        )
        self._queue = JobQueue(cast(ControllerContext, context))
        self.evaluate()
        lined_up = frozenset(one.line_entry() for one in self.jobs[RUNNING:] if "gpus" in keys)
        # As the host answers once it was told of those that wait.
        self._queue.measured(
            CapacityMeasured(
                worker.key,
                Capacity(RUNNING, RUNNING),
                0,
                "",
                lined_up=lined_up,
                heeds_weights=kind == BY_WEIGHT,
            )
        )
        self.evaluate()

    def evaluate(self) -> None:
        """Decide which of them may start."""
        self._queue.evaluate()
