"""Previews a job: exactly what a run would send to its backend. Nothing is started or made there."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from runners.interface import LaunchPlan, Runner
    from workbench.paths import Home
    from workbench.services.submit.prepare import JobSubmission

PREVIEW_JOB = "training-previewed"
"""Stands for the id that a real run is given."""


@dataclass(frozen=True, slots=True)
class SubmissionPreview:
    """A prepared job with its runner's plan."""

    submission: JobSubmission
    plan: LaunchPlan

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before the job is started."""
        return (*self.submission.warnings, *self.plan.warnings)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the target and the stores were chosen; each note once."""
        return tuple(dict.fromkeys((*self.submission.notes, *self.plan.notes)))

    def document(self) -> dict[str, Any]:
        """Return the preview as ``--json`` gives it, schema ``fabric.plan/1``."""
        from workbench.spec import spec_to_json

        submission, plan, code = self.submission, self.plan, self.submission.code
        return {
            "schema": "fabric.plan/1",
            "name": submission.loaded.spec.name,
            "backend": submission.target.backend,
            "runner": plan.runner,
            "spec": spec_to_json(submission.loaded.spec),
            "origins": dict(submission.loaded.origins),
            "code": None
            if code is None
            else {"hash": code.code_hash, "files": code.files, "size_bytes": code.size_bytes},
            "slots_per_learner": plan.slots_per_learner,
            "cpus_per_learner": plan.cpus_per_learner,
            "learners": [
                {"learner": each.learner, "name": each.name, "native": each.native} for each in plan.learners
            ],
            **({"objects": list(plan.objects)} if plan.objects else {}),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def preview(submission: JobSubmission, home: Home, scratch: Path | None = None) -> SubmissionPreview:
    """Ask the runner at the job's target for its plan; ``scratch`` is where its code is, if not in the home.

    Raises:
        LaunchRefused: the job could never be started like that.
        BackendUnreachable: the backend does not answer.
    """
    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from runners.registry import load_runner
    from workbench.data.code.snapshot import snapshot_file
    from workbench.services.backends.placement import open_backend
    from workbench.store.db.database import home_uuid
    from workbench.store.jobs import who_am_i

    target, code = submission.target, submission.code
    request = LaunchRequest(
        attempt=AttemptRef(home_uuid(home), PREVIEW_JOB, 1, submission.loaded.spec.learners),
        spec=submission.loaded.spec,
        owner=who_am_i(),
        code_hash=code.code_hash if code else "",
        code_file=str(snapshot_file(code.code_hash, home, scratch)) if code else "",
        recorded=submission.recorded,
    )
    options = BackendOptions(target.backend, target.type, target.address, target.options)
    with closing(open_backend(options).open()) as opened:
        runner: Runner = load_runner(target.runner)(opened, home_uuid=home_uuid(home))
        with closing(runner):
            return SubmissionPreview(submission, runner.plan(request))


def refuse_loss(submission: JobSubmission, home: Home) -> None:
    """Refuse a job that nobody follows where its results would be lost some time after its end.

    Raises:
        UsageError: they would be lost.
    """
    from runners.registry import load_runner
    from workbench.errors import BackendUnreachable, UsageError

    if load_runner(submission.target.runner).capabilities.needs != "cluster":
        return
    try:
        seconds = preview(submission, home).plan.results_lost_after_seconds
    except BackendUnreachable:
        return  # The job is launched later, and the backend may answer by then.
    if seconds:
        raise UsageError(
            f"the job's results are lost {seconds / 60:g} minutes after its end unless they are fetched by then,"
            " and with --detach nothing fetches them",
            hint="--accept-loss starts it all the same; claim or storage_class of the backend, or --results,"
            " keeps them",
        )
