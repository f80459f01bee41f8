"""Names and labels of a pod job's objects, and the attempt or learner that an object belongs to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runners.interface import AttemptRef, LearnerRef
from workbench.job import attempt_stem, short_id

HOME: Final = "fabric.home"
JOB: Final = "fabric.job"
ATTEMPT: Final = "fabric.attempt"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
VERDICT: Final = "fabric.verdict"
"""Annotation of a Job that was ended before its learners could begin: the reason as JSON."""

AWAITS: Final = "fabric.awaits"
"""Annotation of a pod whose init container waits for files that the launch sends."""

INDEX: Final = "batch.kubernetes.io/job-completion-index"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
GPU_TYPE: Final = "nvidia.com/gpu.product"
"""The label of nodes with their GPU type, unless ``gpu_types`` is configured."""

LOGIN_SUFFIX: Final = "-login"
"""What the name of the Secret with a job's login ends with, after that of its Job."""

PREPARE: Final = "prepare"
SIDE_CAR: Final = "journal"
LEARNER: Final = "learner"
"""The containers of a pod."""


def labels(attempt: AttemptRef) -> dict[str, str]:
    """Return the labels of every object of an attempt."""
    return {
        MANAGED_BY: "fabric",
        HOME: attempt.home,
        JOB: attempt.job_id,
        ATTEMPT: str(attempt.attempt),
    }


def stem_of(attempt: AttemptRef) -> str:
    """Return the name of an attempt's Job and Service."""
    return attempt_stem(attempt.job_id, attempt.attempt)


def given_name(attempt: AttemptRef) -> str:
    """Return the name of the Secret with code and agent."""
    return f"{stem_of(attempt)}-given"


def secrets_name(attempt: AttemptRef) -> str:
    """Return the name of the Secret with the job's own secrets."""
    return f"{stem_of(attempt)}-secrets"


def login_name(attempt: AttemptRef) -> str:
    """Return the name of the Secret with the job's own login to the registry of its image."""
    return f"{stem_of(attempt)}{LOGIN_SUFFIX}"


def claim_name(job_id: str) -> str:
    """Return the name of the claim with a job's results; all attempts share it."""
    return f"learner-{short_id(job_id)}-results"


def selector(attempt: AttemptRef) -> str:
    """Return the label selector of an attempt's objects."""
    return f"{HOME}={attempt.home},{JOB}={attempt.job_id},{ATTEMPT}={attempt.attempt}"


def attempt_of(document: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Return home, job and attempt number of an object by its labels, None without them."""
    object_labels = document.get("metadata", {}).get("labels") or {}
    number = str(object_labels.get(ATTEMPT, ""))
    if not object_labels.get(HOME) or not object_labels.get(JOB) or not number.isdigit():
        return None
    return str(object_labels[HOME]), str(object_labels[JOB]), int(number)


def ref_of(pod: Mapping[str, Any]) -> LearnerRef | None:
    """Return the learner of a pod by its labels, None without them."""
    attempt = attempt_of(pod)
    index = str((pod["metadata"].get("labels") or {}).get(INDEX, ""))
    if attempt is None or not index.isdigit():
        return None
    return LearnerRef(*attempt, int(index) + 1)


def is_same(document: Mapping[str, Any], attempt: AttemptRef) -> bool:
    """Return whether an object belongs to this attempt of this home."""
    return attempt_of(document) == (attempt.home, attempt.job_id, attempt.attempt)


def as_owner(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``ownerReferences`` entry of an object that is deleted with a Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        # No blockOwnerDeletion: on OpenShift that needs the right to update jobs/finalizers.
    }
