"""What a job is: ids, states and the legal steps between them, reasons, exit codes. Pure: no I/O, no clock."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, NewType

from workbench.values import dataclass

JobId = NewType("JobId", str)
"""``training-`` and nine characters of :data:`ID_ALPHABET`."""

ID_PREFIX: Final = "training-"
ID_LENGTH: Final = 9
ID_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
"""``[a-z0-9]`` without the look-alikes i, l, o, 0 and 1."""


class State(StrEnum):
    """FfDL's states, of an attempt; a job shows those of its last attempt."""

    QUEUED = "QUEUED"
    """Waits for a slot, or for the CPUs that it asked for."""
    PENDING = "PENDING"
    """Asked for: it is being started."""
    DOWNLOADING = "DOWNLOADING"
    """Code, environment and data are brought in."""
    PROCESSING = "PROCESSING"
    """The command runs."""
    STORING = "STORING"
    """Results and logs are stored, on success, failure and halt alike."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    HALTED = "HALTED"


TERMINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.HALTED})

PREPARING: Final = (State.PENDING, State.DOWNLOADING)
"""What is done for an attempt before its command runs: the reason says what."""

BEFORE_THE_COMMAND: Final = (State.QUEUED, *PREPARING)

LEGAL_STEPS: Final[Mapping[State, frozenset[State]]] = {
    State.QUEUED: frozenset({State.PENDING, State.FAILED, State.HALTED}),
    # Back to QUEUED: another job took the slots between the look and the lease, or it waits at its host.
    State.PENDING: frozenset(
        {State.QUEUED, State.DOWNLOADING, State.PROCESSING, State.STORING, State.FAILED, State.HALTED}
    ),
    State.DOWNLOADING: frozenset({State.QUEUED, State.PROCESSING, State.STORING, State.FAILED, State.HALTED}),
    State.PROCESSING: frozenset({State.STORING, State.FAILED, State.HALTED}),
    State.STORING: frozenset({State.COMPLETED, State.FAILED, State.HALTED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.HALTED: frozenset(),
}
"""From each state of one attempt, where it may go. A resume or restart makes a new attempt, which starts QUEUED."""


class Intent(StrEnum):
    """What a person has asked of a job and the place has not yet confirmed."""

    NONE = ""
    HALT = "halt"
    KILL = "kill"
    DELETE = "delete"

    @classmethod
    def of(cls, kind: str) -> Intent:
        """Return the intent that a kind of request becomes; NONE where that stops nothing."""
        return next((intent for intent in cls if intent == kind), cls.NONE)

    def replaces(self, other: Intent) -> bool:
        """Say whether asking for it changes what was asked before: each replaces those that are named above it."""
        order = list(Intent)
        return order.index(self) > order.index(other)


class LearnerPhase(StrEnum):
    """Where one learner is, as its agent says it (``state.json``), or as it was found."""

    STARTING = "starting"
    DOWNLOADING = "downloading"
    """Data and checkpoints are brought in from stores."""
    SETUP = "setup"
    RUNNING = "running"
    STOPPING = "stopping"
    STORING = "storing"
    """Its command has ended; its results go to their store."""
    EXITED = "exited"
    LOST = "lost"
    """The place answers, the learner is gone and no exit is recorded. Never written by an agent."""


HistoryKind = Literal["state", "request", "learner", "note", "annotate"]
"""The kinds of entries in a job's history."""


class FaultOwner(StrEnum):
    """Whose fault: FfDL's split of codes by their first letter."""

    USER = "C"
    PLATFORM = "S"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job is in its state, in words; ``code`` is FfDL's, or empty where nothing is wrong."""

    text: str
    code: str = ""
    hint: str = ""

    @property
    def fault(self) -> FaultOwner | None:
        """Whose fault it is, by the code's first letter."""
        return FaultOwner(self.code[0]) if self.code[:1] in ("C", "S") else None


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """One code of reasons: C is a fault of the job, S one of the platform.

    The first digit groups FfDL's codes and ours: C1 keeps a job from starting, C2 ends its learner; S1 is a machine's
    fault, S2 that of what runs learners there, S3 a store's.
    """

    code: str
    meaning: str
    allowance: Literal["", "max_restarts", "max_platform_restarts"]
    """The key of the manifest that says how often another attempt begins by itself; empty where none does."""


