"""What a pod job's objects are called and labelled with, and whose they are by their labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from runners.interface import AttemptRef, LearnerRef
from workbench.job import attempt_stem, short_id

HOME: Final = "fabric.home"
JOB: Final = "fabric.job"
ATTEMPT: Final = "fabric.attempt"
OWNER: Final = "fabric.owner"
VERDICT: Final = "fabric.verdict"
"""Annotation of a Job: why it was ended before its learners could begin, as JSON."""

AWAITS: Final = "fabric.awaits"
"""Annotation of a pod whose init container waits for what is sent once it runs."""

INDEX: Final = "batch.kubernetes.io/job-completion-index"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
GPU_TYPE: Final = "nvidia.com/gpu.product"
"""Where a node says which GPUs it has, unless configured otherwise."""

PREPARE: Final = "prepare"
SIDE_CAR: Final = "journal"
LEARNER: Final = "learner"
"""The containers of a pod."""


def labels(attempt: AttemptRef) -> dict[str, str]:
    """Return what every object of an attempt says of itself."""
    return {
        "app.kubernetes.io/managed-by": "fabric",
        HOME: attempt.home,
        JOB: attempt.job_id,
        ATTEMPT: str(attempt.attempt),
    }


def stem_of(attempt: AttemptRef) -> str:
    """Name an attempt's Job and Service."""
    return attempt_stem(attempt.job_id, attempt.attempt)


def given_name(attempt: AttemptRef) -> str:
    """Name the Secret that code and agent travel in."""
    return f"{stem_of(attempt)}-given"


def secrets_name(attempt: AttemptRef) -> str:
    """Name the Secret of the job's own secrets."""
    return f"{stem_of(attempt)}-secrets"


def claim_name(job_id: str) -> str:
    """Name the claim that a job's results lie on, attempt after attempt."""
    return f"learner-{short_id(job_id)}-results"


def selector(attempt: AttemptRef) -> str:
    """Return the label selector of all that is an attempt's."""
    return f"{HOME}={attempt.home},{JOB}={attempt.job_id},{ATTEMPT}={attempt.attempt}"


def attempt_of(document: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Name the attempt that an object says it is of (home, job, number), None when it says nothing of it."""
    object_labels = document.get("metadata", {}).get("labels") or {}
    number = str(object_labels.get(ATTEMPT, ""))
    if not object_labels.get(HOME) or not object_labels.get(JOB) or not number.isdigit():
        return None
    return str(object_labels[HOME]), str(object_labels[JOB]), int(number)


def ref_of(pod: Mapping[str, Any]) -> LearnerRef | None:
    """Name the learner that a pod is of."""
    attempt = attempt_of(pod)
    index = str((pod["metadata"].get("labels") or {}).get(INDEX, ""))
    if attempt is None or not index.isdigit():
        return None
    return LearnerRef(*attempt, int(index) + 1)


def is_same(document: Mapping[str, Any], attempt: AttemptRef) -> bool:
    """Say whether an object is of this attempt, of this home."""
    return attempt_of(document) == (attempt.home, attempt.job_id, attempt.attempt)


def as_owner(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object says that goes with a Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        # No blockOwnerDeletion: OpenShift lets only who may change jobs/finalizers say so.
    }
