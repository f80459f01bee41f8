"""Finds, pulls or builds the image of a job, and checks its architecture."""

from __future__ import annotations

import platform
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runners.container.engine import Engine
from runners.container.pull import (
    client_of,
    docker_library,
    engine_login,
    not_pulled,
    pull,
    streamed_from,
    with_patience,
)
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.container_defaults import image_of
from workbench.data.code.snapshot import unpack
from workbench.errors import BackendUnreachable, FabricError, LaunchRefused

if TYPE_CHECKING:
    from docker.api.client import APIClient

LABEL: Final = "fabric.build"
BUILD_SECONDS: Final = 3600.0
"""How long a build may be silent."""

SHOWN_LINES: Final = 12
_NO_BASE: Final = (
    "pull access denied",
    "manifest unknown",
    "unauthorized",
    "no basic auth credentials",
    "no such host",
    "connection refused",
    "i/o timeout",
)
_PULLS: Final = re.compile(r"from\s|(copy|add)\s.*--from=", re.IGNORECASE)
"""Steps for which the engine may pull an image; of others these words are the step's own."""


def need_built(engine: Engine, request: LaunchRequest, progress: LaunchProgress) -> dict[str, Any]:
    """Return the document of the image that is built from a job's code; build it if it is missing.

    Raises:
        LaunchRefused: the Dockerfile is missing (C101), its base image cannot be pulled (S103), a step fails (C205).
    """
    reference, spec = image_of(request), request.spec
    found = None if spec.image_pull == "always" else engine.image(reference)
    if found is not None or spec.build is None:
        return found or {}
    with tempfile.TemporaryDirectory(prefix="fabric-build-") as folder:
        context = Path(folder) / "code"
        if request.code_file:
            unpack(Path(request.code_file), context)
        if not (context / spec.build.dockerfile).is_file():
            raise LaunchRefused(
                f"There is no {spec.build.dockerfile} in the code to build the image of.",
                hint="Check build:, and that .gitignore or .fabricignore does not leave it out.",
                code="C101",
            )
        with_patience(lambda: _build(engine, request, context, reference, progress), progress)
    found = engine.image(reference)
    if found is None:
        raise LaunchRefused(f"The image {reference} was built and is not there.", code="S103")
    return found


