"""Chooses the target of a job, backend and runner, by flag, manifest and configuration; opens backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, UnknownName, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Backend, BackendOptions
    from workbench.errors import FabricError
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef

DEFAULT = "local"
CLUSTER = "k8s"
"""The kubeconfig's current context, without being configured."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A runner that would have been preferred, and why it cannot be used."""

    runner: str
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ChosenTarget:
    """Where a job will run."""

    target: TargetRef
    notes: tuple[str, ...] = ()
    """For the person who submits it."""
    passed_over: tuple[PassedOver, ...] = ()
    warnings: tuple[str, ...] = ()
    """Why the job could not run there now."""


def choose_target(
    name: str, runner: str, spec: JobSpec, *, context: str = "", namespace: str = "", must_fit: bool = True
) -> ChosenTarget:
    """Choose the backend and the runner of a job.

    Args:
        name: a backend's name or address; empty takes the manifest's, else this machine.
        runner: a runner's name; empty takes the manifest's, else the one that the backend prefers.
        spec: the job.
        context: which context of a cluster's kubeconfig; empty takes the backend's.
        namespace: which namespace of a cluster; empty takes the backend's.
        must_fit: whether the backend must be able to run the job; else what it lacks is a warning.

    Raises:
        UnknownName: there is no such backend or runner.
        ConfigError: there is no access to the cluster.
        UsageError: that runner does not work on that backend, or the job has fewer learners than that has hosts.
        BackendError: it has fewer GPUs than the job asks for.
    """
    from workbench.store.db.rows import TargetRef

    opened = open_backend(backend_options(name or spec.backend, context=context, namespace=namespace))
    chosen, passed_over = _choose_runner(opened, opened.runner_named(runner or spec.runner), spec)
    lacks = opened.why_not_learners(spec.learners, spec.gpus)
    if lacks and (must_fit or isinstance(lacks, UsageError)):
        raise lacks
    try:
        options = opened.frozen(chosen)
    except ConfigError:
        if must_fit:
            raise
        options = opened.options
    if options.type != DEFAULT:
        _share_answers()
    target = TargetRef(
        backend=options.name,
        type=options.type,
        runner=chosen,
        address=options.address,
        options=options.options,
    )
    return ChosenTarget(
        target, _notes(target, passed_over, spec), passed_over, (lacks.message,) if lacks else ()
    )


def may_get_gpu(backend: Backend) -> bool:
    """Return whether a job can ever get a GPU there, true where that is not known."""
    return bool(backend.gpu_count()) if backend.options.type == DEFAULT else backend.why_not_gpus(1) is None


def learners_by_configuration(slots: int) -> int:
    """Return among how many pods the configuration divides the slots of a trial; 1 where it says nothing.

    Raises:
        UsageError: the slots are no multiple of what a pod has.
    """
    from workbench.config import load_config
    from workbench.config.model import MAX_SLOTS_PER_POD

    limit = int(load_config().experiments.get(MAX_SLOTS_PER_POD) or slots)
    if slots <= limit:
        return 1
    if slots % limit:
        raise UsageError(
            f"{slots} slots cannot be divided among pods with {limit} slots each",
            hint=f"[experiments] {MAX_SLOTS_PER_POD} = {limit}: resources.slots_per_trial: "
            f"{slots - slots % limit} can, or --set learners=N",
        )
    return slots // limit


def _share_answers() -> None:
    """Give the controller what was typed when the backend was reached for the first time."""
    from workbench.controller.client.login import hand_over
    from workbench.paths import Home, default_home

    hand_over(Home(default_home()))


def backend_options(name: str = "", *, context: str = "", namespace: str = "") -> BackendOptions:
    """Return what the configuration says of a backend, or what an address says of itself.

    Args:
        name: its name or address; empty is this machine, or with one of the others the kubeconfig's cluster.
        context: which context of a cluster's kubeconfig.
        namespace: which namespace of a cluster.

    Raises:
        UnknownName: there is no such backend, or nothing that is installed reaches its kind.
        UsageError: the backend is not a cluster and has neither.
    """
    from workbench.config import backend

    within = {key: value for key, value in (("context", context), ("namespace", namespace)) if value}
    settings: Mapping[str, Any] = backend(name or (CLUSTER if within else DEFAULT))
    if within and settings["type"] != "kubernetes":
        raise UsageError(
            f"'{settings['name']}' is not a cluster and has no {' or '.join(within)}",
            hint="--backend k8s is the kubeconfig's cluster",
        )
    options = {**(settings.get("options") or {}), **within}
    return entry_options({**settings, "options": options})


