"""Makes learners that real agents keep, on this Python and on the oldest one, and leaves nothing of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, oldest_python
from tests.learner.collecting import Rig, instances_held


@lru_cache(maxsize=1)
def _oldest() -> str | None:
    return oldest_python()


@pytest.fixture(params=["this Python", "Python 3.8"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter that the agent has to run on."""
    if request.param == "this Python":
        return sys.executable
    found = _oldest()
    if found is None:
        pytest.skip("there is no Python 3.8 on this machine: the agent is tested on this one only")
    return found


@pytest.fixture(autouse=True)
def instances_given_back() -> Iterator[None]:
    """Close collectors, and see that a test keeps no instance of inotify: a user has few, and others need some."""
    before = instances_held()
    yield
    Rig.close_all()
    assert instances_held() <= before, "a collector or watcher that the test made is not closed"


@pytest.fixture
def attempt(clean_environment: Path) -> Path:
    """The folder of an attempt."""
    folder = clean_environment / "attempt-1"
    folder.mkdir()
    return folder


@pytest.fixture
def learner(attempt: Path) -> Iterator[Callable[..., Learner]]:
    """Make learners; nothing may be left running of them."""
    made: list[Learner] = []

    def make(command: str, **document: Any) -> Learner:
        made.append(Learner(attempt, command, learner=len(made) + 1, **document))
        return made[-1]

    yield make
    left = {one.marker: one.clear() for one in made}
    assert not any(left.values()), left
