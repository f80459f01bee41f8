"""Documents of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from workbench.data.stores.fingerprints import Fingerprint
from workbench.documents.experiments import PreviewedTrials
from workbench.documents.values import FieldsOf, Id, IntentName, Measured, PhaseName, Reading, StateName, Time
from workbench.metrics.queries import CheckpointRow, NoteRow, ProgressRow
from workbench.spec import JobSpec

Spec = Annotated[dict[str, Any], FieldsOf(JobSpec)]


class JobFields(TypedDict):
    """What lists show of a job."""

    id: Id
    name: str
    state: StateName
    reason: str
    """Why the job is in its state."""
    reason_code: str
    """FfDL's code of the reason; empty where nothing is wrong."""
    hint: str
    intent: IntentName
    """What was asked of the job and is not confirmed yet."""
    exit_code: int | None
    """What `fabric run` ends with; null while the job is open."""
    exit_by: str
    """Whose code it is: `job`, `halt`, `kill`, `lost`, `timeout`, `preempt`, or empty."""
    attempt: int
    """The last attempt."""
    backend: str
    runner: str
    owner: str
    learners: int
    gpus: int
    """Of each learner."""
    cpus: float | None
    """Of each learner; null reserves none."""
    memory_bytes: int | None
    """Of each learner; null sets no limit."""
    restarts: int
    platform_restarts: int
    labels: dict[str, str]
    tags: list[str]
    note: str
    parent: str | None
    trial: int | None
    submitted: Time
    started: Time | None
    """When the last attempt's first command started."""
    ended: Time | None
    seconds: float | None
    """How long the command ran, in all attempts together; null before it first starts."""
    changed: Time
    """When the state last changed."""
    seen: Time | None
    """Until when the backend answered; null where it answers."""
    as_of: Time | None
    """How old the information is where no controller looks after the job; null where it is up to date."""


class JobDocument(JobFields):
    """A job, as lists and whatever changes a job print it."""

    schema: Literal["fabric.job/1"]


class AttemptEntry(TypedDict):
    """One start of a job."""

    attempt: int
    state: StateName
    reason: str
    reason_code: str
    exit_code: int | None
    exit_by: str
    node: str
    queued: Time
    pending: Time | None
    downloading: Time | None
    processing: Time | None
    storing: Time | None
    ended: Time | None


class LearnerEntry(TypedDict):
    """One learner of an attempt."""

    attempt: int
    learner: int
    phase: PhaseName
    exit_code: int | None
    signal: int | None
    reason: str
    reason_code: str
    decided: bool
    """Whether this learner's end decided the job's."""
    stopped: str
    node: str
    slots: list[str]
    started: Time | None
    ended: Time | None


class TransitionEntry(TypedDict):
    """One entry of a job's history."""

    time: Time
    attempt: int
    kind: str
    state: str
    text: str
    code: str
    who: str
    origin: str


class WholeJobDocument(JobDocument):
    """All that is known of a job: `fabric show --json`."""

    spec: Spec
    """The manifest as it was read, sizes in bytes and times in seconds."""
    origins: dict[str, str]
    """Where each value came from, by its dotted key."""
    manifest: str
    code_hash: str
    recorded: dict[str, Any]
    """What was recorded when the job was submitted: git, interpreter, packages, driver, host, seed, data."""
    ran_with: dict[str, Any]
    """What was recorded where the last attempt ran."""
    attempts: list[AttemptEntry]
    learner_states: list[LearnerEntry]
    history: list[TransitionEntry]
    metrics: Mapping[str, Reading]
    """The last value of each metric."""
    texts: Mapping[str, str]
    """The last text of each name that was reported in words."""
    checkpoints: list[Annotated[dict[str, Any], FieldsOf(CheckpointRow)]]
    data: list[Annotated[dict[str, Any], FieldsOf(Fingerprint)]]
    progress: list[Annotated[dict[str, Any], FieldsOf(ProgressRow)]]
    notes: list[Annotated[dict[str, Any], FieldsOf(NoteRow)]]
    folder: str
    results: str
    results_stored: str
    """Where the results are stored; empty where the job has no store for them."""


class SentCode(TypedDict):
    """Code that would be sent."""

    hash: str
    files: int
    size_bytes: int


