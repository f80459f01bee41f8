"""Checks before a launch whether the cluster can ever run a job's pods, and whether a waiting pod still can."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from backends.contract.cluster import AlreadyThere, Cluster, Denied, Invalid, OverQuota
from backends.kubernetes.resources import quantity
from runners.interface import LaunchPlan
from runners.pod.kueue import check_queue
from runners.pod.options import PodOptions
from workbench.errors import FabricError, LaunchRefused
from workbench.job import Reason

HINTS: Final[Mapping[str, str]] = {
    "per Container": "ask for what the namespace lets one have, by memory:, cpus: and shm_size:",
    "per Pod": "ask for what the namespace lets one have, by memory:, cpus: and shm_size:",
    "must specify": "say what the quota counts, by cpus: and memory:",
    "PodSecurity": "the option run_as of the backend is restricted or image; restricted passes the strictest policy",
    "service account": "service_account of the backend or of kubernetes: names one that is there",
    "PriorityClass": "priority_class and priority_classes of the backend, or priority_class of kubernetes:, name"
    " those that are there",
}
"""Hints for permanent refusals, by a part of the cluster's message."""

_UNABLE: Final = ("does not support dry run", "dryRun")
"""Parts of the message of a webhook that does not support dry runs."""

_SCOPED: Final = ("scopes", "scopeSelector")


def check(cluster: Cluster, plan: LaunchPlan, options: PodOptions) -> None:
    """Refuse a job that the cluster can never run, as far as the user's rights allow checks.

    Raises:
        LaunchRefused: with the cluster's message (C104).
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
        for answer in [pool.submit(question) for question in questions]:
            answer.result()


def refusal_of(message: str) -> str | None:
    """Return the hint for a permanent refusal, None if a retry may help."""
    if "exceeded quota" in message:
        return None
    return next((hint for known, hint in HINTS.items() if known in message), None)


def _check_pod(cluster: Cluster, stem: str, template: Mapping[str, Any]) -> None:
    """Create a pod as a dry run: all admission controllers of the cluster check it."""
    metadata = {**template["metadata"], "name": f"{stem}-0"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    try:
        cluster.create(pod, dry_run=True)
    except (Denied, OverQuota, AlreadyThere):
        return  # no right to check, or no quota left now: the launch itself reports that
    except Invalid as error:
        if any(word in error.message for word in _UNABLE):
            return
        hint = error.hint or refusal_of(error.message) or ""
        raise LaunchRefused(f"The cluster refuses the pod: {error.message}", hint=hint) from error


def _check_quotas(cluster: Cluster, template: Mapping[str, Any], learners: int) -> None:
    try:
        quotas = cluster.list("ResourceQuota").items
    except Denied:
        return
    for quota in quotas:
        spec = quota.get("spec") or {}
        if any(spec.get(scope) for scope in _SCOPED):
            continue  # only the cluster knows whether a scoped quota counts these pods
        for name, needed, most in above(spec.get("hard") or {}, template["spec"], learners):
            raise LaunchRefused(
                f"The job needs {needed:g} {name}, and the namespace's quota {quota['metadata']['name']} "
                f"has {most} in all.",
                hint="ask for less, or for a larger quota; fabric backend test shows it",
            )


def demands_cpu_limits(cluster: Cluster) -> bool:
    """Return whether a quota of the namespace counts CPU limits: every container must then have one."""
    with contextlib.suppress(Denied):
        return any(
            "limits.cpu" in ((quota.get("spec") or {}).get("hard") or {})
            for quota in cluster.list("ResourceQuota").items
        )
    return False


def above(hard: Mapping[str, Any], pod: Mapping[str, Any], learners: int) -> Iterator[tuple[str, float, str]]:
    """Yield the resources of which all learners need more than a quota's total: name, needed amount, quota."""
    needed = {kind: needs(pod, kind) for kind in ("requests", "limits")}
    for name, most in hard.items():
        kind, _, resource = name.partition(".")
        if kind in needed and resource:
            one = needed[kind].get(resource, 0.0)
        else:
            one = 1.0 if name in ("pods", "count/pods") else needed["requests"].get(name, 0.0)
        if one * learners > quantity(most):
            yield name, one * learners, str(most)


def needs(pod: Mapping[str, Any], kind: str) -> dict[str, float]:
    """Return a pod's total requests or limits: containers and side-cars, or a larger init container."""
    total: dict[str, float] = {}
    for container in pod["containers"]:
        _add(total, container, kind)
    first: list[dict[str, float]] = []
    side_cars: dict[str, float] = {}
    for container in pod.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(side_cars, container, kind)
        else:
            first.append(_add(dict(side_cars), container, kind))
    for name, amount in side_cars.items():
        total[name] = total.get(name, 0.0) + amount
    for step in first:
        total |= {name: max(amount, total.get(name, 0.0)) for name, amount in step.items()}
    return total


