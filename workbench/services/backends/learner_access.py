"""Reaches a learner of a job for a command: the runner that has it, and its name there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from workbench.errors import NotRunning, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from runners.interface import LearnerRef, Runner
    from workbench.paths import Home
    from workbench.store.db.rows import JobRow


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
    from backends.contract.host import BackendOptions
    from runners.interface import LearnerRef
    from runners.registry import load_runner
    from workbench.services.backends.placement import open_backend
    from workbench.services.open_store import store_with
    from workbench.store.db.database import home_uuid

    with store_with(job, steers=steers) as (store, row):
        uuid, home = row.target.home(home_uuid(store.home)), store.home
    if learner > row.learners:
        raise UsageError(f"the job has {row.learners} learners, there is no learner {learner}")
    if attempt is not None and not 1 <= attempt <= row.attempt:
        raise UsageError(f"the job has {row.attempt} attempts, there is no attempt {attempt}")
    if running:
        _require_running(row)
    target = row.target
    options = BackendOptions(target.backend, target.type, target.address, target.options)
    with closing(open_backend(options).open()) as opened:
        runner: Runner = load_runner(target.runner)(opened, home_uuid=uuid)
        with closing(runner):
            yield LearnerAccess(row, runner, LearnerRef(uuid, row.id, attempt or row.attempt, learner), home)


def _require_running(row: JobRow) -> None:
    from workbench.job import State, short_id
    from workbench.store.db.rows import is_over

    if not is_over(row) and row.state is not State.QUEUED:
        return
    name = short_id(row.id)
    state = f"it has ended ({row.state.lower()})" if is_over(row) else "it waits"
    hint = f"`fabric resume {name}` starts it again" if is_over(row) else f"`fabric show {name}` says why"
    raise NotRunning(f"{name} {row.name} is not running: {state}", hint=hint)
