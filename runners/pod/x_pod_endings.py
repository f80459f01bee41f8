"""How a learner ended whose pod is being deleted: its node says so when all of it is over, its side-car at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import Cluster
from runners.interface import LearnerRef
from runners.pod.container_host import open_host
from runners.pod.journals import folder_of
from runners.pod.names import LEARNER
from runners.pod.status import is_side_car_running
from workbench.errors import FabricError
from workbench.learner.pod.config import last_of

Pod = Mapping[str, Any]

AGAIN_SECONDS: Final = 2.0


class Endings:
    """Asks side-cars in threads of its own, and remembers what they said."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._told: dict[str, Mapping[str, Any]] = {}

    @property
    def asking(self) -> bool:
        """Whether a pod that is being deleted has not said yet that its learner ended."""
        now = time.monotonic()
        with self._lock:
            # A pod that is gone is not looked at any more.
            self._asked = {uid: at for uid, at in self._asked.items() if at > now - AGAIN_SECONDS}
            return bool(self._asked)

    def completed(self, ref: LearnerRef, pod: Pod) -> Pod:
        """Return a pod with what its side-car says of its learner's end, where its status does not have it yet."""
        uid = str(pod["metadata"]["uid"])
        if not is_ending(pod):
            with self._lock:
                self._asked.pop(uid, None)
            return pod
        with self._lock:
            told = self._told.get(uid)
            due = told is None and time.monotonic() >= self._asked.get(uid, 0.0)
            if due:
                self._asked[uid] = time.monotonic() + AGAIN_SECONDS
        if due:
            threading.Thread(target=self._ask, args=(ref, pod), name="ending", daemon=True).start()
        return pod if told is None else _with_end(pod, told)

    def _ask(self, ref: LearnerRef, pod: Pod) -> None:
        name, uid, folder = pod["metadata"]["name"], pod["metadata"]["uid"], folder_of(ref)
        try:
            host = open_host(self._cluster, name)
            try:
                state = host.call("read_object", path=f"{folder}/state.json") or {}
                stop = host.call("read_object", path=f"{folder}/stop.json") or {}
            finally:
                host.close()
        except (FabricError, OSError):
            return  # asked again, or seen when the pod is over
        if state.get("phase") == "exited":
            with self._lock:
                self._told[uid] = last_of(state, stop)
                self._asked.pop(uid, None)


def is_ending(pod: Pod) -> bool:
    """Say whether a pod is being deleted while its side-car can be asked and its learner counts as running."""
    if not pod["metadata"].get("deletionTimestamp") or not is_side_car_running(pod):
        return False
    told = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one["name"] == LEARNER and "running" in (one.get("state") or {}) for one in told)


def _with_end(pod: Pod, told: Mapping[str, Any]) -> Pod:
    ended = {"exitCode": told.get("exit_code") or 0, "message": json.dumps(dict(told))}
    statuses = [
        {**one, "state": {"terminated": ended}} if one["name"] == LEARNER else one
        for one in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}
