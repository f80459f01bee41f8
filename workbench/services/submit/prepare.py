"""Prepares a job: reads the manifest, chooses the target, packs the code, records where it is submitted from."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from workbench.errors import FabricError, InputMissing, UnknownName, UsageError
from workbench.job import TERMINAL, short_id
from workbench.services.submit.options import (
    RunOptions,
    read_manifest,
    refuse_unbuilt,
    resolve_arguments,
    templates_of,
)
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Backend, BackendOptions
    from workbench.data.code.snapshot import Snapshot, SnapshotOptions
    from workbench.job import JobId
    from workbench.manifest import Loaded
    from workbench.manifest.builder.core_v2_scripts import ExternalIds
    from workbench.paths import Home
    from workbench.services.backends.choice import BackendChoice
    from workbench.services.backends.placement import PassedOver
    from workbench.services.submit.dependencies import Parent
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef


CLUSTER: Final = "kubernetes"
STARTUP_HOOK: Final = "startup-hook.sh"
"""At the root of an experiment's code: what Determined runs before the entrypoint."""
_LAUNCHER_BY_SSH: Final = re.compile(r"determined\.launch\.(?:deepspeed|horovod)\b")
FROM_NONE: Final = "none"
"""As ``--from``: no checkpoint, whatever an experiment or the code's external ids name."""
NO_CHAIN: Final[Mapping[str, Parent]] = {}


