"""Builds the Job and its pod template: init container, side-car and learner from one image, with one journal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, Final

from runners.interface import LaunchRequest
from runners.pod.names import (
    LEARNER,
    MANAGED_BY,
    PREPARE,
    QUEUE,
    QUEUE_PRIORITY,
    SIDE_CAR,
    claim_name,
    given_name,
    labels,
    login_name,
    secrets_name,
    stem_of,
)
from runners.pod.options import PodOptions, gpu_labels
from runners.pod.stores import (
    ANNOTATION,
    FETCH_ANNOTATION,
    RESULTS_ANNOTATION,
    pod_stores,
    secret_names,
    store_variables,
)
from runners.pod.volumes import RESULTS, bound_mounts, bound_volumes, one_volume_a_claim
from runners.shared.container_defaults import DROPPED, SHM_BYTES, image_of
from runners.shared.environment import (
    NO_GPU,
    experiment_variables,
    python_path,
    seed_and_params,
    submitted_proxies,
    tracking_defaults,
)
from runners.shared.registry_login import has_login
from workbench.learner.pod import config
from workbench.values import dataclass

_MERGED_BY: Final[Mapping[str, str]] = {"volumeMounts": "mountPath", "volumeDevices": "devicePath"}
"""The key that identifies an item of these lists, as in the API; a volume may be mounted at several paths."""


def patched(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a patch into a document; null removes a key, lists of named items are merged by name."""
    result = dict(document)
    for key, value in patch.items():
        by = _MERGED_BY.get(key, "name")
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = patched(result[key], value)
        elif _is_keyed(value, by) and _is_keyed(result.get(key), by):
            result[key] = _merged(result[key], value, by)
        else:
            result[key] = value
    return result


def _is_keyed(value: Any, by: str) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and by in one for one in value)
    )


def _merged(
    items: Sequence[Mapping[str, Any]], patches: Sequence[Mapping[str, Any]], by: str
) -> list[Mapping[str, Any]]:
    known = {str(one[by]): one for one in items}
    for patch in patches:
        name = str(patch[by])
        known[name] = patched(known[name], patch) if name in known else patch
    return list(known.values())


SIDE_CAR_MILLIS: Final = 10
SIDE_CAR_MEMORY: Final = "32Mi"
"""Side-car and reader have 9.3 MB of their own each, and share 10 MB with the learner's agent: measured."""

SIDE_CAR_MEMORY_LIMIT: Final = "128Mi"
"""What it may reach when it prints what nobody has read, and while several readers are there."""

SIDE_CAR_LIMIT_MILLIS: Final = 250
"""The CPU limit of side-cars where a quota demands one; elsewhere none, which would slow the pod's start."""

PREPARE_BYTES: Final = 512 << 20
STORING_MILLIS: Final = 50
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
    """Return the pod template with the patches of backend and manifest merged in."""
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
            | {"resources": _prepare_resources(request, options)},
            _container(SIDE_CAR, "journal", request, options, results) | {"restartPolicy": "Always"},
        ],
        "containers": [_learner(request, options, results)],
        "volumes": _volumes(request, options, results),
    }
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    own_login = (login_name(request.attempt),) if has_login(request) else ()
    if names := (*own_login, *options.image_pull_secrets):
        pod["imagePullSecrets"] = [{"name": name} for name in names]
    if options.priority_class:
        pod["priorityClassName"] = options.priority_class
    if selector := {**options.node_selector, **gpu_labels(options, spec.gpu_type if spec.gpus else "")}:
        pod["nodeSelector"] = selector
    if options.affinity:
        pod["affinity"] = dict(options.affinity)
    if options.tolerations:
        pod["tolerations"] = list(options.tolerations)
    metadata: dict[str, Any] = {
        "labels": {**options.labels, **labels(request.attempt)},
        "annotations": {
            **options.annotations,
            "fabric.owner": request.owner,
            **({"fabric.setup": "yes"} if spec.setup else {}),
            **({"fabric.requirements": "yes"} if spec.python == "requirements" else {}),
            RESULTS_ANNOTATION: results.kind,
            **({FETCH_ANNOTATION: "yes"} if spec.fetch_results else {}),
            **({ANNOTATION: "yes"} if pod_stores(request) else {}),
        },
    }
    whole = patched({"metadata": metadata, "spec": one_volume_a_claim(pod)}, options.pod_patch)
    return _with_users_containers(patched(whole, options.job_patch))


