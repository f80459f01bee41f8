"""The rows of the store, as frozen values. Times are microseconds since 1970, UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from workbench.job import TERMINAL, HistoryKind, Intent, JobId, LearnerPhase, Reason, State
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.spec import JobSpec

WATCHED: Final = "watched"
"""The option of a target whose adopted jobs are only watched: nothing of them is removed there."""

OF_HOME: Final = "of_home"
"""The option of a target that names the home of its jobs, where it is not this one."""


@dataclass(frozen=True, slots=True)
class TargetRef:
    """Where a job goes, frozen at submit."""

    backend: str
    """The name that the user knows it by."""
    type: str
    """``local``, ``ssh``, ``kubernetes``."""
    runner: str
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def machine(self) -> str:
        """The machine or cluster: targets on one share its queue."""
        return f"{self.type} {self.address or self.backend}"

    def home(self, ours: str) -> str:
        """Return the uuid of the home that the job's learners carry: another's where it was adopted."""
        return str(self.options.get(OF_HOME) or ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job, as lists show it. The defaults are those of a job that was only just submitted."""

    id: JobId
    seq: int = 0
    """Order of submission, never a time; 0 until the store gives it."""
    name: str
    state: State = State.QUEUED
    reason: Reason
    intent: Intent = Intent.NONE
    exit_code: int | None = None
    """What ``fabric run`` ends with; None while the job is open."""
    exit_by: str = ""
    """Whose code it is: ``job``, ``halt``, ``kill``, ``lost``, ``timeout``, or empty."""
    attempt: int = 1
    """The last one."""
    target: TargetRef
    owner: str
    submitted_us: int
    started_us: int | None = None
    """When the last attempt's first command started."""
    earlier_us: int = 0
    """How long the commands of earlier attempts ran, all together."""
    ended_us: int | None = None
    changed_us: int
    """When the state last changed."""
    seen_us: int | None = None
    """Until when the backend answered, where it does not answer now."""
    as_of_us: int | None = None
    """Until when a controller looked after the open job, where none does now; in no table."""
    restarts: int = 0
    platform_restarts: int = 0
    next_try_us: int | None = None
    """When a restart or a waiting launch is due, by back-off."""
    learners: int
    gpus: int
    cpus: float | None
    memory_bytes: int | None
    labels: Mapping[str, str]
    tags: tuple[str, ...]
    note: str = ""
    parent: str | None = None
    """The experiment or job that this one belongs to."""
    trial: int | None = None
    deleted_us: int | None = None
    """A tombstone: the job is gone, its id is remembered so that its learners may be removed."""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class JobDetail:
    """What only one job's page needs: ``job.json``."""

    row: JobRow
    spec: JobSpec
    manifest_text: str
    """As the user wrote it, secrets struck out."""
    origins: Mapping[str, str]
    """Dotted key -> where its value came from."""
    code_hash: str
    recorded: Mapping[str, Any]
    """Design, section 9: git, interpreter, packages, driver, host, seed, data, our version."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One start of a job."""

    job_id: JobId
    attempt: int
    state: State
    reason: Reason
    exit_code: int | None
    exit_by: str
    queued_us: int
    pending_us: int | None
    downloading_us: int | None
    processing_us: int | None
    storing_us: int | None
    ended_us: int | None
    node: str


@dataclass(frozen=True, slots=True)
class LearnerRow:
    """One learner of an attempt."""

    job_id: JobId
    attempt: int
    learner: int
    phase: LearnerPhase
    exit_code: int | None
    signal: int | None
    reason: Reason | None
    started_us: int | None
    ended_us: int | None
    decided: bool
    stopped: str
    node: str
    slots: tuple[str, ...]
    records_offset: int
    """How far ``records.jsonl`` is in the store; moved in the same transaction as its points."""


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """One step or intent in a job's history."""

    id: int
    job_id: JobId
    attempt: int
    time_us: int
    kind: HistoryKind
    state: str
    text: str
    code: str
    who: str
    origin: str
    """Where from: ``cli``, ``tui``, ``python``, ``controller``, with the host."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """Something that a person asked for, kept until the backend confirms."""

    id: int
    kind: str
    """``submit``, ``halt``, ``kill``, ``resume``, ``delete``, ``queue``, ``restart_controller``."""
    job_id: JobId
    payload: Mapping[str, Any]
    who: str
    origin: str
    time_us: int
    outcome: str
    """Empty while open; then ``done``, or why not."""


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One metric of one learner."""

    id: int
    job_id: JobId
    learner: int
    name: str
    """``group/metric``, or the metric alone where there is no group."""
    kind: str
    """``value``, ``etime`` or ``usage``."""
    points: int
    """Without superseded ones, as all that follows."""
    last_step: float | None
    last_time_us: int | None
    last: float | None
    minimum: float | None
    """The least finite value."""
    maximum: float | None
    revision: int
    superseded: int = 0
    """Points that a later attempt went over again."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series; ``value`` None is NaN."""

    seq: int
    attempt: int
    step: float | None
    time_us: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A run of points rolled up, for charts; ``level`` 0 buckets are single points."""

    first_seq: int
    count: int
    first_step: float | None
    last_step: float | None
    first_time_us: int
    last_time_us: int
    minimum: float | None
    maximum: float | None
    first: float | None
    last: float | None
    nans: int


EARLIER_US_SQL: Final = (
    "(CASE WHEN jobs.attempt > 1 THEN coalesce((SELECT sum(max(0, run.ended_us - run.processing_us)) "
    "FROM main.attempts AS run WHERE run.job_id = jobs.id AND run.attempt < jobs.attempt), 0) ELSE 0 END)"
)
"""How long a job's earlier attempts ran."""
RUN_US_SQL: Final = (
    f"({EARLIER_US_SQL} + coalesce(jobs.ended_us, :now_us) "
    "- coalesce(jobs.started_us, jobs.ended_us, :now_us))"
)
"""How long a job's attempts ran, as ``services.inspect.job_times`` says it; 0 for one that has not run."""

