"""Asks a cluster, before anything is made there, whether it could ever take a job's pods; refuses what it cannot."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from backends.contract.cluster import Absent, AlreadyThere, Cluster, Denied, Invalid, OverQuota
from backends.kubernetes.x_kubernetes_quantity import quantity
from runners.interface import Plan
from runners.pod.options import PodOptions
from workbench.errors import LaunchRefused

HINTS: Final[Mapping[str, str]] = {
    "per Container": "ask for what the namespace lets one have, by memory:, cpus: and shm_size:",
    "per Pod": "ask for what the namespace lets one have, by memory:, cpus: and shm_size:",
    "must specify": "say what the quota counts, by cpus: and memory:",
    "PodSecurity": "the option run_as of the place is restricted or image; restricted passes the strictest policy",
    "service account": "service_account of the backend names one that is there",
    "PriorityClass": "priority_class of the backend names one that is there",
}
"""What to do, by words of a refusal that no other try mends."""

_UNABLE: Final = ("does not support dry run", "dryRun")
"""What a webhook says that cannot be asked without a pod being made."""

_SCOPED: Final = ("scopes", "scopeSelector")


def check(cluster: Cluster, plan: Plan, options: PodOptions) -> None:
    """Refuse what the cluster can never give, as far as the user's rights let it be known.

    Raises:
        LaunchRefused: with the cluster's own words, C104.
    """
    job = next(one for one in plan.objects if one["kind"] == "Job")
    template = job["spec"]["template"]
    learners = plan.request.attempt.learners
    questions: tuple[Callable[[], None], ...] = (
        lambda: _check_pod(cluster, job["metadata"]["name"], template),
        lambda: _check_quotas(cluster, template, learners),
        lambda: _check_named(cluster, template["spec"], options),
    )
    with ThreadPoolExecutor(len(questions), thread_name_prefix="check") as pool:
        for asked in [pool.submit(question) for question in questions]:
            asked.result()


def refusal_of(words: str) -> str | None:
    """Return the hint to a refusal that no other try mends, None where another may."""
    if "exceeded quota" in words:
        return None
    return next((hint for known, hint in HINTS.items() if known in words), None)


def _check_pod(cluster: Cluster, stem: str, template: Mapping[str, Any]) -> None:
    """Have all of the cluster's admission look at a pod that is not made."""
    metadata = {**template["metadata"], "name": f"{stem}-0"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        cluster.create(pod, dry_run=True)
    except (Denied, OverQuota, AlreadyThere):
        return  # it may not be asked, or has no room now: what follows says so
    except Invalid as error:
        if any(word in error.message for word in _UNABLE):
            return
        hint = error.hint or refusal_of(error.message) or ""
        raise LaunchRefused(f"The cluster takes no such pod: {error.message}", hint=hint) from error


def _check_quotas(cluster: Cluster, template: Mapping[str, Any], learners: int) -> None:
    try:
        quotas = cluster.list("ResourceQuota").items
    except Denied:
        return
    for quota in quotas:
        spec = quota.get("spec") or {}
        if any(spec.get(scope) for scope in _SCOPED):
            continue  # whether it counts these pods is the cluster's to say
        for name, wanted, most in above(spec.get("hard") or {}, template["spec"], learners):
            raise LaunchRefused(
                f"The job needs {wanted:g} {name}, and the namespace's quota {quota['metadata']['name']} "
                f"has {most} in all.",
                hint="ask for less, or for a larger quota; fabric backend test shows it",
            )


def above(hard: Mapping[str, Any], pod: Mapping[str, Any], learners: int) -> Iterator[tuple[str, float, str]]:
    """Name what a quota never has room for: its name, how much all learners need, how much there is."""
    asked = {kind: needs(pod, kind) for kind in ("requests", "limits")}
    for name, most in hard.items():
        kind, _, resource = name.partition(".")
        if kind in asked and resource:
            one = asked[kind].get(resource, 0.0)
        else:
            one = 1.0 if name in ("pods", "count/pods") else asked["requests"].get(name, 0.0)
        if one * learners > quantity(most):
            yield name, one * learners, str(most)


def needs(pod: Mapping[str, Any], kind: str) -> dict[str, float]:
    """Return what a pod counts for: its containers and side-cars, or an init container that needs more."""
    total: dict[str, float] = {}
    for container in pod["containers"]:
        _add(total, container, kind)
    first: list[dict[str, float]] = []
    beside: dict[str, float] = {}
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(beside, container, kind)
        else:
            first.append(_add(dict(beside), container, kind))
    for name, amount in beside.items():
        total[name] = total.get(name, 0.0) + amount
    for step in first:
        total |= {name: max(amount, total.get(name, 0.0)) for name, amount in step.items()}
    return total


def _add(total: dict[str, float], container: Mapping[str, Any], kind: str) -> dict[str, float]:
    for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
        total[name] = total.get(name, 0.0) + quantity(amount)
    return total


def _check_named(cluster: Cluster, pod: Mapping[str, Any], options: PodOptions) -> None:
    """Look for what pods would wait for without end."""
    for kind, name, where in _named(pod):
        with contextlib.suppress(Denied):
            if cluster.read(kind, name) is None:
                raise LaunchRefused(
                    f"There is no {kind} {name} in the namespace {cluster.namespace}.",
                    hint=f"make it, or name another one in {where} of the backend",
                )
    if options.queue:
        with contextlib.suppress(Denied, Absent):  # no such kind in this version: nothing is known
            queues = [str(one["metadata"]["name"]) for one in cluster.list("LocalQueue").items]
            if options.queue not in queues:
                raise LaunchRefused(
                    f"There is no queue {options.queue} in the namespace {cluster.namespace}.",
                    hint=f"queue of the backend is one of {', '.join(sorted(queues)) or 'none'}",
                )


def _named(pod: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for volume in pod.get("volumes") or ():
        if not str(volume["name"]).startswith("user-"):
            continue
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", str(claim["claimName"]), "volumes"
        if secret := volume.get("secret"):
            yield "Secret", str(secret["secretName"]), "volumes"
        if table := volume.get("configMap"):
            yield "ConfigMap", str(table["name"]), "volumes"
