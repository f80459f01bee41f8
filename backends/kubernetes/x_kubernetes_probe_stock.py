"""What a cluster has for jobs: nodes, GPUs, storage classes, and the objects that the place's options name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backends.contract.cluster import Document
from backends.contract.host import Finding
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.inventory import inventory
from workbench.errors import FabricError

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def storage(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Say where results without a data store can stay."""
    if cluster.options["claim"]:
        return  # it is looked at by its name
    wanted = cluster.options["storage_class"]
    if not cluster.may_anywhere("list", "storageclasses"):
        if not wanted:
            yield Finding(
                "storage",
                "you may not list the storage classes",
                "lack",
                "whether there is a default one for results without a data store is found out at launch",
                "name one: -o storage_class=NAME, or a claim: -o claim=NAME",
            )
        return
    classes = cluster.list("StorageClass").items
    names = [str(each["metadata"]["name"]) for each in classes]
    default = next((name for name, each in zip(names, classes, strict=True) if is_default(each)), "")
    if wanted and wanted not in names:
        yield Finding(
            "storage",
            f"there is no storage class {wanted}",
            "wrong",
            "claims for results are never bound",
            f"there are {', '.join(names) or 'none'}",
        )
    elif wanted or default:
        others = [name for name in names if name != (wanted or default)]
        text = f"{wanted or default}{'' if wanted else ' (the default)'}"
        yield Finding("storage", text + (f"; also {', '.join(others)}" if others else ""))
    else:
        yield Finding(
            "storage",
            f"no default storage class (there are {', '.join(names) or 'none'})",
            "lack",
            "results of jobs without a data store are kept by holding the ended pod, for a while",
            "give jobs a data store, or name -o claim=NAME or -o storage_class=NAME",
        )


def is_default(storage_class: Document) -> bool:
    """Whether claims that name no class get this one."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return str(annotations.get(DEFAULT_CLASS)).lower() == "true"


def named_objects(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Look for what the options name: a claim, a queue, a service account, a priority class, pull secrets."""
    told = cluster.options
    wanted: list[tuple[str, str, str]] = [
        ("claim", "PersistentVolumeClaim", told["claim"]),
        ("claim for data", "PersistentVolumeClaim", told["data_claim"]),
        ("queue", "LocalQueue", told["queue"]),
        ("service account", "ServiceAccount", told["service_account"]),
        ("priority class", "PriorityClass", told["priority_class"]),
        *(("pull secret", "Secret", name) for name in told["image_pull_secrets"]),
        *(("volume", "PersistentVolumeClaim", name) for name in _claims(told["volumes"])),
    ]
    for subject, kind, name in wanted:
        if name:
            yield _named(cluster, subject, kind, name)


def _claims(volumes: Any) -> Iterator[str]:
    for volume in volumes:
        if claim := volume["source"].get("persistentVolumeClaim"):
            yield str(claim["claimName"])


def _named(cluster: KubernetesCluster, subject: str, kind: str, name: str) -> Finding:
    try:
        found = cluster.read(kind, name)
    except FabricError as error:
        return Finding(subject, f"{name}: whether it is there cannot be seen: {error.message}", "lack")
    if found is None:
        where = "" if kind == "PriorityClass" else f" in {cluster.namespace}"
        return Finding(
            subject,
            f"there is no {kind} {name}{where}",
            "wrong",
            "pods with it are never started",
            "make it, or name another one in the place's options",
        )
    if kind == "PersistentVolumeClaim":
        return _claim(subject, name, found)
    return Finding(subject, name)


def _claim(subject: str, name: str, claim: Document) -> Finding:
    modes = ", ".join((claim.get("spec") or {}).get("accessModes") or ())
    phase = (claim.get("status") or {}).get("phase", "")
    shared = "ReadWriteMany" in modes
    text = f"{name}: {phase}, {modes}"
    if shared or not subject.startswith("claim"):
        return Finding(subject, text)
    return Finding(
        subject,
        text,
        "lack",
        "learners and jobs on several nodes cannot share it",
        "a claim with ReadWriteMany",
    )


def stock(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Say which nodes and GPUs there are, where they may be listed."""
    found = inventory(cluster)
    if not found.nodes:
        yield Finding(
            "nodes",
            found.note or "none",
            "lack",
            "a request that no node can give is seen only when the scheduler says so",
        )
        return
    cpus = sum(node.cpus for node in found.nodes)
    memory = sum(node.memory_bytes for node in found.nodes) / (1 << 30)
    yield Finding("nodes", f"{len(found.nodes)}, with {cpus} CPUs and {memory:.0f} GiB of memory")
    slots = [slot for node in found.nodes for slot in node.slots]
    resource = cluster.options["gpu_resource"]
    if not slots:
        yield Finding("gpu", f"no node has {resource}", "lack", "jobs that ask for GPUs are refused there")
        return
    models = ", ".join(sorted({slot.model for slot in slots}))
    free = sum(1 for slot in slots if slot.free)
    note = f" ({found.note})" if found.note else ""
    yield Finding("gpu", f"{len(slots)} {resource}, {free} free: {models}{note}")
