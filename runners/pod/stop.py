"""Stops learners in pods: by their agents, or by deleting pods without a running agent."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

from backends.contract.cluster import Absent, Cluster, Conflict, Denied, Invalid
from backends.contract.host import Host
from runners.interface import AttemptRef, LearnerRef, StopRequest
from runners.pod.container_host import CONNECT_SECONDS
from runners.pod.journals import Journals, folder_of
from runners.pod.names import (
    HOME,
    JOB,
    LEARNER,
    claim_name,
    given_name,
    is_same,
    login_name,
    secrets_name,
    selector,
    stem_of,
)
from runners.pod.status import is_over, is_side_car_running, outlives_learner
from runners.pod.watch import ClusterCache, Document, StopTries
from workbench.errors import AnswerPending, BackendUnreachable, TryAgain
from workbench.learner.boot.sh_launch import ASK_TO_STOP
from workbench.learner.pod.config import NO_PYTHON

PATIENCE: Final = 2
"""How many times a kill is requested from a learner's agent before its pod is deleted."""

KILL_CONNECT_SECONDS: Final = 5.0
"""How long a kill waits for an agent that a new connection reaches: one that hangs ends with its pod."""

ANSWER_SECONDS: Final = 5.0
"""How long a stop waits for the answers of a job's agents; it is repeated, and a request goes on meanwhile."""

STOPS_AT_ONCE: Final = 16
"""How many learners of a job are asked to stop at once."""

UNREACHED_SECONDS: Final = 30.0
"""How long a halt may not get through to a learner's agent before its pod is deleted, with the halt's grace period."""

OUTLIVING_SECONDS: Final = 10
"""The grace period of a pod in which a container of the user's goes on after the learner."""


