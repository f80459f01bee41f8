"""``--quiet`` prints the job's output alone, and failures that this output cannot show: those of fabric itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.quick.controller.values import row
from tests.support.command import Fabric
from workbench.cli.follow.views import PlainView
from workbench.job import Reason, State


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["--set", "max_runtime=1s", "--", "sleep", "60"], 124, "ran longer than max_runtime, 1 s"),
        (["--timeout", "1s", "--", "sleep", "60"], 124, "was halted"),
        (["--set", "setup=exit 4", "--", "true"], 4, "setup failed with exit code 4"),
        (["--set", "params.x=1,2", "--set", "max_runtime=1s", "--", "sleep", "60"], 124, "max_runtime"),
    ],
)
def test_failures_that_the_output_does_not_show_are_reported(
    fabric: Fabric, args: list[str], code: int, error: str
) -> None:
    ran = fabric("run", "-q", *args, expect=code)

    assert error in ran.stderr
    assert ran.stdout == ""


def test_a_command_that_fails_by_itself_prints_its_own_output_alone(fabric: Fabric) -> None:
    ran = fabric("run", "-q", "--", "sh", "-c", "echo out; echo bad >&2; exit 3", expect=3)

    assert (sorted(ran.stdout.split()), ran.stderr) == (["bad", "out"], "")


def test_a_failure_of_the_platform_and_its_hint_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    lost = replace(
        row(State.FAILED, started_us=1, ended_us=2),
        reason=Reason("the agent was killed", "S202", "resume it"),
    )

    PlainView(1, quiet=True).ended(lost, "results")

    first, hint = capfd.readouterr().err.splitlines()
    assert first.endswith(": the agent was killed")
    assert hint == "hint: resume it"


def test_what_keeps_a_job_from_starting_is_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainView, "SETTLE_SECONDS", 0.0)
    view = PlainView(1, quiet=True)

    view.state(replace(row(State.QUEUED), reason=Reason("waits for a GPU")), [])
    view.tick()
    view.state(replace(row(State.QUEUED), reason=Reason("box does not answer", "S200")), [])
    view.tick()
    view.state(replace(row(State.PROCESSING), reason=Reason("the command failed", "C201")), [])
    view.tick()
    view.notice("no controller can be started")

    shown = capfd.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in shown] == [
        "box does not answer",
        "no controller can be started",
    ]
