"""What tests of runners share: this machine as a place, and jobs that are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner
from tests.lanes import leave_to_soak
from tests.stubs import Gpus, pretend
from workbench.paths import Home

HOME = "00000000-0000-0000-0000-00000000000a"

SUITE = "runners/test_process_conformance.py::TestOverPipeHost"
THROUGH_A_PIPE = (
    "test_output_is_exactly_what_was_printed",
    "test_output_is_read_from_any_offset_as_often_as_asked",
    "test_output_is_there_while_the_command_runs",
    "test_files_come_out_of_a_learner_and_go_into_it",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
    "test_a_second_launch_starts_nothing",
    "test_a_launch_that_is_cut_off_is_made_good_by_the_next",
    "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
    "test_a_learner_whose_agent_was_killed_ends_with_a_reason",
    "test_a_halt_lets_the_command_end_by_itself",
    "test_observe_waits_and_wakes_when_something_changes",
    "test_observe_can_be_interrupted",
)
"""What the gate tries through a pipe: what copies, streams, waits or is cut off."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the soak what a pipe does not change."""
    leave_to_soak(
        items,
        SUITE,
        THROUGH_A_PIPE,
        "a pipe changes nothing of it; the gate has it over LocalHost",
    )


class Jobs:
    """Makes jobs over this machine."""

    def __init__(self, host: LocalHost) -> None:
        self.host = host
        self.made: list[LaunchedAttempt] = []

    def runner(self, home: str = HOME) -> ProcessRunner:
        """Make a runner of its own, as another thread or another controller has."""
        return ProcessRunner(self.host, home_uuid=home)

    def plan(self, command: str, **said: Any) -> LaunchedAttempt:
        """Plan a job."""
        said.setdefault("home", HOME)
        self.made.append(LaunchedAttempt.planned(self.runner(said["home"]), request_of(command, **said)))
        return self.made[-1]

    def run(self, command: str, **said: Any) -> LaunchedAttempt:
        """Plan a job and launch it."""
        return self.plan(command, **said).launch()


@pytest.fixture
def jobs(home: Home) -> Iterator[Jobs]:
    host = LocalHost(home)
    made = Jobs(host)
    yield made
    for job in made.made:
        job.runner.remove(job.request.attempt)
        job.runner.close()
    host.close()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return pretend(tmp_path / "gpus", monkeypatch)
