"""What the settings of a cluster make of pods: volumes, nodes, accounts, a patch, a queue, a claim of the job's own."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.kubernetes.stores import make_volume, until_bound
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX, DEBIAN
from tests.support.waiting import until
from workbench.paths import Home


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the node, which tests run on."""
    made = Path(tempfile.mkdtemp(prefix="fabric-node-", dir="/var/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def make(space: Space, kind: str, name: str, **document: Any) -> None:
    versions = {
        "StorageClass": "storage.k8s.io/v1",
        "PriorityClass": "scheduling.k8s.io/v1",
    }
    space.admin.create(
        {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": {"name": name}, **document}
    )


def volume_spec(folder: Path, storage_class: str, **more: Any) -> dict[str, Any]:
    return {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "hostPath": {"path": str(folder)},
        "persistentVolumeReclaimPolicy": "Retain",
        **more,
    }


@pytest.fixture
def storage_class(space: Space, folder: Path) -> Iterator[str]:
    """A class with one volume, which an administrator has made by hand."""
    name = f"class-{space.namespace}"
    make(space, "StorageClass", name, provisioner="kubernetes.io/no-provisioner")
    make_volume(space, name, volume_spec(folder, name))
    yield name
    for kind in ("PersistentVolume", "StorageClass"):
        space.admin.delete(kind, name)


def test_results_on_a_claim_of_the_jobs_own_outlive_its_pods_and_serve_the_next_attempt(
    fabric: Fabric, space: Space, home: Home, storage_class: str
) -> None:
    configure(space, storage_class=storage_class, claim_size="1Gi")
    pods = Pods(fabric, space)
    command = (
        "trap 'exit 0' TERM; n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0); echo $n > $RESULT_DIR/r;"
        " echo $((n + 1)) > $CHECKPOINT_DIR/n; echo from $n; [ $n = 1 ] || while :; do sleep 0.1; done"
    )

    job = str(pods.run("-d", "--", "sh", "-c", command).stdout).split()[
        -1
    ]  # nothing is lost: no consent is asked for
    pods.until_printed(job, "from 0")
    pods.fabric("halt", job)
    pods.until_state(job, "HALTED")
    pods.fabric("resume", job)

    assert pods.wait(job)["state"] == "COMPLETED"
    assert "from 1" in pods.fabric("logs", job).stdout
    assert (home.job(job).results / "r").read_text() == "1\n"
    assert [one for one in pods.objects() if one.startswith("PersistentVolumeClaim")] != []
    pods.fabric("delete", job, "--yes")
    until(lambda: pods.objects() == [], "its claim to be gone, too", every=IN_CLUSTER_SECONDS)


def test_a_pod_has_the_volumes_accounts_and_the_patch_that_the_settings_name(
    fabric: Fabric, space: Space, folder: Path
) -> None:
    name = f"data-{space.namespace}"
    (folder / "input").write_text("given\n")
    bound = {"claimRef": {"namespace": space.namespace, "name": "data"}}
    make_volume(space, name, volume_spec(folder, "", **bound))
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    make(space, "PersistentVolumeClaim", "data", spec=claim)
    until_bound(space, "data")
    make(space, "Secret", "registry", stringData={"key": "value"})
    make(space, "ServiceAccount", "trainer")
    make(space, "PriorityClass", name, value=1000)
    try:
        configure(
            space,
            volumes=["data:/data:ro", f"{folder}:/scratch"],
            service_account="trainer",
            image_pull_secrets=["registry"],
            priority_class=name,
        )
        with Path(os.environ["FABRIC_CONFIG"]).open("a") as config:
            config.write("[[backends.cluster.pod_patch.spec.containers]]\nname = 'learner'\n")
            config.write("env = [{name = 'PATCHED', value = 'patched'}]\n")
            config.write("[backends.cluster.pod_patch.metadata.annotations]\nnote = 'by hand'\n")
            config.write("[backends.cluster.labels]\nteam = 'vision'\n")
        pods = Pods(fabric, space)
        script = (
            "cat /data/input; echo more > /scratch/output; touch /data/no 2>/dev/null || echo read-only; echo $PATCHED;"
            " df -P /dev/shm | tail -1 | cut -d' ' -f1; df -Pm /dev/shm | awk 'NR == 2 {print $2}';"
            " ls /var/run/secrets/kubernetes.io 2>/dev/null || echo no token"
        )

        ran = pods.run("--set", "shm_size=64M", "--", "sh", "-c", script)

        assert ran.stdout.splitlines() == ["given", "read-only", "patched", "tmpfs", "64", "no token"]
        assert (folder / "output").read_text() == "more\n"
        (pod,) = pods.pods()
        spec = pod["spec"]
        assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("trainer", name)
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["metadata"]["labels"]["team"] == "vision"
        assert pod["metadata"]["annotations"]["note"] == "by hand"
    finally:
        space.admin.delete("PriorityClass", name)
        space.admin.delete("PersistentVolume", name)


@pytest.fixture
def node(space: Space) -> Iterator[str]:
    """A node with a kind of GPU of its own and a taint; nothing runs there, but pods are given to it."""
    name = f"node-{space.namespace}"
    taints = [{"key": name, "value": "gpu", "effect": "NoSchedule"}]
    metadata = {"name": name, "labels": {f"{name}/gpu": "a100"}}
    space.admin.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "100", "nvidia.com/gpu": "8"}
    over = threading.Event()

    def beat() -> None:
        """Say that it is well, as a kubelet does: a node that is silent for a while is given no pods."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "Made", "message": "by a test"}
        conditions = [{**ready, "lastHeartbeatTime": now}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
        space.admin.patch("Node", name, {"status": status}, subresource="status")

    def beat_on() -> None:
        while not over.wait(2.0):
            beat()

    beat()
    beating = threading.Thread(target=beat_on)
    beating.start()
    yield name
    over.set()
    beating.join()
    for pod in space.admin.list("Pod").items:
        space.admin.delete("Pod", pod["metadata"]["name"], grace_seconds=0)
    space.admin.delete("Node", name)


@pytest.mark.soak("the gate sees labels and tolerations of the pod that is made, in test_pod_template")
def test_a_type_of_gpu_is_found_by_the_labels_that_the_settings_name_and_its_taint_is_stood(
    fabric: Fabric, space: Space, node: str
) -> None:
    types = {"gpu_types": {"A100": f"{node}/gpu=a100"}, "unfit_seconds": 2}
    args = ("--gpus", "8", "--set", "gpu_type=A100")
    _configure(space, **types)
    pods = Pods(fabric, space)

    job = pods.start(*args, "--", "true")
    pods.until(job, lambda shown: "untolerated taint" in shown["reason"], "the scheduler's words")
    pods.fabric("kill", job, "--no-wait")
    pods.until_state(job, "HALTED")

    _configure(space, **types, tolerations=[f"{node}=gpu:NoSchedule"])
    job = pods.start(*args, "--", "true")
    until(lambda: any(pod["spec"].get("nodeName") == node for pod in pods.pods()), "its pod to have a node")
    (pod,) = (pod for pod in pods.pods() if pod["metadata"]["labels"]["fabric.job"] == job)
    assert pod["spec"]["nodeName"] == node
    assert pod["spec"]["nodeSelector"] == {f"{node}/gpu": "a100"}
    pods.fabric("kill", job, "--no-wait")  # no kubelet will say that it is over


def _configure(space: Space, **options: Any) -> None:
    types = options.pop("gpu_types")
    configure(space, **options)
    with Path(os.environ["FABRIC_CONFIG"]).open("a") as config:
        config.write("[backends.cluster.gpu_types]\n")
        config.writelines(f'{name} = "{labels}"\n' for name, labels in types.items())


def test_a_manifest_sets_what_its_pods_are_like_over_the_settings(fabric: Fabric, space: Space) -> None:
    make(space, "ServiceAccount", "trainer")
    configure(space, tolerations=["gpu:NoSchedule"], service_account="other")
    with Path(os.environ["FABRIC_CONFIG"]).open("a") as config:
        config.write(
            "[backends.cluster.pod_patch.metadata.annotations]\nfirst = 'backend'\nboth = 'backend'\n"
        )
    pods = Pods(fabric, space)
    (fabric.folder / "m.yml").write_text(
        f"""name: own
framework: {{name: custom, version: "{DEBIAN}", command: "echo mine"}}
kubernetes:
  tolerations: [spot]
  node_selector: {{kubernetes.io/os: linux}}
  affinity: {{podAntiAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: []}}}}
  service_account: trainer
  annotations: {{sidecar.istio.io/inject: "false"}}
  pod_patch:
    metadata: {{annotations: {{both: manifest}}}}
    spec: {{dnsConfig: {{options: [{{name: ndots, value: "2"}}]}}}}