class PackedCode(Protocol):
    """Code in the home, ready for a job."""

    @property
    def code_hash(self) -> str:
        """Its content's."""

    @property
    def files(self) -> int:
        """How many."""

    @property
    def size_bytes(self) -> int:
        """Of the files."""

    @property
    def cached(self) -> bool:
        """Whether it was there already."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know of it."""


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """One of several backends of a search."""

    target: TargetRef
    recorded: Mapping[str, Any]
    """What a trial's job records there and nowhere else."""


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """A job that is ready to be submitted: nothing has been started or written into the store yet."""

    loaded: Loaded
    target: TargetRef
    code: PackedCode | None
    recorded: Mapping[str, Any]
    """Interpreter, packages, environment, machine, git and arguments at this moment."""
    secrets: Mapping[str, str] = field(repr=False)
    diff: str = ""
    """What was not committed to git."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    """Runners that would have been preferred."""
    search_targets: tuple[SearchTarget, ...] = ()
    """Where the trials of a search may run, ``target`` among them; empty for one backend."""
    job_id: JobId | None = None
    """Chosen beforehand for a job that others of its chain name; else the store chooses one."""


def prepare(
    options: RunOptions,
    home: Home,
    *,
    launch: bool = False,
    chain: Mapping[str, Parent] = NO_CHAIN,
    job_id: JobId | None = None,
    code_options: SnapshotOptions | None = None,
    choice: BackendChoice | None = None,
    cancel: threading.Event | None = None,
) -> JobSubmission:
    """Prepare one job.

    Args:
        options: what the client asks for.
        home: where the code is packed and other jobs are known.
        launch: whether the job will be submitted: keys that are not implemented are refused, and result
            containers of a store that this machine serves are made. A preview shows such a job all the same.
        chain: by name, the jobs that are submitted together with this one and before it.
        job_id: the job's id, where it is one of a chain.
        code_options: how its code is taken; None asks nobody and shows no progress.
        choice: what chooses one of several backends for all jobs of one command; None for one job.
        cancel: ends the call within a second once it is set, however large the code is and whoever does not answer.

    Raises:
        Cancelled: ``cancel`` was set.
        UsageError: the options contradict each other.
        ManifestError: the manifest is invalid.
        InputMissing: the manifest, the code or a secret does not exist.
        NotAllowed: with ``launch``, temporary credentials of its stores have expired.
        UnknownName: there is no such backend or runner.
    """
    from workbench.services.cancel import call

    return call(
        lambda: _prepare(
            options,
            home,
            launch=launch,
            chain=chain,
            job_id=job_id,
            code_options=code_options,
            choice=choice,
            cancel=cancel,
        ),
        cancel,
    )


def _prepare(
    options: RunOptions,
    home: Home,
    *,
    launch: bool,
    chain: Mapping[str, Parent],
    job_id: JobId | None,
    code_options: SnapshotOptions | None,
    choice: BackendChoice | None,
    cancel: threading.Event | None,
) -> JobSubmission:
    from workbench.config.secrets import find_secrets
    from workbench.controller.client.connect import request_prewarm
    from workbench.learner.scribe.masking import secret_texts
    from workbench.services.backends.choice import BackendChoice, split_names
    from workbench.services.cancel import check_cancelled
    from workbench.services.submit import submit_environment
    from workbench.services.submit.credentials import (
        expiry_notes,
        inline_secrets,
        masked,
        with_values,
        without_credentials,
    )
    from workbench.services.submit.dependencies import backends_before, check_target, with_parents
    from workbench.services.submit.store_checks import (
        check_folders,
        check_stores,
        make_result_containers,
        ready_stores,
    )

    options = resolve_arguments(options)
    git = _GitQuery(_likely_folder(options))
    git.start()
    choice = choice or BackendChoice(home, cancel)
    read = read_manifest(options)
    manifest, slot_notes = _with_slots(
        read, options, lambda: [name for name, _ in _backends_of(read.spec, options, choice)[0]]
    )
    check_cancelled(cancel)
    loaded, passed_on = with_parents(manifest, home, chain, launch=launch)
    inline = inline_secrets(loaded)
    loaded, alias_notes = ready_stores(loaded, home)
    loaded, credential_warnings = with_values(loaded)
    loaded, begin_notes = _with_begin(loaded)
    check_cancelled(cancel)
    names, search_notes = _backends_of(loaded.spec, options, choice)
    every = []
    for name, runner in names:
        is_choice = len(split_names(name or loaded.spec.backend)) > 1
        each = choice.choose(
            name,
            runner,
            loaded.spec,
            context=options.context,
            namespace=options.namespace,
            near=backends_before(manifest, home, chain) if is_choice else None,
            must_fit=launch,
        )
        every.append(each)
        check_cancelled(cancel)
        for connection in _connections_of(each.target) if launch else ():
            request_prewarm(home, connection)
        check_target(manifest, each.target, home, chain)
        check_folders([*options.data, *([options.results] if options.results else [])], each.target)
        check_stores(loaded.spec, each.target, home, launch=launch)
        check_cancelled(cancel)
        if launch:
            make_result_containers(loaded.spec, each.target, home)
            refuse_unbuilt(loaded, each.target)
    chosen, target = every[0], every[0].target
    code = code_of(options, loaded, home)
    passed, proxies = submit_environment.passed_environment()
    loaded, script_notes, external_ids = _with_core_api(
        loaded, options, code, _environment_at(target, passed)
    )
    loaded, hook_notes = _with_startup_hook(loaded, code)
    named = [name for name in loaded.spec.secrets if name not in loaded.credentials]
    secrets = {**proxies, **loaded.credentials, **passed_on, **find_secrets(named)}
    credential_notes = expiry_notes(loaded.spec, secrets, launch=launch)
    never = _files_with_passwords(loaded, inline, options)
    packed = None
    if code:
        packed = _pack(code, home, code_options, loaded.spec, never=never, cancel=cancel)
    recorded = submit_environment.record(
        submit_environment.active_interpreter(), masked(options.argv, secret_texts(secrets)), passed
    )
    recorded["seed"] = loaded.spec.seed
    recorded |= _recorded_at(target, loaded.spec)
    beginning, source_notes, source_warnings = _beginning(
        options, loaded.spec, target, external_ids, launch=launch
    )
    recorded |= beginning
    recorded["git"] = described = git.of(code, without=never)
    diff = without_credentials(str(described.pop("diff", "") or ""), inline)
    lacks = [text for each in every for text in each.warnings]
    warnings = [
        *(str(fault) for fault in loaded.warnings),
        *source_warnings,
        *credential_warnings,
        *lacks,
    ]
    if packed:
        warnings += [str(text) for text in packed.warnings]
        recorded["code"] = {"source": str(code), "files": packed.files, "size_bytes": packed.size_bytes}
    return JobSubmission(
        loaded=loaded,
        target=target,
        code=packed,
        recorded=recorded,
        secrets=secrets,
        diff=diff,
        notes=(
            *(*alias_notes, *slot_notes, *script_notes, *hook_notes, *search_notes, *source_notes),
            *dict.fromkeys(note for each in every for note in each.notes),
            *begin_notes,
            *credential_notes,
        ),
        passed_over=chosen.passed_over,
        search_targets=tuple(
            SearchTarget(each.target, _recorded_at(each.target, loaded.spec)) for each in every
        )
        if len(every) > 1
        else (),
        warnings=tuple(warnings),
        job_id=job_id,
    )


def _connections_of(target: TargetRef) -> Iterator[TargetRef]:
    """Yield what the controller is to connect to while the job is still being prepared."""
    from workbench.store.db.rows import TargetRef

    for one in _members_of(target):
        if one.type == "ssh":
            yield TargetRef(one.name, one.type, target.runner, one.address, one.options)


def _members_of(target: TargetRef) -> Sequence[BackendOptions]:
    from backends.contract.host import BackendOptions
    from backends.contract.host_group import member_options

    return member_options(BackendOptions.of(target))


def _backends_of(
    spec: JobSpec, options: RunOptions, choice: BackendChoice
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the backends and runners that a job or a search may take, the first one first, and notes of it.

    Of several backends that a job names one is chosen later; the trials of a search may use all of them.
    """
    from workbench.services.backends.choice import refuse_groups, split_names

    named = list(dict.fromkeys((spec.search or {}).get("backends") or ()))
    several = split_names(options.backend or spec.backend)
    if spec.search and len(several) > 1 and (options.backend or not named):
        usable, notes = choice.usable(several, spec)
        return [(name, options.runner) for name in usable], notes
    if not named:
        return [(options.backend, options.runner)], ()
    if not options.backend:
        from runners.registry import runner_names

        parts = (text.partition("@") for text in named)
        found = [
            (name, runner) if runner in runner_names() else (f"{runner}{at}{name}", options.runner)
            for runner, at, name in parts
        ]
        refuse_groups([name for name, _ in found], "search.backends")
        return found, ()
    return [(options.backend, options.runner)], (
        f"all trials run on {options.backend}: --backend comes before search.backends",
    )


