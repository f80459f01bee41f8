"""Observes a cluster's learners: from one watch, with the cluster's own words where something waits."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backends.contract.cluster import Cluster, Denied
from runners.interface import AttemptRef, LearnerRef, Observation, Seen
from runners.pod.admission import refusal_of
from runners.pod.names import VERDICT, stem_of
from runners.pod.options import options_of
from runners.pod.status import hopeless, seen_of, seen_without_pod, verdict_of, waits_for_image
from runners.pod.watch import Sightings
from runners.pod.x_pod_endings import Endings
from runners.pod.x_pod_phases import Phases
from runners.pod.x_pod_unfit import Unfit
from workbench.errors import FabricError
from workbench.job import LearnerPhase, Reason

EXPLAIN_SECONDS: Final = 1.0
"""After this a wait without words is asked about."""

EXPLAIN_AGAIN_SECONDS: Final = 5.0
IMAGE_SECONDS: Final = 120.0
"""How long nodes may try to pull an image before the job has failed."""

_SUM_UP_SECONDS: Final = 0.02
"""News comes in company: an answer waits so long for the rest of it."""


class Observing:
    """What one runner has observed. Used from one thread; :meth:`interrupt` may come from any."""

    def __init__(self, cluster: Cluster, sightings: Sightings) -> None:
        self._cluster = cluster
        self._sightings = sightings
        self._endings = Endings(cluster)
        self._phases = Phases(sightings)
        self._attempts: frozenset[AttemptRef] | None = None
        self._seen: dict[LearnerRef, Seen] = {}
        self._since: dict[AttemptRef, float] = {}
        self._why: dict[AttemptRef, tuple[float, str]] = {}
        self._pulling: dict[str, float] = {}
        self._unfit = Unfit(cluster, options_of(cluster.options).unfit_seconds)
        self._explains = True
        self._interrupted = False

    def observe(self, attempts: Sequence[AttemptRef], timeout_seconds: float) -> Observation:
        """Say how these attempts' learners are, when something has changed."""
        turn = self._sightings.ready()
        wanted = frozenset(attempts)
        if self._attempts != wanted:
            found = {seen.ref: seen for attempt in attempts for seen in self._look(attempt)}
            self._seen, self._attempts = found, wanted
            self._since = {one: at for one, at in self._since.items() if one in wanted}
            self._why = {one: told for one, told in self._why.items() if one in wanted}
            pods = [pod for one in attempts for pod in self._sightings.pods_of(one).values()]
            self._unfit.keep({str(pod["metadata"]["uid"]) for pod in pods})
            return Observation(tuple(found.values()), True)
        until = time.monotonic() + timeout_seconds
        while True:
            changed = self._news(attempts)
            left = until - time.monotonic()
            if changed or self._interrupted or left <= 0:
                self._interrupted = False
                return Observation(tuple(changed), False)
            waits = left
            if (
                self._since
                or self._pulling
                or self._unfit.waiting
                or self._endings.asking
                or self._phases.waiting
            ):
                waits = min(left, EXPLAIN_SECONDS)
            turn = self._sightings.wait(waits, turn=turn)
            if not self._interrupted:
                time.sleep(_SUM_UP_SECONDS)
                turn = self._sightings.wait(0.0)

    def interrupt(self) -> None:
        """Make a call that waits, or the next one, return early."""
        self._interrupted = True
        self._sightings.wake()

    def _news(self, attempts: Sequence[AttemptRef]) -> list[Seen]:
        changed = []
        for attempt in attempts:
            for seen in self._look(attempt):
                if self._seen.get(seen.ref) != seen:
                    self._seen[seen.ref] = seen
                    changed.append(seen)
        return changed

    def _look(self, attempt: AttemptRef) -> list[Seen]:
        """Say how the learners of an attempt are as the watch has them."""
        job, pods = self._sightings.job_of(attempt), self._sightings.pods_of(attempt)
        if job is not None and verdict_of(job) is None:
            for one in pods.values():
                if reason := hopeless(one) or self._waited_too_long(one) or self._unfit.reason(one):
                    self._give_up(attempt, reason)
                    break
        pods = {**self._sightings.ended_of(attempt), **pods}
        found: list[Seen] = []
        silent = False
        for number in range(1, attempt.learners + 1):
            ref = LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)
            pod = pods.get(number)
            seen = None
            if pod is not None and (job is None or verdict_of(job) is None):
                seen = self._phases.refined(seen_of(ref, self._endings.completed(ref, pod)), pod)
            elif job is not None:
                seen = seen_without_pod(ref, job, "")
            if seen is not None and seen.phase is LearnerPhase.STARTING and seen.reason is None:
                silent = True
                if why := self._explained(attempt, pod):
                    seen = Seen(ref, LearnerPhase.STARTING, reason=Reason(why), node=seen.node)
            if seen is not None:
                found.append(seen)
        if not silent:
            self._since.pop(attempt, None)
        return found

    def _explained(self, attempt: AttemptRef, pod: Mapping[str, Any] | None) -> str:
        """Return what the cluster's events say of a wait that has lasted a while."""
        now = time.monotonic()
        since = self._since.setdefault(attempt, now)
        if now - since < EXPLAIN_SECONDS or not self._explains:
            return ""
        asked, text = self._why.get(attempt, (-EXPLAIN_AGAIN_SECONDS, ""))
        if now - asked < EXPLAIN_AGAIN_SECONDS:
            return text
        kind, name = ("Job", stem_of(attempt)) if pod is None else ("Pod", pod["metadata"]["name"])
        try:
            fields = f"involvedObject.kind={kind},involvedObject.name={name},type=Warning"
            events = self._cluster.list("Event", fields=fields).items
        except Denied:
            self._explains = False
            return ""
        except FabricError:
            return text
        text = _words(events)
        self._why[attempt] = (now, text)
        if pod is None and (hint := refusal_of(text)) is not None:
            said = text.partition(": ")[2] or text
            self._give_up(attempt, Reason(f"the cluster makes no pod: {said}", "C104", hint))
        return text

    def _waited_too_long(self, pod: Mapping[str, Any]) -> Reason | None:
        """Say that an image did not come though it was tried again for long."""
        uid, reason = pod["metadata"]["uid"], waits_for_image(pod)
        if reason is None:
            self._pulling.pop(uid, None)
            return None
        since = self._pulling.setdefault(uid, time.monotonic())
        return reason if time.monotonic() - since > IMAGE_SECONDS else None

    def _give_up(self, attempt: AttemptRef, reason: Reason) -> None:
        """End pods that will never run, so that they hold nothing; the Job keeps the reason."""
        told = {"text": reason.text, "code": reason.code, "hint": reason.hint, "final": True}
        patch = {"metadata": {"annotations": {VERDICT: json.dumps(told)}}, "spec": {"suspend": True}}
        with contextlib.suppress(FabricError):  # decided again with the next news
            self._cluster.patch("Job", stem_of(attempt), patch)


def _words(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the last thing that events say."""
    last = max(events, key=_time_of, default=None)
    if last is None:
        return ""
    message = " ".join(str(last.get("message") or "").split()).rstrip(".")
    words = {"FailedCreate": "waits, since the cluster makes no pod", "FailedMount": "waits for a volume"}
    return f"{words.get(str(last.get('reason')), 'waits')}: {message}"


def _time_of(event: Mapping[str, Any]) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
