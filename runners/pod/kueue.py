"""Jobs in a queue of Kueue: whether it exists, and why they wait, in the API's versions v1beta1 and v1beta2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import Absent, Cluster, Denied
from runners.pod.names import QUEUE
from workbench.errors import FabricError, LaunchRefused

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""The label of a Workload with the uid of its Job."""

_EXPLAINING: Final = (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False"))
"""The conditions that explain a wait, in the order in which they count, and the status that does."""


def check_queue(cluster: Cluster, queue: str) -> None:
    """Check that a job's queue exists: without it nobody ever starts the suspended Job.

    Raises:
        LaunchRefused: there is none, or the cluster has no Kueue.
    """
    try:
        queues = [str(one["metadata"]["name"]) for one in cluster.list("LocalQueue").items]
    except Denied:
        return
    except Absent as error:
        raise LaunchRefused(
            f"The job waits in the queue {queue}, and {error.message[0].lower()}{error.message[1:]}",
            hint=f"leave queue out, or have Kueue installed; {error.hint}",
            code="C104",
        ) from error
    if queue not in queues:
        raise LaunchRefused(
            f"There is no queue {queue} in the namespace {cluster.namespace}.",
            hint=f"queue of the backend or of kubernetes: is one of {', '.join(sorted(queues)) or 'none'}",
            code="C104",
        )


def queue_of(job: Mapping[str, Any]) -> str:
    """Return the queue of a suspended Job that waits there, else an empty text."""
    if not job["spec"].get("suspend"):
        return ""
    return str((job["metadata"].get("labels") or {}).get(QUEUE) or "")


def waiting_text(cluster: Cluster, job: Mapping[str, Any]) -> str:
    """Return why a Job waits in its queue, for people; without its Workload only in which."""
    text = f"waits in the queue {queue_of(job)} of the cluster"
    try:
        found = cluster.list("Workload", f"{JOB_UID}={job['metadata']['uid']}").items
    except FabricError:  # no right to see it, or no Kueue any more
        return text
    return text + "".join(_explanation(workload) for workload in found[-1:])


def _explanation(workload: Mapping[str, Any]) -> str:
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    # v1beta1 has a name, v1beta2 a reference.
    priority = (spec.get("priorityClassRef") or {}).get("name") or spec.get("priorityClassName")
    with_priority = f", with the priority class {priority}" if priority else ""
    conditions = {str(one.get("type")): one for one in status.get("conditions") or ()}
    for type_, explaining in _EXPLAINING:
        condition = conditions.get(type_) or {}
        if condition.get("status") == explaining and (message := str(condition.get("message") or "")):
            return f"{with_priority}: {' '.join(message.split()).rstrip('.')}"
    return with_priority
