"""What the loop is told, by its threads: each a value in its mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runners.interface import AttemptRef, LearnerRef, LearnerStatus
from workbench.controller.decide.model import BackendTrouble, Operation
from workbench.controller.decide.scheduling import Capacity


@dataclass(frozen=True, slots=True)
class Woken:
    """A client has written something."""


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The controller is asked to end, by a signal or a client."""

    why: str


@dataclass(frozen=True, slots=True)
class Observed:
    """How learners are at a place."""

    place: str
    attempts: tuple[AttemptRef, ...]
    """Of which attempts it tells."""
    seen: tuple[LearnerStatus, ...]
    whole: bool
    serial: int
    """The number of the last look that was asked for and is answered with this."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A place's watch failed; it is tried again."""

    place: str
    text: str
    answered_us: int | None = None
    """When it last answered, UTC; None when it never did."""


@dataclass(frozen=True, slots=True)
class LogNote:
    """Something for the controller's log."""

    text: str


@dataclass(frozen=True, slots=True)
class LaunchProgressed:
    """A launch says what it does."""

    attempt: AttemptRef
    text: str
    stage: Literal["preparing", "waiting", "starting"]


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call at a place went through."""

    operation: Operation
    attempt: AttemptRef
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """A launch ended since it was called off."""

    attempt: AttemptRef


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call at a place did not go through."""

    operation: Operation
    attempt: AttemptRef
    trouble: BackendTrouble


@dataclass(frozen=True, slots=True)
class CapacityMeasured:
    """What a place has; None where it does its own queueing."""

    place: str
    capacity: Capacity | None
    free_slots: int
    holders: str
    """Who holds its slots, in words."""


@dataclass(frozen=True, slots=True)
class CapacityUnknown:
    """A place will never say what it has, for a reason that asking again cannot mend."""

    place: str


@dataclass(frozen=True, slots=True)
class LeftoversFound:
    """Learners of this home that a place has, to be compared with what should be there."""

    place: str
    learners: tuple[LearnerRef, ...]


@dataclass(frozen=True, slots=True)
class TidiedUp:
    """What crashes left in the home was brought in order: there may be jobs that were not known."""


@dataclass(frozen=True, slots=True)
class JournalsCollected:
    """All that an attempt left is on this machine, and what its learners recorded is being taken in."""

    job_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JournalsDrained:
    """All that an attempt recorded is in the store, or ``trouble`` says why some is not and nobody is to wait."""

    job_id: str
    attempt: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class JobPurged:
    """A deleted job's rows and folder are gone, or ``failure`` says why they are not yet."""

    job_id: str
    failure: str = ""


Event = (
    Woken
    | EndRequested
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
    | JournalsCollected
    | JournalsDrained
    | JobPurged
)
