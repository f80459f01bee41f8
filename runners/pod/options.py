"""The backend's settings for pods as a value, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Literal, cast

from runners.pod.names import GPU_TYPE
from workbench.spec import JobSpec
from workbench.values import dataclass

UID: Final = 1000
REST_BYTES: Final = 6 << 20
"""How much of an unread journal the side-car prints at its end, encoded; clusters keep at least 10 MiB of a log."""


@dataclass(frozen=True, slots=True)
class PodOptions:
    """How pods are created on a backend. Sizes in bytes, times in seconds."""

    run_as: Literal["restricted", "image"] = "restricted"
    uid: int | None = UID
    """The user id of restricted pods; None if the namespace assigns it."""
    gpu_resource: str = "nvidia.com/gpu"
    gpu_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of the nodes with a ``gpu_type``, by its lower-case name."""
    tolerations: Sequence[Mapping[str, Any]] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    image_pull_secrets: Sequence[str] = ()
    priority_class: str = ""
    """The PriorityClass of the pods; empty: none is named."""
    priority_classes: Mapping[int, str] = field(default_factory=dict)
    """The PriorityClasses of jobs, each for those that have its priority or a larger one."""
    queue: str = ""
    host_paths: bool = False
    """Whether data stores may be folders of the nodes."""
    volumes: Sequence[Mapping[str, Any]] = ()
    """Each with ``source`` (as in a pod's spec), ``path``, ``read_only`` and ``sub_path``."""
    storage_class: str = ""
    claim: str = ""
    data_claim: str = ""
    claim_size: str = "10Gi"
    default_memory_bytes: int = 8 << 30
    gang_seconds: float = 120.0
    journal_hold_seconds: float = 120.0
    results_hold_seconds: float = 600.0
    unfit_seconds: float = 120.0
    """How long a pod may wait that no node could run even if it were empty."""
    code_seconds: float = 600.0
    ttl_seconds: int = 3600
    """How long Job, Service and pods stay after the job has ended and all that it left is here."""
    pod_patch: Mapping[str, Any] = field(default_factory=dict)
    queue_priority_class: str = ""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    job_patch: Mapping[str, Any] = field(default_factory=dict)
    """The manifest's own ``pod_patch``, which comes after the backend's."""
    needs_cpu_limits: bool = False
    """Whether a quota of the namespace refuses containers without a CPU limit."""


UNREAD_SECONDS: Final = 1.0
"""How long an ended pod is held that nobody can read."""


def without_readers(options: PodOptions) -> PodOptions:
    """Return options for pods that nobody can read while they run: to hold them would only keep their GPUs."""
    return replace(options, journal_hold_seconds=UNREAD_SECONDS, results_hold_seconds=UNREAD_SECONDS)


def options_of(settings: Mapping[str, Any]) -> PodOptions:
    """Build the options from a backend's checked settings; those not about pods are ignored."""
    defaults = PodOptions()

    def get(name: str) -> Any:
        value = settings.get(name)
        return getattr(defaults, name) if value is None or value == "" else value

    uid = settings.get("uid", UID)
    return PodOptions(
        run_as=cast(Literal["restricted", "image"], get("run_as")),
        uid=None if uid in (None, "assigned") else int(uid),
        gpu_resource=str(get("gpu_resource")),
        gpu_types=dict(get("gpu_types")),
        tolerations=tuple(get("tolerations")),
        node_selector=dict(get("node_selector")),
        labels=dict(get("labels")),
        service_account=str(get("service_account")),
        image_pull_secrets=tuple(get("image_pull_secrets")),
        priority_class=str(get("priority_class")),
        priority_classes=dict(get("priority_classes")),
        queue=str(get("queue")),
        queue_priority_class=str(get("queue_priority_class")),
        host_paths=bool(settings.get("host_paths")),
        volumes=tuple(get("volumes")),
        storage_class=str(get("storage_class")),
        claim=str(get("claim")),
        data_claim=str(get("data_claim")),
        claim_size=str(get("claim_size")),
        default_memory_bytes=int(settings.get("default_memory") or defaults.default_memory_bytes),
        gang_seconds=float(get("gang_seconds")),
        journal_hold_seconds=float(get("journal_hold_seconds")),
        results_hold_seconds=float(get("results_hold_seconds")),
        unfit_seconds=float(get("unfit_seconds")),
        code_seconds=float(get("code_seconds")),
        ttl_seconds=int(get("ttl_seconds")),
        pod_patch=dict(get("pod_patch")),
    )


def options_for(settings: Mapping[str, Any], spec: JobSpec) -> PodOptions:
    """Build the options of one job: the backend's settings, and over them the manifest's ``kubernetes:``."""
    options, manifest = options_of(settings), spec.kubernetes
    options = replace(options, priority_class=class_of(options, spec.priority))
    names = ("priority_class", "queue", "queue_priority_class", "service_account", "affinity", "annotations")
    return replace(
        options,
        tolerations=(*options.tolerations, *manifest.get("tolerations", ())),
        node_selector={**options.node_selector, **manifest.get("node_selector", {})},
        job_patch=manifest.get("pod_patch", {}),
        **{name: manifest[name] for name in names if name in manifest},
    )


def class_of(options: PodOptions, priority: int) -> str:
    """Return the PriorityClass of jobs of a priority: that of the largest number that is at most the priority.

    A job below all of the numbers gets ``priority_class``.
    """
    reached = [number for number in options.priority_classes if number <= priority]
    return options.priority_classes[max(reached)] if reached else options.priority_class


def gpu_labels(options: PodOptions, gpu_type: str) -> dict[str, str]:
    """Return the labels of the nodes with a GPU type: the configured ones, else NVIDIA's label."""
    if not gpu_type:
        return {}
    return dict(options.gpu_types.get(gpu_type.lower()) or {GPU_TYPE: gpu_type})
