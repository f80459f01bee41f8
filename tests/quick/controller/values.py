"""Short ways to say how a job and its learners are, for tests of the pure parts."""

from __future__ import annotations

from typing import Any

from runners.interface import LearnerRef, LearnerStatus
from workbench.controller.decide.model import JobSnapshot
from workbench.controller.decide.scheduler import QueueVerdict
from workbench.job import Intent, JobId, LearnerPhase, Reason, State
from workbench.spec import Framework, JobSpec
from workbench.store.db.rows import JobRow, TargetRef

JOB = JobId("training-abcdefghj")
HOME = "home-uuid"
GO = QueueVerdict(True)
LOCAL = TargetRef(backend="local", type="local", runner="process")


def learner(number: int, phase: LearnerPhase = LearnerPhase.RUNNING, **how: Any) -> LearnerStatus:
    """One learner as it was seen; a phase past STARTING has started."""
    how.setdefault("started_us", None if phase is LearnerPhase.STARTING else 1_000)
    return LearnerStatus(LearnerRef(HOME, JOB, 1, number), phase, **how)


def exited(number: int, code: int | None = 0, **how: Any) -> LearnerStatus:
    """A learner that ended."""
    how.setdefault("ended_us", 2_000 + number)
    return learner(number, LearnerPhase.EXITED, exit_code=code, **how)


def lost(number: int, **how: Any) -> LearnerStatus:
    """A learner that is gone without a word."""
    return learner(number, LearnerPhase.LOST, **how)


def those(*learners: LearnerStatus) -> dict[int, LearnerStatus]:
    """Learners by their number."""
    return {one.ref.learner: one for one in learners}


def spec(**keys: Any) -> JobSpec:
    """A job's spec; what is left out is the default."""
    return JobSpec(name="test", framework=Framework(command="true"), **keys)


def view(state: State = State.PROCESSING, **how: Any) -> JobSnapshot:
    """A job that runs and was looked at, but for the given fields."""
    keys = {key: how.pop(key) for key in list(how) if key in JobSpec.__dataclass_fields__}
    how.setdefault("spec", spec(**keys))
    how.setdefault("is_observed", True)
    how.setdefault("previous_is_over", True)
    how.setdefault("verdict", GO)
    how.setdefault("now", 1000.0)
    how.setdefault("reason", Reason(""))
    return JobSnapshot(job_id=JOB, state=state, attempt=1, **how)


def row(state: State = State.PROCESSING, intent: Intent = Intent.NONE, **how: Any) -> JobRow:
    """A job's row."""
    values: dict[str, Any] = {
        "id": JOB, "seq": 1, "name": "test", "state": state, "reason": Reason(""), "intent": intent,
        "target": LOCAL, "owner": "me", "submitted_us": 1, "changed_us": 1, "learners": 1, "gpus": 0, "cpus": None,
        "memory_bytes": None, "labels": {}, "tags": (), "revision": 1,
    }  # fmt: skip
    return JobRow(**{**values, **how})
