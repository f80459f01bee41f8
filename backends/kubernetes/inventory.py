"""Nodes and GPUs of a cluster and who uses them, as far as the user may list nodes and pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backends.contract.cluster import Document
from backends.contract.host import Inventory, Node, Slot
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.resources import quantity
from workbench.clock import now_us

PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
)
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""The label with a GPU's memory in MiB, set by NVIDIA's feature discovery."""

JOB_LABEL: Final = "fabric.job"
OVER: Final = ("Succeeded", "Failed")


def inventory(cluster: KubernetesCluster) -> Inventory:
    """Return the nodes with their GPUs, and a note about what could not be listed.

    Raises:
        BackendUnreachable: the cluster does not answer.
    """
    if not cluster.may_anywhere("list", "nodes"):
        return Inventory(
            (), now_us(), note=f"you may not list the nodes of {cluster.server}{_quota(cluster)}"
        )
    nodes = cluster.list("Node").items
    everywhere = cluster.may_anywhere("list", "pods")
    pods = cluster.list_everywhere("Pod") if everywhere else cluster.list("Pod").items
    note = "" if everywhere else f"pods of other namespaces than {cluster.namespace} cannot be seen"
    return Inventory(tuple(_node(node, pods, cluster) for node in nodes), now_us(), note=note)


def gpu_count(cluster: KubernetesCluster) -> int | None:
    """Return how many GPUs the nodes have that take pods, None if they may not be listed."""
    found = gpus_of_nodes(cluster)
    return None if found is None else sum(found)


def gpus_of_nodes(cluster: KubernetesCluster) -> list[int] | None:
    """Return how many GPUs each node has that takes pods, None if they may not be listed."""
    if not cluster.may_anywhere("list", "nodes"):
        return None
    nodes = [node for node in cluster.list("Node").items if ready(node)]
    return [_gpus_of_node(node, cluster.options["gpu_resource"]) for node in nodes]


def _gpus_of_node(node: Document, resource: str) -> int:
    has = node.get("status", {}).get("allocatable") or {}
    return int(quantity(has.get(resource, 0)))


def gpu_model(node: Document, gpu_types: Mapping[str, Mapping[str, str]]) -> str:
    """Return the GPU type of a node by its labels."""
    labels = node["metadata"].get("labels") or {}
    for label in PRODUCT_LABELS:
        if found := labels.get(label):
            return str(found)
    for name, required in gpu_types.items():
        if required and all(labels.get(key) == value for key, value in required.items()):
            return name
    return "GPU"


def ready(node: Document) -> bool:
    """Return whether a node is ready and takes pods."""
    conditions = node.get("status", {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not node.get("spec", {}).get("unschedulable")


def _node(node: Document, pods: Sequence[Document], cluster: KubernetesCluster) -> Node:
    name = str(node["metadata"]["name"])
    resource = cluster.options["gpu_resource"]
    has = node.get("status", {}).get("allocatable") or {}
    labels = node["metadata"].get("labels") or {}
    memory_bytes = int(quantity(labels.get(MEMORY_LABEL, 0)) * (1 << 20))
    holders = list(_holders(name, pods, resource))
    model = gpu_model(node, cluster.options["gpu_types"])
    slots = tuple(
        _slot(name, index, model, memory_bytes, holders[index] if index < len(holders) else ("", "", ""))
        for index in range(_gpus_of_node(node, resource))
    )
    driver_text = (
        "" if ready(node) else "not ready" if not node.get("spec", {}).get("unschedulable") else "cordoned"
    )
    return Node(
        name=name,
        cpus=int(quantity(has.get("cpu", 0))),
        memory_bytes=int(quantity(has.get("memory", 0))),
        slots=slots,
        driver=driver_text or ("" if slots else f"no {resource}"),
    )


def _slot(node: str, index: int, model: str, memory_bytes: int, use: tuple[str, str, str]) -> Slot:
    # Only the device plug-in knows which GPU a pod has: GPUs are counted here, not identified.
    holder, job, foreign = use
    return Slot(f"{node}/{index}", index, model, memory_bytes, holder=holder, holder_job=job, foreign=foreign)


def _holders(node: str, pods: Sequence[Document], resource: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each GPU in use on a node: the holder, the job's id, and the foreign pod (see ``Slot``)."""
    for pod in pods:
        spec, metadata = pod.get("spec") or {}, pod["metadata"]
        if spec.get("nodeName") != node or (pod.get("status") or {}).get("phase") in OVER:
            continue
        job = str((metadata.get("labels") or {}).get(JOB_LABEL) or "")
        pod_name = f"{metadata.get('namespace', '')}/{metadata['name']}"
        for _ in range(gpus_of(spec, resource)):
            yield (pod_name, job, "") if job else ("", "", f"pod {pod_name}")


def gpus_of(spec: Mapping[str, Any], resource: str) -> int:
    """Return the GPUs that a pod requests: the sum of its containers, or the most of an init container."""

    def gpus_in(container: Mapping[str, Any]) -> int:
        resources = container.get("resources") or {}
        return int(
            quantity(
                {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.get(resource, 0)
            )
        )

    running = sum(gpus_in(each) for each in spec.get("containers") or ())
    return max([running, *(gpus_in(each) for each in spec.get("initContainers") or ())])


def _quota(cluster: KubernetesCluster) -> str:
    if not cluster.may("list", "resourcequotas"):
        return ""
    resource = f"requests.{cluster.options['gpu_resource']}"
    for quota in cluster.list("ResourceQuota").items:
        status = quota.get("status") or {}
        if most := (status.get("hard") or {}).get(resource):
            used = (status.get("used") or {}).get(resource, "0")
            return f"; the quota of {cluster.namespace} has {used} of {most} {cluster.options['gpu_resource']} in use"
    return ""
