"""Finds pods that no node of a cluster could hold, and says so once a cluster that adds nodes has had time to begin."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import Cluster
from workbench.errors import FabricError
from workbench.job import Reason

Pod = Mapping[str, Any]

SCALING: Final = ("TriggeredScaleUp", "Nominated")
"""What the autoscalers say of a pod that they make a node for."""

_NODES: Final = re.compile(r"0/(\d+) nodes are available: (.*)")
_HELPLESS: Final = re.compile(r"(\d+) Preemption is not helpful for scheduling")
_TAINT: Final = re.compile(r"had untolerated taint(?:\(s\)|s)?(?: \{([^}:]*))?")
_PASSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
)
"""Taints of nodes that come back, or go."""

_ASK_SECONDS: Final = 5.0


def unfit(pod: Pod) -> str:
    """Return the scheduler's words about a pod that no node could hold even if it were empty; else nothing."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return unfit_words(str(condition.get("message") or ""))
    return ""


def unfit_words(message: str) -> str:
    """Return what a scheduler's sentence says of the nodes, where it means that waiting does not help."""
    found = _NODES.match(" ".join(message.split()))
    helpless = _HELPLESS.search(message)
    if found is None or helpless is None or helpless[1] != found[1]:
        return ""
    words = re.split(r"\. |, preemption:", found[2])[0].rstrip(".")
    if not all(_stays(part) for part in re.split(r", (?=\d+ )", words)):
        return ""
    return f"0/{found[1]} nodes are available: {words}"


def _stays(part: str) -> bool:
    """Say whether one reason of the scheduler's is about what nodes are, and not about how they are now."""
    if taint := _TAINT.search(part):
        return not (taint[1] or "").strip().startswith(_PASSING)
    return "Insufficient" in part or "node affinity/selector" in part


class Unfit:
    """For how long pods have been waiting that no node could hold. Used from one thread."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is one whose time is not over."""
        return bool(self._since)

    def reason(self, pod: Pod) -> Reason | None:
        """Return why a pod is given up; None while it may still be placed."""
        uid, words = str(pod["metadata"]["uid"]), unfit(pod)
        if not words:
            self._since.pop(uid, None)
            return None
        now = time.monotonic()
        since = self._since.setdefault(uid, now)
        if now - since < self._seconds or now - self._asked.get(uid, -_ASK_SECONDS) < _ASK_SECONDS:
            return None
        self._asked[uid] = now
        if self._is_provided_for(pod) or (_hides_taints(words) and self._nodes_may_come_back()):
            return None
        hint = "ask for less; node_selector, gpu_types and tolerations of the backend choose the nodes"
        return Reason(f"no node of the cluster can hold it: {words}", "C104", hint)

    def keep(self, uids: set[str]) -> None:
        """Forget all other pods."""
        self._since = {uid: at for uid, at in self._since.items() if uid in uids}
        self._asked = {uid: at for uid, at in self._asked.items() if uid in uids}

    def _is_provided_for(self, pod: Pod) -> bool:
        """Say whether a node is being made for it, or nobody may know whether one is."""
        fields = f"involvedObject.kind=Pod,involvedObject.name={pod['metadata']['name']}"
        try:
            events = self._cluster.list("Event", fields=fields).items
        except FabricError:
            return True
        return any(event.get("reason") in SCALING for event in events)

    def _nodes_may_come_back(self) -> bool:
        """Say whether a node has a taint that passes; who may not list nodes cannot know that none has."""
        try:
            nodes = self._cluster.list("Node").items
        except FabricError:
            return True
        taints = (taint for node in nodes for taint in (node.get("spec") or {}).get("taints") or ())
        return any(str(taint.get("key")).startswith(_PASSING) for taint in taints)


def _hides_taints(words: str) -> bool:
    """Say whether a scheduler (1.34 on) does not name the taints that it speaks of."""
    return any(taint[1] is None for taint in _TAINT.finditer(words))
