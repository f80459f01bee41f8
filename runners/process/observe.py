"""Observes the learners on a host; a learner whose agent was killed gets a new agent, or is ended."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import AttemptRef, LearnerRef, LearnerStatus, Observation
from runners.shared.agents import AgentKind, upload_agent
from runners.shared.environment import marker
from runners.shared.host_facts import HostFacts
from runners.shared.learner_status import followed_by, is_waiting, reason_of, status_of
from workbench.errors import FabricError
from workbench.job import LearnerPhase, Reason
from workbench.learner.host.learners import is_dead, is_over
from workbench.paths import LearnerFolder
from workbench.values import dataclass


def lost(ref: LearnerRef, facts: Mapping[str, Any], boot_id: str, node: str) -> LearnerStatus:
    """Return the status of a learner without an agent and without a recorded end: lost, with the reason.

    Where its agent was about to have the next attempt begun, it had recorded why: as that the host counts it.
    """
    state = facts["state"] or {}
    recorded = {} if followed_by(state) is None else state
    return LearnerStatus(
        ref,
        LearnerPhase.LOST,
        reason=reason_of(recorded) or _why_lost(state, boot_id),
        stopped=recorded.get("stopped") or "",
        started_us=state.get("started_us"),
        slots=tuple(facts["slots"]),
        node=node,
        followed_by=followed_by(state),
    )


def _why_lost(state: Mapping[str, Any], boot_id: str) -> Reason:
    if not state.get("boot_id"):
        return Reason("the learner ended and left no reason", "S104")
    if state["boot_id"] != boot_id:
        return Reason("the machine was restarted", "S203", "A restart continues from its last checkpoint.")
    return Reason("the learner's agent was killed together with the learner", "S202")


NEVER: Final = math.inf
TAKEOVERS: Final = 4
TAKEOVER_SECONDS: Final = 10.0
"""How long a new agent may take to begin before the next one is tried, or the learner counts as lost."""


@dataclass(slots=True)
class Takeover:
    """The agents that were started for a learner whose own was killed."""

    count: int = 0
    fingerprint: str = ""
    """Of the learner's facts when the last one was started: as long as they are the same it has done nothing."""
    until: float = 0.0
    """When it must have done something, on the monotonic clock."""
    is_present: bool = False
    """Whether it is the agent that this version brings, and not the one that the learner began with."""

    def is_awaited(self, facts: Mapping[str, Any]) -> bool:
        """Say whether the last agent may still begin."""
        return facts["fingerprint"] == self.fingerprint and time.monotonic() < self.until


_takeovers: dict[str, Takeover] = {}
"""By the learners' markers. Runners come and go, at each look; what was tried in vain must outlive them."""


