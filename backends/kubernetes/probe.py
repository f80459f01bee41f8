"""Checks a namespace of a cluster; each problem is reported with its consequence and remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from backends.contract.cluster import Absent, Denied, Document
from backends.contract.host import Finding, Level
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.inventory import inventory
from backends.kubernetes.rbac import missing_rights, rights_text, rules_yaml
from backends.kubernetes.resources import kind_of, quantity
from workbench.errors import BackendError, FabricError
from workbench.formats import size

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def storage(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Report where results without a data store are kept."""
    if cluster.options["claim"]:
        return  # named_objects checks it
    storage_class = cluster.options["storage_class"]
    if not cluster.may_anywhere("list", "storageclasses"):
        if not storage_class:
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
    if storage_class and storage_class not in names:
        yield Finding(
            "storage",
            f"there is no storage class {storage_class}",
            "wrong",
            "claims for results are never bound",
            f"there are {', '.join(names) or 'none'}",
        )
    elif storage_class or default:
        others = [name for name in names if name != (storage_class or default)]
        text = f"{storage_class or default}{'' if storage_class else ' (the default)'}"
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
    """Return whether claims without a class get this storage class."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return str(annotations.get(DEFAULT_CLASS)).lower() == "true"


def named_objects(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Check that the objects in the options exist: claims, queue, service account, priority classes, pull secrets."""
    options = cluster.options
    classes = dict.fromkeys((options["priority_class"], *options["priority_classes"].values()))
    named: list[tuple[str, str, str]] = [
        ("claim", "PersistentVolumeClaim", options["claim"]),
        ("claim for data", "PersistentVolumeClaim", options["data_claim"]),
        ("queue", "LocalQueue", options["queue"]),
        ("service account", "ServiceAccount", options["service_account"]),
        *(("priority class", "PriorityClass", name) for name in classes),
        *(("pull secret", "Secret", name) for name in options["image_pull_secrets"]),
        *(("volume", "PersistentVolumeClaim", name) for name in _claims(options["volumes"])),
    ]
    for subject, kind, name in named:
        if name:
            yield _named(cluster, subject, kind, name)


def _claims(volumes: Any) -> Iterator[str]:
    for volume in volumes:
        if claim := volume["source"].get("persistentVolumeClaim"):
            yield str(claim["claimName"])


