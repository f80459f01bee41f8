"""Reaches a job at its backend: the runner that has it, its learners' names there, and what it was launched with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from workbench.errors import NotRunning, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from runners.interface import LaunchRequest, LearnerRef, Runner
    from workbench.paths import Home
    from workbench.store.db.rows import JobDetail, JobRow


@dataclass(frozen=True, slots=True)
class LearnerAccess:
    """A learner that can be asked for something."""

    row: JobRow
    runner: Runner
    ref: LearnerRef
    home: Home


@contextmanager
def reached(
    job: str, learner: int, attempt: int | None = None, *, steers: bool = False, running: bool = False
) -> Iterator[LearnerAccess]:
    """Open the backend of a job for one of its learners, of the last attempt by default.

    ``steers`` says that the learner is changed, which a copy of its home must not do; ``running`` that only a
    running one can be asked.

    Raises:
        HomeNotBound: the learner is changed, and the home is a copy.
        UsageError: the job has no such learner or attempt.
        NotRunning: the job has ended or still waits, and a running one is needed.
        BackendUnreachable: the backend does not answer.
    """
    from runners.interface import LearnerRef
    from workbench.services.open_store import store_with

    with store_with(job, steers=steers) as (store, row):
        home = store.home
    if learner > row.learners:
        raise UsageError(f"the job has {row.learners} learners, there is no learner {learner}")
    if attempt is not None and not 1 <= attempt <= row.attempt:
        raise UsageError(f"the job has {row.attempt} attempts, there is no attempt {attempt}")
    if running:
        _require_running(row)
    ref = LearnerRef(_carried_home(row, home), row.id, attempt or row.attempt, learner)
    with opened_runner(row, home) as runner:
        yield LearnerAccess(row, runner, ref, home)


@contextmanager
def opened_runner(row: JobRow, home: Home) -> Iterator[Runner]:
    """Open a job's backend for its runner.

    Raises:
        BackendUnreachable: the backend does not answer.
    """
    from backends.contract.host import BackendOptions
    from runners.registry import load_runner
    from workbench.services.backends.placement import open_backend

    target = row.target
    options = BackendOptions.of(target)
    with closing(open_backend(options).open()) as opened:
        runner: Runner = load_runner(target.runner)(opened, home_uuid=_carried_home(row, home))
        with closing(runner):
            yield runner


def recorded_request(job: JobDetail, home: Home) -> LaunchRequest:
    """Return what a job's last attempt was launched with, without its secrets."""
    from runners.interface import AttemptRef, LaunchRequest

    row = job.row
    return LaunchRequest(
        attempt=AttemptRef(_carried_home(row, home), row.id, row.attempt, row.learners),
        spec=job.spec,
        owner=row.owner,
        code_hash=job.code_hash,
        code_file=str(home.snapshot(job.code_hash)) if job.code_hash else "",
        recorded=job.recorded,
    )


def _carried_home(row: JobRow, home: Home) -> str:
    """Return the uuid that a job's learners carry: another home's where the job was adopted."""
    from workbench.store.db.database import home_uuid

    return row.target.home(home_uuid(home))


def _require_running(row: JobRow) -> None:
    from workbench.job import State, short_id
    from workbench.store.db.rows import is_over

    if not is_over(row) and row.state is not State.QUEUED:
        return
    name = short_id(row.id)
    state = f"it has ended ({row.state.lower()})" if is_over(row) else "it waits"
    hint = f"`fabric resume {name}` starts it again" if is_over(row) else f"`fabric show {name}` says why"
    raise NotRunning(f"{name} {row.name} is not running: {state}", hint=hint)
