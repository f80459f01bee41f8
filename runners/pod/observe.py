"""Observes the learners in a cluster by the shared watch; waiting pods get the cluster's message."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from backends.contract.cluster import Cluster, Denied
from runners.interface import AttemptRef, LearnerRef, LearnerStatus, Observation, StopRequest
from runners.pod.admission import UnschedulablePods, refusal_of
from runners.pod.container_host import PodHost, open_host
from runners.pod.journals import AgentPhases, folder_of
from runners.pod.kueue import queue_of, waiting_text
from runners.pod.names import LEARNER, PREPARE, SIDE_CAR, VERDICT, stem_of
from runners.pod.options import options_of
from runners.pod.status import (
    has_learner_begun,
    is_learner_running,
    is_preparing,
    is_side_car_running,
    status_of,
    status_without_pod,
    unrecoverable,
    verdict_of,
    waits_for_image,
)
from runners.pod.stop import write_request
from runners.pod.watch import ClusterCache
from workbench.errors import FabricError
from workbench.job import LearnerPhase, Reason
from workbench.learner.pod.config import BY_CLUSTER, termination_document

Pod = Mapping[str, Any]

AGAIN_SECONDS: Final = 2.0
ASKED_AT_ONCE: Final = 8
"""How many side-cars of pods that are being deleted are asked at once."""


class AgentEndings:
    """Asks the side-cars of pods that are being deleted how their learners ended, and caches the answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._asked_at: dict[str, float] = {}
        self._endings: dict[str, Mapping[str, Any]] = {}

    @property
    def pending(self) -> bool:
        """Whether the answer of a side-car is awaited."""
        now = time.monotonic()
        with self._lock:
            # Entries of pods that no longer exist expire.
            self._asked_at = {uid: at for uid, at in self._asked_at.items() if at > now - AGAIN_SECONDS}
            return bool(self._asked_at)

    def completed(self, ref: LearnerRef, pod: Pod) -> Pod:
        """Return a pod with its learner's end from the side-car, if the pod's status does not have it yet."""
        uid = str(pod["metadata"]["uid"])
        if not is_ending(pod):
            with self._lock:
                self._asked_at.pop(uid, None)
            return pod
        with self._lock:
            ending = self._endings.get(uid)
            due = ending is None and time.monotonic() >= self._asked_at.get(uid, 0.0)
            if due:
                self._asked_at[uid] = time.monotonic() + AGAIN_SECONDS
        if due:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="ending")
            self._threads.submit(self._ask, ref, pod)
        return pod if ending is None else _with_end(pod, ending)

    def _ask(self, ref: LearnerRef, pod: Pod) -> None:
        name, uid, folder = pod["metadata"]["name"], pod["metadata"]["uid"], folder_of(ref)
        try:
            host = open_host(self._cluster, name)
            try:
                state = host.call("read_object", path=f"{folder}/state.json") or {}
                stop = host.call("read_object", path=f"{folder}/stop.json") or {}
                if not stop and state.get("phase") != "exited":
                    _request_halt(host, folder)
            finally:
                host.close()
        except (FabricError, OSError):
            return  # asked again, or the pod's final status has it
        if state.get("phase") == "exited":
            with self._lock:
                self._endings[uid] = termination_document(state, stop)
                self._asked_at.pop(uid, None)


def _request_halt(host: PodHost, folder: str) -> None:
    """Request what the pod's deletion means: its learner may have been sent the signal before it could listen."""
    if launch := host.call("read_object", path=f"{folder}/launch.json"):
        request = StopRequest("halt", launch["grace_seconds"], by=BY_CLUSTER)
        write_request(host, folder, request)


def is_ending(pod: Pod) -> bool:
    """Return whether a pod is being deleted, its side-car runs, and its learner counts as running."""
    is_deleted = bool(pod["metadata"].get("deletionTimestamp"))
    return is_deleted and is_side_car_running(pod) and is_learner_running(pod)


def _with_end(pod: Pod, ending: Mapping[str, Any]) -> Pod:
    ended = {"exitCode": ending.get("exit_code") or 0, "message": json.dumps(dict(ending))}
    statuses = [
        {**one, "state": {"terminated": ended}} if one["name"] == LEARNER else one
        for one in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}


EXPLAIN_SECONDS: Final = 1.0
"""After this time the events of a pod that waits without a reason are read."""

EXPLAIN_AGAIN_SECONDS: Final = 5.0
DENIED_SECONDS: Final = 60.0
"""How long a right that is missing is not asked for again."""

IMAGE_SECONDS: Final = 120.0
"""How long an image may fail to be pulled before the job fails."""

_SUM_UP_SECONDS: Final = 0.02
"""How long an answer waits for further changes: they come in groups."""


DELETED_SECONDS: Final = 5.0
"""How long a pod that was deleted before its learner began may take before it is sent the signal again."""


