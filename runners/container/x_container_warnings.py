"""What a container job cannot keep of what its manifest expects, and what is worth saying once."""

from __future__ import annotations

from collections.abc import Iterator

from runners.interface import LaunchRequest
from runners.shared.data_stores import refusals as stores_refused
from runners.shared.host_facts import Site
from workbench.manifest.build.unsupported import not_built

_PLATFORM = ("MODEL_DIR", "DATA_DIR", "RESULT_DIR", "JOB_STATE_DIR", "LOG_DIR", "CHECKPOINT_DIR")


def refusals(request: LaunchRequest) -> list[str]:
    """Say what cannot be done in a container yet."""
    lacks = list(not_built(request.spec, "container"))
    return lacks + list(stores_refused(request, runner="container", agent_kind="python"))


def warnings_of(request: LaunchRequest) -> Iterator[str]:
    """Say what will not work, or not as the manifest means it."""
    yield from refusals(request)
    if hidden := sorted(set(request.spec.env) & set(_PLATFORM)):
        yield f"env: cannot change {', '.join(hidden)}: fabric sets it"


def notes_of(request: LaunchRequest, site: Site) -> Iterator[str]:
    """Say what is worth knowing once."""
    spec = request.spec
    if spec.cpus is not None and spec.cpus > len(site.processors):
        yield f"{spec.cpus:g} CPUs are asked for and {site.name} has {len(site.processors)}: it gets those"
    if spec.storage_bytes:
        yield "storage: is not limited: the job writes to the disk that its folder is on"
    if spec.python not in ("current", "PATH", "requirements"):
        yield f"python: {spec.python} is not looked at: the image's own is used"
