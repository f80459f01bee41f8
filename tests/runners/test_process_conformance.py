"""The process runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host
from backends.local.host import LocalHost
from runners.conformance.suite import RunnerContract
from runners.interface import LearnerRef
from runners.process.runner import ProcessRunner
from tests.runners.local_hosts import AgentsHere, OverLocalHost, OverPipeHost
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.transcriber import Transcriber
from workbench.paths import Home, default_home


class ProcessContract(AgentsHere, RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ProcessRunner


THROUGH_A_PIPE: Final = (
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
WITH_THE_SH_AGENT: Final = (
    *THROUGH_A_PIPE,
    "test_a_learner_whose_agent_was_killed_ends_with_a_reason",
    "test_a_signal_is_seen",
    "test_a_stop_ends_what_has_forked_twice_and_ignores_it",
    "test_another_home_is_never_touched",
    "test_learners_know_who_they_are_and_share_a_folder",
    "test_observe_gives_everything_first_and_then_only_what_changed",
    "test_remove_ends_and_forgets_the_attempt_and_may_be_repeated",
    "test_stopping_what_is_over_or_was_never_there_does_nothing",
    "test_the_index_ends_where_the_output_does",
    "test_two_launches_at_once_start_one_learner",
)
"""What of the sh agent depends on who starts, reads and removes it."""


class TestOverLocalHost(OverLocalHost, ProcessContract):
    """Directly."""


class TestOverPipeHost(OverPipeHost, ProcessContract):
    """Through a pipe."""

    in_gate: ClassVar[Collection[str]] = THROUGH_A_PIPE
    why_soak: ClassVar[str] = "a pipe changes nothing of it; the gate has it over LocalHost"


class TestWithTheShAgent(ProcessContract):
    """The promises that the agent in POSIX shell makes, with Python hidden from the runner."""

    in_gate: ClassVar[Collection[str]] = WITH_THE_SH_AGENT
    why_soak: ClassVar[str] = "what the sh agent does by itself; the gate runs tests/learner/test_sh_agent.py"
    left_out: ClassVar[Mapping[str, str]] = {
        "test_usage_is_sampled": "the sh agent takes no usage samples",
        "test_a_learner_over_its_memory_limit_ends_with_a_reason": "the sh agent watches no memory",
        "test_what_the_command_reports_is_recorded": "the sh agent brings no report()",
        "test_a_rule_stops_the_job_for_what_it_reports": "the sh agent knows no rules: the controller follows them",
    }

    @pytest.fixture
    def connection(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
        monkeypatch.setenv("FABRIC_AGENT", "sh")
        host = LocalHost(home)
        yield host
        host.close()

    def transcribe(self, connection: Host | Cluster, learner: LearnerRef) -> None:
        folder = Home(default_home()).job(learner.job_id).attempt(learner.attempt).learner(learner.learner)
        if not folder.output.exists():
            return
        launch = json.loads(folder.launch.read_text())
        transcriber = Transcriber(str(folder.path), launch, mask=Mask(["hush-hush-42"]))
        transcriber.finish()
        transcriber.close()