class MissedSignals:
    """Repeats the cluster's signal in pods that were deleted before their learner began, and did not end.

    The first process of a container gets no signal before it listens, and the runtime sends it once. Such a pod would
    stay for the whole grace of a running learner: a kubelet that waits does not take a shorter one.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._threads: ThreadPoolExecutor | None = None
        self._due: dict[str, float] = {}
        """When the signal is sent again, by the pod's uid."""

    @property
    def waiting(self) -> bool:
        """Whether there is such a pod."""
        return bool(self._due)

    def keep(self, uids: set[str]) -> None:
        """Forget all pods but these."""
        self._due = {uid: due for uid, due in self._due.items() if uid in uids}

    def look(self, pod: Pod) -> None:
        """Send the signal again if this is such a pod and it has had its time."""
        uid, container = str(pod["metadata"]["uid"]), _holds_unbegun(pod)
        if not pod["metadata"].get("deletionTimestamp") or not container:
            self._due.pop(uid, None)
            return
        now = time.monotonic()
        if now < self._due.setdefault(uid, now + DELETED_SECONDS):
            return
        self._due[uid] = now + DELETED_SECONDS
        if self._threads is None:
            self._threads = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="signal")
        self._threads.submit(self._send, str(pod["metadata"]["name"]), container)

    def _send(self, name: str, container: str) -> None:
        with contextlib.suppress(
            FabricError
        ):  # it has just ended, or the right is missing: then it has its grace
            self._cluster.exec(name, container, ["sh", "-c", "kill -TERM 1"]).wait()


def _holds_unbegun(pod: Pod) -> str:
    """Return the container that keeps a pod whose learner has not begun; empty if there is none."""
    if is_preparing(pod):
        return PREPARE
    return SIDE_CAR if is_side_car_running(pod) and not has_learner_begun(pod) else ""


