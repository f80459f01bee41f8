"""Jobs to try things with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.job import Reason, new_job_id
from workbench.spec import JobSpec
from workbench.store.db.database import Store
from workbench.store.db.rows import JobDetail, JobRow, TargetRef
from workbench.store.updates.jobs import insert_job

SUBMITTED_US = 1_700_000_000_000_000


def make_detail(
    name: str = "digits",
    *,
    backend: str = "local",
    owner: str = "me@box",
    labels: Mapping[str, str] | None = None,
    tags: tuple[str, ...] = (),
    parent: str | None = None,
    trial: int | None = None,
    learners: int = 1,
    recorded: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> JobDetail:
    spec = JobSpec(name=name, learners=learners, gpus=2, cpus=1.5, memory_bytes=1 << 30, params=params or {})
    row = JobRow(
        id=new_job_id(),
        name=name,
        reason=Reason("waits for the controller"),
        target=TargetRef(backend, "local", "process", options={"machine": "one"}),
        owner=owner,
        submitted_us=SUBMITTED_US,
        changed_us=SUBMITTED_US,
        learners=learners,
        gpus=spec.gpus,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=labels or {},
        tags=tags,
        parent=parent,
        trial=trial,
    )
    return JobDetail(row, spec, "name: digits\n", {"name": "manifest.yml:1"}, "abc", recorded or {"seed": 7})


def add_job(store: Store, name: str = "digits", **more: Any) -> JobRow:
    return insert_job(store, make_detail(name, **more), who="me@box", origin="cli")
