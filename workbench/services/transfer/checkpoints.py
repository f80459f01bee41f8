"""Checkpoints of a job or a search for people: which were reported, the best or those of some steps, their document."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.controller.runtime import job_checkpoints
from workbench.controller.runtime.initial_checkpoint import is_uuid, job_that_saved
from workbench.controller.runtime.job_checkpoints import Checkpoint as Checkpoint
from workbench.controller.runtime.job_checkpoints import remove_checkpoints as remove_checkpoints
from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.formats import iso
from workbench.job import short_id
from workbench.services.transfer.events import Report, TransferNotice, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.documents.files import CheckpointDocument
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentRow


def list_checkpoints(store: Store, row: JobRow, report: Report = ignore) -> list[Checkpoint]:
    """Return a job's checkpoints in the order of their time; one that was reported twice counts once.

    ``report`` takes a notice where the job's store does not say which of them it has.
    """
    return job_checkpoints.list_checkpoints(store, row, lambda text: report(TransferNotice(text)))


def checkpoints_of_steps(found: Sequence[Checkpoint], steps: Sequence[int], row: JobRow) -> list[Checkpoint]:
    """Return the checkpoints of some steps.

    Raises:
        UnknownName: there is none of one of them; the hint names those there are.
    """
    known = sorted({each.step for each in found if each.step is not None})
    for step in steps:
        if step not in known:
            known_steps = ", ".join(map(str, known[-20:])) or "none"
            raise UnknownName(
                f"{short_id(row.id)} has no checkpoint of step {step}", hint=f"there are {known_steps}"
            )
    return [each for each in found if each.step in steps]


def checkpoint_document(each: Checkpoint) -> CheckpointDocument:
    """Return a checkpoint as ``--json`` gives it."""
    return {
        "schema": "fabric.checkpoint/1",
        "name": each.name,
        "step": each.step,
        "attempt": each.attempt,
        "time": iso(each.time_us),
        "size_bytes": each.size_bytes,
        "sha256": each.sha256,
        "metrics": dict(each.metrics),
        "where": list(each.where),
    }


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """Whose checkpoints are meant: those of a job, or of all trials of a search."""

    found: JobRow | ExperimentRow
    name: str = ""
    """The one that is meant alone; empty for all."""

    @property
    def search(self) -> ExperimentRow | None:
        """The search, if it is one."""
        from workbench.store.queries.experiments import ExperimentRow

        return self.found if isinstance(self.found, ExperimentRow) else None


@dataclass(frozen=True, slots=True)
class JobCheckpoint:
    """A checkpoint with the job that saved it."""

    row: JobRow
    checkpoint: Checkpoint
    value: float | None = None
    """The value that it was ranked by; None where it was not."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """By what checkpoints are the best."""

    metric: str
    is_smaller_better: bool


@dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """Which of somebody's checkpoints are meant; at most one of the ways to choose is used."""

    steps: tuple[int, ...] = ()
    best: int | None = None
    """So many of the best."""
    by: str = ""
    """By what they are the best; see :func:`ranking_of`."""
    latest: bool = False


@contextlib.contextmanager
def store_with_checkpoints(text: str, *, steers: bool = False) -> Iterator[tuple[Store, CheckpointOwner]]:
    """Open the store and find the job, the search, or the checkpoint with such a UUID.

    Raises:
        HomeNotBound: something is to be changed, and the home is a copy.
        UnknownName: there is none.
        AmbiguousName: the text fits several.
    """
    from workbench.services.open_store import store_of
    from workbench.store.queries.resolve import resolve_any

    with store_of(text, steers=steers) as store:
        if is_uuid(text):
            yield store, CheckpointOwner(job_that_saved(store, text), text)
        else:
            yield store, CheckpointOwner(resolve_any(store, text))


def names_of_checkpoints(text: str) -> list[str]:
    """Return the UUIDs of checkpoints with commas between them that a text is made of; none where it is another."""
    names = text.split(",")
    return names if all(map(is_uuid, names)) else []


def checkpoints_of(store: Store, owner: CheckpointOwner, report: Report = ignore) -> list[JobCheckpoint]:
    """List the checkpoints that are meant: of a search by its trials, of a job in the order of their time."""
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import trial_jobs

    jobs = [owner.found] if isinstance(owner.found, JobRow) else trial_jobs(store, owner.found.id)
    found = [JobCheckpoint(row, each) for row in jobs for each in list_checkpoints(store, row, report)]
    return [each for each in found if owner.name in ("", each.checkpoint.name)]


