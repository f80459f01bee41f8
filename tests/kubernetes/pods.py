"""Plain pods for tests."""

from __future__ import annotations

from typing import Any

from backends.kubernetes.cluster import KubernetesCluster
from tests.support.pod_images import BUSYBOX
from tests.support.waiting import until


def pod(name: str, command: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", command],
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start_pod(cluster: KubernetesCluster, name: str, command: str, phase: str = "Running") -> None:
    cluster.create(pod(name, command))

    def is_there() -> bool:
        found = cluster.read("Pod", name) or {}
        return bool(found["status"].get("phase") == phase)

    until(is_there, f"pod {name} to be {phase}")
