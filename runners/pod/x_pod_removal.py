"""Removes all that an attempt, or a whole job, has in a cluster, and waits until it is gone."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from backends.contract.cluster import Absent, Cluster, Conflict
from runners.interface import AttemptRef
from runners.pod.names import HOME, JOB, is_same, selector, stem_of
from workbench.errors import TryAgain

GONE_SECONDS: Final = 60.0
"""How long the cluster may take before it is asked again later."""

FORCE_SECONDS: Final = 40.0
"""After this a pod is taken from the list though its node has not said that it ended: the node may be gone."""

_LOOK_SECONDS: Final = 0.2
_LOOK_LONGEST_SECONDS: Final = 2.0
_KINDS: Final = ("Pod", "Service", "Secret")


def remove_attempt(cluster: Cluster, attempt: AttemptRef) -> None:
    """Remove an attempt's Job and all that is its; idempotent.

    Raises:
        TryAgain: the cluster has not ended it yet.
    """
    stem, which = stem_of(attempt), selector(attempt)
    begun = time.monotonic()
    pause = _LOOK_SECONDS
    asked: set[tuple[str, str]] = set()
    while True:
        job = cluster.read("Job", stem)
        if job is not None and not is_same(job, attempt):
            job = None  # another home's
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(Absent, Conflict):
                cluster.delete("Job", stem, propagation="Foreground", uid=job["metadata"]["uid"])
        forced = time.monotonic() - begun > FORCE_SECONDS
        left = [(kind, one["metadata"]) for kind in _KINDS for one in cluster.list(kind, which).items]
        for kind, about in left:
            name, uid = about["name"], about["uid"]
            if (kind, uid) not in asked or (forced and kind == "Pod"):
                asked.add((kind, uid))
                grace = (0 if forced else 1) if kind == "Pod" else None
                with contextlib.suppress(Absent, Conflict):
                    cluster.delete(kind, name, grace_seconds=grace, uid=uid)
        if job is None and not left:
            return
        if time.monotonic() - begun > GONE_SECONDS:
            what = "the Job" if not left else f"{left[0][0]} {left[0][1]['name']}"
            raise TryAgain(f"The cluster has not removed {what} of {stem} yet.")
        time.sleep(pause)
        pause = min(pause * 1.5, _LOOK_LONGEST_SECONDS)


def remove_job(cluster: Cluster, home: str, job_id: str) -> None:
    """Remove what the attempts of a job share: its claim, and pods that read from it."""
    which = f"{HOME}={home},{JOB}={job_id}"
    for kind in ("Job", "Pod", "PersistentVolumeClaim", "Secret", "Service"):
        if kind == "PersistentVolumeClaim" and not cluster.may("list", "persistentvolumeclaims"):
            continue  # who may not list them has made none
        for one in cluster.list(kind, which).items:
            with contextlib.suppress(Absent, Conflict):
                cluster.delete(kind, one["metadata"]["name"], uid=one["metadata"]["uid"])
