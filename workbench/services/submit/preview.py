"""Previews a job: exactly what a run would send to its backend. Nothing is started or made there."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from runners.interface import LaunchPlan, Runner
    from workbench.data.code.snapshot import SnapshotOptions
    from workbench.paths import Home
    from workbench.services.backends.placement import PassedOver
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.prepare import JobSubmission
    from workbench.store.db.rows import TargetRef

PREVIEW_JOB: Final = "training-previewed"
"""Stands for the id that a real run is given."""
PREVIEW_HOME: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the uuid of a home that does not exist yet: a preview makes none."""


@dataclass(frozen=True, slots=True)
class SubmissionPreview:
    """A prepared job with its runner's plan."""

    submission: JobSubmission
    plan: LaunchPlan

    @property
    def target(self) -> TargetRef:
        """The backend and the runner that were chosen."""
        return self.submission.target

    @property
    def passed_over(self) -> tuple[PassedOver, ...]:
        """The runners that would have been preferred at that backend, each with the reason why it cannot be used."""
        return self.submission.passed_over

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before the job is started."""
        return (*self.submission.warnings, *self.plan.warnings)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the target and the stores were chosen; each note once."""
        return tuple(dict.fromkeys((*self.submission.notes, *self.plan.notes)))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What would be started, as names and values that people read."""
        from workbench.formats import count, size

        plan, spec, code = self.plan, self.submission.loaded.spec, self.submission.code
        return (
            ("job", spec.name),
            ("backend", f"{self.target.backend}, as {plan.runner}"),
            ("learners", str(spec.learners)),
            ("GPUs", f"{plan.slots_per_learner} for each learner"),
            (
                "CPUs",
                f"{plan.cpus_per_learner:g} for each learner" if plan.cpus_per_learner else "not reserved",
            ),
            ("memory", f"{size(spec.memory_bytes)} for each learner" if spec.memory_bytes else "not limited"),
            ("command", spec.framework.command),
            ("code", "none" if code is None else f"{count(code.files, 'file')}, {size(code.size_bytes)}"),
        )

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


def preview_batch(
    batch: JobBatch,
    home: Home,
    *,
    code_options: SnapshotOptions | None = None,
    cancel: threading.Event | None = None,
) -> tuple[SubmissionPreview, ...]:
    """Prepare the jobs of a batch and preview them. Nothing is kept: the code is packed into a temporary folder.

    Args:
        batch: the jobs.
        home: where other jobs are known.
        code_options: how their code is taken; None asks nobody and shows no progress.
        cancel: ends the call within a second once it is set.

    Raises:
        Cancelled: ``cancel`` was set.
        FabricError: as :func:`workbench.services.submit.prepare.prepare` and :func:`preview`.
    """
    from tempfile import TemporaryDirectory

    from workbench.data.code.snapshot import SnapshotOptions

    with TemporaryDirectory(prefix="fabric-plan-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        code_options = replace(code_options or SnapshotOptions(), scratch=scratch)
        submissions = batch.prepare(home, launch=False, code_options=code_options, cancel=cancel)
        return tuple(preview(each, home, scratch, cancel=cancel) for each in submissions)


def preview(
    submission: JobSubmission,
    home: Home,
    scratch: Path | None = None,
    *,
    cancel: threading.Event | None = None,
) -> SubmissionPreview:
    """Ask the runner at the job's target for its plan; the home keeps nothing of it.

    Args:
        submission: the job.
        home: where it would be started from.
        scratch: where its code is, if not in the home.
        cancel: ends the call within a second once it is set, also while the backend does not answer.

    Raises:
        Cancelled: ``cancel`` was set.
        LaunchRefused: the job could never be started like that.
        BackendUnreachable: the backend does not answer.
    """
    from workbench.services.cancel import call

    return call(lambda: SubmissionPreview(submission, _plan(submission, home, scratch)), cancel)


def _plan(submission: JobSubmission, home: Home, scratch: Path | None) -> LaunchPlan:
    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from runners.registry import load_runner
    from workbench.data.code.snapshot import snapshot_file
    from workbench.services.backends.placement import open_backend
    from workbench.store.db.database import home_uuid
    from workbench.store.jobs import who_am_i

    target, code = submission.target, submission.code
    uuid = home_uuid(home) if home.identity.is_file() else PREVIEW_HOME
    request = LaunchRequest(
        attempt=AttemptRef(uuid, PREVIEW_JOB, 1, submission.loaded.spec.learners),
        spec=submission.loaded.spec,
        owner=who_am_i(),
        code_hash=code.code_hash if code else "",
        code_file=str(snapshot_file(code.code_hash, home, scratch)) if code else "",
        recorded=submission.recorded,
    )
    options = BackendOptions(target.backend, target.type, target.address, target.options)
    with closing(open_backend(options).open()) as opened:
        runner: Runner = load_runner(target.runner)(opened, home_uuid=uuid)
        with closing(runner):
            return runner.plan(request)


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
