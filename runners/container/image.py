"""The image of a job: found, pulled, looked at before anything is made of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Final

from runners.container.engine import Engine
from runners.container.plan import image_of
from runners.interface import LaunchRequest, Progress
from workbench.errors import LaunchRefused

ARCHITECTURES: Final[Mapping[str, str]] = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What engines take where an image says nothing."""


def need_image(engine: Engine, request: LaunchRequest, progress: Progress) -> dict[str, Any]:
    """Return what is known of a job's image, pulled if it is not here and may be.

    Raises:
        LaunchRefused: it cannot be had (S103), or is for another architecture (C104).
    """
    reference = image_of(request)
    policy = request.spec.image_pull
    if request.spec.build:
        from runners.container.x_container_build import need_built

        return need_built(engine, request, progress)
    found = None if policy == "always" else engine.image(reference)
    if found is None:
        if policy == "never":
            raise LaunchRefused(
                f"The image {reference} is not here, and image_pull is never.",
                hint=f"docker pull {reference}, or docker load a file that was saved elsewhere.",
                code="S103",
            )
        from runners.container.pull import pull

        pull(engine, reference, request, progress)
        found = engine.image(reference)
    if found is None:
        raise LaunchRefused(f"The image {reference} was pulled and is not there.", code="S103")
    _check_architecture(engine, reference, found)
    return found


def image_document(request: LaunchRequest, image: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recorded of an attempt's image."""
    return {
        "reference": image_of(request),
        "id": image.get("Id") or "",
        "digests": list(image.get("RepoDigests") or ()),
    }


def path_of(image: Mapping[str, Any]) -> str:
    """Return the PATH that an image's commands have."""
    for entry in (image.get("Config") or {}).get("Env") or ():
        if entry.startswith("PATH="):
            return str(entry).removeprefix("PATH=")
    return _PATH


def _check_architecture(engine: Engine, reference: str, image: Mapping[str, Any]) -> None:
    theirs = str(image.get("Architecture") or "")
    machine = platform.machine() if engine.host.here else engine.host.identity().architecture
    ours = ARCHITECTURES.get(machine, machine)
    if theirs and theirs != ours:
        raise LaunchRefused(
            f"The image {reference} is for {theirs}, and this machine is {ours}.",
            hint=f"Take one that is made for {ours}, or for several architectures.",
            code="C104",
        )