_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash"})
_FORWARD_TERM: Final = """\
trap 'stopped=yes; [ -z "$child" ] || kill -TERM "$child"' TERM
child= stopped=
"$0" "$@" &
child=$!
[ -z "$stopped" ] || kill -TERM "$child"
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
exit "$code"
"""
"""Runs a side-car's shell as a child: the kernel gives no SIGTERM to a container's first process that does not ask for
it, so that a pod would stay, with its GPUs, for its whole grace period after its learner."""


def _with_users_containers(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod whose user's containers, before and beside the learner, say why they fail, and end with it."""
    spec = pod["spec"]
    first = [
        one if one["name"] in (PREPARE, SIDE_CAR) else _users_container(one)
        for one in spec.get("initContainers") or ()
    ]
    return {**pod, "spec": {**spec, **({"initContainers": first} if first else {})}}


def _users_container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container that leaves its last lines if it fails; a side-car that is a shell also obeys SIGTERM."""
    changed = {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
    command = [str(word) for word in container.get("command") or ()]
    if container.get("restartPolicy") == "Always" and command and PurePosixPath(command[0]).name in _SHELLS:
        changed["command"] = [command[0], "-c", _FORWARD_TERM, *command]
    return changed


_VOLUMES: Final = re.compile(r"given|journal|job|data|shm|secrets|results|cache|(user|claim|folder|bind)-\d+")
_PATHS: Final = (
    config.RESULTS, config.CHECKPOINTS, config.STATE_DIR, config.MODEL, config.LOGS, config.DATA, config.CACHE,
)  # fmt: skip
"""Where the learner's container has volumes of the platform."""


def patch_refusals(patch: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a manifest's ``pod_patch`` may not change: without it the job could not be run or watched."""
    key = "kubernetes.pod_patch"
    metadata, spec = _map_of(patch.get("metadata")), _map_of(patch.get("spec"))
    for name in ("name", "namespace"):
        if name in metadata:
            yield f"{key}.metadata.{name} cannot be set: the pods are found by the names and labels that they get"
    for name in _map_of(metadata.get("labels")):
        if name.startswith("fabric.") or name == MANAGED_BY or name.startswith("batch.kubernetes.io/"):
            yield f"{key}.metadata.labels: {name} is the platform's own label; take another name"
    if spec.get("restartPolicy", "Never") != "Never":
        yield f"{key}.spec.restartPolicy must stay Never: max_restarts: says how often a learner is started again"
    for kind, own in (("containers", (PREPARE, SIDE_CAR)), ("initContainers", (LEARNER,))):
        for container in _maps_of(spec.get(kind)):
            if container.get("name") in own:
                yield f"{key}.spec.{kind}: {container['name']} is a container of the platform; take another name"
    for volume in _maps_of(spec.get("volumes")):
        if _VOLUMES.fullmatch(str(volume.get("name"))):
            yield f"{key}.spec.volumes: {volume['name']} is a volume of the platform; take another name"
    for container in _maps_of(spec.get("containers")):
        if container.get("name") != LEARNER:
            continue
        for name in ("command", "args", "workingDir"):
            if name in container:
                yield f"{key}.spec.containers: {name} of {LEARNER} cannot be set; framework.command is what it runs"
        for mount in _maps_of(container.get("volumeMounts")):
            path = str(mount.get("mountPath")).rstrip("/")
            if path == "/dev/shm":
                yield f"{key}.spec.containers: /dev/shm is mounted already; shm_size: is its size"
            elif path in _PATHS or f"{path}/".startswith(f"{config.OURS}/"):
                yield f"{key}.spec.containers: {path} is a folder of the platform; mount the volume at another one"


def _map_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps_of(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []


def job(request: LaunchRequest, options: PodOptions, results: ResultVolume) -> dict[str, Any]:
    """Return the Job; it is created suspended, so that its objects exist before its pods."""
    attempt = request.attempt
    own = {**options.labels, **labels(attempt)} | ({QUEUE: options.queue} if options.queue else {})
    if options.queue and options.queue_priority_class:
        own[QUEUE_PRIORITY] = options.queue_priority_class
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
        "resources": _side_car_resources(request, options),
        "volumeMounts": _mounts(request, options, results, role),
    }


def _side_car_resources(request: LaunchRequest, options: PodOptions) -> dict[str, Any]:
    """Return the resources of the side-car, which takes as little as it can from the learner's node."""
    if pod_stores(request):
        return small(options, millis=STORING_MILLIS, memory=STORING_MEMORY, memory_limit=STORING_MEMORY)
    return small(options)


def small(
    options: PodOptions,
    *,
    millis: int = SIDE_CAR_MILLIS,
    memory: str = SIDE_CAR_MEMORY,
    memory_limit: str = SIDE_CAR_MEMORY_LIMIT,
) -> dict[str, Any]:
    """Return the resources of a container of fabric's own; it has a CPU limit only where a quota demands one."""
    cpu_limit = {"cpu": f"{max(SIDE_CAR_LIMIT_MILLIS, millis)}m"} if options.needs_cpu_limits else {}
    return {
        "requests": {"cpu": f"{millis}m", "memory": memory},
        "limits": {**cpu_limit, "memory": memory_limit},
    }


def _prepare_resources(request: LaunchRequest, options: PodOptions) -> dict[str, Any]:
    """Return the resources of the init container.

    To build an environment it gets as much as the learner later; the pod's total stays the same.
    """
    spec = request.spec
    if spec.python != "requirements":
        return _side_car_resources(request, options)
    millis = max(SIDE_CAR_MILLIS, round((spec.cpus or 0.0) * 1000))
    memory = str(max(spec.memory_bytes or options.default_memory_bytes, PREPARE_BYTES))
    return small(options, millis=millis, memory=memory, memory_limit=memory)


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
    environment = _environment(request, options.run_as)
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


PORT: Final = 29500
"""MASTER_PORT: all ports of a pod are free."""


def _environment(request: LaunchRequest, run_as: str) -> dict[str, str]:
    """Return the variables that all learners share, without secrets; ``env:`` cannot override the promised ones."""
    spec = request.spec
    variables = {"PYTHONUNBUFFERED": "1", **submitted_proxies(request)}
    if run_as == "restricted":
        # Images have no entry in /etc/passwd for its user.
        variables |= {"HOME": config.HOME, "USER": "fabric", "LOGNAME": "fabric"}
    variables |= tracking_defaults(request, config.LOGS)
    variables |= spec.env
    variables |= seed_and_params(spec, variables)
    variables |= _promises(request)
    variables |= experiment_variables(request, config.MODEL, resources_type="k8s-job", port=PORT)
    # From FABRIC_PYTHONPATH the pod's first process makes PYTHONPATH, with the image's own behind it. That would come
    # before an environment of requirements, which is built without it: such a job hides it.
    variables.pop("PYTHONPATH", None)
    name = "PYTHONPATH" if spec.python == "requirements" else "FABRIC_PYTHONPATH"
    variables[name] = python_path(spec, config.MODEL, config.AGENT)
    return variables


def _promises(request: LaunchRequest) -> dict[str, str]:
    """Return the variables that every learner has; the pod's first process adds LEARNER_ID, RANK and NODE_RANK."""
    spec, attempt = request.spec, request.attempt
    stem = stem_of(attempt)
    return {
        "MODEL_DIR": config.MODEL,
        "DATA_DIR": config.DATA,
        "RESULT_DIR": config.RESULTS,
        "RESULT_BUCKET_DIR": config.RESULTS,
        "CHECKPOINT_DIR": config.CHECKPOINTS,
        "LOG_DIR": config.LOGS,
        **store_variables(request),
        "JOB_STATE_DIR": config.STATE_DIR,
        "TRAINING_ID": attempt.job_id,
        "TRAINING_JOB": attempt.job_id,
        "TRAINING_COMMAND": spec.framework.command,
        "NUM_LEARNERS": str(attempt.learners),
        "GPU_COUNT": f"{spec.gpus:.6f}",
        "LEARNER_NAME_PREFIX": stem,
        "MASTER_ADDR": f"{stem}-0.{stem}",
        "MASTER_PORT": str(PORT),
        "WORLD_SIZE": str(attempt.learners),
        "LOCAL_RANK": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # With GPUs the node's device plug-in sets them.
        **({} if spec.gpus else NO_GPU),
    }
