"""What a manifest may say that this version, or a runner, cannot do: valid, but refused at the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workbench.manifest.keys.store_keys import FOLDER_STORES
from workbench.spec import DEFAULT_PRIORITY, JobSpec

if TYPE_CHECKING:
    from runners.interface import Capabilities

_MPI_FRAMEWORKS: Final = ("horovod", "pytorchmpi")


def depends_on_runner(spec: JobSpec) -> bool:
    """Say whether a job has any of the keys that some runners can do and others cannot."""
    has_mounts = any(store.mount for store in spec.data_stores)
    return bool(spec.ports or spec.build or has_mounts or spec.priority != DEFAULT_PRIORITY)


def not_built(
    spec: JobSpec, runner: str = "", can: Capabilities | None = None, *, has_priority_classes: bool = False
) -> list[str]:
    """Return a sentence with the way out for each thing of a job that cannot be done yet.

    Args:
        spec: the job.
        runner: the name of its runner, for the sentences.
        can: the capabilities of that runner; None stands for those of plain processes.
        has_priority_classes: whether its backend says which PriorityClass a priority stands for.
    """
    return [
        sentence
        for sentence in (
            _stores(spec, runner, can),
            _launcher(spec),
            _mpi(spec),
            _ports(spec, can),
            _build(spec, runner, can),
            refused_priority(spec.priority, can, has_classes=has_priority_classes),
        )
        if sentence
    ]


def _stores(spec: JobSpec, runner: str, can: Capabilities | None) -> str:
    mounted = [store.id for store in spec.data_stores if store.mount and store.type not in FOLDER_STORES]
    if not mounted or can is None or can.mounts_stores:
        return ""
    return f"the runner {runner} cannot mount the data store {mounted[0]}; leave mount: out, and its data is copied"


def _launcher(spec: JobSpec) -> str:
    if spec.launcher == "none":
        return ""
    return (
        f"the launcher {spec.launcher} is not built yet; start it in the command itself, with --set"
        " launcher=none (MASTER_ADDR, MASTER_PORT, NODE_RANK and NUM_LEARNERS are there for it)"
    )


def _mpi(spec: JobSpec) -> str:
    if spec.framework.name not in _MPI_FRAMEWORKS or (spec.learners == 1 and spec.gpus <= 1):
        return ""
    return (
        f"the framework {spec.framework.name} starts the command under MPI, which is not built yet; run"
        " one copy by --set learners=1 --gpus 1 (or 0), or independent copies by --set"
        f" framework.name=custom --set framework.version={spec.image or 'IMAGE'}"
    )


def _ports(spec: JobSpec, can: Capabilities | None) -> str:
    if not spec.ports or (can is not None and can.ports):
        return ""
    return "forwarding ports is not built yet; run without by --set ports=[]: a process serves on its own"


def _build(spec: JobSpec, runner: str, can: Capabilities | None) -> str:
    if spec.build is None or can is None or not can.uses_image or can.builds_images:
        return ""
    return (
        f"building images for the runner {runner} is not built yet; build and push {spec.build.dockerfile}"
        " yourself, and name the image by --set build=null --set framework.version=IMAGE"
    )


def refused_priority(priority: int, can: Capabilities | None, *, has_classes: bool) -> str:
    """Return why a job cannot have a priority, empty if it can; ``has_classes``: its backend has PriorityClasses."""
    if can is None or can.needs != "cluster" or priority == DEFAULT_PRIORITY or has_classes:
        return ""
    return (
        f"a cluster orders pods by PriorityClasses, and the backend does not say which of them priority {priority}"
        ' stands for; say so by its setting priority_classes, such as {70 = "high"}, or name a class in'
        f" kubernetes.priority_class and run with --set priority={DEFAULT_PRIORITY}"
    )