def _build(engine: Engine, request: LaunchRequest, context: Path, tag: str, progress: LaunchProgress) -> None:
    docker_library()
    from docker.errors import APIError, DockerException

    build = request.spec.build
    assert build is not None
    login = engine_login(engine, request)
    engine.ask("GET", "_ping")  # so that a missing engine is reported by our error, not the library's
    progress(f"builds the image by {build.dockerfile}", stage="preparing")
    try:
        with (
            streamed_from(engine),
            closing(client_of(engine, timeout_seconds=BUILD_SECONDS)) as client,
            closing(
                _with_login(client, login).build(
                    path=str(context),
                    dockerfile=build.dockerfile,
                    buildargs=dict(build.args),
                    target=build.target or None,
                    tag=tag,
                    labels={LABEL: tag.rpartition(":")[2]},
                    pull=request.spec.image_pull == "always",
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
            ) as lines,
        ):
            _report_build(lines, request, progress)
    except APIError as error:
        raise _refused(request, str(error.explanation or error), []) from error
    except (DockerException, OSError) as error:
        raise BackendUnreachable(f"The container engine gave up building the image: {error}.") from error


def _with_login(client: APIClient, login: Mapping[str, str] | None) -> APIClient:
    """Return a client that sends a login along with those of the user's Docker configuration."""
    from docker.auth import AuthConfig

    if login is not None:
        # Credential helpers would come before a login that is added to the configuration itself.
        known = client._auth_configs.get_all_credentials()
        client._auth_configs = AuthConfig({"auths": {**known, login["serveraddress"]: dict(login)}})
    return client


def _report_build(
    lines: Iterable[Mapping[str, Any]], request: LaunchRequest, progress: LaunchProgress
) -> None:
    """Report the steps of a build until it ends."""
    log_lines: list[str] = []
    step = ""
    for line in lines:
        if "error" in line:
            may_pull = not step or _PULLS.match(step) is not None
            raise _refused(request, str(line["error"]), log_lines, may_pull=may_pull)
        for text in str(line.get("stream") or "").splitlines():
            if text.strip():
                log_lines.append(text.strip())
                del log_lines[:-SHOWN_LINES]
            if text.lower().startswith("step "):
                step = text.partition(":")[2].strip()
                progress(f"builds the image: {text.strip()}", stage="preparing")


def _refused(
    request: LaunchRequest, error: str, log_lines: list[str], *, may_pull: bool = True
) -> FabricError:
    """Return the error of a build; ``may_pull`` says whether it came while an image may have been pulled."""
    text = error.strip().rstrip(".")
    dockerfile = request.spec.build.dockerfile if request.spec.build else ""
    if may_pull and any(reason in text.lower() for reason in _NO_BASE):
        return not_pulled(f"of {dockerfile}", text, request)
    return LaunchRefused(
        f"The image cannot be built by {dockerfile}: {text}.", hint="\n".join(log_lines), code="C205"
    )


ARCHITECTURES: Final[Mapping[str, str]] = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of engines for images that set none."""


def need_image(engine: Engine, request: LaunchRequest, progress: LaunchProgress) -> dict[str, Any]:
    """Return the document of a job's image; pull it if it is missing and ``image_pull`` permits it.

    Raises:
        LaunchRefused: it cannot be pulled (S103), or is for another architecture (C104).
    """
    reference = image_of(request)
    policy = request.spec.image_pull
    if request.spec.build:
        return need_built(engine, request, progress)
    found = None if policy == "always" else engine.image(reference)
    if found is None:
        if policy == "never":
            raise LaunchRefused(
                f"The image {reference} is not here, and image_pull is never.",
                hint=f"docker pull {reference}, or docker load a file that was saved elsewhere.",
                code="S103",
            )

        pull(engine, reference, request, progress)
        found = engine.image(reference)
    if found is None:
        raise LaunchRefused(f"The image {reference} was pulled and is not there.", code="S103")
    _check_architecture(engine, reference, found)
    return found


def is_settled(engine: Engine, request: LaunchRequest) -> bool:
    """Say whether a launch uses the image that is there now, or one that its digest names.

    What is still to be pulled or built may become another one by the time at which the job can start.
    """
    if request.spec.build is None and "@" in image_of(request):
        return True
    return request.spec.image_pull != "always" and engine.image(image_of(request)) is not None


def image_document(request: LaunchRequest, image: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``environment.json`` records about an attempt's image."""
    return {
        "reference": image_of(request),
        "id": image.get("Id") or "",
        "digests": list(image.get("RepoDigests") or ()),
    }


def path_of(image: Mapping[str, Any]) -> str:
    """Return the PATH of an image's commands."""
    return _variable(image, "PATH") or _PATH


def python_path_of(image: Mapping[str, Any]) -> str:
    """Return the PYTHONPATH that an image sets; empty where it sets none."""
    return _variable(image, "PYTHONPATH")


def _variable(image: Mapping[str, Any], name: str) -> str:
    for entry in (image.get("Config") or {}).get("Env") or ():
        if entry.startswith(f"{name}="):
            return str(entry).removeprefix(f"{name}=")
    return ""


def _check_architecture(engine: Engine, reference: str, image: Mapping[str, Any]) -> None:
    image_architecture = str(image.get("Architecture") or "")
    machine = platform.machine() if engine.host.here else engine.host.identity().architecture
    machine_architecture = ARCHITECTURES.get(machine, machine)
    if image_architecture and image_architecture != machine_architecture:
        raise LaunchRefused(
            f"The image {reference} is for {image_architecture}, and this machine is {machine_architecture}.",
            hint=f"Take one that is made for {machine_architecture}, or for several architectures.",
            code="C104",
        )
