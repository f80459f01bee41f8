"""The process runner keeps every promise, on this machine directly and at the other end of a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import ClassVar

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


class TestOverLocalHost(OverLocalHost, ProcessContract):
    """Directly."""


class TestOverPipeHost(OverPipeHost, ProcessContract):
    """Through a pipe."""


class TestWithTheShAgent(ProcessContract):
    """The promises that the agent in POSIX shell makes, with Python hidden from the runner."""

    left_out: ClassVar[Mapping[str, str]] = {
        "test_usage_is_sampled": "the sh agent takes no usage samples",
        "test_a_learner_over_its_memory_limit_ends_with_a_reason": "the sh agent watches no memory",
        "test_what_the_command_reports_is_recorded": "the sh agent brings no report()",
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
