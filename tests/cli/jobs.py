"""Jobs in the store without a controller, for commands that only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.controller.client.submission import Submission, submit
from workbench.job import Reason, State
from workbench.spec import Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow, TargetRef
from workbench.store.queries.jobs import job
from workbench.store.updates.jobs import step

PATHS: Mapping[State, tuple[State, ...]] = {
    State.QUEUED: (),
    State.PROCESSING: (State.PENDING, State.PROCESSING),
    State.COMPLETED: (State.PENDING, State.PROCESSING, State.STORING, State.COMPLETED),
    State.FAILED: (State.PENDING, State.PROCESSING, State.STORING, State.FAILED),
    State.HALTED: (State.PENDING, State.PROCESSING, State.STORING, State.HALTED),
}


def add_job(
    store: Store,
    name: str,
    state: State = State.QUEUED,
    *,
    reason: Reason | None = None,
    exit_code: int | None = None,
    exit_by: str = "",
    learners: int = 1,
    labels: Mapping[str, str] | None = None,
    recorded: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> JobRow:
    """Put a job into the store as if it had come to that state."""
    spec = JobSpec(
        name=name,
        framework=Framework(command="true"),
        learners=learners,
        labels=labels or {},
        params=params or {},
    )
    target = TargetRef(backend="local", type="local", runner="process")
    submission = Submission(
        spec=spec,
        manifest_text=f"name: {name}\n",
        origins={"name": "manifest.yml:1", "learners": "default"},
        target=target,
        code_hash="",
        recorded=recorded or {},
    )
    row = submit(store, submission, origin="cli")
    for each in PATHS[state]:
        last = each is state
        step(
            store,
            row.id,
            row.attempt,
            each,
            (reason if last else None) or Reason(""),
            exit_code=exit_code if last else None,
            exit_by=exit_by if last else "",
        )
    found = job(store, row.id)
    assert found is not None
    return found