class StopRequests:
    """Sends the stop requests of one runner."""

    def __init__(self, cluster: Cluster, tries: StopTries | None = None) -> None:
        self._cluster = cluster
        self._tries = tries or StopTries()

    def stop(
        self, attempt: AttemptRef, request: StopRequest, cache: ClusterCache, journals: Journals
    ) -> None:
        """Send the request to all learners once; it is repeated until they have ended.

        Raises:
            BackendUnreachable: It did not get through to some learner; the others have it. It is to be sent again soon.
        """
        job = self._cluster.read("Job", stem_of(attempt))
        if job is None or not is_same(job, attempt):
            return
        if job["spec"].get("suspend"):
            with contextlib.suppress(Absent, Conflict):
                self._cluster.delete(
                    "Job", stem_of(attempt), propagation="Foreground", uid=job["metadata"]["uid"]
                )
            return
        pods = cache.pods_of(attempt)
        running = [
            (LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number), pod)
            for number, pod in sorted(pods.items())
            if number <= attempt.learners and not is_over(pod)
        ]
        lost: BackendUnreachable | None = None
        for first in range(0, len(running), STOPS_AT_ONCE):
            lost = self._stop_some(running[first : first + STOPS_AT_ONCE], request, journals) or lost
        if not pods:
            with contextlib.suppress(Absent, Conflict):
                self._cluster.delete(
                    "Job", stem_of(attempt), propagation="Foreground", uid=job["metadata"]["uid"]
                )
        if lost is not None:
            raise lost

    def _stop_some(
        self, running: Sequence[tuple[LearnerRef, Document]], request: StopRequest, journals: Journals
    ) -> BackendUnreachable | None:
        """Request the stop from agents at once, and delete pods where that is of no use; return what failed.

        One on a node that does not answer must neither delay the others nor, since the calls for a job are made one
        after the other, a kill that follows a halt: it is left behind, and the request that is repeated waits for it.
        """
        lost: BackendUnreachable | None = None
        until = time.monotonic() + ANSWER_SECONDS
        begun = [(pod, self._begin(ref, pod, request, journals)) for ref, pod in running]
        for pod, requesting in begun:
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            wait([requesting], max(0.0, until - time.monotonic()))
            try:
                if requesting.done():
                    is_requested = requesting.result()
                elif self._is_given_up(uid, request):
                    is_requested = False
                else:
                    raise AnswerPending(f"Pod {name} has not answered for {ANSWER_SECONDS:g} s.")
            except BackendUnreachable as error:
                lost = error
                continue
            if not is_requested:
                grace = 0 if request.kind == "kill" else int(request.grace_seconds) + 1
                with contextlib.suppress(Absent, Conflict):
                    self._cluster.delete("Pod", name, grace_seconds=max(1, grace), uid=uid)
        return lost

    def _begin(
        self, ref: LearnerRef, pod: Document, request: StopRequest, journals: Journals
    ) -> Future[bool]:
        """Request the stop in a thread of its own, unless such a request to the same pod is still under way."""

        def work() -> None:
            try:
                requesting.set_result(self._request_stop(ref, pod, request, journals))
            except BaseException as error:
                requesting.set_exception(error)

        requesting, is_new = self._tries.request_of(pod["metadata"]["uid"], request.kind)
        if is_new:
            try:
                threading.Thread(target=work, name="stop pod", daemon=True).start()
            except (RuntimeError, MemoryError) as error:
                requesting.set_exception(error)
        return requesting

    def _request_stop(
        self, ref: LearnerRef, pod: Mapping[str, Any], request: StopRequest, journals: Journals
    ) -> bool:
        """Request the stop from a learner's agent; False if there is no agent or it does not react.

        Raises:
            BackendUnreachable: The request did not get through, and may the next time.
        """
        if not is_side_car_running(pod):
            return False
        uid = pod["metadata"]["uid"]
        if request.kind == "kill" and self._tries.note_kill(uid) > PATIENCE:
            return False
        folder = folder_of(ref)
        connect_seconds = KILL_CONNECT_SECONDS if request.kind == "kill" else CONNECT_SECONDS
        begun = time.monotonic()
        try:
            try:
                _write_once(journals.host(ref, pod, connect_seconds=connect_seconds), folder, request)
            except BackendUnreachable as error:
                if NO_PYTHON in error.message or time.monotonic() - begun >= connect_seconds:
                    raise
                # The connection may have been lost meanwhile: a new one is tried before the loop's pause between calls.
                _write_once(journals.host(ref, pod, connect_seconds=connect_seconds), folder, request)
            self._tries.note_reached(uid)
            return True
        except (Absent, Invalid, Denied):
            return False
        except BackendUnreachable as error:
            if NO_PYTHON in error.message:
                return self._ask_plainly(ref, pod, request)
            if self._cluster.read("Pod", pod["metadata"]["name"]) is None:
                return True
            if self._is_given_up(uid, request):
                return False
            raise

    def _is_given_up(self, uid: str, request: StopRequest) -> bool:
        """Say whether a request that did not get through has been tried for long enough."""
        if request.kind == "kill":
            return self._tries.note_kill(uid) > PATIENCE
        now = time.monotonic()
        return now - self._tries.note_unreached(uid, now) >= UNREACHED_SECONDS

    def _ask_plainly(self, ref: LearnerRef, pod: Mapping[str, Any], request: StopRequest) -> bool:
        """Request the stop from an agent in shell, which reads the same file."""
        path = f"{folder_of(ref)}/stop.json"
        argv = ["sh", "-c", ASK_TO_STOP, path, json.dumps(_document_of(request))]
        try:
            return self._cluster.exec(pod["metadata"]["name"], LEARNER, argv).wait() == 0
        except (Absent, Invalid, Denied, BackendUnreachable):
            return False


def _write_once(host: Host, folder: str, request: StopRequest) -> None:
    """Write a request unless the learner's agent has it, or one to kill."""
    current = host.call("read_object", path=f"{folder}/stop.json") or {}
    if current.get("kind") not in ("kill", request.kind):
        write_request(host, folder, request)


def write_request(host: Host, folder: str, request: StopRequest) -> None:
    """Write a request to stop where a learner's agent looks for it."""
    host.call("ask_to_stop", folder=folder, request=_document_of(request))


def _document_of(request: StopRequest) -> dict[str, Any]:
    return {"kind": request.kind, "grace_seconds": request.grace_seconds, "by": request.by}


GONE_SECONDS: Final = 60.0
"""How long a removal waits for the cluster before it raises TryAgain."""

FORCE_SECONDS: Final = 40.0
"""After this time a pod is deleted by force, without its node's confirmation: the node may be gone."""

_LOOK_SECONDS: Final = 0.2
_LOOK_LONGEST_SECONDS: Final = 2.0


