"""Brings container images to a backend that has no registry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from runners.container.image_transfer import TransferResult


def load_images(backend: str, file: Path) -> list[str]:
    """Load the images of an archive, as ``docker save`` writes it, into a backend's engine; return their names.

    Raises:
        UsageError: the backend is a cluster.
        InputMissing: the file cannot be read, or holds no images.
        RunnerError: the engine refuses it.
    """
    from runners.container.image_transfer import load
    from workbench.services.backends.placement import backend_options, open_backend

    with closing(open_backend(backend_options(backend)).open()) as host:
        return load(_engine(host, backend), file)


def send_image(backend: str, image: str, notify: Callable[[str], None]) -> TransferResult:
    """Send an image of this machine's engine to a backend's; only layers that it lacks travel.

    Args:
        backend: a name or an address.
        image: the image's name in the engine of this machine.
        notify: gets one sentence for each stage.

    Raises:
        UsageError: the backend is a cluster.
        InputMissing: there is no such image.
        LaunchRefused: it is for another architecture.
        RunnerError: an engine refuses it.
    """
    from backends.contract.host import BackendOptions
    from runners.container.image_transfer import send
    from workbench.services.backends.placement import backend_options, open_backend

    with (
        closing(open_backend(BackendOptions("local", "local")).open()) as here,
        closing(open_backend(backend_options(backend)).open()) as there,
    ):
        return send(_engine(here, backend), _engine(there, backend), image, notify)


def _engine(host: Any, backend: str) -> Any:  # a Host or a Cluster; an Engine
    from backends.contract.host import Host, HostGroup
    from runners.container.engine import engine_at

    if isinstance(host, HostGroup):
        raise UsageError(f"'{backend}' is several hosts", hint="each takes images by its own name")
    if not isinstance(host, Host):
        raise UsageError(f"'{backend}' is a cluster: its images come from a registry")
    return engine_at(host, host.call("survey")["environment"])