def _add(total: dict[str, float], container: Mapping[str, Any], kind: str) -> dict[str, float]:
    for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
        total[name] = total.get(name, 0.0) + quantity(amount)
    return total


def _check_named(cluster: Cluster, pod: Mapping[str, Any], options: PodOptions) -> None:
    """Check that the objects exist for which pods would wait without end."""
    for kind, name, where in _named(pod):
        with contextlib.suppress(Denied):
            if cluster.read(kind, name) is None:
                raise LaunchRefused(
                    f"There is no {kind} {name} in the namespace {cluster.namespace}.",
                    hint=f"make it, or name another one in {where} of the backend",
                )
    if options.queue:
        check_queue(cluster, options.queue)


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


Pod = Mapping[str, Any]

SCALING: Final = ("TriggeredScaleUp", "Nominated")
"""The reasons of events with which autoscalers announce a new node for a pod."""

_NODES: Final = re.compile(r"0/(\d+) nodes are available: (.*)")
_HELPLESS: Final = re.compile(r"(\d+) Preemption is not helpful for scheduling")
_TAINT: Final = re.compile(r"had untolerated taint(?:\(s\)|s)?(?: \{([^}:]*))?")
_PASSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
)
"""Keys of temporary taints: the nodes come back, or are being removed."""

_ASK_SECONDS: Final = 5.0


def unschedulable(pod: Pod) -> str:
    """Return the scheduler's message if no node could run the pod even if it were empty; else an empty text."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return unschedulable_reason(str(condition.get("message") or ""))
    return ""


def unschedulable_reason(message: str) -> str:
    """Return the part of a scheduler's message about the nodes if waiting cannot help; else an empty text."""
    found = _NODES.match(" ".join(message.split()))
    helpless = _HELPLESS.search(message)
    if found is None or helpless is None or helpless[1] != found[1]:
        return ""
    reason = re.split(r"\. |, preemption:", found[2])[0].rstrip(".")
    if not all(_stays(part) for part in re.split(r", (?=\d+ )", reason)):
        return ""
    return f"0/{found[1]} nodes are available: {reason}"


def _stays(part: str) -> bool:
    """Return whether a reason of the scheduler is permanent: about nodes' sizes and labels, not their current use."""
    if taint := _TAINT.search(part):
        return not (taint[1] or "").strip().startswith(_PASSING)
    return "Insufficient" in part or "node affinity/selector" in part


class UnschedulablePods:
    """Gives up pods that no node can run after they have waited for some time. Used by one thread."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._checked_at: dict[str, float] = {}

    @property
    def waiting(self) -> bool:
        """Whether a pod waits that was not given up yet."""
        return bool(self._since)

    def reason(self, pod: Pod) -> Reason | None:
        """Return why a pod is given up, None while it may still be scheduled."""
        uid, text = str(pod["metadata"]["uid"]), unschedulable(pod)
        if not text:
            self._since.pop(uid, None)
            return None
        now = time.monotonic()
        since = self._since.setdefault(uid, now)
        if now - since < self._seconds or now - self._checked_at.get(uid, -_ASK_SECONDS) < _ASK_SECONDS:
            return None
        self._checked_at[uid] = now
        if self._is_provided_for(pod) or (_hides_taints(text) and self._nodes_may_come_back()):
            return None
        hint = (
            "ask for less; node_selector, gpu_types and tolerations of the backend, and kubernetes: of the manifest,"
            " choose the nodes"
        )
        return Reason(f"no node of the cluster can run it: {text}", "C104", hint)

    def keep(self, uids: set[str]) -> None:
        """Remove all other pods from the records."""
        self._since = {uid: at for uid, at in self._since.items() if uid in uids}
        self._checked_at = {uid: at for uid, at in self._checked_at.items() if uid in uids}

    def _is_provided_for(self, pod: Pod) -> bool:
        """Return whether an autoscaler adds a node for the pod; True if the events cannot be read."""
        fields = f"involvedObject.kind=Pod,involvedObject.name={pod['metadata']['name']}"
        try:
            events = self._cluster.list("Event", fields=fields).items
        except FabricError:
            return True
        return any(event.get("reason") in SCALING for event in events)

    def _nodes_may_come_back(self) -> bool:
        """Return whether a node has a temporary taint; True if nodes cannot be listed."""
        try:
            nodes = self._cluster.list("Node").items
        except FabricError:
            return True
        taints = (taint for node in nodes for taint in (node.get("spec") or {}).get("taints") or ())
        return any(str(taint.get("key")).startswith(_PASSING) for taint in taints)


def _hides_taints(text: str) -> bool:
    """Return whether the message does not name the taints; schedulers from 1.34 on leave them out."""
    return any(taint[1] is None for taint in _TAINT.finditer(text))