@dataclass(slots=True)
class WatchedLearner:
    """A learner that is observed."""

    ref: LearnerRef
    fingerprint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The last facts from the host."""
    status: LearnerStatus | None = None
    patience_until: float = NEVER
    """When the new agent must have reported, on the monotonic clock."""

    def news(self, facts: Mapping[str, Any]) -> None:
        """Store new facts."""
        self.facts = facts
        self.fingerprint = facts["fingerprint"]
        self.patience_until = NEVER


class SharedFingerprints:
    """The fingerprints that a host remembers of one subscriber: what is not among them alone is sent again."""

    def __init__(self, host: Host, subscriber: str) -> None:
        self._host = host
        self._subscriber = subscriber
        self._there: Mapping[str, str] = {}
        self._answer = ""
        """The answer after which the host remembers them; empty where it is to be sent all."""

    def ask(self, known: Mapping[str, str], timeout_seconds: float) -> dict[str, Any]:
        """Return which learners are not as they are known; wait until one is not.

        Should the call fail nobody knows what the host took, and all is sent again. An agent that remembers nothing
        names no answer, and is sent all each time.
        """
        before, self._answer = self._answer, ""
        answer = self._ask_for_more(before, known, timeout_seconds) if before else None
        if answer is None or "mismatch" in answer:
            answer = self._call(known=known, timeout_seconds=timeout_seconds)
        self._there = {**known, **{path: facts["fingerprint"] for path, facts in answer["learners"].items()}}
        self._answer = str(answer.get("answer", ""))
        return answer

    def _ask_for_more(self, before: str, known: Mapping[str, str], timeout_seconds: float) -> dict[str, Any]:
        new = {path: known[path] for path in known if self._there.get(path) != known[path]}
        gone = [path for path in self._there if path not in known]
        return self._call(known=new, timeout_seconds=timeout_seconds, after=before, gone=gone)

    def _call(self, **asked: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._host.call("observe", asker=self._subscriber, **asked)
        return answer


class ProcessObservations:
    """The observations of one runner. Used by one thread; :meth:`interrupt` may be called by any."""

    def __init__(self, host: Host, subscriber: str) -> None:
        self._host = host
        self._subscriber = subscriber
        self._fingerprints = SharedFingerprints(host, subscriber)
        self._attempts: tuple[AttemptRef, ...] | None = None
        self._watched: dict[str, WatchedLearner] = {}

    def observe(self, attempts: Sequence[AttemptRef], site: HostFacts, timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed."""
        whole = not self._are_observed(attempts)
        if whole:
            self._attempts = None
            self._watch(attempts, site)
        changed = self._ask(site, 0.0 if whole else timeout_seconds)
        # Only now: if the reply was lost, the next call returns all statuses.
        self._attempts = tuple(attempts)
        if not whole:
            return Observation(tuple(changed), False)
        return Observation(
            tuple(one.status for one in self._watched.values() if one.status is not None), True
        )

    def interrupt(self) -> None:
        """Make a blocked call, or the next one, return early."""
        with contextlib.suppress(FabricError):  # a lost connection makes it return by itself
            self._host.call("interrupt", asker=self._subscriber)

    def _are_observed(self, attempts: Sequence[AttemptRef]) -> bool:
        if self._attempts is None:
            return False
        # As a rule they are the same objects in the same order, which costs less to find than their hashes.
        return self._attempts == tuple(attempts) or set(self._attempts) == set(attempts)

    def _watch(self, attempts: Sequence[AttemptRef], site: HostFacts) -> None:
        refs_by_path = {}
        for attempt in attempts:
            folder = site.home.job(attempt.job_id).attempt(attempt.attempt)
            for number in attempt.numbers:
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
        answer = self._fingerprints.ask(known, timeout)
        for path, facts in answer["learners"].items():
            self._watched[path].news(facts)
        changed = []
        now = time.monotonic()
        for path, one in self._watched.items():
            if path in answer["learners"] or one.patience_until <= now:
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
        if not is_dead(facts) or is_waiting(facts):
            return status_of(one.ref, facts, site.hostname)
        if self._may_be_taken_over(one, boot_id) and self._is_taken_over(path, one, site):
            return status_of(one.ref, facts, site.hostname)
        one.patience_until = NEVER
        self._host.call("end_marked", marker=marker(one.ref), grace_seconds=0.0)
        self._forget_secrets(facts)
        return lost(one.ref, facts, boot_id, site.hostname)

    def _may_be_taken_over(self, one: WatchedLearner, boot_id: str) -> bool:
        state = one.facts["state"]
        # An agent that starts a command again would do so without the slots of the old one.
        return bool(state.get("phase") != LearnerPhase.STARTING and state.get("boot_id") == boot_id)

    def _is_taken_over(self, path: str, one: WatchedLearner, site: HostFacts) -> bool:
        """Say whether a new agent is about to begin; start one, or the next one, where none is."""
        takeover = _takeovers.setdefault(marker(one.ref), Takeover())
        if not takeover.is_awaited(one.facts) and not self._take_over(path, one, site, takeover):
            return False
        one.patience_until = takeover.until
        return True

    def _take_over(self, path: str, one: WatchedLearner, site: HostFacts, takeover: Takeover) -> bool:
        """Start a new agent for a learner: it ends the learner's processes and saves its output."""
        is_idle = takeover.fingerprint == one.facts["fingerprint"]
        if takeover.count >= TAKEOVERS or (is_idle and takeover.is_present):
            return False
        launch = self._host.call("read_object", path=f"{path}/launch.json") or {}
        recorded = launch.get("guard")
        if not recorded:
            return False
        # The learner's own agent knows best what it left, but may be gone with the folder that the home was moved
        # from, or with an environment that was removed.
        is_present = is_idle or not self._spawn(path, one, site, lambda: list(recorded))
        if is_present and not self._spawn(
            path, one, site, partial(self._present_agent, path, recorded, site)
        ):
            return False
        takeover.count += 1
        takeover.fingerprint = one.facts["fingerprint"]
        takeover.until = time.monotonic() + TAKEOVER_SECONDS
        takeover.is_present = is_present
        return True

    def _spawn(self, path: str, one: WatchedLearner, site: HostFacts, argv: Callable[[], list[str]]) -> bool:
        environment = {**site.environment, "FABRIC_GUARD": marker(one.ref)}
        try:
            self._host.spawn(argv(), env=environment, cwd="/", output=f"{path}/guard.log")
        except FabricError:
            return False
        return True

    def _present_agent(self, path: str, recorded: Sequence[str], site: HostFacts) -> list[str]:
        """Return the command of the agent and the interpreter that are there now."""
        kind: AgentKind = "sh" if recorded[1].endswith(".sh") else "python"
        return upload_agent(self._host, site, kind).argv(LearnerFolder(Path(path)))

    def _forget_secrets(self, facts: Mapping[str, Any]) -> None:
        if path := facts["secrets_file"]:
            self._host.call("remove", paths=[path])
