"""The events that other threads post to the loop's mailbox. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from runners.interface import AttemptRef, HostTurn, LearnerRef, LearnerStatus
from workbench.controller.decide.log_policies import LogMatch
from workbench.controller.decide.model import BackendTrouble, Operation
from workbench.controller.decide.scheduler import Capacity, LinedUpJob
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Woken:
    """A client has written to the store."""


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The controller is asked to end, by a signal or a client."""

    why: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A client asks for a job to be stopped or deleted, and cannot write to the store."""

    job_id: str
    kind: str
    who: str


@dataclass(frozen=True, slots=True)
class ReportsTaken:
    """What a job has reported is in the store: a trial of a search, or a job with rules by which it stops."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The status of learners at a target, from its observer."""

    target: str
    """The key of the target."""
    attempts: tuple[AttemptRef, ...]
    """The attempts that were observed."""
    statuses: tuple[LearnerStatus, ...]
    whole: bool
    serial: int
    """The number of the last requested probe that this answers."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Observing a target failed; it is retried."""

    target: str
    text: str
    answered_us: int | None = None
    """When it last answered, UTC; None when it never did."""


@dataclass(frozen=True, slots=True)
class LogNote:
    """Something for the controller's log."""

    text: str


@dataclass(frozen=True, slots=True)
class LaunchProgressed:
    """A launch reports its progress."""

    attempt: AttemptRef
    text: str
    stage: Literal["preparing", "waiting", "starting"]


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call to a backend succeeded."""

    operation: Operation
    attempt: AttemptRef
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """A launch ended because it was cancelled."""

    attempt: AttemptRef


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call to a backend failed."""

    operation: Operation
    attempt: AttemptRef
    trouble: BackendTrouble


@dataclass(frozen=True, slots=True)
class CapacityMeasured:
    """The capacity of a target; None where the backend has its own queue."""

    target: str
    capacity: Capacity | None
    free_slots: int
    holders: str
    """A description of who holds its slots."""
    turns: Mapping[str, HostTurn] = field(default_factory=dict)
    """What the host's queue says of the jobs of this home that wait there, by their ids."""
    lined_up: frozenset[LinedUpJob] | None = None
    """Who was asked to wait there; None where nobody was, and who waits there does so on."""
    heeds_weights: bool = False
    """Whether weights count by the host's policy."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """By job over several hosts: which of these has fewer GPUs than it needs there, even if all were free."""


@dataclass(frozen=True, slots=True)
class CapacityUnknown:
    """The capacity of a target cannot be read, and a retry cannot help."""

    target: str


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """Learners of this home found at a target, to be compared with what should be there."""

    target: str
    learners: tuple[LearnerRef, ...]


@dataclass(frozen=True, slots=True)
class TidiedUp:
    """Nothing that a crash left is in the home any more."""

    repaired: bool
    """Whether there was something to repair: there may be jobs that the loop does not know."""


@dataclass(frozen=True, slots=True)
class TidyUpFailed:
    """The home could not be repaired, or in part: it is to be tried again."""

    text: str
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class JournalsCollected:
    """An attempt's files are on this machine, and its records are being ingested."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CollectDelayed:
    """An attempt's files could not be fetched just now and are tried again; without ``failure`` they come again."""

    job_id: str
    attempt: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class JournalsDrained:
    """An attempt's records are in the store; else ``trouble`` says why not, and the job's end waits no longer."""

    job_id: str
    attempt: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class LogsSearched:
    """What a job's log policies found in the output of an attempt that has failed."""

    job_id: str
    attempt: int
    matches: tuple[LogMatch, ...]
    trouble: str = ""
    """Why not all of it was searched."""


@dataclass(frozen=True, slots=True)
class CheckpointsRetained:
    """What a job or a search does not keep of its checkpoints is removed, or ``outcome`` says why not."""

    request_id: int
    outcome: str


@dataclass(frozen=True, slots=True)
class JobPurged:
    """A deleted job's rows and folder are gone, or ``failure`` says why they are not yet."""

    job_id: str
    failure: str = ""


Event = (
    Woken
    | EndRequested
    | StopAsked
    | ReportsTaken
    | Observed
    | Unreachable
    | LogNote
    | LaunchProgressed
    | CallFinished
    | CallCancelled
    | CallFailed
    | CapacityMeasured
    | CapacityUnknown
    | LeftoversFound
    | TidiedUp
    | TidyUpFailed
    | CollectDelayed
    | JournalsCollected
    | JournalsDrained
    | LogsSearched
    | CheckpointsRetained
    | JobPurged
)
