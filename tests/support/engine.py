"""The container engine of this machine, with the tests' images."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from backends.contract.host import Host
from runners.conformance.harness import LaunchedAttempt
from runners.container.limits import FILE
from tests.support.images import ensure_images, why_not
from workbench.paths import Home

MakeJob = Callable[..., LaunchedAttempt]

_limits: dict[str, str] = {}


@cache
def own_home() -> str:
    """Return this worker's home: what engines build is named by its beginning, and must not be another worker's, too.

    It is drawn when a test asks: what a module draws as it is imported all workers have in common.
    """
    return str(uuid.uuid4())


def containers_of(job_id: str, *options: str) -> list[str]:
    """Return the names of a job's containers, of those too that do not run."""
    label = ["--filter", f"label=fabric.job={job_id}"]
    argv = ["docker", "ps", "-a", "--format", "{{.Names}}", *label, *options]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def tell_limits(host: Host, home_uuid: str) -> None:
    """Write to the home on a host what is known of the engine's limits."""
    if known := _limits.get(FILE):
        host.call("write_files", files={f"{host.folder(home_uuid)}/{FILE}": known})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, home: Home) -> Iterator[None]:
    """Make sure that an engine answers and has the images, or skip.

    Which limits it raises is found out once for all tests of a process: in a new home that takes three starts.
    """
    monkeypatch.delenv("DOCKER_HOST")
    if reason := why_not():
        pytest.skip(reason)
    ensure_images()
    limits = home.path / FILE
    if known := _limits.get(FILE):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        limits.write_text(known)
    yield
    if limits.exists():
        _limits.setdefault(FILE, limits.read_text())
