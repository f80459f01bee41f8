"""The overview of a job: state and times, what it runs, its code and data, its metrics, where its results are.

It is a value. The command line and the screens turn it into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError, UnknownName
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.stores.fingerprints import Fingerprint
    from workbench.metrics import CheckpointRow, NoteRow, ProgressRow
    from workbench.services.inspect.job_times import PhaseTime
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import AttemptRow, JobDetail, JobRow, LearnerRow, SeriesRow


@dataclass(frozen=True, slots=True)
class RecordedCode:
    """The code that a job runs, and what it was submitted with; a text is empty where nothing is recorded."""

    hash: str
    """The hash of its snapshot; empty where the job has no code."""
    source: str
    """The folder or archive that it was taken from."""
    commit: str
    branch: str
    uncommitted: bool
    """Whether files differed from the commit."""
    python: str
    """The interpreter that ran it; empty where none is recorded."""
    python_version: str
    """Its version, such as ``3.11``; empty where that is not recorded."""
    packages: int
    """How many packages that interpreter had."""
    python_of: str
    """The image or host that has the interpreter; empty for the machine of the submission."""
    host: str
    """The machine that submitted it."""
    folder: str
    """The working folder of the submission."""
    fabric: str
    """The version of fabric."""

    @property
    def interpreter(self) -> str:
        """The interpreter, its version and whose it is; empty where none is recorded."""
        version = f" ({self.python_version})" if self.python_version else ""
        owner = f" of {self.python_of}" if self.python_of else ""
        return f"{self.python}{version}{owner}" if self.python else ""


@dataclass(frozen=True, slots=True)
class JobPaths:
    """Where a job's files are on this machine."""

    folder: Path
    results: Path
    checkpoints: Path
    manifest: Path | None
    """The manifest that was written for a command line; None for a job that had one."""
    log: Path
    """What the first learner of the last attempt printed."""


@dataclass(frozen=True, slots=True)
class AttemptOverview:
    """One start of the job."""

    row: AttemptRow
    phases: tuple[PhaseTime, ...]
    learners: tuple[LearnerRow, ...]

    @property
    def outcome(self) -> str:
        """Its state in a word; an attempt that made room for another job has not failed."""
        from workbench.learner.journal.launch_document import PREEMPT

        return "preempted" if self.row.exit_by == PREEMPT else self.row.state.lower()


@dataclass(frozen=True, slots=True)
class JobOverview:
    """All that an overview of one job shows."""

    row: JobRow
    detail: JobDetail | None
    """None where the job's folder is damaged."""
    error: FabricError | None
    """Why ``detail`` cannot be read."""
    run_seconds: float | None
    """How long the command has run, or ran; None before it starts."""
    attempts: tuple[AttemptOverview, ...]
    """The oldest first."""
    metrics: tuple[SeriesRow, ...]
    """By name; of several learners the first one's."""
    progress: ProgressRow | None
    first_progress: ProgressRow | None
    """What an attempt that was resumed reported first; None of the first attempt."""
    notes: tuple[NoteRow, ...]
    """The last attempt's, the oldest first."""
    checkpoints: tuple[CheckpointRow, ...]
    """The oldest first."""
    data: tuple[Fingerprint, ...]
    code: RecordedCode
    paths: JobPaths
    results: str
    """Where the results are: an address in a store, or a folder here."""
    port_forward: str
    """The command that brings the first learner's ports here; empty for jobs without ports, or not in a cluster."""

    def learner_mark(self, series: SeriesRow) -> str:
        """Return `` [2]`` for learner 2 of a job with several; empty for a job with one."""
        return f" [{series.learner}]" if self.row.learners > 1 else ""


def overview(store: Store, job_id: str, now_us: int) -> JobOverview:
    """Read a job's overview.

    Raises:
        UnknownName: there is no such job.
    """
    from workbench.metrics import checkpoints, notes, progress
    from workbench.services.follow.full_disk import with_stall
    from workbench.services.inspect.job_times import first_of_attempt, run_seconds
    from workbench.store.queries.jobs import detail, job

    row = job(store, job_id)
    if row is None:
        raise UnknownName(f"there is no job {job_id}")
    known: JobDetail | None = None
    error: FabricError | None = None
    try:
        known = detail(store, row.id)
    except FabricError as failure:
        error = failure
    last = next(iter(progress(store, row.id)), None)
    return JobOverview(
        row=with_stall(store.home, row),
        detail=known,
        error=error,
        run_seconds=run_seconds(row, now_us),
        attempts=_attempts(store, row, now_us),
        metrics=_metrics(store, row),
        progress=last,
        first_progress=first_of_attempt(store.home, row, last),
        notes=tuple(note for note in notes(store, row.id) if note.attempt == row.attempt),
        checkpoints=tuple(checkpoints(store, row.id)),
        data=_data(store, row),
        code=_code(known, ran_with(store, row)),
        paths=_paths(store, row),
        results=_results(store, row, known.spec if known else None),
        port_forward=port_forward_command(row, known.spec) if known else "",
    )


