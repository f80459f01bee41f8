"""Previews a job: exactly what a run would send to its backend. Nothing is started or made there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runners.registry import load_runner
from workbench.clock import now_us
from workbench.errors import BackendUnreachable, ConfigError, LaunchRefused, NotAllowed, UsageError
from workbench.formats import count, duration, printable, size
from workbench.formats import count as count_of
from workbench.job import LACKING, short_id
from workbench.services.submit.options import unbuilt
from workbench.spec import DEFAULT_PRIORITY, DEFAULT_WEIGHT, spec_to_json
from workbench.time_expressions import until_text
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Backend, BackendOptions
    from runners.interface import LaunchPlan, LaunchRequest, Runner
    from workbench.data.code.snapshot import SnapshotOptions
    from workbench.documents.jobs import PlanDocument, PlannedSearch
    from workbench.errors import FabricError
    from workbench.paths import Home
    from workbench.services.backends.placement import PassedOver
    from workbench.services.submit.batch import JobBatch
    from workbench.services.submit.prepare import JobSubmission
    from workbench.spec import BindMount, JobSpec
    from workbench.store.db.rows import JobDetail, TargetRef

PREVIEW_JOB: Final = "training-previewed"
"""Stands for the id that a real run is given."""
PREVIEW_HOME: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the uuid of a home that does not exist yet: a preview makes none."""