def _recorded_at(target: TargetRef, spec: JobSpec) -> dict[str, Any]:
    """Return what a job records of its submission that holds for one backend."""
    from workbench.services.submit import submit_environment

    recorded: dict[str, Any] = data_limit(spec, target)
    if target.type == "local":  # a host's own umask is that of its logins
        recorded["umask"] = submit_environment.caller_umask()
    return recorded


def _environment_at(target: TargetRef, passed: Mapping[str, str]) -> Mapping[str, str]:
    """Return which of the variables that are passed on a job has where it runs, as they are here."""
    return passed if (target.type, target.runner) == ("local", "process") else {}


def _beginning(
    options: RunOptions, spec: JobSpec, target: TargetRef, external_ids: ExternalIds | None, *, launch: bool
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return what a job records of the checkpoint that it begins with, and notes and warnings of it.

    ``--from`` comes before what an experiment of Determined names; what that names and is not here is a warning of a
    preview, as the file may be meant for another home. Last comes the trial that the code names by external ids.

    Raises:
        UsageError: there is no such checkpoint, or the new job cannot reach it.
    """
    from workbench.controller.runtime.initial_checkpoint import checkpoint_text

    if options.checkpoint == FROM_NONE:
        return {}, (), ()
    if options.checkpoint:
        return {"from": _initial_checkpoint(options.checkpoint, spec, target)}, (), ()
    key, source = _source_of(spec)
    if not key:
        return _same_trial(external_ids, spec, target) if external_ids else ({}, (), ())
    try:
        text = _job_with_number(source) if isinstance(source, int) else _uuid(source)
        found = _initial_checkpoint(text, spec, target)
    except FabricError as error:
        refusal = UsageError(
            f"{key}: {error.message}",
            hint=f"--from JOB begins with a checkpoint that is here, --set {key}=null without one",
        )
        if launch:
            raise refusal from None
        return {}, (), (f"{refusal.message} ({refusal.hint})",)
    return {"from": found}, (f"it begins with {checkpoint_text(found['name'], found['job'])}: {key}",), ()


def _same_trial(
    ids: ExternalIds, spec: JobSpec, target: TargetRef
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return the same of a job whose code gives external ids: what it needs to go on where the last one of them was.

    Nobody has asked for that checkpoint by name, so one that the job cannot reach is no reason to refuse it.
    """
    from workbench.controller.runtime.initial_checkpoint import (
        checkpoint_text,
        initial_checkpoint,
        job_of_trial,
    )
    from workbench.learner.texts import escaped
    from workbench.services.open_store import existing_store

    with existing_store() as store:
        row = job_of_trial(store, ids.experiment, ids.trial) if store is not None else None
        if store is None or row is None:
            return {}, (), ()
        state = "" if row.state in TERMINAL else f" ({row.state})"
        of = f"the external trial id {escaped(ids.trial)}"
        try:
            found = initial_checkpoint(store, row, None, spec, target)
        except (UsageError, InputMissing) as error:
            had = f"{short_id(row.id)}{state} had {of}"
            return {}, (), (f"{had}, but the job begins with none: {error.message} ({error.hint})",)
    what = f"{checkpoint_text(found['name'], row.id)}{state}"
    note = f"it begins with {what}, which had {of}, too (--from {FROM_NONE}: with none)"
    return {"from": found}, (note,), ()


def _source_of(spec: JobSpec) -> tuple[str, str | int]:
    """Return what an experiment of Determined begins with: the key, and a trial's number or a checkpoint's UUID."""
    from workbench.learner.determined_jobs import CONFIG_VARIABLE, searcher_of

    searcher = searcher_of(spec.env.get(CONFIG_VARIABLE))
    for name in ("source_checkpoint_uuid", "source_trial_id"):
        if searcher.get(name) is not None:
            return f"searcher.{name}", searcher[name]
    return "", ""


def _uuid(text: str) -> str:
    """Return the UUID of a checkpoint.

    Raises:
        UnknownName: it is none.
    """
    from workbench.controller.runtime.initial_checkpoint import is_uuid

    if is_uuid(text):
        return text
    raise UnknownName(f"{text!r} is no UUID of a checkpoint")


def _job_with_number(number: int) -> str:
    """Return the job that code knows by this number.

    Raises:
        UnknownName: there is none.
    """
    from workbench.learner.determined_jobs import trial_number
    from workbench.services.open_store import store_of

    with store_of(str(number)) as store:
        for (job_id,) in store.rows("SELECT id FROM jobs WHERE deleted_us IS NULL"):
            if trial_number(job_id) == number:
                return str(job_id)
    raise UnknownName(f"no trial here has the number {number}")


def _initial_checkpoint(text: str, spec: JobSpec, target: TargetRef) -> dict[str, Any]:
    """Return what a job records that begins with the checkpoint of ``run --from JOB[@STEP]``, or ``--from UUID``."""
    from workbench.controller.runtime.initial_checkpoint import initial_checkpoint, is_uuid, job_that_saved
    from workbench.services.open_store import store_of, store_with

    if is_uuid(text):
        with store_of(text) as store:
            return initial_checkpoint(store, job_that_saved(store, text), None, spec, target, name=text)
    name, _, step = text.rpartition("@")
    if not (name and step.isdigit()):
        name, step = text, ""
    with store_with(name) as (store, row):
        return initial_checkpoint(store, row, int(step) if step else None, spec, target)


def _with_begin(loaded: Loaded) -> tuple[Loaded, tuple[str, ...]]:
    """Return a manifest with the time that its ``begin`` stands for now, and a note of it.

    Raises:
        UsageError: that time is over.
    """
    if not loaded.spec.begin:
        return loaded, ()
    from workbench.clock import now_us
    from workbench.formats import stamp
    from workbench.time_expressions import begin_us, local_iso

    now = now_us()
    begin = begin_us(loaded.spec.begin, now)
    begins_later = begin > now
    spec = replace(loaded.spec, begin=local_iso(begin) if begins_later else "")
    return replace(loaded, spec=spec), (f"it waits until {stamp(begin)}",) if begins_later else ()


def code_of(options: RunOptions, loaded: Loaded, home: Home) -> Path | None:
    """Return the folder or archive that a job's code is taken from; None where it has none."""
    if options.code:
        return Path(options.code)
    if loaded.spec.code:
        return (loaded.folder or Path.cwd()) / loaded.spec.code
    if options.manifest and options.manifest != "-":
        # What the screens keep for the command to read lies with other drafts, not with code.
        return None if loaded.folder == home.drafts else loaded.folder
    return Path.cwd() if options.command else None


def _with_slots(
    loaded: Loaded, options: RunOptions, backends: Callable[[], Sequence[str]]
) -> tuple[Loaded, tuple[str, ...]]:
    """Return an experiment of Determined with what its slots are where it runs, and notes that say so.

    Slots are GPUs, or processes on the CPU where there is no GPU. Those of one trial are divided among learners where
    the client asks for several, or where the configuration says how many a pod has; never by the nodes that there are
    now, as a cluster may get larger ones, and each learner runs the entrypoint. GPUs that were asked for by our own
    names stay as they are, for each learner.

    Args:
        loaded: the manifest; one of another kind is returned as it is.
        options: what the client asks for.
        backends: returns where it may run, as it is named; called only where that counts.

    Raises:
        UsageError: the slots cannot be divided equally, or the entrypoint's launcher cannot work on several machines.
    """
    from workbench.manifest.builder.params import CONFIG_VARIABLE

    spec = loaded.spec
    if not spec.env.get(CONFIG_VARIABLE):
        return loaded, ()
    slots, learners, notes = spec.gpus, spec.learners, []
    if slots and not _has_own_gpus(loaded, options):
        if learners > 1 and not _has_default_slots(loaded):
            slots = _divided(spec.gpus, learners)
        opened = cache(lambda: _opened_backends(loaded, options, backends))
        found = _on_cpu(loaded, slots, learners, opened)
        if found is not None:
            spec, note = found
            notes.append(note)
        elif learners == 1 and slots > 1 and opened()[0].options.type == CLUSTER:
            learners, note = _in_cluster(loaded, slots, opened()[0])
            slots //= learners
            notes += [note] if note else []
        spec = spec if found else replace(spec, gpus=slots)
    spec = _of_several(replace(spec, learners=learners), loaded)
    return (replace(loaded, spec=spec), tuple(notes)) if spec != loaded.spec else (loaded, tuple(notes))


def _of_several(spec: JobSpec, loaded: Loaded) -> JobSpec:
    """Return a trial of Determined's as it ends where it has several learners.

    Raises:
        UsageError: the entrypoint's launcher cannot work on several machines.
    """
    if spec.learners == 1:
        return spec
    _refuse_launcher(spec.framework.command, spec.learners)
    # The first to end would decide: any of them, while the one that saves the last checkpoint goes on.
    ends_when = "all" if loaded.origins.get("ends_when") == "default" else spec.ends_when
    return replace(spec, ends_when=ends_when)


def _with_core_api(
    loaded: Loaded, options: RunOptions, code: Path | None, environment: Mapping[str, str]
) -> tuple[Loaded, tuple[str, ...], ExternalIds | None]:
    """Return the job of a command whose script is made for Determined's Core API as one of an experiment.

    With it come a note and the external ids that the script gives; ``environment`` is what the job has beside its own.

    Raises:
        UsageError: the command's launcher cannot work on several machines.
    """
    if options.manifest or not options.command:
        return loaded, (), None
    from workbench.manifest.builder.templates import as_experiment

    found, notes, ids = as_experiment(loaded, code, environment)
    return (replace(found, spec=_of_several(found.spec, found)) if notes else found), notes, ids


def _in_cluster(loaded: Loaded, slots: int, cluster: Backend) -> tuple[int, str]:
    """Return how many learners a trial of one learner has in a cluster, and a note where that is not all.

    Raises:
        UsageError: the configuration says how many slots a pod has, and the slots are no multiple of it.
    """
    from workbench.config.model import MAX_SLOTS_PER_POD
    from workbench.services.backends.placement import learners_by_configuration

    may_divide = loaded.origins.get("learners") == "default" and not _is_of_one_machine(loaded.spec)
    learners = learners_by_configuration(slots) if may_divide else 1
    if learners > 1:
        each = slots // learners
        return learners, (
            f"the {slots} slots are {learners} learners with {each} GPU{'s' if each > 1 else ''} each:"
            f" [experiments] {MAX_SLOTS_PER_POD} = {each}"
        )
    most = cluster.gpus_of_largest_machine()
    # Without any GPU now, nodes with some are only made when a pod asks: nothing is known of them.
    if not most or most >= slots:
        return 1, ""
    note = (
        f"no node has more than {most} GPU{'s' if most > 1 else ''} now: the trial waits for one with {slots}"
    )
    way = f"; [experiments] {MAX_SLOTS_PER_POD} or --set learners=N divides it"
    return 1, note + (way if may_divide else "")


def _refuse_launcher(command: str, learners: int) -> None:
    """Refuse a launcher of Determined's that starts processes on other machines by ssh.

    Raises:
        UsageError: the entrypoint calls one.
    """
    found = _LAUNCHER_BY_SSH.search(command)
    if found:
        raise UsageError(
            f"the trial has {learners} learners, and {found[0]} starts processes on other machines by ssh, which"
            " learners do not have",
            hint="determined.launch.torch_distributed starts them, for deepspeed.init_distributed() as well;"
            " resources.is_single_node: true, without learners=N, lets it be one learner",
        )


def _has_own_gpus(loaded: Loaded, options: RunOptions) -> bool:
    """Return whether GPUs were asked for by our own names."""
    origin = loaded.origins.get("gpus", "")
    is_slots = any(text.startswith("resources.slots_per_trial") for text in options.overrides)
    return origin.startswith(("flag", "--set", "FABRIC_")) and not (origin == "--set" and is_slots)


def _has_default_slots(loaded: Loaded) -> bool:
    """Return whether the file does not say how many slots a trial has."""
    from workbench.manifest.builder.determined import DEFAULT_ORIGIN

    return loaded.origins.get("gpus") == DEFAULT_ORIGIN


def _is_of_one_machine(spec: JobSpec) -> bool:
    """Return whether the file wants all slots of a trial on one machine."""
    from workbench.learner.determined_jobs import json_object
    from workbench.manifest.builder.params import CONFIG_VARIABLE

    resources = json_object(spec.env[CONFIG_VARIABLE]).get("resources")
    return isinstance(resources, dict) and bool(resources.get("is_single_node"))


def _divided(slots: int, learners: int) -> int:
    """Return how many slots each learner has.

    Raises:
        UsageError: they cannot be divided equally.
    """
    if slots % learners:
        raise UsageError(
            f"{slots} slots cannot be divided equally among {learners} learners",
            hint=f"resources.slots_per_trial: {slots + -slots % learners} can; --gpus N gives each learner N",
        )
    return slots // learners


def _opened_backends(
    loaded: Loaded, options: RunOptions, backends: Callable[[], Sequence[str]]
) -> list[Backend]:
    from workbench.services.backends.choice import split_names
    from workbench.services.backends.placement import backend_options, open_backend

    within = {"context": options.context, "namespace": options.namespace}
    named = [name for text in backends() for name in split_names(text or loaded.spec.backend)]
    return [open_backend(backend_options(name, **within)) for name in named]


def _cpu_slot() -> float | bool:
    """Return how many cores a slot has where there is no GPU; False where it is a GPU everywhere."""
    from workbench.config import load_config
    from workbench.config.model import CPU_SLOT

    cores: float | bool = load_config().experiments.get(CPU_SLOT, 0)
    return cores


def _on_cpu(
    loaded: Loaded, slots: int, learners: int, opened: Callable[[], Sequence[Backend]]
) -> tuple[JobSpec, str] | None:
    """Return the job with processes on the CPU, and a note of it; None where its slots are GPUs.

    Slots that the file names are GPUs unless a backend can give none; the one of a file that names none is a GPU only
    where a backend has one, since such a file must run anywhere.
    """
    from workbench.manifest.builder.params import SLOTS_VARIABLE
    from workbench.services.backends.placement import may_get_gpu

    cores = _cpu_slot()
    if cores is False:
        return None
    is_default = _has_default_slots(loaded)
    counts = [backend.gpu_count() for backend in opened()] if is_default else []
    # Of several backends the first one counts for slots that the file names: a trial of another may wait there.
    if all(counts) if is_default else may_get_gpu(opened()[0]):
        return None
    is_unknown = None in counts and 0 not in counts
    spec = loaded.on_cpu or loaded.spec
    env = {**spec.env, SLOTS_VARIABLE: json.dumps(list(range(slots)))}
    total = slots * learners
    one = total == 1
    reserved = f"{total * cores:g} cores in all" if cores else f"no cores of {'its' if one else 'their'} own"
    what = "the slot is a process" if one else f"the {total} slots are processes"
    among = f", {slots} in each of {learners} learners" if learners > 1 else ""
    why = "whether there is a GPU is not known" if is_unknown else "there is no GPU"
    note = f"{what} on the CPU with {reserved}{among}: {why} ([experiments] cpu_slot = {cores:g})"
    if is_unknown:
        note += "; resources.slots_per_trial: 1 asks for one"
    cpus = slots * cores if cores else spec.cpus
    return replace(spec, gpus=0, cpus=cpus, env=env), note


def _with_startup_hook(loaded: Loaded, code: Path | None) -> tuple[Loaded, tuple[str, ...]]:
    """Have an experiment of Determined read its ``startup-hook.sh`` before its command, and say so.

    It is read by the shell of the command, so what it exports counts; if it fails, so does the job.
    """
    from workbench.manifest.builder.params import CONFIG_VARIABLE

    spec = loaded.spec
    if not spec.env.get(CONFIG_VARIABLE) or code is None or not (code / STARTUP_HOOK).is_file():
        return loaded, ()
    # The shell has to outlive a stop, which its command is to see; a child does not inherit the trap.
    command = f"set -e; . ./{STARTUP_HOOK}; set +e; trap : TERM\n{spec.framework.command}"
    framework = replace(spec.framework, command=command)
    note = f"{STARTUP_HOOK} of the code is run before the command"
    return replace(loaded, spec=replace(spec, framework=framework)), (note,)


def _files_with_passwords(loaded: Loaded, inline: Sequence[str], options: RunOptions) -> list[Path]:
    """Return the files of manifest and templates where they hold passwords: neither code nor diff may contain them."""
    if not inline:
        return []
    manifest = [loaded.folder / Path(loaded.source).name] if loaded.folder else []
    return [*manifest, *templates_of(options)]


def _pack(
    code: Path,
    home: Home,
    code_options: SnapshotOptions | None,
    spec: JobSpec,
    *,
    never: Sequence[Path],
    cancel: threading.Event | None,
) -> Snapshot:
    from workbench.config import load_config
    from workbench.config.code import limits
    from workbench.data.code.bounds import USUAL, Bounds
    from workbench.data.code.snapshot import SnapshotOptions, take_snapshot
    from workbench.manifest.builder.params import CONFIG_VARIABLE
    from workbench.services.cancel import cancellable

    if not code.exists():
        raise InputMissing(f"the code {code} is not there", hint="name a folder, a zip or a tar")
    size, files, seconds = limits(load_config().code)
    bounds = Bounds(size or USUAL.size_bytes, files or USUAL.files, seconds or USUAL.seconds)
    code_options = code_options or SnapshotOptions()
    code_options = replace(
        code_options,
        never=tuple(never),
        anyway=spec.code_anyway,
        is_of_determined=bool(spec.env.get(CONFIG_VARIABLE)),
        bounds=bounds,
        progress=cancellable(code_options.progress, cancel),
    )
    return take_snapshot(code, home, code_options)


def _likely_folder(options: RunOptions) -> Path:
    if options.code:
        return Path(options.code)
    return Path(options.manifest).parent if options.manifest not in ("", "-") else Path()


class _GitQuery(threading.Thread):
    """Asks git about a folder in a thread while the manifest is read: either takes as long."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="git", daemon=True)
        self._folder = folder.absolute()
        self._described: dict[str, Any] = {}

    def run(self) -> None:
        """Describe the folder."""
        with contextlib.suppress(FabricError, OSError, ValueError):
            self._described = _describe_git(self._folder)

    def of(self, code: Path | None, *, without: Sequence[Path]) -> dict[str, Any]:
        """Return what git knows of the code, its changes without those of some files.

        Most often the code is the folder that was asked about.
        """
        self.join()
        if code is None or not code.is_dir():
            return {}
        is_known = code.absolute() == self._folder and not (without and self._described.get("diff"))
        return self._described if is_known else _describe_git(code, without)


def _describe_git(folder: Path, without: Sequence[Path] = ()) -> dict[str, Any]:
    if not any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
        return {}
    from workbench.data.code.git import describe

    return describe(folder, without)


def data_limit(spec: JobSpec, target: TargetRef) -> dict[str, int]:
    """Return the configured limit of the data cache as ``data_cache_bytes``; empty without one.

    Of several hosts it is the smallest: a job records one.
    """
    if not spec.data_stores:
        return {}
    from workbench.config import load_config
    from workbench.config.stores import cache_bytes

    config = load_config()
    limits = [limit for one in _members_of(target) if (limit := cache_bytes(one.name, config))]
    return {"data_cache_bytes": min(limits)} if limits else {}
