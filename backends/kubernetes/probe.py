"""Says in words what was found in a cluster's namespace, each lack with its consequence and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from backends.contract.cluster import Absent, Denied
from backends.contract.host import Finding, Level
from backends.kubernetes.backend import too_old
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.rbac import Right, all_rights, rules_yaml
from backends.kubernetes.resources import kind_of
from backends.kubernetes.x_kubernetes_probe_space import limits, policy, quotas
from backends.kubernetes.x_kubernetes_probe_stock import named_objects, stock, storage
from workbench.errors import FabricError

ASKED_AT_ONCE: Final = 8


def findings(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Ask a cluster and give what was found; ends early where nothing more can be asked.

    Raises:
        PlaceUnreachable: it does not answer, or does not let us in.
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
            "whoever is on the way can read and change everything, secrets of jobs too",
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
    """Return the user's name as the cluster knows it, empty where it does not say."""
    try:
        said = cluster.create(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
        )
    except (Denied, Absent):
        return ""
    info: dict[str, Any] = (said.get("status") or {}).get("userInfo") or {}
    return str(info.get("username") or "")


def missing_rights(cluster: KubernetesCluster) -> tuple[Right, ...]:
    """Return what the user may not do of what jobs need, each with the verbs that are missing."""
    wanted = [(right, verb) for right in all_rights() for verb in right.verbs]

    def may(asked: tuple[Right, str]) -> bool:
        right, verb = asked
        return cluster.may(verb, right.name, right.subresource, group=right.group)

    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="rights") as pool:
        answers = dict(zip(wanted, pool.map(may, wanted), strict=True))
    lacking = []
    for right in all_rights():
        verbs = tuple(verb for verb in right.verbs if not answers[right, verb])
        if verbs:
            lacking.append(Right(right.group, right.resource, verbs, right.without, right.needed))
    return tuple(lacking)


def _rights(cluster: KubernetesCluster) -> Iterator[Finding]:
    missing = missing_rights(cluster)
    if not missing:
        yield Finding("rights", "all that jobs need")
    for right in missing:
        level: Level = "wrong" if right.needed else "lack"
        yield Finding(
            "rights",
            f"you may not {_listed(right.verbs)} {right.resource}",
            level,
            right.without,
            f"ask for the rule {rules_yaml([right])} (all: fabric backend role {cluster.access.address})",
        )


def _absent_namespace(cluster: KubernetesCluster) -> Finding | None:
    """Say that the namespace is not there, where that can be seen: who may do nothing there is told nothing."""
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


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