@dataclass(frozen=True, slots=True)
class SubmissionPreview:
    """A prepared job with its runner's plan."""

    submission: JobSubmission
    """Of a search that of its first trial."""
    plan: LaunchPlan
    search: PlannedSearch | None = None
    searched: JobSpec | None = None
    """What a search tries its trials of; None for a job."""

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
        """What a person should know before the job is started; each warning once."""
        return tuple(dict.fromkeys((*self.submission.warnings, *self.plan.warnings)))

    @property
    def notes(self) -> tuple[str, ...]:
        """How the target and the stores were chosen; each note once."""
        return tuple(dict.fromkeys((*self.submission.notes, *self.plan.notes)))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What would be started, as names and values that people read."""
        plan, spec, code = self.plan, self.submission.loaded.spec, self.submission.code
        hosts = host_parts(self.target, spec.learners)
        return (
            ("job", spec.name),
            ("backend", f"{self.target.backend}, as {plan.runner}"),
            ("learners", f"{spec.learners}{f': {hosts}' if hosts else ''}"),
            ("GPUs", f"{plan.slots_per_learner} for each learner"),
            (
                "CPUs",
                f"{plan.cpus_per_learner:g} for each learner" if plan.cpus_per_learner else "not reserved",
            ),
            ("memory", f"{size(spec.memory_bytes)} for each learner" if spec.memory_bytes else "not limited"),
            ("command", spec.framework.command),
            ("code", "none" if code is None else f"{count(code.files, 'file')}, {size(code.size_bytes)}"),
        )

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        """What else the job has: its image, data and results, parameters and time limit."""
        from workbench.controller.runtime.result_store import result_store

        spec = self.submission.loaded.spec
        stored = result_store(spec, PREVIEW_JOB)
        data = ", ".join(store.training_data for store in spec.data_stores if store.training_data)
        params = printable(", ".join(f"{name}={value}" for name, value in spec.params.items()))
        image = spec.image if load_runner(self.target.runner).capabilities.uses_image else ""
        limit = duration(spec.max_runtime_seconds) if spec.max_runtime_seconds else ""
        pairs = (
            ("image", image),
            ("params", params),
            ("data", data),
            ("results", stored.location if stored else ""),
            ("mounts", ", ".join(map(_mount, spec.bind_mounts))),
            ("limit", limit),
        )
        return tuple((name, value) for name, value in pairs if value)

    @property
    def summary(self) -> tuple[tuple[str, str], ...]:
        """What would be started, where, in what, with what, and what it waits for: a line each, for people."""
        return tuple((name, value) for name, value in _lines(self) if value)

    @property
    def search_facts(self) -> tuple[tuple[str, str], ...]:
        """What the search would try, whose first trial the rest is about; empty for a job."""
        return () if self.search is None else tuple(_search_lines(self.search))

    def document(self) -> PlanDocument:
        """Return the preview as ``--json`` gives it, schema ``fabric.plan/1``."""
        submission, plan, code = self.submission, self.plan, self.submission.code
        document: PlanDocument = {
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
                {"learner": each.learner, "name": each.name, "native": dict(each.native)}
                for each in plan.learners
            ],
            "search": self.search,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
        if plan.objects:
            document["objects"] = [dict(each) for each in plan.objects]
        return document


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
        UsageError: a search is in a sweep or in a chain.
        FabricError: as :func:`workbench.services.submit.prepare.prepare` and :func:`preview`.
    """
    from tempfile import TemporaryDirectory

    from workbench.data.code.snapshot import SnapshotOptions
    from workbench.services.submit.batch import refuse_search

    with TemporaryDirectory(prefix="fabric-plan-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        code_options = replace(code_options or SnapshotOptions(), scratch=scratch)
        submissions = batch.prepare(home, launch=False, code_options=code_options, cancel=cancel)
        refuse_search(batch, [each.loaded.spec for each in submissions])
        return tuple(preview(each, home, scratch, cancel=cancel) for each in submissions)


def preview(
    submission: JobSubmission,
    home: Home,
    scratch: Path | None = None,
    *,
    cancel: threading.Event | None = None,
) -> SubmissionPreview:
    """Ask the runner at the job's target for its plan; the home keeps nothing of it.

    Of a search that is the plan of its first trial, at the first of its backends.

    Args:
        submission: the job.
        home: where it would be started from.
        scratch: where its code is, if not in the home.
        cancel: ends the call within a second once it is set, also while the backend does not answer.

    Raises:
        Cancelled: ``cancel`` was set.
        LaunchRefused: the job could never be started like that.
        UsageError: nothing could choose the samples of the search, or copy its checkpoints.
        BackendUnreachable: the backend does not answer.
    """
    from workbench.services.cancel import call

    first, search = _first_trial(submission)
    searched = submission.loaded.spec if search is not None else None
    if searched is not None:
        from workbench.data.code.snapshot import snapshot_file
        from workbench.services.submit.search_preview import check_copies, check_searcher

        code = submission.code
        check_searcher(searched, snapshot_file(code.code_hash, home, scratch) if code else None)
        for target in [each.target for each in submission.search_targets] or [submission.target]:
            check_copies(searched, target)
    return call(lambda: SubmissionPreview(first, _plan(first, home, scratch), search, searched), cancel)


def _first_trial(submission: JobSubmission) -> tuple[JobSubmission, PlannedSearch | None]:
    """Return the job of a search's first trial as the search submits it, and the search; a job is its own."""
    spec = submission.loaded.spec
    if not spec.search:
        return submission, None
    from workbench.manifest.builder.params import search_name, trial_spec
    from workbench.search.config import SearchConfig
    from workbench.search.method import Create
    from workbench.search.searcher import Searcher
    from workbench.services.submit.search_preview import search_preview
    from workbench.services.submit.trials_ahead import with_trials_ahead

    config = SearchConfig.from_json(spec.search)
    document = search_preview(spec, samples=0)
    begun = Searcher(config.make_method(), config.space(), document["seed"]).begin()
    first = next((each for each in begun if isinstance(each, Create)), None)
    total = sum(each["count"] for each in document["trials"])
    at_once = sum(isinstance(each, Create) for each in begun) if first else config.max_concurrent or total
    targets = [each.target for each in submission.search_targets] or [submission.target]
    search: PlannedSearch = {
        "name": search_name(spec.name),
        "method": config.method,
        "metric": config.metric,
        "goal": config.goal,
        "time_metric": config.time_metric,
        "trials": document["trials"],
        "max_concurrent": min(at_once, total),
        "gpu_hours": document["gpu_hours"],
        "backends": [{"backend": each.backend, "runner": each.runner} for each in targets],
        "seed": spec.seed,
        "hparams": None if first is None else dict(first.hparams),
    }
    if first is None:
        return submission, search
    limited, _ = with_trials_ahead(spec, targets)
    trial = trial_spec(limited, first.hparams, number=1, seed=first.seed, max_trials=config.max_trials)
    loaded = replace(submission.loaded, spec=trial)
    recorded = {**submission.recorded, "seed": first.seed}
    return replace(submission, loaded=loaded, recorded=recorded), search


def _search_lines(search: PlannedSearch) -> Iterator[tuple[str, str]]:
    from workbench.services.submit.search_preview import sample_text

    goal = f", {search['goal']} {search['metric']}" if search["metric"] else ""
    yield "search", f"{search['name']}: {search['method']}{goal}"
    reached = [(each["count"], each.get("units")) for each in search["trials"]]
    time = f"{search['time_metric']} " if search["time_metric"] else ""
    far = ", ".join(f"{count:,} to {time}{units:,}" for count, units in reached if units is not None)
    yield "trials", f"{sum(count for count, _ in reached):,}{f': {far}' if far else ''}"
    yield "at once", f"{search['max_concurrent']:,} at most"
    if (hours := search["gpu_hours"]) is not None:
        yield "cost", f"at most {hours:,.1f} GPU-hours, if a whole trial takes its max_runtime"
    yield "backends", ", ".join(f"{each['backend']}, as {each['runner']}" for each in search["backends"])
    if search["hparams"] is None:
        by = "Optuna" if search["method"] == "optuna" else "the class of search.searcher"
        yield "plan of", f"each trial; its parameters are chosen while the search runs, by {by}"
    else:
        seed = "" if search["seed"] is not None else "; as the manifest has no seed, each run draws others"
        yield (
            "plan of",
            f"the first trial, with {printable(sample_text(search['hparams'])) or 'no parameters'}{seed}",
        )


def plan_of(job: JobDetail, home: Home) -> LaunchPlan:
    """Return the plan of a recorded job's last attempt, as it is sent to its backend.

    Raises:
        LaunchRefused: the job cannot be started like that now.
        BackendUnreachable: the backend does not answer.
    """
    from workbench.services.backends.learner_access import opened_runner, recorded_request

    with opened_runner(job.row, home) as runner:
        return runner.plan(recorded_request(job, home))


def _plan(submission: JobSubmission, home: Home, scratch: Path | None) -> LaunchPlan:
    from workbench.services.backends.placement import open_backend

    request, options = _request(submission, home, scratch)
    return _possible_plan(request, submission.target, open_backend(options))


def _request(
    submission: JobSubmission, home: Home, scratch: Path | None
) -> tuple[LaunchRequest, BackendOptions]:
    from backends.contract.host import BackendOptions
    from runners.interface import AttemptRef, LaunchRequest
    from workbench.data.code.snapshot import snapshot_file
    from workbench.store.db.database import home_uuid
    from workbench.store.updates.jobs import who_am_i

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
    return request, BackendOptions.of(target)


def _connected_plan(request: LaunchRequest, target: TargetRef, backend: Backend) -> LaunchPlan:
    with closing(backend.open()) as opened:
        runner: Runner = load_runner(target.runner)(opened, home_uuid=request.attempt.home)
        with closing(runner):
            return runner.plan(request)


def gpu_shortage(spec: JobSpec, target: TargetRef, backend: Backend) -> str:
    """Say that this machine has fewer GPUs than a job asks for; other backends say so themselves."""
    count = spec.gpus * spec.learners
    if not count or target.type != "local":
        return ""
    slots = [slot for node in backend.inventory().nodes for slot in node.slots if slot.memory_bytes]
    if count <= len(slots):
        return ""
    has = count_of(len(slots), "GPU") if slots else "none"
    return f"The job asks for {count_of(count, 'GPU')}; this machine has {has}."


def _possible_plan(request: LaunchRequest, target: TargetRef, backend: Backend) -> LaunchPlan:
    """Return the plan; where the backend cannot be asked, or has too little, as much of it as is known.

    A warning says so then.
    """
    from runners.interface import LaunchPlan

    shortage = gpu_shortage(request.spec, target, backend)
    short_of = (shortage,) if shortage else ()
    try:
        plan = _connected_plan(request, target, backend)
        return replace(plan, warnings=(*plan.warnings, *short_of))
    except LaunchRefused as error:
        if error.code != LACKING:
            raise
        spec = request.spec
        warnings = (
            *unbuilt(spec, target),
            _sentence(error),
            *short_of,
        )
        return LaunchPlan(request, target.runner, (), spec.gpus, spec.cpus or 0.0, warnings=warnings)
    except (ConfigError, BackendUnreachable, NotAllowed) as error:
        unconnected = load_runner(target.runner).plan_unconnected(request, backend.settings)
        if unconnected is None:
            raise
        warning = f"{target.backend} could not be asked, and may refuse the job: {_sentence(error)}"
        return replace(unconnected, warnings=(warning, *unconnected.warnings))


def _sentence(error: FabricError) -> str:
    return f"{error.message} {error.hint}".strip()


def refuse_loss(submission: JobSubmission, home: Home) -> None:
    """Refuse a job that nobody follows where its results would be lost some time after its end.

    Raises:
        UsageError: they would be lost.
    """
    from workbench.services.backends.placement import open_backend

    if load_runner(submission.target.runner).capabilities.needs != "cluster":
        return
    try:
        request, options = _request(submission, home, None)
        plan = _connected_plan(request, submission.target, open_backend(options))
    except BackendUnreachable:
        return  # The job is launched later, and the backend may answer by then.
    if seconds := plan.results_lost_after_seconds:
        raise UsageError(
            f"the job's results are lost {duration(seconds)} after its end unless they are fetched by then,"
            " and with --detach nothing fetches them",
            hint="--accept-loss starts it all the same; claim or storage_class of the backend, or --results,"
            " keeps them",
        )


_WHEN = {"completed": "to complete", "ended": "to end"}


def _lines(preview: SubmissionPreview) -> Iterator[tuple[str, str]]:
    spec, target, code = preview.submission.loaded.spec, preview.target, preview.submission.code
    yield from preview.search_facts
    yield "job", spec.name
    hosts = host_parts(target, spec.learners)
    address = f" ({target.address})" if target.address and not hosts else ""
    yield "where", f"{target.backend}{address}, as {preview.plan.runner}"
    yield "command", spec.framework.command
    if load_runner(target.runner).capabilities.uses_image:
        yield "image", spec.image
    else:
        yield "Python", _python(spec, preview.submission.recorded)
    source = str((preview.submission.recorded.get("code") or {}).get("source") or "")
    come_from = f", of {source}" if source else ""
    yield (
        "code",
        "none" if code is None else f"{count_of(code.files, 'file')}, {size(code.size_bytes)}{come_from}",
    )
    yield "learners", f"{spec.learners}{f': {hosts}' if hosts else ''}" if spec.learners > 1 else ""
    yield "GPUs", _gpus(preview.plan.slots_per_learner, spec)
    yield "CPUs", _cpus(preview.plan.cpus_per_learner, spec)
    yield "memory", f"{size(spec.memory_bytes)}{_each(spec)}" if spec.memory_bytes else "not limited"
    details = dict(preview.details)
    for name in ("params", "data", "results", "mounts"):
        yield name, details.get(name, "")
    yield (
        "waits for",
        _waits(spec, preview.plan.slots_per_learner, "sweep" if preview.search is None else "search"),
    )
    yield "ends after", _ends(spec)


def host_parts(target: TargetRef, learners: int) -> str:
    """Say which of several hosts has which learners; empty where there is one."""
    from backends.contract.host import BackendOptions
    from backends.contract.host_group import learners_by_host, member_options

    members = member_options(BackendOptions.of(target))
    if len(members) < 2:
        return ""
    parts = zip(members, learners_by_host(learners, len(members)), strict=True)
    return ", ".join(f"{_span(numbers)} at {member.name}" for member, numbers in parts)


def _span(numbers: range) -> str:
    return f"{numbers.start}" if len(numbers) == 1 else f"{numbers.start}-{numbers.stop - 1}"


def _python(spec: JobSpec, recorded: Mapping[str, object]) -> str:
    if spec.requirements:
        return f"an environment of {count_of(len(spec.requirements), 'requirement')}"
    path = str(recorded.get("python") or "")
    match spec.python:
        case "current":
            return path
        case "PATH":
            return "the first on the backend's PATH"
        case other:
            return other


def _mount(mount: BindMount) -> str:
    return f"{mount.host_path} at {mount.container_path}{' (read-only)' if mount.read_only else ''}"


def _each(spec: JobSpec) -> str:
    return " for each learner" if spec.learners > 1 else ""


def _gpus(slots: int, spec: JobSpec) -> str:
    if not slots:
        return "none"
    kind = f" {spec.gpu_type}" if spec.gpu_type else ""
    total = f", {slots * spec.learners} in all" if spec.learners > 1 else ""
    return f"{slots}{kind}{_each(spec)}{total}"


def _cpus(cpus: float, spec: JobSpec) -> str:
    return f"{cpus:g}{_each(spec)}" if cpus else "not reserved"


def _waits(spec: JobSpec, slots: int, whose: str) -> str:
    parts = [_parent(reference) for reference in spec.after]
    if spec.begin:
        parts.append(until_text(spec.begin, now_us()))
    if slots:
        parts.append(f"{count_of(slots * spec.learners, 'free GPU')}")
    if spec.at_most is not None:
        parts.append(f"its turn: at most {spec.at_most} of the {whose} at once")
    rank = [] if spec.priority == DEFAULT_PRIORITY else [f"priority {spec.priority}"]
    rank += [] if spec.weight == DEFAULT_WEIGHT else [f"weight {spec.weight:g}"]
    rank += ["preemptible"] if spec.preemptible else []
    return f"{', '.join(parts) or 'nothing'} ({', '.join(rank)})" if rank else ", ".join(parts)


def _parent(reference: str) -> str:
    name, _, when = reference.partition(":")
    return f"{short_id(name)} {_WHEN.get(when or 'completed', when)}"


def _ends(spec: JobSpec) -> str:
    return f"at most {duration(spec.max_runtime_seconds)}" if spec.max_runtime_seconds else ""


def differing_params(previews: Sequence[SubmissionPreview]) -> tuple[str, ...]:
    """Name the parameters in which jobs that are started together differ."""
    every = [preview.submission.loaded.spec.params for preview in previews]
    names = dict.fromkeys(name for params in every for name in params)
    return tuple(name for name in names if len({str(params.get(name)) for params in every}) > 1)