def chosen_checkpoints(
    store: Store, owner: CheckpointOwner, choice: CheckpointChoice, report: Report = ignore
) -> tuple[Sequence[JobCheckpoint], str]:
    """Return the checkpoints that are chosen, and by which metric the best are.

    Raises:
        UsageError: the choice contradicts itself, or no metric is known.
        UnknownName: there is none of a step, or none with the metric.
    """
    from workbench.store.db.rows import JobRow

    if bool(choice.steps) + (choice.best is not None) + choice.latest > 1:
        raise UsageError("which checkpoints?", hint="one of --step, --best and --latest")
    if choice.by and choice.best is None:
        raise UsageError("--by says by what the best are chosen", hint="give --best N, too")
    found = checkpoints_of(store, owner, report)
    if choice.best is not None and found:
        ranking = ranking_of(store, owner, choice.by)
        return best_checkpoints(store, found, ranking, choice.best), ranking.metric
    if choice.steps and isinstance(owner.found, JobRow):
        picked = checkpoints_of_steps([each.checkpoint for each in found], choice.steps, owner.found)
        return [each for each in found if each.checkpoint in picked], ""
    return found[-1:] if choice.latest else found, ""


def chosen_files(
    store: Store, owner: CheckpointOwner, choice: CheckpointChoice, report: Report = ignore
) -> list[tuple[JobRow, tuple[str, ...]]]:
    """Return the jobs whose checkpoints are chosen, each with patterns of their files; none mean all files.

    Raises:
        UsageError: it is a search, and not its best are chosen; or as :func:`chosen_checkpoints`.
        InputMissing: there are none.
    """
    from workbench.store.db.rows import JobRow

    if not isinstance(owner.found, JobRow) and choice.best is None:
        raise UsageError(
            f"{owner.found.name} is a search", hint="--best N takes the best checkpoints of all its trials"
        )
    if isinstance(owner.found, JobRow) and choice == CheckpointChoice() and not owner.name:
        return [(owner.found, ())]
    picked, _ = chosen_checkpoints(store, owner, choice, report)
    if not picked:
        raise InputMissing(f"{owner.found.name} has no checkpoints to copy")
    jobs: dict[str, tuple[JobRow, tuple[str, ...]]] = {}
    for each in picked:
        _, patterns = jobs.get(each.row.id, (each.row, ()))
        jobs[each.row.id] = each.row, (*patterns, *each.checkpoint.patterns)
    return list(jobs.values())


def ranking_of(store: Store, owner: CheckpointOwner, by: str = "") -> Ranking:
    """Return by what the best are chosen.

    Args:
        store: the store.
        owner: whose checkpoints.
        by: a metric whose smallest value is the best, or with a ``-`` before it whose largest is; empty for that of
            the search, or of the job's checkpoints or searcher.

    Raises:
        UsageError: none is known.
    """
    if by:
        return Ranking(by.removeprefix("-"), not by.startswith("-"))
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import experiment
    from workbench.store.queries.jobs import detail

    search = owner.search
    if isinstance(owner.found, JobRow):
        search = experiment(store, owner.found.parent) if owner.found.parent else None
        spec = detail(store, owner.found.id).spec
        if search is None and spec.checkpoints.metric:
            return Ranking(spec.checkpoints.metric, spec.checkpoints.smaller_is_better)
        if search is None and (found := _ranking_of_searcher(spec.env)):
            return found
    if search is not None and search.metric:
        return Ranking(search.metric, search.goal == "minimize")
    raise UsageError(
        f"{owner.found.name} names no metric by which its checkpoints are the best",
        hint="--by loss takes those with the smallest value, --by -accuracy with the largest",
    )


def _ranking_of_searcher(env: Mapping[str, str]) -> Ranking | None:
    """Return what an experiment of Determined, as its one job has it, says of its metric."""
    from workbench.learner.determined_jobs import CONFIG_VARIABLE, searched_by

    metric, is_less_better = searched_by(env.get(CONFIG_VARIABLE))
    return Ranking(metric, is_less_better) if metric else None


def best_checkpoints(
    store: Store, found: Sequence[JobCheckpoint], ranking: Ranking, count: int
) -> list[JobCheckpoint]:
    """Return the best that are still there, the best one first; those without a value are left out.

    Raises:
        UnknownName: there are checkpoints, and none has the metric.
    """
    values = job_checkpoints.MetricAtCheckpoints(store, ranking.metric)
    ranked = [
        JobCheckpoint(each.row, each.checkpoint, value)
        for each in found
        if (value := values.of(each.row, each.checkpoint)) is not None
    ]
    if found and not ranked:
        raise UnknownName(
            f"no checkpoint has a value of {ranking.metric}",
            hint="`fabric checkpoint list` shows the metrics that each has; --by NAME takes another one",
        )
    sign = 1.0 if ranking.is_smaller_better else -1.0
    there = [each for each in ranked if each.checkpoint.where]
    return sorted(there, key=lambda each: sign * (each.value or 0.0))[:count]


def document_of(each: JobCheckpoint) -> CheckpointDocument:
    """Return a checkpoint with its job as ``--json`` gives it."""
    document = checkpoint_document(each.checkpoint)
    document["job"] = each.row.id
    if each.value is not None:
        document["value"] = each.value
    return document
