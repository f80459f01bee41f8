"""The process runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from backends.local.host import LocalHost
from runners.conformance.suite import RunnerContract
from runners.interface import LearnerRef
from runners.multinode.runner import MultiNodeProcessRunner
from runners.process.runner import ProcessRunner
from tests.runners.local_hosts import AgentsHere, OverLocalHost, OverPipeHost
from tests.support.kept_agents import lend_agents
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.transcriber import Transcriber
from workbench.paths import Home, default_home


class ProcessContract(AgentsHere, RunnerContract):
    """What both ways to reach this machine have in common."""

    runner_class = ProcessRunner


WITH_THE_SH_AGENT: Final = (
    "test_a_halt_lets_the_command_end_by_itself",
    "test_a_second_launch_starts_nothing",
    "test_a_signal_is_seen",
    "test_a_stop_ends_what_has_forked_twice_and_ignores_it",
    "test_observe_can_be_interrupted",
    "test_output_is_there_while_the_command_runs",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
    "test_the_index_ends_where_the_output_does",
)
"""What of the sh agent depends on who starts, reads and removes it, and is not tried at a host of a shell."""


class TestOverLocalHost(OverLocalHost, ProcessContract):
    """Directly."""


class TestOverPipeHost(OverPipeHost, ProcessContract):
    """Through a pipe."""

    in_gate: ClassVar[Collection[str]] = ()
    why_soak: ClassVar[str] = (
        "a pipe changes nothing of it; the gate has it over LocalHost, and what a link carries over SSH"
        " (tests/ssh/test_conformance.py)"
    )


class TestOverOneOfSeveralHosts(AgentsHere, RunnerContract):
    """As the only one of the hosts that have a job together."""

    runner_class = MultiNodeProcessRunner
    in_gate: ClassVar[Collection[str]] = (
        "test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it",
        "test_files_come_out_of_a_learner_and_go_into_it",
        "test_observe_gives_everything_first_and_then_only_what_changed",
        "test_observe_waits_and_wakes_when_something_changes",
        "test_remove_ends_and_forgets_the_attempt_and_may_be_repeated",
        "test_two_launches_at_once_start_one_learner",
    )
    why_soak: ClassVar[str] = (
        "each host has a process runner, which the gate has by itself; what several do together is in test_multinode.py"
    )
    left_out: ClassVar[Mapping[str, str]] = {
        "test_a_rule_stops_the_job_for_what_it_reports": "the controller follows rules for the learners of all hosts",
    }

    @pytest.fixture
    def connection(self, home: Home) -> Iterator[HostGroup]:
        group = HostGroup({"box": LocalHost(lend_agents(home))})
        yield group
        group.close()


class TestWithTheShAgent(ProcessContract):
    """The promises that the agent in POSIX shell makes, with Python hidden from the runner."""

    in_gate: ClassVar[Collection[str]] = WITH_THE_SH_AGENT
    why_soak: ClassVar[str] = (
        "what the sh agent does by itself; the gate runs tests/learner/test_sh_agent.py, and the suite at a host of a"
        " shell (tests/ssh/test_bare_host.py)"
    )
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

    def transcribe(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
        folder = Home(default_home()).job(learner.job_id).attempt(learner.attempt).learner(learner.learner)
        if not folder.output.exists():
            return
        launch = json.loads(folder.launch.read_text())
        transcriber = Transcriber(str(folder.path), launch, mask=Mask(["hush-hush-42"]))
        transcriber.finish()
        transcriber.close()