def _attempts(store: Store, row: JobRow, now_us: int) -> tuple[AttemptOverview, ...]:
    from workbench.services.inspect.job_times import known_until_us, phase_times
    from workbench.store.queries.jobs import attempts
    from workbench.store.queries.learners import learners

    known_us = known_until_us(row, now_us)
    return tuple(
        AttemptOverview(each, phase_times(each, known_us), tuple(learners(store, row.id, each.attempt)))
        for each in attempts(store, row.id)
    )


def _metrics(store: Store, row: JobRow) -> tuple[SeriesRow, ...]:
    from workbench.metrics import series

    found: dict[str, SeriesRow] = {}
    for each in series(store, row.id, kinds=("value",)):
        if each.points:
            found.setdefault(each.name, each)
    return tuple(found.values())


def _data(store: Store, row: JobRow) -> tuple[Fingerprint, ...]:
    from workbench.data.stores.fingerprints import fingerprints

    return tuple(fingerprints(store.home.job(row.id), row.attempt))


def ran_with(store: Store, row: JobRow) -> dict[str, Any]:
    """Return what was recorded where the last attempt ran: Python, packages, host, image; empty before that."""
    import json

    try:
        found = json.loads(store.home.job(row.id).attempt(row.attempt).environment.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def runs_with_submitted_python(row: JobRow) -> bool:
    """Say whether a job runs with an interpreter of the machine that it was submitted on."""
    return row.target.type == "local" and row.target.runner == "process"


def _code(detail: JobDetail | None, ran: Mapping[str, Any]) -> RecordedCode:
    recorded = detail.recorded if detail else {}
    is_ours = detail is not None and runs_with_submitted_python(detail.row)
    with_python = ran if ran.get("python") else recorded if is_ours else {}
    image = _mapping(ran, "image").get("reference")
    git, host = _mapping(recorded, "git"), _mapping(recorded, "host")
    return RecordedCode(
        hash=detail.code_hash if detail else "",
        source=str(_mapping(recorded, "code").get("source") or ""),
        commit=str(git.get("commit") or ""),
        branch=str(git.get("branch") or ""),
        uncommitted=bool(git.get("dirty")),
        python=str(with_python.get("python") or ""),
        python_version=str(with_python.get("python_version") or ""),
        packages=len(with_python.get("packages") or (recorded if is_ours else ran).get("packages") or ()),
        python_of="" if is_ours else f"the image {image}" if image else str(ran.get("host") or ""),
        host=str(host.get("name") or host.get("hostname") or ""),
        folder=str(recorded.get("cwd") or ""),
        fabric=str(recorded.get("fabric") or ""),
    )


def _mapping(recorded: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = recorded.get(key)
    return found if isinstance(found, Mapping) else {}


def _paths(store: Store, row: JobRow) -> JobPaths:
    folder = store.home.job(row.id)
    return JobPaths(
        folder.path,
        folder.results,
        folder.checkpoints,
        folder.manifest if folder.manifest.exists() else None,
        folder.attempt(row.attempt).learner(1).output,
    )


def _results(store: Store, row: JobRow, spec: JobSpec | None) -> str:
    from workbench.controller.runtime.result_store import result_store

    stored = result_store(spec, row.id) if spec else None
    return stored.location if stored else str(store.home.job(row.id).results)


def port_forward_command(row: JobRow, spec: JobSpec) -> str:
    """Return the command that brings the first learner's ports here; empty where it has none, or is not a pod."""
    from workbench.job import attempt_stem

    if not spec.ports or row.target.runner != "pod":
        return ""
    options = {"kubeconfig": "", "context": "", "namespace": "", **row.target.options}
    command = ["kubectl"]
    command += [
        f"--{name}={options[name]}" for name in ("kubeconfig", "context", "namespace") if options[name]
    ]
    job = attempt_stem(row.id, row.attempt)
    first = f"job/{job}"
    if row.learners > 1:
        selector = f"job-name={job},batch.kubernetes.io/job-completion-index=0"
        first = f"$({' '.join(command)} get pod -l {selector} -o name)"
    return " ".join([*command, "port-forward", first, *map(str, spec.ports)])
