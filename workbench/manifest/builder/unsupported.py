"""What a manifest may say that this version cannot do yet: valid, planned, but refused at the launch."""

from __future__ import annotations

from typing import Final

from workbench.manifest.keys.store_keys import FOLDER_STORES
from workbench.spec import DEFAULT_PRIORITY, JobSpec

_MPI_FRAMEWORKS: Final = ("horovod", "pytorchmpi")


def not_built(spec: JobSpec, runner: str = "") -> list[str]:
    """Return a sentence with the way out for each thing of a job that cannot be done yet, by that runner."""
    return [
        sentence
        for sentence in (
            _stores(spec, runner),
            _launcher(spec),
            _mpi(spec),
            _ports(spec, runner),
            _build(spec, runner),
            _priority(spec, runner),
        )
        if sentence
    ]


def _stores(spec: JobSpec, runner: str) -> str:
    mounted = [store.id for store in spec.data_stores if store.mount and store.type not in FOLDER_STORES]
    if not mounted or runner != "pod":
        return ""
    return (
        f"the data store {mounted[0]} cannot be mounted in a pod, which has no FUSE; leave mount: out, and its"
        " data is copied"
    )


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


def _ports(spec: JobSpec, runner: str) -> str:
    if not spec.ports or runner in ("container", "pod"):
        return ""
    return "forwarding ports is not built yet; run without by --set ports=[]: a process serves on its own"


def _build(spec: JobSpec, runner: str) -> str:
    if spec.build is None or runner in ("", "process", "container"):
        return ""
    return (
        f"building images for a {runner} is not built yet; build and push {spec.build.dockerfile} yourself, and"
        " name the image by --set build=null --set framework.version=IMAGE"
    )


def _priority(spec: JobSpec, runner: str) -> str:
    if runner != "pod" or spec.priority == DEFAULT_PRIORITY:
        return ""
    return (
        "a cluster's queue does not read priority: yet; name one of its PriorityClasses in"
        f" kubernetes.priority_class, and run with --set priority={DEFAULT_PRIORITY}"
    )
