"""What a decision about one job is made from, and what it can be: values, so every case is a test. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from runners.interface import LearnerStatus
from workbench.controller.decide.outcome import Outcome
from workbench.controller.decide.restarts import Restart
from workbench.controller.decide.scheduling import QueueVerdict
from workbench.job import Intent, Reason, State
from workbench.spec import JobSpec


class Operation(StrEnum):
    """The call that is under way at the place for one job; there is at most one."""

    NOTHING = ""
    LAUNCH = "launch"
    STOP = "stop"
    LOOK = "look"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class BackendTrouble:
    """Why a call at the place failed."""

    kind: Literal["refused", "busy", "unreachable", "fault"]
    """refused: trying again cannot mend it; busy: slots are taken; unreachable: tried until it works;
    fault: the attempt has failed."""
    reason: Reason
    started: bool = False
    """Whether something of the attempt may have been started."""


@dataclass(frozen=True, slots=True)
class StopSent:
    """The last stop that was asked of the place for this attempt."""

    kind: Literal["halt", "kill"]
    at: float
    times: int


@dataclass(frozen=True, slots=True)
class Preparing:
    """What a launch that is under way says it does."""

    text: str
    stage: Literal["preparing", "waiting", "starting"]
    since: float
    """When this launch first said something of this stage."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """One job as the controller sees it now. Times are seconds on the clock that cannot jump."""

    job_id: str
    state: State
    reason: Reason
    attempt: int
    spec: JobSpec
    now: float
    intent: Intent = Intent.NONE
    asked_by: str = ""
    """Who asked for the intent, in words."""
    restarts: int = 0
    platform_restarts: int = 0
    draw: float = 0.5
    """Random, in [0, 1), for the jitter of a restart."""
    seen: Mapping[int, LearnerStatus] = field(default_factory=dict)
    """The attempt's learners as they were last seen."""
    looked: bool = False
    """Whether the place has shown all of this attempt since the controller started, or last stopped it."""
    doubt: bool = False
    """Whether the place has shown all and a learner that should be there was not."""
    previous_is_over: bool | None = None
    """Whether the place confirms that the learners before are gone; None when it was not asked."""
    operation: Operation = Operation.NOTHING
    is_cancelling: bool = False
    """Whether the launch under way was told to end."""
    launches: int = 0
    """How often this controller has launched this attempt to the end."""
    launched_at: float | None = None
    fault: BackendTrouble | None = None
    """Why launching this attempt failed for good."""
    trouble: BackendTrouble | None = None
    """Why the last call has to be made again; None when it went well."""
    not_before: float | None = None
    """When the next call is due after one that failed, or the next attempt of a job that did."""
    verdict: QueueVerdict | None = None
    """What the queue says; None when it was not asked."""
    note: str = ""
    """What is worth saying aloud while it runs."""
    preparing: Preparing | None = None
    reason_changed_at: float | None = None
    """When the reason was last changed in place."""
    stop_sent: StopSent | None = None
    decided_since: float | None = None
    """When it was first seen that some learner's end decides the job."""
    draining_since: float | None = None
    collected_at: float | None = None
    """When all that the learners left was on this machine; from then on it is only taken into the store."""
    drained: bool = False
    """Whether all that the learners recorded is in the store, or nothing more of it is to be waited for."""
    vanished: bool = False
    """Whether the place lost all trace of a learner, which may run on."""
    cleaned: bool = False
    """Whether all that could be left of the attempt was ended and removed."""
    removed: bool = False
    unreachable: str = ""
    """Why the place does not answer, in words."""
    never_started: bool = False
    """Whether the place could not even be asked to begin the attempt."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Go to a state that is not the end."""

    state: State
    reason: Reason


@dataclass(frozen=True, slots=True)
class SetReason:
    """Keep the state, change its reason."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StartLaunch:
    """Launch the attempt, or launch it again."""


@dataclass(frozen=True, slots=True)
class CancelLaunch:
    """Call off the launch that is under way, at its next word."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the attempt's learners, and look what is left of them."""

    kind: Literal["halt", "kill"]
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the place once more what there is of this attempt: a learner that is not there then is lost."""


@dataclass(frozen=True, slots=True)
class ProbePrevious:
    """Ask the place whether anything of the attempt before this one is left, ending it if so."""

    end: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """Bring all that the learners recorded into the store."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """End and remove whatever is left of an attempt of which not all learners are known to be over."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End the attempt, and begin the next one in the same transaction if there is to be one."""

    outcome: Outcome
    restart: Restart | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove what the place has of a deleted job."""


@dataclass(frozen=True, slots=True)
class Purge:
    """Write the tombstone, then remove the folder."""


@dataclass(frozen=True, slots=True)
class Untrack:
    """Nothing is left to do for this job."""


Action = (
    Transition
    | SetReason
    | StartLaunch
    | CancelLaunch
    | Stop
    | Probe
    | ProbePrevious
    | Drain
    | CleanUp
    | Finish
    | Remove
    | Purge
    | Untrack
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done for a job now, in this order, and when to decide again though nothing happens."""

    actions: tuple[Action, ...] = ()
    until: float | None = None
