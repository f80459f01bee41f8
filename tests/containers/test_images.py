"""Any image with sh works, as root or not, with any Python or none; what cannot work is refused in a sentence."""

from __future__ import annotations

import json
import subprocess

import pytest

from runners.container import pull
from runners.container.runner import ContainerRunner
from tests.support.engine import MakeJob
from tests.support.images import BUSYBOX, DEBIAN, NOSHELL, OLD, USER
from workbench.errors import LaunchRefused
from workbench.job import LearnerPhase
from workbench.paths import Home

SOMETHING = 3


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(DEBIAN, marks=pytest.mark.soak("Debian, which most tests of the gate run in")),
        USER,
        OLD,
        BUSYBOX,
    ],
)
def test_a_job_runs_in_any_image_that_has_sh(make_job: MakeJob, image: str) -> None:
    command = "echo out; echo err >&2; echo kept > $RESULT_DIR/file; exit 3"
    job = make_job(command, image=image).launch()

    seen = job.until_over()[1]

    assert (seen.phase, seen.exit_code, seen.stopped) == (LearnerPhase.EXITED, SOMETHING, "")
    assert job.output() == b"out\nerr\n"


@pytest.mark.parametrize("image", [USER, BUSYBOX])
def test_a_halt_is_obeyed_in_any_image(make_job: MakeJob, image: str) -> None:
    job = make_job(
        "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 1; done", image=image
    ).launch()
    job.until_printed(b"ready")

    seen = job.stop("halt", 20.0).until_over()[1]

    assert (seen.exit_code, seen.stopped) == (0, "halt")
    # The shell tells of its child, too.
    assert job.output().startswith(b"ready\n")
    assert job.output().endswith(b"saved\n")


def test_ten_megabytes_with_every_byte_come_out_as_they_went_in(make_job: MakeJob) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40960)"
    job = make_job(f'python3 -c "{program}"').launch()
    job.until_over()

    assert job.output() == bytes(range(256)) * 40960


def test_an_image_without_a_shell_is_named(make_job: MakeJob) -> None:
    seen = make_job("true", image=NOSHELL).launch().until_over()[1]

    assert seen.reason is not None
    assert seen.reason.code == "C202"
    assert f"{NOSHELL} has no sh" in seen.reason.text


def test_an_image_that_nobody_has_is_refused_and_nothing_is_left(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.1)
    job = make_job("true", image="127.0.0.1:1/nobody/has-this:1")

    with pytest.raises(Exception, match="cannot be pulled") as caught:
        job.launch()

    assert "127.0.0.1:1/nobody/has-this:1" in str(caught.value)
    assert any("pulls 127.0.0.1:1/nobody/has-this:1" in text for _, text in job.progress.lines)
    assert containers_of(job.request.attempt.job_id) == []


def test_a_job_without_an_image_is_refused(make_job: MakeJob) -> None:
    with pytest.raises(LaunchRefused, match="has no image"):
        make_job("true", image="")


def test_memory_below_what_a_container_needs_is_refused(make_job: MakeJob) -> None:
    with pytest.raises(LaunchRefused, match="at least 6 MiB"):
        make_job("true", memory_bytes=1 << 20)


def test_what_an_image_is_goes_on_record(make_job: MakeJob, runner: ContainerRunner, home: Home) -> None:
    job = make_job("true").launch()
    job.until_over()

    folder = home.job(job.request.attempt.job_id).attempt(1).path
    image = json.loads((folder / "environment.json").read_text())["image"]

    assert image["reference"] == DEBIAN
    assert image["id"].startswith("sha256:")


def test_the_environment_of_the_image_is_there_and_ours_on_top(make_job: MakeJob) -> None:
    command = "echo $MODEL_DIR $JOB_STATE_DIR $LOG_DIR; pwd; echo $HOME; echo $PYTHONPATH; echo $ANSWER"
    job = make_job(command, env={"ANSWER": "forty two"}).launch()
    job.until_over()

    lines = job.output().decode().splitlines()

    assert lines == [
        "/job/model-code /job /job/logs",
        "/job/model-code",
        "/root",
        "/job/model-code:/.fabric/agent.pyz",
        "forty two",
    ]


@pytest.mark.parametrize(("own", "between"), [({}, ""), ({"PYTHONPATH": "/mine"}, "/mine:")])
def test_what_the_image_has_as_pythonpath_goes_on_behind_what_the_job_has(
    make_job: MakeJob, own: dict[str, str], between: str
) -> None:
    name = "fabric-test/with-pythonpath"
    dockerfile = f"FROM {BUSYBOX}\nENV PYTHONPATH=/app:/lib\n".encode()
    subprocess.run(
        ["docker", "build", "-q", "-t", name, "-"], input=dockerfile, check=True, capture_output=True
    )
    job = make_job("echo $PYTHONPATH", image=name, env=own).launch()
    job.until_over()

    assert job.output().decode() == f"/job/model-code:{between}/.fabric/agent.pyz:/app:/lib\n"


def test_training_code_may_report(make_job: MakeJob, home: Home) -> None:
    program = "from fabric_learner import report; report(loss=0.5, step=1)"
    job = make_job(f'python3 -c "{program}"').launch()
    job.until_over()

    records = home.job(job.request.attempt.job_id).attempt(1).learner(1).records.read_text()

    assert '"loss"' in records


def test_files_under_a_path_of_the_container_are_collected(make_job: MakeJob, home: Home) -> None:
    from workbench.spec import EvaluationMetrics, MetricGroup, TypedValue

    group = MetricGroup(regex=r"loss %{FLOAT:loss}", scalars={"loss": TypedValue("FLOAT", "$loss")})
    metrics = EvaluationMetrics(type="regex_extractor", source="/job/logs/mine.txt", groups={"train": group})
    job = make_job("echo loss 0.25 > $LOG_DIR/mine.txt", evaluation_metrics=metrics).launch()
    job.until_over()

    records = home.job(job.request.attempt.job_id).attempt(1).learner(1).records.read_text()

    assert "0.25" in records


def containers_of(job_id: str) -> list[str]:
    """Return the names of a job's containers, running or not."""
    argv = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job_id}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def test_an_image_is_pulled_as_the_manifest_says(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.1)
    never = make_job("true", image="127.0.0.1:1/nobody/has-this:1", image_pull="never")
    always = make_job("true", image_pull="always")

    with pytest.raises(LaunchRefused, match="image_pull is never") as refused:
        never.launch()
    with pytest.raises(Exception, match="cannot be pulled"):
        always.launch()  # it is here, and in no registry

    assert refused.value.code == "S103"
    assert containers_of(always.request.attempt.job_id) == []