def _named(cluster: KubernetesCluster, subject: str, kind: str, name: str) -> Finding:
    try:
        found = cluster.read(kind, name)
    except Absent as error:  # the kind itself
        remedy = "have it installed, or leave the setting out"
        return Finding(subject, f"{name}: {error.message}", "wrong", "jobs with it are refused", remedy)
    except FabricError as error:
        # The role reads no Secrets: that one is not checked is as it should be.
        level: Level = "ok" if kind == "Secret" and isinstance(error, Denied) else "lack"
        return Finding(subject, f"{name}: whether it exists cannot be checked: {error.message}", level)
    if found is None:
        where = "" if kind == "PriorityClass" else f" in {cluster.namespace}"
        return Finding(
            subject,
            f"there is no {kind} {name}{where}",
            "wrong",
            "pods with it are never started",
            "make it, or name another one in the backend's options",
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
    """Report nodes and GPUs, if the user may list nodes."""
    found = inventory(cluster)
    if not found.nodes:
        yield Finding(
            "nodes",
            found.note or "none",
            "lack",
            "a request that no node can satisfy is noticed only by the scheduler",
        )
        return
    cpus = sum(node.cpus for node in found.nodes)
    memory = sum(node.memory_bytes for node in found.nodes)
    yield Finding("nodes", f"{len(found.nodes)}, with {cpus} CPUs and {size(memory)} of memory")
    slots = [slot for node in found.nodes for slot in node.slots]
    resource = cluster.options["gpu_resource"]
    if not slots:
        yield Finding("gpu", f"no node has {resource}", "lack", "jobs that ask for GPUs are refused there")
        return
    models = ", ".join(sorted({slot.model for slot in slots}))
    free = sum(1 for slot in slots if slot.free)
    note = f" ({found.note})" if found.note else ""
    yield Finding("gpu", f"{len(slots)} {resource}, {free} free: {models}{note}")


POLICY_LABEL: Final = "pod-security.kubernetes.io/enforce"


def policy(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Report the enforced Pod Security level, if the user may read the namespace."""
    try:
        namespace = cluster.read("Namespace", cluster.namespace) or {}
    except FabricError:
        return  # few users may read the namespace; a refusal at launch names the policy
    level = (namespace.get("metadata", {}).get("labels") or {}).get(POLICY_LABEL)
    if not level:
        return
    run_as = cluster.options["run_as"]
    if level == "restricted" and run_as == "image":
        yield Finding(
            "pod security",
            f"{level}, and run_as is image",
            "lack",
            "images that run as root are refused there",
            "fabric backend add ... -o run_as=restricted",
        )
    else:
        yield Finding("pod security", f"{level}; pods run as run_as = {run_as}")


def quotas(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Report the quotas of the namespace and their use."""
    if not cluster.may("list", "resourcequotas"):
        return
    for quota in cluster.list("ResourceQuota").items:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        if not hard:
            continue
        name = quota["metadata"]["name"]
        full = [key for key, most in hard.items() if quantity(used.get(key, 0)) >= quantity(most)]
        text = ", ".join(f"{used.get(key, '0')} of {most} {key}" for key, most in sorted(hard.items()))
        if full:
            yield Finding(
                "quota",
                f"{name}: {text}",
                "lack",
                f"jobs wait until there is room again for {', '.join(sorted(full))}",
                "ask for a larger ResourceQuota, or stop jobs that are not needed",
            )
        else:
            yield Finding("quota", f"{name}: {text}")


def limits(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Report the limits for one pod or container, and the defaults of containers without requests."""
    if not cluster.may("list", "limitranges"):
        return
    for limit_range in cluster.list("LimitRange").items:
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            texts = [
                f"{word} {', '.join(f'{value} {key}' for key, value in sorted(limit[field].items()))}"
                for field, word in (("max", "at most"), ("min", "at least"), ("default", "else"))
                if limit.get(field)
            ]
            if texts:
                yield Finding("limits", f"a {limit.get('type')} has {'; '.join(texts)}")


def findings(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Run all checks on a cluster; ends early if a later check cannot work.

    Raises:
        BackendUnreachable: the cluster does not answer, or refuses the credentials.
    """
    version = cluster.version
    user = whoami(cluster)
    yield Finding("reach", f"{cluster.server}, as {user or 'a user that it does not name'}")
    problem = too_old(version)
    if problem:
        yield Finding(
            "version", f"Kubernetes {version[0]}.{version[1]}", "wrong", problem.message, problem.hint
        )
        return
    yield Finding("version", f"Kubernetes {version[0]}.{version[1]}")
    if not cluster.verified:
        yield Finding(
            "certificate",
            "not checked (insecure-skip-tls-verify)",
            "lack",
            "anybody on the network path can read and change everything, including secrets of jobs",
            "put the cluster's certificate-authority into the kubeconfig",
        )
    if absent := _absent_namespace(cluster):
        yield absent
        return
    yield Finding("namespace", f"{cluster.namespace} (context {cluster.access.context})")
    yield from _rights(cluster)
    yield from policy(cluster)
    yield from quotas(cluster)
    yield from limits(cluster)
    yield from storage(cluster)
    yield from named_objects(cluster)
    yield from stock(cluster)


def whoami(cluster: KubernetesCluster) -> str:
    """Return the user's name in the cluster, empty if the cluster does not return it."""
    try:
        review = cluster.create(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
        )
    except (Denied, Absent):
        return ""
    info: dict[str, Any] = (review.get("status") or {}).get("userInfo") or {}
    return str(info.get("username") or "")


def _rights(cluster: KubernetesCluster) -> Iterator[Finding]:
    missing = missing_rights(cluster)
    if not missing:
        yield Finding("rights", "all that jobs need")
    for right in missing:
        level: Level = "wrong" if right.needed else "lack"
        yield Finding(
            "rights",
            f"you may not {rights_text([right])}",
            level,
            right.without,
            f"ask for the rule {rules_yaml([right])} (all: fabric backend role {cluster.access.address})",
        )


def _absent_namespace(cluster: KubernetesCluster) -> Finding | None:
    """Report a missing namespace; users without any right there cannot see that it is missing."""
    kind = kind_of("Namespace")
    try:
        if cluster.read(kind.name, cluster.namespace) is not None:
            return None
    except FabricError:
        return None
    return Finding(
        "namespace",
        f"there is no namespace {cluster.namespace}",
        "wrong",
        "no job can run there",
        "kubectl get namespaces lists them; k8s://CONTEXT/NAMESPACE or --namespace names one",
    )


OLDEST: Final = (1, 29)
"""The first version with native side-cars and a back-off limit per index."""


def too_old(version: tuple[int, int]) -> BackendError | None:
    """Return the error for a version that is too old, else None."""
    if version >= OLDEST:
        return None
    return BackendError(
        f"The cluster's Kubernetes is {version[0]}.{version[1]}, and {OLDEST[0]}.{OLDEST[1]} is the oldest that works.",
        hint="Older ones have no native side-cars; ask for an upgrade, or use another cluster.",
    )
