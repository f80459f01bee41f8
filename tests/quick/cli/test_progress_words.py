"""Where a job is, in one line."""

from __future__ import annotations

import pytest

from workbench.job import JobId, Reason, State
from workbench.services.follow.job_text import state_line
from workbench.store.db.rows import JobRow, TargetRef


@pytest.mark.parametrize(
    ("state", "reason", "line"),
    [
        (State.QUEUED, "waits for 1 GPU: 2 are taken", " waits for 1 GPU: 2 are taken"),
        (State.QUEUED, "waits: 2 of its sweep may run at once", " waits: 2 of its sweep may run at once"),
        (State.QUEUED, "gpubox does not answer", " waits: gpubox does not answer"),
        (State.QUEUED, "", " waits"),
        (State.PENDING, "starting", ": starting"),
        (State.PENDING, "waits for 1 GPU: 2 are taken", " waits for 1 GPU: 2 are taken"),
        (State.PENDING, "waits: 2 of its sweep may run at once", " waits: 2 of its sweep may run at once"),
        (State.DOWNLOADING, "", ": downloading code and data"),
        (State.DOWNLOADING, "pulls python:3.11", ": pulls python:3.11"),
        (State.PROCESSING, "the command runs", " runs"),
        (State.FAILED, "the command ended with exit code 3", " failed: the command ended with exit code 3"),
    ],
)
def test_a_reason_that_begins_as_the_line_does_is_not_repeated(state: State, reason: str, line: str) -> None:
    row = JobRow(
        id=JobId("training-23456789a"),
        name="digits",
        state=state,
        reason=Reason(reason),
        target=TargetRef("local", "local", "process"),
        owner="ada",
        submitted_us=1,
        changed_us=1,
        learners=1,
        gpus=0,
        cpus=None,
        memory_bytes=None,
        labels={},
        tags=(),
    )

    assert state_line(row) == f"23456789a digits{line}"