def remove_attempt(cluster: Cluster, attempt: AttemptRef) -> None:
    """Delete an attempt's Job and its objects, and wait until they are removed. Idempotent.

    Raises:
        TryAgain: the cluster has not removed all of them within GONE_SECONDS.
    """
    stem, which = stem_of(attempt), selector(attempt)
    begun = time.monotonic()
    pause = _LOOK_SECONDS
    requested: set[str] = set()
    while True:
        job = cluster.read("Job", stem)
        is_foreign = job is not None and not is_same(job, attempt)
        if is_foreign:
            job = None  # it belongs to another home
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(Absent, Conflict):
                cluster.delete("Job", stem, propagation="Foreground", uid=job["metadata"]["uid"])
        forced = time.monotonic() - begun > FORCE_SECONDS
        left = [one["metadata"] for one in cluster.list("Pod", which).items]
        for metadata in left:
            name, uid = metadata["name"], metadata["uid"]
            if uid not in requested or forced:
                requested.add(uid)
                with contextlib.suppress(Absent, Conflict):
                    cluster.delete("Pod", name, grace_seconds=0 if forced else 1, uid=uid)
        if job is None and not left:
            for kind, name in () if is_foreign else _named_objects(attempt):
                cluster.delete(kind, name)
            return
        if time.monotonic() - begun > GONE_SECONDS:
            what = "the Job" if not left else f"Pod {left[0]['name']}"
            raise TryAgain(f"The cluster has not removed {what} of {stem} yet.")
        time.sleep(pause)
        pause = min(pause * 1.5, _LOOK_LONGEST_SECONDS)


def release_attempt(cluster: Cluster, attempt: AttemptRef, ttl_seconds: int) -> None:
    """Delete the Secrets of an ended attempt, and let the cluster delete its Job with all else after some time.

    A pod in which a container of a patch, or one that the cluster has injected, goes on is deleted now: it would keep
    its GPUs for ever.
    """
    job = delete_secrets(cluster, attempt)
    if job is None:
        return
    for pod in cluster.list("Pod", selector(attempt)).items:
        if outlives_learner(pod) and not pod["metadata"].get("deletionTimestamp"):
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            with contextlib.suppress(Absent, Conflict):
                cluster.delete("Pod", name, grace_seconds=OUTLIVING_SECONDS, uid=uid)
    stem, uid = stem_of(attempt), job["metadata"]["uid"]
    with contextlib.suppress(Absent, Conflict):
        if job["spec"].get("suspend"):  # it has no pods, and never ends by itself
            cluster.delete("Job", stem, uid=uid)
        elif job["spec"].get("ttlSecondsAfterFinished") != ttl_seconds:
            patch = {"metadata": {"uid": uid}, "spec": {"ttlSecondsAfterFinished": ttl_seconds}}
            cluster.patch("Job", stem, patch)


def delete_secrets(cluster: Cluster, attempt: AttemptRef) -> Mapping[str, Any] | None:
    """Delete the Secrets of an ended attempt; return its Job, or None where all of it is gone or going."""
    job = cluster.read("Job", stem_of(attempt))
    if job is None or not is_same(job, attempt) or job["metadata"].get("deletionTimestamp"):
        return None  # what belongs to it goes with it
    pod = job["spec"]["template"]["spec"]
    named = [(volume.get("secret") or {}).get("secretName") for volume in pod.get("volumes") or ()]
    named += [one.get("name") for one in pod.get("imagePullSecrets") or ()]
    for name in (given_name(attempt), secrets_name(attempt), login_name(attempt)):
        if name in named:
            with contextlib.suppress(Conflict):
                cluster.delete("Secret", name)
    return job


def _named_objects(attempt: AttemptRef) -> tuple[tuple[str, str], ...]:
    """Return kind and name of what an attempt's Job owns, and of which nothing is listed: Secrets are secret."""
    return (
        ("Secret", given_name(attempt)),
        ("Secret", secrets_name(attempt)),
        ("Secret", login_name(attempt)),
        ("Service", stem_of(attempt)),
    )


def remove_job(cluster: Cluster, home: str, job_id: str) -> None:
    """Delete what the attempts of a job share: its claim, and pods that read it."""
    which = f"{HOME}={home},{JOB}={job_id}"
    for kind in ("Job", "Pod"):
        for one in cluster.list(kind, which).items:
            with contextlib.suppress(Absent, Conflict):
                cluster.delete(kind, one["metadata"]["name"], uid=one["metadata"]["uid"])
    try:
        cluster.delete("PersistentVolumeClaim", claim_name(job_id))
    except Denied:
        if cluster.may("create", "persistentvolumeclaims"):  # else none was created
            raise
