"""What tests of containers share: the engine of this machine, and images that are made once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.contract.host import Host
from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.limits import FILE
from runners.container.runner import ContainerRunner
from tests.cli.conftest import fabric as fabric
from tests.containers.images import DEBIAN, ensure_images, why_not
from tests.learner.kept_agents import lend_agents
from workbench.paths import Home

HOME = str(uuid.uuid4())
"""One for each process of tests: what engines build is named by its beginning, and must not be shared between them."""

MakeJob = Callable[..., LaunchedAttempt]

_limits: dict[str, str] = {}


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


@pytest.fixture
def runner(engine: None, home: Home) -> Iterator[ContainerRunner]:
    """A container runner on this machine."""
    host = LocalHost(lend_agents(home))
    runner = ContainerRunner(host, home_uuid=HOME)
    yield runner
    runner.close()
    host.close()


@pytest.fixture
def make_job(runner: ContainerRunner) -> Iterator[MakeJob]:
    """Plan container jobs, and remove them afterwards whatever became of them."""
    made: list[LaunchedAttempt] = []

    def make(command: str, *, image: str = DEBIAN, **spec: Any) -> LaunchedAttempt:
        made.append(LaunchedAttempt.planned(runner, request_of(command, home=HOME, image=image, **spec)))
        return made[-1]

    yield make
    for job in made:
        runner.remove(job.request.attempt)
