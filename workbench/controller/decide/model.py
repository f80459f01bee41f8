"""The input and output of decisions: a snapshot of one job, and the actions that follow from it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Literal

from runners.interface import Followed, LearnerStatus
from workbench.controller.decide.log_policies import LogMatch
from workbench.controller.decide.outcome import Outcome
from workbench.controller.decide.restarts import Restart
from workbench.controller.decide.scheduler import QueueVerdict
from workbench.errors import NotAllowed
from workbench.job import Intent, Reason, State
from workbench.spec import JobSpec
from workbench.values import dataclass


class Operation(StrEnum):
    """The call to the backend that is under way for one job; there is at most one."""

    NOTHING = ""
    LAUNCH = "launch"
    STOP = "stop"
    PROBE = "probe"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class BackendTrouble:
    """Why a call to the backend failed."""

    kind: Literal["refused", "busy", "unreachable", "fault"]
    """``refused``: a retry cannot help; ``busy``: slots are taken; ``unreachable``: retried until it works;
    ``fault``: the attempt has failed."""
    reason: Reason
    started: bool = False
    """Whether something of the attempt may have been started."""
    exit_code: int | None = None
    """The code that a command ends with for the same error, where a refused job shall have it, too."""

    @property
    def is_denied(self) -> bool:
        """Whether the user lacks a right, which may be granted at any time."""
        return self.exit_code == NotAllowed.exit_code


@dataclass(frozen=True, slots=True)
class StopSent:
    """The last stop request for this attempt that the backend accepted."""

    kind: Literal["halt", "kill"]
    at: float
    times: int


@dataclass(frozen=True, slots=True)
class Preparing:
    """The progress of a launch that is under way."""

    text: str
    stage: Literal["preparing", "waiting", "starting"]
    since: float
    """When this launch entered the stage."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """All that a decision about one job depends on. Times are seconds of the monotonic clock."""

    job_id: str
    state: State
    reason: Reason
    attempt: int
    spec: JobSpec
    now: float
    intent: Intent = Intent.NONE
    asked_by: str = ""
    """Who asked for the intent, as the reason shows it."""
    restarts: int = 0
    platform_restarts: int = 0
    draw: float = 0.5
    """Random, in [0, 1), for the jitter of a restart."""
    statuses: Mapping[int, LearnerStatus] = field(default_factory=dict)
    """The last known status of each learner of the attempt, by number."""
    is_observed: bool = False
    """Whether a complete observation of this attempt has come since the controller started or last stopped it."""
    learner_absent: bool = False
    """Whether a complete observation lacked a learner that should be there."""
    previous_is_over: bool | None = None
    """Whether the previous attempt's learners are confirmed to be over; None before the backend was asked."""
    operation: Operation = Operation.NOTHING
    is_cancelling: bool = False
    """Whether the launch under way was cancelled."""
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
    """The queue's verdict; None before the queue was asked."""
    note: str = ""
    """A remark to show while the job runs."""
    preparing: Preparing | None = None
    reason_changed_at: float | None = None
    """When the reason was last changed in place."""
    stop_sent: StopSent | None = None
    decided_since: float | None = None
    """When it was first known that some learner's end decides the job."""
    stop_asked_at: float | None = None
    """When somebody asked for the intent; None if that was before this controller started."""
    draining_since: float | None = None
    collect_failure: str = ""
    """Why what the learners left cannot be fetched just now; empty while it comes."""
    collect_failing_since: float | None = None
    collected_at: float | None = None
    """When all that the learners left was on this machine; from then on it is only taken into the store."""
    drained: bool = False
    """Whether all that the learners recorded is in the store, or nothing more of it is to be waited for."""
    log_matches: tuple[LogMatch, ...] = ()
    """What the job's log policies found in the output of this attempt."""
    vanished: bool = False
    """Whether the backend lost track of a learner, which may still run."""
    cleaned: bool = False
    """Whether all that could be left of the attempt was ended and removed."""
    removed: bool = False
    unreachable: str = ""
    """Why the backend does not answer; empty while it does."""
    unreachable_since: float | None = None
    """Since when this controller knows that the backend does not answer; from its start, if the one before it knew."""
    never_started: bool = False
    """Whether no launch of this attempt has reached the backend."""
    is_handed_over: bool = False
    """Whether a QUEUED attempt was given to its host, which starts it when its turn comes."""
    may_be_followed: bool = False
    """Whether its host may have begun the next attempt, which an observation will show."""
    is_watched: bool = False
    """Whether it belongs to another laptop: nothing of it is started from here."""


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
    """Cancel the launch that is under way when it next reports progress."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the attempt's learners, then probe what is left of them."""

    kind: Literal["halt", "kill"]
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe this attempt once more: a learner that is absent again is lost."""


@dataclass(frozen=True, slots=True)
class ProbePrevious:
    """Probe whether anything of the previous attempt is left; ``end`` stops it."""

    end: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """Ingest the rest of the learners' records into the store."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """End and remove whatever is left of an attempt of which not all learners are known to be over."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End the attempt, and begin the next one in the same transaction if there is to be one."""

    outcome: Outcome
    restart: Restart | None = None
    followed: Followed | None = None
    """The next attempt where its host has begun it: it waits there, or runs."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a deleted job's files and processes from the backend."""


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
    """What to do for a job now, in this order, and the time of the next decision if no event comes."""

    actions: tuple[Action, ...] = ()
    until: float | None = None
