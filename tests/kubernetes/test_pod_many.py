"""Many pods at once, on simulated nodes: launched together and in order, with few calls and threads."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from backends.contract.cluster import ClusterStream, Log
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.kubeconfig import resolve
from backends.kubernetes.options import checked_options
from runners.conformance.harness import LaunchLines, request_of
from runners.interface import AttemptRef, LaunchRequest, LearnerRef
from runners.pod.runner import PodRunner
from tests.bench.pods_many import simulated_nodes
from tests.support.cluster import Space, cluster_held
from tests.support.cluster_health import SCRIPT
from tests.support.pod_images import DEBIAN
from tests.support.waiting import until
from workbench.controller.targets.mirror import learners_of

SECONDS = 120.0
GANGS, PER_GANG = 5, 6


class CountingCluster(KubernetesCluster):
    """A cluster that counts what could be one call a pod."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls: Counter[str] = Counter()

    def logs(self, *arguments: Any, **options: Any) -> Log:
        """Count it."""
        self.calls["logs"] += 1
        return super().logs(*arguments, **options)

    def exec(self, pod: str, container: str, argv: Sequence[str], **options: Any) -> ClusterStream:
        """Count it."""
        self.calls["exec"] += 1
        return super().exec(pod, container, argv, **options)


@pytest.fixture
def nodes(unheld_space: Space) -> Iterator[Space]:
    """A namespace, and two simulated nodes of 8 GPUs with the cluster alone: others' pods find no more nodes."""
    if not SCRIPT:
        pytest.skip("no simulated nodes: FABRIC_TEST_CLUSTER names no program")
    with cluster_held(alone=True), simulated_nodes(2):
        yield unheld_space


def simulated(space: Space, run_seconds: float, **more: Any) -> CountingCluster:
    options = {
        "default_memory": "64Mi",
        "node_selector": {"type": "kwok"},
        "tolerations": ["kwok.x-k8s.io/node"],
        "pod_patch": {"metadata": {"annotations": {"sim/run": f"{run_seconds:g}s"}}},
        **more,
    }
    access = resolve(space.address, kubeconfig=str(space.kubeconfig), environ={})
    return CountingCluster(access, checked_options("space", options), {})


def requests(count: int, **spec: Any) -> list[LaunchRequest]:
    home = str(uuid.uuid4())
    made = [request_of("true", home=home, image=DEBIAN, ends_when="all", **spec) for _ in range(count)]
    return [replace(one, seq=number) for number, one in enumerate(made, 1)]


def scheduled_at(cluster: KubernetesCluster, attempt: AttemptRef) -> list[str]:
    """Return when each pod of an attempt got its node."""
    return [
        str(condition["lastTransitionTime"])
        for pod in cluster.list("Pod", f"fabric.job={attempt.job_id}").items
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]


@pytest.mark.usefixtures("home")
def test_gangs_are_launched_together_and_each_ended_log_is_read_once(nodes: Space) -> None:
    cluster = simulated(nodes, 3)
    todo = requests(GANGS, learners=PER_GANG)
    runner = PodRunner(cluster, home_uuid=todo[0].attempt.home)
    before = threading.active_count()

    def launch(request: LaunchRequest) -> None:
        runner.launch(runner.plan(request), LaunchLines())

    with ThreadPoolExecutor(GANGS) as pool:
        list(pool.map(launch, todo))
    attempts = [one.attempt for one in todo]
    until(
        lambda: all(
            pod["status"].get("phase") == "Succeeded" for pod in cluster.list("Pod", "fabric.job").items
        ),
        "all pods to end",
        seconds=SECONDS,
    )
    known: dict[LearnerRef, dict[str, int]] = {ref: {} for ref in learners_of(attempts)}
    cluster.calls.clear()
    for _ in range(20):
        runner.follow(known, timeout_seconds=0.2)
        runner.follow(known, timeout_seconds=0)

    assert cluster.calls["exec"] == 0
    assert cluster.calls["logs"] <= 2 * GANGS * PER_GANG  # of side-car and learner
    assert threading.active_count() - before < GANGS * PER_GANG / 2
    runner.close()
    cluster.close()


@pytest.mark.usefixtures("home")
def test_twelve_jobs_on_six_gpus_start_in_order(nodes: Space) -> None:
    resource = "tests.example.com/gpu-order"
    node = next(str(one["metadata"]["name"]) for one in nodes.admin.list("Node", "type=kwok").items)
    path = f"/status/%s/{resource.replace('/', '~1')}"
    for part in ("capacity", "allocatable"):
        change = [{"op": "add", "path": path % part, "value": "6"}]
        nodes.admin.patch("Node", node, change, type="json", subresource="status")
    cluster = simulated(nodes, 2, gpu_resource=resource)
    todo = requests(12, gpus=1)
    runner = PodRunner(cluster, home_uuid=todo[0].attempt.home)

    def launch(request: LaunchRequest) -> None:
        time.sleep(0.05 * (12 - request.seq))  # those that came last arrive first
        runner.launch(runner.plan(request), LaunchLines())

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(launch, todo))

    until(
        lambda: all(scheduled_at(cluster, one.attempt) for one in todo), "all to have a node", seconds=SECONDS
    )
    times = [min(scheduled_at(cluster, one.attempt)) for one in todo]
    assert times == sorted(times)
    runner.close()
    cluster.close()
