"""Observes the learners on a host; a learner whose agent was killed gets a new agent, or is ended."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import AttemptRef, LearnerRef, LearnerStatus, Observation
from runners.shared.environment import marker
from runners.shared.host_facts import HostFacts
from runners.shared.learner_status import status_of
from workbench.errors import FabricError
from workbench.job import LearnerPhase, Reason
from workbench.learner.host.learners import is_dead, is_over


def lost(ref: LearnerRef, facts: Mapping[str, Any], boot_id: str, node: str) -> LearnerStatus:
    """Return the status of a learner without an agent and without a recorded end: lost, with the reason."""
    state = facts["state"] or {}
    return LearnerStatus(
        ref,
        LearnerPhase.LOST,
        reason=_why_lost(state, boot_id),
        started_us=state.get("started_us"),
        slots=tuple(facts["slots"]),
        node=node,
    )


def _why_lost(state: Mapping[str, Any], boot_id: str) -> Reason:
    if not state.get("boot_id"):
        return Reason("the learner is gone and nobody knows why", "S104")
    if state["boot_id"] != boot_id:
        return Reason("the machine was restarted", "S203", "A restart of the job begins where it saved last.")
    return Reason("the learner's agent was killed, and what it kept with it", "S202")


NEVER: Final = math.inf
TAKEOVERS: Final = 3
TAKEOVER_SECONDS: Final = 10.0
"""How long a new agent may take to begin before the learner counts as lost."""


@dataclass(slots=True)
class WatchedLearner:
    """A learner that is observed."""

    ref: LearnerRef
    fingerprint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The last facts from the host."""
    status: LearnerStatus | None = None
    takeovers: int = 0
    """How often a new agent was started for it."""
    patience_until: float = NEVER
    """When the new agent must have reported, on the monotonic clock."""

    def news(self, facts: Mapping[str, Any]) -> None:
        """Store new facts."""
        self.facts = facts
        self.fingerprint = facts["fingerprint"]
        self.patience_until = NEVER


class ProcessObservations:
    """The observations of one runner. Used by one thread; :meth:`interrupt` may be called by any."""

    def __init__(self, host: Host, subscriber: str) -> None:
        self._host = host
        self._subscriber = subscriber
        self._attempts: frozenset[AttemptRef] | None = None
        self._watched: dict[str, WatchedLearner] = {}

    def observe(self, attempts: Sequence[AttemptRef], site: HostFacts, timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed."""
        whole = self._attempts != frozenset(attempts)
        if whole:
            self._watch(attempts, site)
        changed = self._ask(site, 0.0 if whole else timeout_seconds)
        # Only now: if the reply was lost, the next call returns all statuses.
        self._attempts = frozenset(attempts)
        if not whole:
            return Observation(tuple(changed), False)
        return Observation(
            tuple(one.status for one in self._watched.values() if one.status is not None), True
        )

    def interrupt(self) -> None:
        """Make a blocked call, or the next one, return early."""
        with contextlib.suppress(FabricError):  # a lost connection makes it return by itself
            self._host.call("interrupt", asker=self._subscriber)

    def _watch(self, attempts: Sequence[AttemptRef], site: HostFacts) -> None:
        refs_by_path = {}
        for attempt in attempts:
            folder = site.home.job(attempt.job_id).attempt(attempt.attempt)
            for number in range(1, attempt.learners + 1):
                ref = LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)
                refs_by_path[str(folder.learner(number).path)] = ref
        self._watched = {
            path: self._watched.get(path, WatchedLearner(ref)) for path, ref in refs_by_path.items()
        }

    def _ask(self, site: HostFacts, timeout_seconds: float) -> list[LearnerStatus]:
        known = {path: one.fingerprint for path, one in self._watched.items()}
        now = time.monotonic()
        until = min((one.patience_until for one in self._watched.values()), default=NEVER)
        timeout = max(0.0, min(timeout_seconds, until - now))
        answer = self._host.call("observe", asker=self._subscriber, known=known, timeout_seconds=timeout)
        for path, facts in answer["learners"].items():
            self._watched[path].news(facts)
        changed = []
        for path, one in self._watched.items():
            if path in answer["learners"] or one.patience_until <= time.monotonic():
                status = self._judge(path, one, answer["boot_id"], site)
                if status is not None and status != one.status:
                    one.status = status
                    changed.append(status)
        return changed

    def _judge(self, path: str, one: WatchedLearner, boot_id: str, site: HostFacts) -> LearnerStatus | None:
        """Return a learner's status; a learner whose agent was killed gets a new agent first."""
        facts = one.facts
        if is_over(facts):
            self._forget_secrets(facts)
        if not is_dead(facts):
            return status_of(one.ref, facts, site.hostname)
        if self._may_be_taken_over(one, boot_id) and self._take_over(path, one, site):
            return status_of(one.ref, facts, site.hostname)
        one.patience_until = NEVER
        self._host.call("end_marked", marker=marker(one.ref), grace_seconds=0.0)
        self._forget_secrets(facts)
        return lost(one.ref, facts, boot_id, site.hostname)

    def _may_be_taken_over(self, one: WatchedLearner, boot_id: str) -> bool:
        state = one.facts["state"]
        # An agent that starts a command anew would do so without the slots of the old one.
        begun = state.get("phase") != LearnerPhase.STARTING and state.get("boot_id") == boot_id
        return begun and one.patience_until == NEVER and one.takeovers < TAKEOVERS

    def _take_over(self, path: str, one: WatchedLearner, site: HostFacts) -> bool:
        """Start a new agent for a learner: it ends the learner's processes and saves its output."""
        launch = self._host.call("read_object", path=f"{path}/launch.json") or {}
        argv = launch.get("guard")
        if not argv:
            return False
        environment = {**site.environment, "FABRIC_GUARD": marker(one.ref)}
        try:
            self._host.spawn(argv, env=environment, cwd="/", output=f"{path}/guard.log")
        except FabricError:
            return False
        one.takeovers += 1
        one.patience_until = time.monotonic() + TAKEOVER_SECONDS
        return True

    def _forget_secrets(self, facts: Mapping[str, Any]) -> None:
        if path := facts["secrets_file"]:
            self._host.call("remove", paths=[path])