"""
    )

    ran = fabric("run", "--backend", "cluster", "m.yml")

    (pod,) = pods.pods()
    spec, annotations = pod["spec"], pod["metadata"]["annotations"]
    assert ran.stdout == "mine\n"
    assert {"gpu", "spot"} <= {one.get("key") for one in spec["tolerations"]}
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "podAntiAffinity" in spec["affinity"]
    assert spec["serviceAccountName"] == "trainer" and spec["automountServiceAccountToken"] is False
    assert annotations["sidecar.istio.io/inject"] == "false"
    assert (annotations["first"], annotations["both"]) == ("backend", "manifest")
    assert spec["dnsConfig"]["options"] == [{"name": "ndots", "value": "2"}]


def test_containers_of_a_patch_neither_hide_the_learner_from_a_halt_nor_keep_its_pod(
    fabric: Fabric, space: Space
) -> None:
    configure(space)
    pods = Pods(fabric, space)
    (fabric.folder / "m.yml").write_text(
        f"""name: crowded
framework: {{name: custom, version: "{DEBIAN}", command: "echo begun; exec sleep 1000"}}
kubernetes:
  pod_patch:
    spec:
      containers:
      - {{name: short, image: "{BUSYBOX}", command: ["true"]}}
      - {{name: long, image: "{BUSYBOX}", command: [sh, -c, "while :; do sleep 0.2; done"]}}
"""
    )
    job = pods.start("m.yml")
    pods.until_printed(job, "begun")
    until(lambda: _ended_containers(pods) == ["short"], lambda: f"the short one to end: {pods.pods()}")

    fabric("halt", job)

    assert pods.wait(job)["state"] == "HALTED"
    until(lambda: not pods.pods(), lambda: f"the pod to go: {pods.pods()}")


def _ended_containers(pods: Pods) -> list[str]:
    (pod,) = pods.pods()
    found = pod["status"].get("containerStatuses") or ()
    return [one["name"] for one in found if "terminated" in (one.get("state") or {})]
