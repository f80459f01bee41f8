"""What the slots of an experiment of Determined become where it runs: GPUs or processes, in one learner or several."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError

if TYPE_CHECKING:
    from backends.contract.host import Backend
    from workbench.manifest import Loaded
    from workbench.services.submit.options import RunOptions
    from workbench.spec import JobSpec

CLUSTER: Final = "kubernetes"


def with_slots(
    loaded: Loaded, options: RunOptions, backends: Callable[[], Sequence[str]]
) -> tuple[Loaded, tuple[str, ...]]:
    """Return an experiment of Determined with what its slots are where it runs, and notes that say so.

    Slots are GPUs, or processes on the CPU where there is no GPU. Those of one trial are divided among learners where
    the manifest asks for several, or where no node of a cluster has so many GPUs. GPUs that were asked for by our own
    names stay as they are, for each learner.

    Args:
        loaded: the manifest; one of another kind is returned as it is.
        options: what the client asks for.
        backends: returns where it may run, as it is named; called only where that counts.

    Raises:
        UsageError: the slots cannot be divided equally.
    """
    from workbench.manifest.builder.params import CONFIG_VARIABLE

    spec = loaded.spec
    if CONFIG_VARIABLE not in spec.env:
        return loaded, ()
    slots, learners, notes = spec.gpus, spec.learners, []
    if slots and not _is_own(loaded, options):
        if learners > 1 and not _is_default(loaded):
            slots = _divided(spec.gpus, learners)
        opened = _opened(loaded, options, backends)
        found = _on_cpu(loaded, slots, learners, opened)
        if found is not None:
            spec, note = found
            notes.append(note)
        elif learners == 1 and opened[0].options.type == CLUSTER and not _is_single(spec):
            learners, why = learners_of_cluster(slots, opened[0])
            if learners > 1:
                slots //= learners
                each = f"{slots} GPU{'s' if slots > 1 else ''} each"
                notes.append(f"the {spec.gpus} slots are {learners} learners with {each}: {why}")
        spec = spec if found else replace(spec, gpus=slots)
    if learners > 1:
        # The first to end would decide: any of them, while the one that saves the last checkpoint goes on.
        ends_when = "all" if loaded.origins.get("ends_when") == "default" else spec.ends_when
        spec = replace(spec, learners=learners, ends_when=ends_when)
    return (replace(loaded, spec=spec), tuple(notes)) if spec != loaded.spec else (loaded, tuple(notes))


def _is_own(loaded: Loaded, options: RunOptions) -> bool:
    """Return whether GPUs were asked for by our own names."""
    origin = loaded.origins.get("gpus", "")
    is_slots = any(text.startswith("resources.slots_per_trial") for text in options.overrides)
    return origin.startswith(("flag", "--set", "FABRIC_")) and not (origin == "--set" and is_slots)


def _is_default(loaded: Loaded) -> bool:
    """Return whether the file does not say how many slots a trial has."""
    from workbench.manifest.builder.determined import DEFAULT_ORIGIN

    return loaded.origins.get("gpus") == DEFAULT_ORIGIN


def _is_single(spec: JobSpec) -> bool:
    """Return whether the file wants all slots of a trial on one machine."""
    from workbench.manifest.builder.params import CONFIG_VARIABLE

    config: Mapping[str, Any] = json.loads(spec.env[CONFIG_VARIABLE])
    return bool((config.get("resources") or {}).get("is_single_node"))


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


def _opened(loaded: Loaded, options: RunOptions, backends: Callable[[], Sequence[str]]) -> list[Backend]:
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
    loaded: Loaded, slots: int, learners: int, opened: Sequence[Backend]
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
    is_default = _is_default(loaded)
    counts = [backend.gpu_count() for backend in opened] if is_default else []
    # Of several backends the first one counts for slots that the file names: a trial of another may wait there.
    if all(counts) if is_default else may_get_gpu(opened[0]):
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


def learners_of_cluster(slots: int, cluster: Backend) -> tuple[int, str]:
    """Return how many learners a trial has in a cluster, and why it has several.

    Raises:
        UsageError: the configuration says how many slots a pod has, and the slots are no multiple of it.
    """
    from workbench.config import load_config
    from workbench.config.model import MAX_SLOTS_PER_POD

    limit = load_config().experiments.get(MAX_SLOTS_PER_POD)
    if limit:
        if slots > limit and slots % limit:
            raise UsageError(
                f"{slots} slots cannot be divided among pods with {limit} slots each",
                hint=f"[experiments] {MAX_SLOTS_PER_POD} = {limit}: resources.slots_per_trial: "
                f"{slots - slots % limit} can, or --set learners=N",
            )
        return max(slots // limit, 1), f"[experiments] {MAX_SLOTS_PER_POD} = {limit}"
    most = cluster.gpus_of_largest_machine() or slots
    learners = next(count for count in range(1, slots + 1) if slots % count == 0 and slots // count <= most)
    return learners, f"no node has more than {most}"
