"""What tests of containers share: the engine of this machine, and images that are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.local_host import LocalHost
from runners.conformance_tools import Job, request_of
from runners.container import ContainerRunner
from tests.containers.core import is_left_out
from tests.containers.images import DEBIAN, ensure_images, why_not
from workbench.paths import Home

HOME = "c0ffee00-0000-4000-8000-000000000001"

MakeJob = Callable[..., Job]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the core of the suite where all of it would say little more."""
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.cls
        and is_left_out(item.cls.__name__, item.originalname)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sure that an engine answers and has the images, or skip."""
    monkeypatch.delenv("DOCKER_HOST")
    if reason := why_not():
        pytest.skip(reason)
    ensure_images()


@pytest.fixture
def runner(engine: None, home: Home) -> Iterator[ContainerRunner]:
    """A container runner on this machine."""
    place = LocalHost(home)
    runner = ContainerRunner(place, home_uuid=HOME)
    yield runner
    runner.close()
    place.close()


@pytest.fixture
def make_job(runner: ContainerRunner) -> Iterator[MakeJob]:
    """Plan container jobs, and remove them afterwards whatever became of them."""
    made: list[Job] = []

    def make(command: str, *, image: str = DEBIAN, **spec: Any) -> Job:
        made.append(Job.planned(runner, request_of(command, home=HOME, image=image, **spec)))
        return made[-1]

    yield make
    for job in made:
        runner.remove(job.request.attempt)
