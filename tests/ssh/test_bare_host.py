"""A host with only busybox: the sh agent keeps the promises that it can, and jobs run there as elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from backends.ssh.sh_client import ShellClient
from backends.ssh.sh_host import ShellHost
from runners.conformance.suite import RunnerContract
from runners.interface import LearnerRef
from runners.process.runner import ProcessRunner
from tests.containers.core import OVER_A_LINK
from tests.runners.local_hosts import AgentsHere
from tests.support.box import Box
from tests.support.controllers import answers, kill
from tests.support.real_jobs import Ground
from tests.support.sshd import processes_of
from tests.support.waiting import until
from workbench.controller.client.connect import ensure_controller
from workbench.job import State
from workbench.learner.journal.launch_document import AUTO
from workbench.learner.scribe.masking import Mask
from workbench.learner.scribe.transcriber import Transcriber
from workbench.paths import Home
from workbench.spec import EvaluationMetrics
from workbench.store.db.rows import TargetRef
from workbench.store.queries.requests import requests

OF_OUR_SIDE: Final = (
    "test_observe_can_be_interrupted",
    "test_an_exit_code_is_seen[3]",
    "test_a_halt_lets_the_command_end_by_itself",
    "test_output_is_there_while_the_command_runs",
    "test_secrets_reach_the_command_and_are_struck_out_of_its_output",
)
"""What over SSH is no other with a shell, or is in another test here."""


class TestConformance(AgentsHere, RunnerContract):
    runner_class = ProcessRunner
    has: ClassVar[frozenset[str]] = frozenset()
    left_out: ClassVar[Mapping[str, str]] = {
        "test_usage_is_sampled": "the sh agent takes no usage samples",
        "test_a_learner_over_its_memory_limit_ends_with_a_reason": "the sh agent watches no memory",
        "test_what_the_command_reports_is_recorded": "the sh agent brings no report()",
        "test_a_rule_stops_the_job_for_what_it_reports": "the sh agent knows no rules: the controller follows them",
    }

    in_gate: ClassVar[Collection[str]] = (
        *(name for name in OVER_A_LINK if name not in OF_OUR_SIDE),
        "test_another_home_is_never_touched",
        "test_observe_gives_everything_first_and_then_only_what_changed",
        "test_remove_ends_and_forgets_the_attempt_and_may_be_repeated",
        "test_stopping_what_is_over_or_was_never_there_does_nothing",
        "test_two_launches_at_once_start_one_learner",
    )
    """What hosts of a shell do in their own way."""
    why_soak: ClassVar[str] = (
        "what the sh agent does everywhere; the gate runs tests/learner/test_sh_agent.py, and jobs at such a host here"
    )

    @pytest.fixture
    def connection(self, class_bare: tuple[Box, Path], class_bare_host: Host) -> Host:
        assert isinstance(class_bare_host, ShellHost)
        self.root = class_bare[1]
        return class_bare_host

    def transcribe(self, connection: Host | Cluster | HostGroup, learner: LearnerRef) -> None:
        assert isinstance(connection, Host)
        home = Home(self.root / connection.folder(learner.home).lstrip("/"))
        folder = home.job(learner.job_id).attempt(learner.attempt).learner(learner.learner)
        if folder.output.exists():
            transcriber = Transcriber(
                str(folder.path), json.loads(folder.launch.read_text()), mask=Mask(["hush-hush-42"])
            )
            transcriber.finish()
            transcriber.close()
            about = folder.path.stat()
            for made in folder.path.iterdir():
                os.chown(made, about.st_uid, about.st_gid, follow_symlinks=False)


def test_a_probe_asks_the_shell_there_once(bare: tuple[Box, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lines = ShellClient.lines

    def noted(client: ShellClient, script: str) -> list[str]:
        asked.append(script)
        return lines(client, script)

    monkeypatch.setattr(ShellClient, "lines", noted)
    found = {finding.subject: finding for finding in bare[0].backend().probe()}

    assert len(asked) == 1
    assert found["python"].level == "lack"
    assert "CPUs" in found["machine"].found
    assert "is not known" in found["disk"].found  # busybox's df says nothing in a root that is no mount


def test_a_job_runs_there_and_everything_comes_home(bare: tuple[Box, Path], home: Home) -> None:
    box, _ = bare
    ground = Ground(home, TargetRef("bare", "ssh", "process", address=box.address))
    try:
        job_id = ground.submit(
            "echo $TOKEN; seq 20000; echo made > $RESULT_DIR/made; exit 3",
            secret_values={"TOKEN": "pa55word"},
        )
        row = ground.ends(job_id)
        assert (row.state, row.exit_code) == (State.FAILED, 3), row.reason
        wanted = "********\n" + "".join(f"{number}\n" for number in range(1, 20001))
        assert ground.output(job_id) == wanted
        assert (ground.home.job(job_id).results / "made").read_text() == "made\n"
        assert int.from_bytes(ground.learner(job_id).index.read_bytes()[-24:-16], "little") == len(wanted)

        stopped = ground.submit("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
        ground.prints(stopped, "ready")
        box.daemon.kill_sessions()
        ground.ask(stopped, "halt")
        assert ground.ends(stopped).state is State.HALTED
        assert ground.output(stopped).endswith("saved\n")
        ground.ask(stopped, "delete")
        until(lambda: ground.row(stopped).deleted_us is not None)
        until(lambda: len(processes_of(box.user)) <= 3)
    finally:
        ground.clean_up()


def test_a_rule_is_followed_by_the_controller_also_after_its_death(
    bare: tuple[Box, Path], home: Home
) -> None:
    """What a job printed while no controller was there is judged by the next one, and a stop is asked for once."""
    box, root = bare
    ground = Ground(home, TargetRef("bare", "ssh", "process", address=box.address))
    try:
        job_id = ground.submit(
            "for step in 1 2 3; do echo step=$step loss=1.0; done; while [ ! -e /tmp/go ]; do sleep 0.1; done;"
            " echo step=4 loss=9.0; sleep 3600",
            stop_when=({"metric": "loss", "above": 5.0},),
            evaluation_metrics=EvaluationMetrics(AUTO),
        )
        ground.prints(job_id, "step=3")
        kill(answers(ground.home).pid)
        (root / "tmp/go").touch()
        ensure_controller(ground.home)

        assert ground.ends(job_id).reason.text == "halted by stop_when: loss is 9, above 5 at step 4"
        assert [one.kind for one in requests(ground.store, job_id) if one.who.startswith("stop_when: ")] == [
            "halt"
        ]
    finally:
        ground.clean_up()