class PlannedLearnerEntry(TypedDict):
    """A learner that would be started."""

    learner: int
    name: str
    native: dict[str, Any]
    """What its runner is given, in that runner's own terms."""


class PlannedSearch(TypedDict):
    """The search that a run would start, beside the plan of its first trial."""

    name: str
    method: str
    metric: str
    goal: str
    time_metric: str
    trials: list[PreviewedTrials]
    max_concurrent: int
    """How many run at once, at most."""
    gpu_hours: float | None
    """What it costs at most; null where the job has no GPU or no `max_runtime`."""
    backends: list[PlannedBackend]
    """Where its trials run; what follows is the plan at the first one."""
    seed: int | None
    """What its trials are drawn with; null where the manifest has none, and each run draws another one."""
    hparams: dict[str, Any] | None
    """Those of the first trial, whose plan it is; null where they are chosen while the search runs."""


class PlannedBackend(TypedDict):
    """A backend of a search that would be started."""

    backend: str
    runner: str


class PlanDocument(TypedDict):
    """What a run would start: `fabric plan --json`."""

    schema: Literal["fabric.plan/1"]
    name: str
    backend: str
    runner: str
    spec: Spec
    origins: dict[str, str]
    code: SentCode | None
    slots_per_learner: int
    cpus_per_learner: float
    learners: list[PlannedLearnerEntry]
    objects: NotRequired[list[dict[str, Any]]]
    """The objects that would be created in a cluster."""
    search: PlannedSearch | None
    """Of a search: the rest is the plan of its first trial. Null for a job."""
    warnings: list[str]
    notes: list[str]


class FaultEntry(TypedDict):
    """What is wrong at one position of a manifest."""

    line: int | None
    column: int | None
    key: str
    problem: str
    hint: str


class ValidationDocument(TypedDict):
    """What `fabric validate` found in one file."""

    schema: Literal["fabric.validation/1"]
    file: str
    valid: bool
    faults: list[FaultEntry]
    warnings: list[FaultEntry]


class MetricSummary(TypedDict):
    """One metric of a job that is compared."""

    last: Measured
    least: Measured
    greatest: Measured
    step: float | None


class ComparisonDocument(TypedDict):
    """Jobs side by side: `fabric compare --json`."""

    schema: Literal["fabric.comparison/1"]
    jobs: list[JobDocument]
    differing: dict[str, list[Any]]
    """Settings that differ: a value for each job."""
    metrics: list[dict[str, MetricSummary]]
    """Of each job, by the metric's name."""
    code: dict[str, list[str]] | None
    """Of two jobs: lines of the difference by file."""


class DiffDocument(TypedDict):
    """Why two jobs differ: `fabric diff --json`."""

    schema: Literal["fabric.diff/1"]
    ids: list[Id]
    differs: bool
    settings: dict[str, list[Any]]
    recorded: dict[str, list[Any]]
    packages: dict[str, list[Any]]
    code: dict[str, list[str]]
    """Lines of the difference by file."""
    uncommitted: list[str] | None
    """Both changes since the last commit, as git prints them; null where they are equal."""


class HappeningFields(TypedDict):
    """One thing that happened to a job."""

    time: Time
    id: Id
    name: str
    attempt: int
    kind: str
    state: str
    text: str
    code: str
    who: str
    origin: str
    """The client that asked for it, or the controller."""


class HappeningDocument(HappeningFields):
    """One thing that happened to a job: `fabric events --json`."""

    schema: Literal["fabric.happening/1"]


class RowDocument(TypedDict):
    """A row of `fabric sql --json`; its other keys are the query's columns."""

    schema: Literal["fabric.row/1"]


class ViewDocument(TypedDict):
    """A table that `fabric sql` knows."""

    schema: Literal["fabric.view/1"]
    name: str
    about: str
    columns: list[str]


class AdoptableDocument(TypedDict):
    """A job of another home: `fabric adopt --json`."""

    schema: Literal["fabric.adoptable/1"]
    id: Id
    name: str
    home: str
    """The uuid of the other home."""
    runner: str
    attempt: int
    alive: bool
    now: str
    """What it does, in words: it runs, waits, and for which machine where its host does not start it, or is over."""
    adopted: bool
