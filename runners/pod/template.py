"""Builds the Job and its pod template: init container, side-car and learner from one image, with one journal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.pod.environment import pod_environment
from runners.pod.names import (
    LEARNER,
    PREPARE,
    QUEUE,
    SIDE_CAR,
    claim_name,
    given_name,
    labels,
    secrets_name,
    stem_of,
)
from runners.pod.options import PodOptions, gpu_labels
from runners.pod.stores import ANNOTATION, FETCH_ANNOTATION, RESULTS_ANNOTATION, pod_stores, secret_names
from runners.pod.volumes import RESULTS, bound_mounts, bound_volumes, one_volume_a_claim
from runners.shared.container_defaults import DROPPED, SHM_BYTES, image_of
from workbench.learner.pod import config


def patched(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a patch into a document; null removes a key, lists of named items are merged by name."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = patched(result[key], value)
        elif _is_named(value) and _is_named(result.get(key)):
            result[key] = _merged(result[key], value)
        else:
            result[key] = value
    return result


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and "name" in one for one in value)
    )


def _merged(
    items: Sequence[Mapping[str, Any]], patches: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    by_name = {str(one["name"]): one for one in items}
    for patch in patches:
        name = str(patch["name"])
        by_name[name] = patched(by_name[name], patch) if name in by_name else patch
    return list(by_name.values())


SIDE_CAR_CPUS: Final = "250m"
SIDE_CAR_MEMORY: Final = "128Mi"
PREPARE_BYTES: Final = 512 << 20
STORING_MILLIS: Final = 500
STORING_MEMORY: Final = "512Mi"
"""The memory of the side-car if it uploads results."""

DATA_FOLDER: Final = "fabric-data"
"""The folder with copies of stores' data on a claim."""

END_SECONDS: Final = 30
"""How much longer than grace period and hold time a pod may take to end."""

_PULL: Final = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}


@dataclass(frozen=True, slots=True)
class ResultVolume:
    """The volume with a job's results."""

    kind: str
    """``claim`` (the backend's), ``owned`` (a claim of the job), ``hold`` (the pod's own volume), ``store`` (the
    same, uploaded to a data store), ``bound`` (a data store that is a volume)."""
    claim: str = ""
    folder: str = ""
    """The path within the claim."""
    shared: bool = False
    """Whether several pods can mount it at once: learners then share ``/job``."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The volume's source in the pod's spec, if it is a data store of the job."""
    own: tuple[str, str] | None = None
    """The folders of results and checkpoints in it, if the data store decides them."""
    description: str = ""
    """Where the results are, for people; empty if the claim's name is enough."""

    @property
    def folders(self) -> tuple[str, str]:
        """The folders of results and checkpoints in the volume."""
        base = f"{self.folder}/" if self.folder else ""
        return self.own or (f"{base}results", f"{base}checkpoints")


def template(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> dict[str, Any]:
    """Return the pod template with the user's ``pod_patch`` merged in."""
    spec = request.spec
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "subdomain": stem_of(request.attempt),
        "terminationGracePeriodSeconds": int(
            spec.grace_seconds + _hold_seconds(options, results) + END_SECONDS
        ),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(options),
        "initContainers": [
            _container(PREPARE, "prepare", request, options, results)
            | {"resources": equal(_prepare_resources(request, options))},
            _container(SIDE_CAR, "journal", request, options, results) | {"restartPolicy": "Always"},
        ],
        "containers": [_learner(request, options, results)],
        "volumes": _volumes(request, options, results),
    }
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    if options.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in options.image_pull_secrets]
    if options.priority_class:
        pod["priorityClassName"] = options.priority_class
    if selector := {**options.node_selector, **gpu_labels(options, spec.gpu_type if spec.gpus else "")}:
        pod["nodeSelector"] = selector
    if options.tolerations:
        pod["tolerations"] = list(options.tolerations)
    metadata: dict[str, Any] = {
        "labels": {**options.labels, **labels(request.attempt)},
        "annotations": {
            "fabric.owner": request.owner,
            **({"fabric.setup": "yes"} if spec.setup else {}),
            **({"fabric.requirements": "yes"} if spec.python == "requirements" else {}),
            RESULTS_ANNOTATION: results.kind,
            **({FETCH_ANNOTATION: "yes"} if spec.fetch_results else {}),
            **({ANNOTATION: "yes"} if pod_stores(request) else {}),
        },
    }
    return patched({"metadata": metadata, "spec": one_volume_a_claim(pod)}, options.pod_patch)


