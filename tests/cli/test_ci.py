"""``fabric run`` in a CI system: requirements, reports, groups, time limits, cancelled pipelines."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.command import EXECUTABLE, Fabric
from tests.support.waiting import patience, until

MANIFEST = """\
name: digits
framework: {name: custom, command: "echo 'accuracy 0.85'; echo 'loss 0.3 ```'; exit ${params.code}"}
params: {code: 0}
evaluation_metrics:
  type: regex_extractor
  line_lookahead: 1
  groups:
    a: {regex: 'accuracy %{FLOAT:accuracy}', scalars: {accuracy: {type: FLOAT, value: $accuracy}}}
    l: {regex: 'loss %{FLOAT:loss}', scalars: {loss: {type: FLOAT, value: $loss}}}
"""


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path) -> Fabric:
    return module_fabric.within(tmp_path / "work")


@pytest.fixture
def manifest(fabric: Fabric) -> Path:
    path = fabric.folder / "manifest.yml"
    path.write_text(MANIFEST)
    return path


def test_a_requirement_that_is_not_met_exits_with_1_and_a_sentence(fabric: Fabric, manifest: Path) -> None:
    ran = fabric("run", "manifest.yml", "--require", "accuracy>=0.9", "--require", "loss<1", expect=1, CI="1")

    assert "not met: a/accuracy is 0.85, required >= 0.9" in ran.stderr
    assert "met: l/loss is 0.3, as required < 1" in ran.stderr
    fabric("run", "manifest.yml", "--require", "accuracy>=80%", CI="1")


def test_the_jobs_own_failure_goes_first(fabric: Fabric, manifest: Path) -> None:
    ran = fabric("run", "manifest.yml", "--set", "params.code=7", "--require", "accuracy>1", expect=None)

    assert ran.returncode == 7


def test_a_wrong_requirement_starts_nothing(separate_fabric: Fabric, manifest: Path) -> None:
    fabric = separate_fabric.within(manifest.parent)
    message = fabric("run", "manifest.yml", "--require", "accuracy=>0.9", expect=64).stderr

    assert "  accuracy=>0.9\n          ^^" in message
    assert fabric.json("list", "--json") == []


def test_reports_that_cannot_be_written_are_reported_before_anything_starts(
    separate_fabric: Fabric, manifest: Path
) -> None:
    fabric = separate_fabric.within(manifest.parent)
    for option in ("--junit", "--summary"):
        assert "no folder" in fabric("run", "manifest.yml", option, "no/such/file", expect=73).stderr
    assert fabric.json("list", "--json") == []


def test_junit_has_a_case_for_the_job_and_for_each_requirement(fabric: Fabric, manifest: Path) -> None:
    fabric(
        "run", "manifest.yml", "--set", "params.code=3", "--require", "accuracy>0.9 loss<1",
        "--junit", "out.xml", expect=3,
    )  # fmt: skip

    suite = ElementTree.parse(fabric.folder / "out.xml").getroot()[0]
    cases = suite.findall("testcase")
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("digits", True),
        ("accuracy>0.9", True),
        ("loss<1", False),
    ]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["a/accuracy"] == "0.85"
    assert "accuracy 0.85" in (suite.findtext("system-out") or "")


def test_the_summary_is_markdown_that_output_cannot_break(fabric: Fabric, manifest: Path) -> None:
    fabric("run", "manifest.yml", "--summary", "out.md", "--require", "accuracy>0.8")

    text = (fabric.folder / "out.md").read_text()
    assert text.startswith("## ✅ digits: completed\n")
    assert "| a/accuracy | 0.85 | 0.85 | 0.85 |" in text
    assert "````text\naccuracy 0.85\nloss 0.3 ```\n````" in text


def test_githubs_summary_is_added_to(fabric: Fabric, manifest: Path) -> None:
    file = fabric.folder / "steps.md"
    file.write_text("# others\n")

    fabric("run", "manifest.yml", "--summary", "steps.md", GITHUB_STEP_SUMMARY=str(file))

    assert file.read_text().startswith("# others\n## ✅ digits")


@pytest.mark.parametrize(
    ("variable", "begins", "ends"),
    [
        ("GITHUB_ACTIONS", "::group::digits: output of attempt 1", "::endgroup::"),
        ("GITLAB_CI", r"\[0Ksection_start:\d+:fabric_output\s\x1b\[0Kdigits: output", r"section_end:\d+:fabric_output"),
        ("TF_BUILD", r"##\[group\]digits: output", r"##\[endgroup\]"),
        ("BUILDKITE", "--- digits: output", ""),
    ],
)  # fmt: skip
def test_log_groups_are_on_stderr_and_output_stays_as_it_is(
    fabric: Fabric,
    manifest: Path,
    variable: str,
    begins: str,
    ends: str,
) -> None:
    there = Fabric(fabric.folder, {**fabric.variables, variable: "true", "CI": "true"})
    ran = there("run", "manifest.yml")

    assert ran.stdout == "accuracy 0.85\nloss 0.3 ```\n"
    assert re.search(begins, ran.stderr)
    assert re.search(ends, ran.stderr)


def test_a_failure_is_an_annotation_where_there_are_any(fabric: Fabric, manifest: Path) -> None:
    ran = fabric("run", "manifest.yml", "--set", "params.code=3", expect=3, CI="1", GITHUB_ACTIONS="true")

    assert "::error title=fabric::digits: the command failed with exit code 3" in ran.stderr


def test_no_terminal_no_colour_no_drawing(fabric: Fabric, manifest: Path) -> None:
    ran = fabric("run", "manifest.yml", CI="1")

    assert "\x1b" not in ran.stderr + ran.stdout
    assert "\r" not in ran.stderr
    assert "completed" in ran.stderr


def test_a_job_that_takes_longer_than_its_time_is_halted(fabric: Fabric) -> None:
    ran = fabric("run", "--timeout", "1s", "--", "echo on; sleep 600", expect=124)

    assert "--timeout: 1.0 s have passed" in ran.stderr
    last = fabric.json("list", "--json")[0]
    assert (last["state"], last["exit_by"]) == ("HALTED", "halt")


def test_a_time_limit_needs_somebody_who_waits(fabric: Fabric) -> None:
    message = fabric("run", "-d", "--timeout", "1h", "--", "true", expect=64).stderr

    assert "--set max_runtime=1h" in message
    assert "is not a duration" in fabric("run", "--timeout", "soon", "--", "true", expect=64).stderr


@pytest.mark.parametrize(
    "signal_number",
    [
        signal.SIGTERM,
        pytest.param(
            signal.SIGINT,
            marks=pytest.mark.soak("an interrupt; the gate has it in tests/cli/test_signals.py"),
        ),
    ],
)
def test_a_cancelled_pipeline_halts_the_job(fabric: Fabric, signal_number: int) -> None:
    running = subprocess.Popen(
        [EXECUTABLE, "run", "--", "echo started; exec sleep 600"],
        cwd=fabric.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**fabric.variables, "CI": "true"},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"started\n"

    running.send_signal(signal_number)
    running.communicate(timeout=patience())

    assert running.returncode == 143
    assert fabric.json("list", "--json")[0]["state"] == "HALTED"


def test_wait_holds_requirements_too(fabric: Fabric, manifest: Path) -> None:
    fabric("run", "-d", "-q", "manifest.yml", "--label", "ci=1")

    ran = fabric("wait", "--label", "ci=1", "--timeout", "1m", "--require", "accuracy>0.9", expect=1)

    assert "not met: a/accuracy is 0.85" in ran.stderr
    assert "did you mean ci=1?" in fabric("wait", "--label", "ci=2", expect=64).stderr


def test_notices_come_when_a_condition_holds_and_at_the_end(fabric: Fabric, clean_environment: Path) -> None:
    """The desktop's notice is a program, so its arguments can be seen."""
    tools = clean_environment / "tools"
    tools.mkdir()
    notices = clean_environment / "notices"
    (tools / "notify-send").write_text(f'#!/bin/sh\necho "$3 | $4" >> {notices}\n')
    (tools / "notify-send").chmod(0o755)
    (fabric.folder / "manifest.yml").write_text(
        MANIFEST.replace("exit ${params.code}", "while [ ! -e go ]; do sleep 0.2; done")
    )
    path = f"{tools}:{os.environ['PATH']}"
    running = subprocess.Popen(
        [EXECUTABLE, "run", "manifest.yml", str(fabric.folder), "--notify", "--notify-when", "accuracy>0.8"],
        cwd=fabric.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**fabric.variables, "PATH": path, "DISPLAY": ":9"},
    )
    until(lambda: notices.exists() and notices.read_text(), "the notice of the condition")
    first = notices.read_text()
    job = fabric.json("show", "@last", "--json")
    (Path(job["folder"]) / "attempt-1" / "learner-1" / "model-code" / "go").touch()
    running.communicate(timeout=patience())

    assert first == "fabric: digits | a/accuracy is 0.85, as required > 0.8\n"
    assert notices.read_text().splitlines()[1].startswith("fabric: digits completed | ")


def test_attach_without_an_id_takes_the_last_job_and_last_lines_are_commands_that_work(
    fabric: Fabric, manifest: Path
) -> None:
    ended = fabric("run", "manifest.yml").stderr.splitlines()[-1]
    detached = fabric("run", "-d", "manifest.yml").stderr.splitlines()[-1]

    assert fabric("attach").stdout == "accuracy 0.85\nloss 0.3 ```\n"
    commands = re.findall(r"fabric [a-z]+ \w{9}(?: results)?", ended) + re.findall(
        r"`(fabric [^`]+)`", detached
    )
    assert len(commands) == 3
    for command in commands:
        fabric(*command.split()[1:])