JOB_COLUMNS: Final = (
    "id, seq, name, state, reason, reason_code, reason_hint, intent, exit_code, exit_by, attempt, place, "
    "owner, submitted_us, started_us, ended_us, changed_us, seen_us, restarts, platform_restarts, "
    "next_try_us, learners, gpus, cpus, memory_bytes, labels, tags, note, parent, trial, deleted_us, revision, "
    f"{EARLIER_US_SQL}"
)

ATTEMPT_COLUMNS: Final = (
    "job_id, attempt, state, reason, reason_code, reason_hint, exit_code, exit_by, queued_us, pending_us, "
    "downloading_us, processing_us, storing_us, ended_us, node"
)

LEARNER_COLUMNS: Final = (
    "l.job_id, l.attempt, l.learner, l.phase, l.exit_code, l.signal, l.reason, l.reason_code, l.reason_hint, "
    "l.started_us, l.ended_us, l.decided, l.stopped, l.node, l.slots, coalesce(j.records_offset, 0)"
)

TRANSITION_COLUMNS: Final = "id, job_id, attempt, time_us, kind, state, text, code, who, origin"

REQUEST_COLUMNS: Final = "id, kind, job_id, payload, who, origin, time_us, outcome"

# Looked up ten thousand times in a list: a dict is faster than calling the enumeration.
_STATES: Final = {state.value: state for state in State}
_INTENTS: Final = {intent.value: intent for intent in Intent}


def job_row(row: tuple[Any, ...], looked_us: int | None = None) -> JobRow:
    """Make a job's row of :data:`JOB_COLUMNS`; ``looked_us`` says when open jobs were last looked after."""
    state = _STATES[row[3]]
    is_dated = looked_us is not None and state not in TERMINAL
    return JobRow(
        id=JobId(row[0]),
        seq=row[1],
        name=row[2],
        state=state,
        reason=_reason(row[4], row[5], row[6]),
        intent=_INTENTS[row[7]],
        exit_code=row[8],
        exit_by=row[9],
        attempt=row[10],
        target=_target(row[11]),
        owner=row[12],
        submitted_us=row[13],
        started_us=row[14],
        ended_us=row[15],
        changed_us=row[16],
        seen_us=row[17],
        as_of_us=max(looked_us, row[13]) if is_dated and looked_us is not None else None,
        restarts=row[18],
        platform_restarts=row[19],
        next_try_us=row[20],
        learners=row[21],
        gpus=row[22],
        cpus=row[23],
        memory_bytes=row[24],
        labels=_labels(row[25]),
        tags=_texts(row[26]),
        note=row[27],
        parent=row[28],
        trial=row[29],
        deleted_us=row[30],
        revision=row[31],
        earlier_us=row[32],
    )


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    """Make an attempt's row of :data:`ATTEMPT_COLUMNS`."""
    return AttemptRow(JobId(row[0]), row[1], State(row[2]), Reason(row[3], row[4], row[5]), *row[6:])


def learner_row(row: tuple[Any, ...]) -> LearnerRow:
    """Make a learner's row of :data:`LEARNER_COLUMNS`."""
    reason = None if row[6] is None else Reason(row[6], row[7], row[8])
    return LearnerRow(
        JobId(row[0]),
        row[1],
        row[2],
        LearnerPhase(row[3]),
        row[4],
        row[5],
        reason,
        row[9],
        row[10],
        bool(row[11]),
        row[12],
        row[13],
        _texts(row[14]),
        row[15],
    )


def transition_row(row: tuple[Any, ...]) -> TransitionRow:
    """Make a transition's row of :data:`TRANSITION_COLUMNS`."""
    return TransitionRow(*row)


def request_row(row: tuple[Any, ...]) -> RequestRow:
    """Make a request's row of :data:`REQUEST_COLUMNS`."""
    return RequestRow(row[0], row[1], JobId(row[2]), json.loads(row[3]), *row[4:])


def run_us(row: JobRow, until_us: int) -> int | None:
    """Return how long a job's commands ran, in all attempts together, the last one until a time; None for never."""
    if row.started_us is None:
        return row.earlier_us or None
    return row.earlier_us + max(0, until_us - row.started_us)


def is_running(row: JobRow) -> bool:
    """Say whether a job is being started, runs or stores its results: then there is something to stop."""
    return row.state not in TERMINAL and row.state is not State.QUEUED


def is_over(row: JobRow) -> bool:
    """Say whether nothing more will happen to a job by itself: ended, and no restart is due."""
    return row.state in TERMINAL and row.next_try_us is None and not row.intent


def dump(value: Any) -> str:
    """Write a value as the store keeps it, so that equal values are equal texts."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=4096)
def _reason(text: str, code: str, hint: str) -> Reason:
    return Reason(text, code, hint)


@lru_cache(maxsize=1024)
def _target(text: str) -> TargetRef:
    return TargetRef(**json.loads(text))


@lru_cache(maxsize=4096)
def _texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()


def _labels(text: str) -> dict[str, str]:
    # Not shared between rows: a mapping that someone changes must not change the others.
    labels: dict[str, str] = json.loads(text) if text != "{}" else {}
    return labels
