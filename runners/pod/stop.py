"""Stops the learners of a cluster: through their agents where those run, by deleting pods that have not begun."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import Absent, Cluster, Conflict, Denied, Invalid
from runners.interface import AttemptRef, LearnerRef, StopRequest
from runners.pod.journals import Journals, folder_of
from runners.pod.names import LEARNER, is_same, stem_of
from runners.pod.status import is_over, is_side_car_running
from runners.pod.watch import Sightings
from workbench.errors import PlaceUnreachable
from workbench.learner.pod.config import NO_PYTHON

PATIENCE: Final = 2
"""So often a kill is asked for through a learner's agent before its pod is deleted."""


class Stops:
    """What one runner has asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: dict[str, int] = {}

    def stop(
        self, attempt: AttemptRef, request: StopRequest, sightings: Sightings, journals: Journals
    ) -> None:
        """Ask once; to be repeated until the learners are seen to be over."""
        job = self._cluster.read("Job", stem_of(attempt))
        if job is None or not is_same(job, attempt):
            return
        if job["spec"].get("suspend"):
            with contextlib.suppress(Absent, Conflict):
                self._cluster.delete(
                    "Job", stem_of(attempt), propagation="Foreground", uid=job["metadata"]["uid"]
                )
            return
        pods = sightings.pods_of(attempt)
        for number in range(1, attempt.learners + 1):
            pod = pods.get(number)
            if pod is None or is_over(pod):
                continue
            ref = LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)
            if not self._ask(ref, pod, request, journals):
                grace = 0 if request.kind == "kill" else int(request.grace_seconds) + 1
                with contextlib.suppress(Absent, Conflict):
                    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
                    self._cluster.delete("Pod", name, grace_seconds=max(1, grace), uid=uid)
        if not pods:
            with contextlib.suppress(Absent, Conflict):
                self._cluster.delete(
                    "Job", stem_of(attempt), propagation="Foreground", uid=job["metadata"]["uid"]
                )

    def _ask(self, ref: LearnerRef, pod: Mapping[str, Any], request: StopRequest, journals: Journals) -> bool:
        """Ask a learner's agent; False where there is none to be asked, or it does not obey."""
        if not is_side_car_running(pod):
            return False
        uid = pod["metadata"]["uid"]
        if request.kind == "kill":
            self._asked[uid] = self._asked.get(uid, 0) + 1
            if self._asked[uid] > PATIENCE:
                return False
        path = f"{folder_of(ref)}/stop.json"
        try:
            host = journals.host(ref, pod)
            asked = host.call("read_object", path=path) or {}
            if asked.get("kind") not in ("kill", request.kind):
                document = {
                    "kind": request.kind,
                    "grace_seconds": request.grace_seconds,
                    "by": request.by,
                }
                host.call("write_files", files={path: json.dumps(document) + "\n"})
            return True
        except (Absent, Invalid, Denied):
            return False
        except PlaceUnreachable as error:
            if NO_PYTHON in error.message:
                return self._ask_plainly(ref, pod, request)
            if self._cluster.read("Pod", pod["metadata"]["name"]) is None:
                return True
            self._asked[uid] = self._asked.get(uid, 0) + 1
            return self._asked[uid] <= PATIENCE

    def _ask_plainly(self, ref: LearnerRef, pod: Mapping[str, Any], request: StopRequest) -> bool:
        """Ask the agent of an image without Python, which reads the same file."""
        document = {"kind": request.kind, "grace_seconds": request.grace_seconds, "by": request.by}
        script = 'printf "%s\\n" "$1" >"$0.new" && mv "$0.new" "$0"'
        path = f"{folder_of(ref)}/stop.json"
        argv = ["sh", "-c", script, path, json.dumps(document)]
        try:
            return self._cluster.exec(pod["metadata"]["name"], LEARNER, argv).wait() == 0
        except (Absent, Invalid, Denied, PlaceUnreachable):
            return False