REASON_CODES: Final = (
    ReasonCode("C101", "the manifest, a setting or a file name cannot be used there", ""),
    ReasonCode("C103", "a right, key or credential is missing or wrong", ""),
    ReasonCode("C104", "the backend does not have what the job asks for", ""),
    ReasonCode("C105", "a job that this one comes after did not complete", ""),
    ReasonCode("C201", "the command failed, or a signal ended it", "max_restarts"),
    ReasonCode("C202", "the command was not found, or cannot be executed", "max_restarts"),
    ReasonCode("C203", "the job used more memory than it asked for", "max_restarts"),
    ReasonCode("C204", "the job ran longer than max_runtime", ""),
    ReasonCode("C205", "the environment of the job could not be made: Python, packages, image", ""),
    ReasonCode("C206", "setup: failed", "max_restarts"),
    ReasonCode("S100", "the machine or cluster ran out of memory, disk or places", "max_platform_restarts"),
    ReasonCode("S101", "the command could not be started, or fabric failed", "max_platform_restarts"),
    ReasonCode("S103", "the image could not be pulled", "max_platform_restarts"),
    ReasonCode("S104", "the learner is gone and left no exit code", "max_platform_restarts"),
    ReasonCode("S105", "the learner lost its GPUs while it ran", "max_platform_restarts"),
    ReasonCode("S106", "preempted: a job of a higher priority needs its place", "max_platform_restarts"),
    ReasonCode(
        "S200", "the host, engine or cluster does not answer, or ended the learner", "max_platform_restarts"
    ),
    ReasonCode("S202", "the agent that runs the learner was killed", "max_platform_restarts"),
    ReasonCode("S203", "the machine was restarted", "max_platform_restarts"),
    ReasonCode("S204", "a disk is full, or cannot be written", "max_platform_restarts"),
    ReasonCode(
        "S205", "the controller has too little memory, threads or descriptors", "max_platform_restarts"
    ),
    ReasonCode("S206", "the last output may be missing; how the command ended is known", ""),
    ReasonCode("S301", "a file that the job needs is not there", ""),
    ReasonCode("S302", "data could not be fetched from a store", "max_platform_restarts"),
    ReasonCode("S303", "results could not be stored: `fabric store retry JOB`", ""),
)
"""In the order of their codes."""

LACKING: Final = "C104"
"""The reason code of a backend that lacks what a job asks for."""

PREEMPTED: Final = "S106"
"""The reason code of a job that ended for one of a higher priority: its next attempt waits for its turn."""

NOT_ALLOWED: Final = "C103"
"""The reason code of rights, keys and credentials that are missing or wrong."""

EXIT_HALTED: Final = 128 + signal.SIGTERM
EXIT_KILLED: Final = 128 + signal.SIGKILL
EXIT_LOST: Final = 75
EXIT_TIMED_OUT: Final = 124
EXIT_FAULTY: Final = 65
"""Of a job that could not be started through its own fault (``EX_DATAERR``)."""
EXIT_UNAVAILABLE: Final = 69
"""Of a job that the backend cannot run as it is: it has too little, or not what the job names (``EX_UNAVAILABLE``)."""
EXIT_NOT_ALLOWED: Final = 77
"""Rights, keys or credentials are missing or wrong (``EX_NOPERM``)."""
EXIT_NOT_FOUND: Final = 127
EXIT_NOT_EXECUTABLE: Final = 126


def new_job_id() -> JobId:
    """Make a random job id."""
    # The module secrets would cost every command 4 ms of start. Bytes beyond a multiple of the alphabet are not
    # used, so that all characters are equally likely.
    usable = len(ID_ALPHABET) * (256 // len(ID_ALPHABET))
    drawn: list[str] = []
    while len(drawn) < ID_LENGTH:
        drawn += [ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in os.urandom(2 * ID_LENGTH) if byte < usable]
    return JobId(ID_PREFIX + "".join(drawn[:ID_LENGTH]))


def short_id(job_id: str) -> str:
    """Return the nine characters that stand for a job where space is short."""
    return job_id.removeprefix(ID_PREFIX)


def attempt_stem(job_id: str, attempt: int) -> str:
    """Name everything that a place sees of an attempt: ``learner-<nine>-a<attempt>``, FfDL's LEARNER_NAME_PREFIX."""
    return f"learner-{short_id(job_id)}-a{attempt}"


def learner_name(job_id: str, attempt: int, learner: int) -> str:
    """Name one learner; learners count from 1, names from 0, as FfDL's pods did."""
    return f"{attempt_stem(job_id, attempt)}-{learner - 1}"


def may_step(before: State, after: State) -> bool:
    """Say whether an attempt may go from one state to another."""
    return after in LEGAL_STEPS[before]


def refused_exit_code(reason_code: str) -> int:
    """Return the exit code of a job that is refused, by the code of the reason: as of a command that is."""
    if reason_code == NOT_ALLOWED:
        return EXIT_NOT_ALLOWED
    if reason_code.startswith(FaultOwner.USER) and reason_code != LACKING:
        return EXIT_FAULTY
    return EXIT_UNAVAILABLE


def exit_code_of(exit_code: int | None, signal_number: int | None) -> int | None:
    """Turn how a process ended into the exit code that a shell would show: 128 + n for signal n."""
    if signal_number is not None:
        return 128 + signal_number
    return exit_code