class PodObservations:
    """The observations of one runner. Used by one thread; :meth:`interrupt` may be called by any."""

    def __init__(self, cluster: Cluster, cache: ClusterCache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._endings = AgentEndings(cluster)
        self._missed = MissedSignals(cluster)
        self._phases = AgentPhases(cache)
        self._attempts: frozenset[AttemptRef] | None = None
        self._statuses: dict[LearnerRef, LearnerStatus] = {}
        self._since: dict[AttemptRef, float] = {}
        self._why: dict[AttemptRef, tuple[float, str]] = {}
        self._queued_why: dict[AttemptRef, tuple[float, str]] = {}
        self._pulling: dict[str, float] = {}
        self._unschedulable = UnschedulablePods(cluster, options_of(cluster.options).unfit_seconds)
        self._explains_after = 0.0
        """Until then events are not read: the right to list them was missing."""
        self._interrupted = False

    def observe(self, attempts: Sequence[AttemptRef], timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed; of all when one is gone."""
        turn = self._cache.ready()
        asked_for = frozenset(attempts)
        if self._attempts != asked_for:
            found = {status.ref: status for attempt in attempts for status in self._statuses_of(attempt)}
            self._statuses, self._attempts = found, asked_for
            self._since = {one: at for one, at in self._since.items() if one in asked_for}
            self._why = {one: explanation for one, explanation in self._why.items() if one in asked_for}
            self._queued_why = {one: why for one, why in self._queued_why.items() if one in asked_for}
            pods = [pod for one in attempts for pod in self._cache.pods_of(one).values()]
            uids = {str(pod["metadata"]["uid"]) for pod in pods}
            self._unschedulable.keep(uids)
            self._missed.keep(uids)
            return Observation(tuple(found.values()), True)
        until = time.monotonic() + timeout_seconds
        while True:
            changed, has_vanished = self._news(attempts)
            if has_vanished:
                return Observation(tuple(self._statuses.values()), True)
            left = until - time.monotonic()
            if changed or self._interrupted or left <= 0:
                self._interrupted = False
                return Observation(tuple(changed), False)
            waits = left
            if (
                self._since
                or self._pulling
                or self._unschedulable.waiting
                or self._endings.pending
                or self._missed.waiting
                or self._phases.waiting
            ):
                waits = min(left, EXPLAIN_SECONDS)
            turn = self._cache.wait(waits, turn=turn)
            if not self._interrupted:
                time.sleep(_SUM_UP_SECONDS)
                turn = self._cache.wait(0.0)

    def interrupt(self) -> None:
        """Make a blocked call, or the next one, return early."""
        self._interrupted = True
        self._cache.wake()

    def _news(self, attempts: Sequence[AttemptRef]) -> tuple[list[LearnerStatus], bool]:
        """Return the statuses that have changed, and whether nothing is left of a learner that had one."""
        found = {status.ref: status for attempt in attempts for status in self._statuses_of(attempt)}
        changed = [status for ref, status in found.items() if self._statuses.get(ref) != status]
        has_vanished = not self._statuses.keys() <= found.keys()
        self._statuses = found
        return changed, has_vanished

    def _statuses_of(self, attempt: AttemptRef) -> list[LearnerStatus]:
        """Return the statuses of an attempt's learners from the cache of the watch."""
        job, pods = self._cache.job_of(attempt), self._cache.pods_of(attempt)
        for one in pods.values():
            self._missed.look(one)
        if job is not None and verdict_of(job) is None:
            for one in pods.values():
                if (
                    reason := unrecoverable(one)
                    or self._waited_too_long(one)
                    or self._unschedulable.reason(one)
                ):
                    self._give_up(attempt, reason)
                    break
        pods = {**self._cache.ended_of(attempt), **pods}
        found: list[LearnerStatus] = []
        silent = False
        for number in range(1, attempt.learners + 1):
            ref = LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)
            pod = pods.get(number)
            status = None
            if pod is not None and (job is None or verdict_of(job) is None):
                status = self._phases.refined(status_of(ref, self._endings.completed(ref, pod)), pod)
            elif job is not None:
                status = status_without_pod(ref, job, "")
                if status is not None and status.phase is LearnerPhase.STARTING and queue_of(job):
                    silent = True
                    reason = Reason(self._queued(attempt, job))
                    status = LearnerStatus(ref, LearnerPhase.STARTING, reason=reason)
            if status is not None and status.phase is LearnerPhase.STARTING and status.reason is None:
                silent = True
                if why := self._explained(attempt, pod):
                    status = LearnerStatus(ref, LearnerPhase.STARTING, reason=Reason(why), node=status.node)
            if status is not None:
                found.append(status)
        if not silent:
            self._since.pop(attempt, None)
        return found

    def _explained(self, attempt: AttemptRef, pod: Mapping[str, Any] | None) -> str:
        """Return the message of the cluster's events about a pod or Job that has waited for some time."""
        now = time.monotonic()
        since = self._since.setdefault(attempt, now)
        if now - since < EXPLAIN_SECONDS or now < self._explains_after:
            return ""
        asked_at, text = self._why.get(attempt, (-EXPLAIN_AGAIN_SECONDS, ""))
        if now - asked_at < EXPLAIN_AGAIN_SECONDS:
            return text
        kind, name = ("Job", stem_of(attempt)) if pod is None else ("Pod", pod["metadata"]["name"])
        try:
            fields = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
            events = self._cluster.list("Event", fields=fields).items
        except Denied:
            self._explains_after = now + DENIED_SECONDS
            return ""
        except FabricError:
            return text
        text = _event_text(events)
        self._why[attempt] = (now, text)
        if pod is None and (hint := refusal_of(text)) is not None:
            message = text.partition(": ")[2] or text
            self._give_up(attempt, Reason(f"the cluster creates no pod: {message}", "C104", hint))
        return text

    def _queued(self, attempt: AttemptRef, job: Mapping[str, Any]) -> str:
        """Return why a Job waits in its queue; asked again after some time."""
        now = time.monotonic()
        self._since.setdefault(attempt, now)
        asked_at, text = self._queued_why.get(attempt, (-EXPLAIN_AGAIN_SECONDS, ""))
        if now - asked_at >= EXPLAIN_AGAIN_SECONDS:
            text = waiting_text(self._cluster, job)
            self._queued_why[attempt] = (now, text)
        return text

    def _waited_too_long(self, pod: Mapping[str, Any]) -> Reason | None:
        """Return the reason if pulling a pod's image has failed for IMAGE_SECONDS, else None."""
        uid, reason = pod["metadata"]["uid"], waits_for_image(pod)
        if reason is None:
            self._pulling.pop(uid, None)
            return None
        since = self._pulling.setdefault(uid, time.monotonic())
        return reason if time.monotonic() - since > IMAGE_SECONDS else None

    def _give_up(self, attempt: AttemptRef, reason: Reason) -> None:
        """Suspend a Job whose pods can never run, so that they hold no resources; an annotation keeps the reason."""
        verdict = {"text": reason.text, "code": reason.code, "hint": reason.hint, "final": True}
        patch = {"metadata": {"annotations": {VERDICT: json.dumps(verdict)}}, "spec": {"suspend": True}}
        with contextlib.suppress(FabricError):  # repeated with the next change
            self._cluster.patch("Job", stem_of(attempt), patch)


_FULL_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<requested>.+), used: .+, limited: (?P<limited>.+)"
)
_POD_NAME: Final = re.compile(r'pods "[^"]*" is forbidden')
"""Each try of the cluster has a random name, and would be another reason."""


def _event_text(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the message of the latest event."""
    last = max(events, key=_time_of, default=None)
    if last is None:
        return ""
    message = " ".join(str(last.get("message") or "").split()).rstrip(".")
    if full := _FULL_QUOTA.search(message):
        return (
            f"waits for the namespace's quota {full['name']}: asks for {full['requested']}, "
            f"the limit is {full['limited']}"
        )
    message = _POD_NAME.sub("pods is forbidden", message)
    texts = {"FailedCreate": "waits, since the cluster creates no pod", "FailedMount": "waits for a volume"}
    return f"{texts.get(str(last.get('reason')), 'waits')}: {message}"


def _time_of(event: Mapping[str, Any]) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
