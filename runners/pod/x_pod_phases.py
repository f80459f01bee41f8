"""What a learner does while its container runs, by its agent: brings data in, is set up, stores results."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from runners.interface import LearnerRef, Seen
from runners.pod.stores import ANNOTATION
from runners.pod.watch import Sightings
from runners.process.x_process_sightings import seen_of
from workbench.job import LearnerPhase
from workbench.paths import Home, default_home

Pod = Mapping[str, Any]

SILENT_SECONDS: Final = 20.0
"""How long a learner that has data stores counts as bringing them in before its agent has said so: it may be asked
nothing where the right to run commands in pods is missing."""

_OURS: Final = frozenset({LearnerPhase.DOWNLOADING, LearnerPhase.SETUP, LearnerPhase.STORING})


class Phases:
    """What agents said, of the learners that one runner observes."""

    def __init__(self, sightings: Sightings) -> None:
        self._sightings = sightings
        self._silent: dict[str, float] = {}
        """When a pod's learner was first seen to run whose agent has said nothing yet."""

    @property
    def waiting(self) -> bool:
        """Whether some agent is still to be heard."""
        now = time.monotonic()
        return any(now < at + SILENT_SECONDS for at in self._silent.values())

    def refined(self, seen: Seen, pod: Pod) -> Seen:
        """Return how a learner is, with what the cluster does not know of it."""
        uid = str(pod["metadata"]["uid"])
        if seen.phase is not LearnerPhase.RUNNING or not says_more(pod):
            self._silent.pop(uid, None)
            return seen
        said = self._sightings.said_of(seen.ref) or _mirrored(seen.ref)
        if said is None:
            since = self._silent.setdefault(uid, time.monotonic())
            if time.monotonic() < since + SILENT_SECONDS:
                return replace(seen, phase=LearnerPhase.STARTING)
            return seen
        self._silent.pop(uid, None)
        facts = {"state": said, "alive": True, "slots": ()}
        told = seen_of(seen.ref, facts, seen.node)
        if told is not None and told.phase is LearnerPhase.STARTING:
            return replace(seen, phase=LearnerPhase.STARTING)
        return told if told is not None and told.phase in _OURS else seen


def says_more(pod: Pod) -> bool:
    """Say whether a learner's agent knows more of what it does than the cluster."""
    told = pod["metadata"].get("annotations") or {}
    return ANNOTATION in told


def _mirrored(ref: LearnerRef) -> Mapping[str, Any] | None:
    """Return what an agent said to a controller before this one."""
    file = Home(default_home()).job(ref.job_id).attempt(ref.attempt).learner(ref.learner).state
    try:
        said = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) and said.get("phase") else None