def entry_options(entry: Mapping[str, Any]) -> BackendOptions:
    """Return what a backend is opened with, from its entry in the configuration."""
    from backends.contract.host import BackendOptions

    return BackendOptions(
        name=str(entry["name"]),
        type=str(entry["type"]),
        address=str(entry.get("address", "")),
        options=dict(entry.get("options") or {}),
    )


def refuse_several(options: BackendOptions) -> None:
    """Refuse several hosts together where one backend alone is meant.

    Raises:
        UsageError: they are several.
    """
    from backends.contract.host_group import member_options

    members = member_options(options)
    if len(members) > 1:
        raise UsageError(
            f"{options.name} is {len(members)} hosts, and one is meant", hint=f"such as {members[0].name}"
        )


def open_backend(options: BackendOptions) -> Backend:
    """Load the backend that these options name; nothing is connected yet. It may ask a person."""
    if options.type == DEFAULT:
        from backends.registry import load_backend

        return load_backend(options)
    from workbench.controller.client.login import with_person
    from workbench.controller.client.sessions import load_client_backend
    from workbench.paths import Home, default_home
    from workbench.services.backends import prompts

    if prompts.may_ask():
        with_person(Home(default_home()), prompts.answer)
    return load_client_backend(options)


def _choose_runner(backend: Backend, requested: str, spec: JobSpec) -> tuple[str, tuple[PassedOver, ...]]:
    from runners.registry import load_runner, runner_names, runners_at

    options = backend.options
    if requested and requested not in runner_names():
        from workbench.manifest.yaml.faults import nearest

        close = nearest(requested, runner_names())
        known = f"there are {', '.join(sorted(runner_names()))}"
        raise UnknownName(
            f"there is no runner '{requested}'", hint=f"did you mean {close}? {known}" if close else known
        )
    preferred = list(backend.runners())
    # What the backend does not know is imported only where a job names it, or where it prefers none.
    is_fit = requested in preferred or (
        requested and load_runner(requested).capabilities.needs == backend.opens
    )
    if requested and is_fit:
        if refusal := backend.why_not(requested):
            raise refusal
        return requested, ()
    offered = runners_at(backend) if requested else preferred or runners_at(backend)
    if not offered:
        raise UsageError(
            f"no runner works at '{options.name}'", hint="`fabric backend test` says what is missing"
        )
    if requested:
        raise UsageError(
            f"the runner '{requested}' does not work at '{options.name}'",
            hint=f"there it is {', '.join(offered)}",
        )
    return _preferred(backend, offered, spec)


def _preferred(backend: Backend, offered: list[str], spec: JobSpec) -> tuple[str, tuple[PassedOver, ...]]:
    """Choose the first runner that works now; return it with those that come before it and do not."""
    from runners.registry import load_runner

    refusals: list[tuple[str, FabricError]] = []
    # A job that names no image has nothing to run in a container.
    for name in sorted(
        offered, key=lambda name: load_runner(name).capabilities.uses_image and not spec.image
    ):
        why_not = backend.why_not(name)
        if why_not is None:
            return name, tuple(PassedOver(each, error.message, error.hint) for each, error in refusals)
        refusals.append((name, why_not))
    raise refusals[0][1]


def _notes(target: TargetRef, passed_over: tuple[PassedOver, ...], spec: JobSpec) -> tuple[str, ...]:
    from runners.registry import load_runner

    if not spec.image or load_runner(target.runner).capabilities.uses_image:
        return ()
    note = f"the image {spec.image} is not used: learners are plain processes at '{target.backend}'"
    return (f"{note}, since {_clause(passed_over[0].reason)}" if passed_over else note,)


def _clause(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def known_backends() -> list[str]:
    """Return the names of all configured backends; this machine is always the first."""
    from workbench.config import load_config

    return list(dict.fromkeys((DEFAULT, *load_config().backends)))
