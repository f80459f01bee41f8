"""Makes learners that real agents keep, on this Python and on the oldest one, and leaves nothing of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.learner.agent import Learner, oldest_python
from tests.learner.collecting import Rig, instances_held

OLD_PYTHON: Final = "Python 3.8"
ON_OLD_PYTHON: Final = (
    "test_every_module_of_the_agent_can_be_imported_on_an_old_python",
    "test_the_archive_runs_alone_on_an_old_python",
    "test_a_command_runs_and_its_end_is_recorded",
    "test_a_second_agent_for_a_living_learner_starts_nothing",
    "test_setup_runs_before_the_command_with_a_log_of_its_own",
    "test_a_halt_asks_and_says_who",
    "test_a_halt_kills_when_the_grace_period_is_over",
    "test_a_killed_scribe_is_replaced_and_output_is_complete",
    "test_when_both_are_killed_the_next_guard_ends_what_is_left",
    "test_what_a_folder_says_is_read_the_same_by_every_python",
    "test_metrics_and_progress_are_reported",
    "test_the_oldest_python_can_report",
    "test_the_oldest_python_can_sample",
    "test_an_attempt_starts_when_its_gpus_come_free",
)
"""What the gate tries on the oldest Python: that all modules load, start, end, stop, takeover, reports, the waiter."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the soak what an old Python repeats: before ``tests/gate/lanes.py`` looks at the marks."""
    for item in items:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            continue
        if _is_old(item) and item.originalname not in ON_OLD_PYTHON:
            item.add_marker(
                pytest.mark.soak("an old Python; the gate has it on this one, and the core on the old one")
            )


def _is_old(test: pytest.Function) -> bool:
    return hasattr(test, "callspec") and test.callspec.params.get("python") == OLD_PYTHON


@lru_cache(maxsize=1)
def _oldest() -> str | None:
    return oldest_python()


@pytest.fixture(params=["this Python", OLD_PYTHON])
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
