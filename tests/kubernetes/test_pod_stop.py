"""A stop that meets a connection which was lost is sent again at once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from backends.contract.cluster import Cluster
from runners.interface import AttemptRef, LearnerRef, StopRequest
from runners.pod.journals import Journals
from runners.pod.names import SIDE_CAR
from runners.pod.stop import StopRequests
from workbench.errors import BackendUnreachable

LEARNER = LearnerRef("home", "training-abcdefghj", 1, 1)
RUNNING = {
    "metadata": {"name": "pod", "uid": "1"},
    "status": {
        "phase": "Running",
        "initContainerStatuses": [{"name": SIDE_CAR, "state": {"running": {}}}],
        "containerStatuses": [{"name": "learner", "state": {"running": {}}}],
    },
}


class Sidecar:
    """What reaches a pod: the first calls find their connection lost."""

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.written: list[Any] = []

    def host(self, ref: LearnerRef, pod: Any, *, connect_seconds: float) -> Sidecar:
        return self

    def call(self, name: str, **more: Any) -> Any:
        if self.lost:
            self.lost -= 1
            raise BackendUnreachable("The connection broke.")
        if name == "ask_to_stop":
            self.written.append(more["request"])
        return None


class Pods:
    """A cluster with one job, of which one pod runs."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def read(self, kind: str, name: str) -> Any:
        labels = {"fabric.home": "home", "fabric.job": LEARNER.job_id, "fabric.attempt": "1"}
        metadata = {"name": name, "uid": "2", "labels": labels, "annotations": labels}
        return RUNNING if kind == "Pod" else {"metadata": metadata, "spec": {}}

    def delete(self, kind: str, name: str, **_: Any) -> None:
        self.deleted.append(name)

    def pods_of(self, attempt: AttemptRef) -> Any:
        return {1: RUNNING}


def stop(requests: StopRequests, pods: Pods, side_car: Sidecar) -> None:
    attempt = AttemptRef("home", LEARNER.job_id, 1, 1)
    requests.stop(attempt, StopRequest("halt", 30.0, "me"), cast(Any, pods), cast(Journals, side_car))


def test_a_halt_whose_connection_was_lost_is_sent_once_more_at_once() -> None:
    pods, side_car = Pods(), Sidecar(lost=1)

    stop(StopRequests(cast(Cluster, pods)), pods, side_car)

    assert len(side_car.written) == 1
    assert pods.deleted == []


def test_a_halt_that_does_not_get_through_counts_as_not_sent() -> None:
    pods, side_car = Pods(), Sidecar(lost=2)
    requests = StopRequests(cast(Cluster, pods))

    with pytest.raises(BackendUnreachable, match="broke"):
        stop(requests, pods, side_car)
    assert side_car.written == [] and pods.deleted == []

    stop(requests, pods, side_car)
    assert len(side_car.written) == 1


def test_a_pod_whose_agent_a_halt_does_not_reach_for_long_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.pod.stop.UNREACHED_SECONDS", 0.0)
    pods = Pods()

    stop(StopRequests(cast(Cluster, pods)), pods, Sidecar(lost=2))

    assert pods.deleted == ["pod"]