def job(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> dict[str, Any]:
    """Return the Job; it is created suspended, so that its objects exist before its pods."""
    attempt = request.attempt
    own = {**options.labels, **labels(attempt)} | ({QUEUE: options.queue} if options.queue else {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": stem_of(attempt),
            "labels": own,
            "annotations": {"fabric.owner": request.owner, "fabric.name": request.spec.name},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": attempt.learners,
            "parallelism": attempt.learners,
            # The cluster neither restarts a failed learner nor ends the pods of the others.
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "suspend": True,
            "template": template(request, options, results),
        },
    }


def _container(
    name: str, role: str, request: LaunchRequest, options: PodOptions, results: ResultVolume
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image_of(request),
        "imagePullPolicy": _PULL[request.spec.image_pull],
        "command": ["sh", f"{config.GIVEN}/pod.sh", role],
        "securityContext": security(options),
        "resources": equal(_side_car_resources(request)),
        "volumeMounts": _mounts(request, options, results, role),
    }


def _side_car_resources(request: LaunchRequest) -> dict[str, str]:
    if pod_stores(request):
        return {"cpu": f"{STORING_MILLIS}m", "memory": STORING_MEMORY}
    return {"cpu": SIDE_CAR_CPUS, "memory": SIDE_CAR_MEMORY}


def _prepare_resources(request: LaunchRequest, options: PodOptions) -> dict[str, str]:
    """Return the resources of the init container.

    To build an environment or unpack rclone it gets as much as the learner later; the pod's total stays the same.
    """
    resources, spec = _side_car_resources(request), request.spec
    millis = int(resources["cpu"].removesuffix("m"))
    if pod_stores(request) and spec.cpus is not None:
        millis += min(2000, round(spec.cpus * 1000))
    if spec.python == "requirements":
        millis = max(millis, round((spec.cpus or 0.0) * 1000))
        memory_bytes = max(spec.memory_bytes or options.default_memory_bytes, PREPARE_BYTES)
        resources["memory"] = str(memory_bytes)
    return {**resources, "cpu": f"{millis}m"}


def _learner(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> dict[str, Any]:
    spec = request.spec
    resources = {"memory": str(spec.memory_bytes or options.default_memory_bytes)}
    if spec.cpus is not None:
        resources["cpu"] = f"{max(1, round(spec.cpus * 1000))}m"
    if spec.gpus:
        resources[options.gpu_resource] = str(spec.gpus)
    if spec.storage_bytes:
        resources["ephemeral-storage"] = str(spec.storage_bytes)
    container = _container(LEARNER, "learner", request, options, results)
    environment = pod_environment(request, options.run_as)
    container["env"] = [{"name": key, "value": _plain(value)} for key, value in sorted(environment.items())]
    container["resources"] = equal(resources)
    if spec.ports:
        container["ports"] = [{"containerPort": port} for port in spec.ports]
    return container


def _plain(value: str) -> str:
    """Escape ``$(NAME)`` in a value: the cluster would expand it."""
    return value.replace("$(", "$$(")


def equal(resources: dict[str, str]) -> dict[str, Any]:
    """Return resources whose requests equal their limits."""
    return {"requests": dict(resources), "limits": dict(resources)}


def pod_security(options: PodOptions) -> dict[str, Any]:
    """Return the security context of a pod: its user and groups."""
    if options.run_as == "image":
        return {"fsGroup": options.uid} if options.uid is not None else {}
    context: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if options.uid is not None:
        context |= {"runAsUser": options.uid, "runAsGroup": options.uid, "fsGroup": options.uid}
    return context


def security(options: PodOptions) -> dict[str, Any]:
    """Return the security context of a container: no privilege escalation, dropped capabilities."""
    dropped = ["ALL"] if options.run_as == "restricted" else list(DROPPED)
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": dropped}}


def _volumes(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> list[dict[str, Any]]:
    attempt, spec = request.attempt, request.spec
    volumes: list[dict[str, Any]] = [
        {"name": "given", "secret": {"secretName": given_name(attempt), "defaultMode": 0o444}},
        {"name": "journal", "emptyDir": {}},
        {"name": "job", "emptyDir": {}},
        {"name": "data", "emptyDir": {}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": str(spec.shm_size_bytes or SHM_BYTES)},
        },
    ]
    if secret_names(request):
        source = {"secretName": secrets_name(attempt), "defaultMode": 0o440}
        volumes.append({"name": "secrets", "secret": source})
    if results.source:
        volumes.append({"name": RESULTS, **results.source})
    elif results.kind in ("hold", "store"):
        volumes.append({"name": RESULTS, "emptyDir": {}})
    else:
        name = results.claim or claim_name(attempt.job_id)
        volumes.append({"name": RESULTS, "persistentVolumeClaim": {"claimName": name}})
    volumes += bound_volumes(request)
    if options.data_claim and pod_stores(request):
        source = {"claimName": options.data_claim}
        volumes.append({"name": "cache", "persistentVolumeClaim": source})
    volumes += [
        {"name": f"user-{number}", **volume["source"]} for number, volume in enumerate(options.volumes)
    ]
    return volumes


def _mounts(
    request: LaunchRequest, options: PodOptions, results: ResultVolume, role: str
) -> list[dict[str, Any]]:
    folder = f"{results.folder}/" if results.folder else ""

    def mount(name: str, path: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "mountPath": path, **more}

    mounts = [
        mount("given", config.GIVEN, readOnly=True),
        mount("journal", config.JOURNAL),
        mount(RESULTS, config.RESULTS, subPath=results.folders[0]),
        mount(RESULTS, config.CHECKPOINTS, subPath=results.folders[1]),
    ]
    if results.shared:
        shared = f"{folder}attempt-{request.attempt.attempt}"
        mounts.append(mount(RESULTS, config.STATE_DIR, subPath=shared))
        mounts.append(mount("job", config.MODEL))
    else:
        mounts.append(mount("job", config.STATE_DIR))
    if secret_names(request) and role != "prepare":
        mounts.append(mount("secrets", config.SECRETS, readOnly=True))
    if role == "learner":
        mounts += [mount("data", config.DATA), mount("shm", "/dev/shm")]
        if options.data_claim and pod_stores(request):
            mounts.append(mount("cache", config.CACHE, subPath=DATA_FOLDER))
        mounts += [*bound_mounts(request), *_of_user(options.volumes)]
    return mounts


def _of_user(volumes: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"user-{number}",
            "mountPath": volume["path"],
            "readOnly": bool(volume.get("read_only")),
            **({"subPath": volume["sub_path"]} if volume.get("sub_path") else {}),
        }
        for number, volume in enumerate(volumes)
    ]


def _hold_seconds(options: PodOptions, results: ResultVolume) -> float:
    held = options.results_hold_seconds if results.kind in ("hold", "store") else 0.0
    return max(options.journal_hold_seconds, held)
