"""Launching processes: cut off anywhere and made good, with code, secrets and ports where they belong."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from runners.conformance.harness import LaunchedAttempt, request_of
from runners.interface import AttemptRef
from runners.process.runner import ProcessRunner
from tests.learner.agent import oldest_python
from tests.runners.jobs import HOME, Jobs
from tests.stubs import Gpus
from tests.support.kept_agents import agent
from tests.support.pipe_host import PipeHost
from tests.support.waiting import patience
from workbench.errors import InputMissing, LaunchRefused
from workbench.paths import Home

REPOSITORY = Path(__file__).parents[2]


def pack(folder: Path, files: dict[str, str]) -> tuple[str, str]:
    """Make a snapshot of code; return its hash and file."""
    source = folder / "source"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    archive = folder / "abc.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, ".")
    return "abc", str(archive)


@pytest.mark.parametrize(
    ("learners", "each", "instant"),
    [
        (2, 1, "before"),
        pytest.param(2, 1, "after", marks=pytest.mark.soak("the gate has it before the next operation")),
        pytest.param(1, 0, "before", marks=pytest.mark.soak("the gate has two learners with a GPU each")),
    ],
)
def test_a_launch_that_dies_anywhere_is_made_good_and_starts_nothing_twice(
    learners: int, each: int, instant: str, gpus: Gpus
) -> None:
    gpus.add("GPU-1").add("GPU-2")
    program = Path(__file__).with_name("cut_launches.py")
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        [sys.executable, str(program), str(learners), str(each), instant],
        env=env,
        capture_output=True,
        timeout=patience(170),
        text=True,
    )
    rounds = [json.loads(line) for line in ended.stdout.splitlines()]

    assert ended.returncode == 0, ended.stderr
    assert len(rounds) > 10
    for one in rounds:
        assert one["starts"] == [1] * learners, one
        assert one["codes"] == [0] * learners, one
        assert one["devices"] == one["slots"], one
        assert len(set(one["slots"])) == (learners if each else 1), one


def test_the_code_is_the_working_folder_and_each_learners_own(jobs: Jobs, tmp_path: Path) -> None:
    code = pack(tmp_path, {"rank.txt": "before\n", "show.py": "print(open('rank.txt').read().strip())\n"})
    command = "echo $LEARNER_ID > rank.txt; [ $PWD = $MODEL_DIR ] && python3 show.py"
    job = jobs.run(command, code=code, learners=2, ends_when="all")

    job.until_over()

    assert [job.output(number) for number in (1, 2)] == [b"1\n", b"2\n"]


def test_code_is_importable_from_anywhere(jobs: Jobs, tmp_path: Path) -> None:
    code = pack(tmp_path, {"mine.py": "print('imported')\n"})
    job = jobs.run("cd / && python3 -c 'import mine'", code=code)
    job.until_over()

    assert job.output() == b"imported\n"


def test_a_broken_archive_is_refused_and_leaves_nothing_half_made(
    jobs: Jobs, tmp_path: Path, home: Home
) -> None:
    archive = tmp_path / "broken.tar.gz"
    archive.write_bytes(b"this is not an archive")

    job = jobs.plan("true", code=("broken", str(archive)))
    with pytest.raises(InputMissing, match="cannot be unpacked"):
        job.launch()

    folder = home.job(job.request.attempt.job_id).attempt(1).learner(1).path
    assert not folder.exists() or list(folder.iterdir()) == []


def test_the_next_attempt_has_the_same_results_and_its_own_state(jobs: Jobs) -> None:
    first = jobs.run("echo kept > $CHECKPOINT_DIR/model; echo gone > $JOB_STATE_DIR/mine; echo $RESULT_DIR")
    first.until_over()
    before = first.request.attempt

    attempt = AttemptRef(HOME, before.job_id, 2, 1)
    second = jobs.run("cat $CHECKPOINT_DIR/model; ls $JOB_STATE_DIR; echo $RESULT_DIR", attempt=attempt)
    second.until_over()

    lines = second.output().decode().splitlines()
    assert lines == ["kept", "logs", before.job_id, first.output().decode().strip()]


def test_secrets_go_by_a_private_file_that_goes_with_the_attempt(jobs: Jobs, clean_environment: Path) -> None:
    job = jobs.run("while :; do sleep 1; done", secrets={"TOKEN": "hush-hush-42"})
    job.until_running()
    (file,) = (clean_environment / "run" / "fabric").iterdir()
    document = Path(job.plan.learners[0].native["folder"]) / "launch.json"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "hush-hush-42" not in document.read_text()
    job.stop().until_over()
    assert not file.exists()


def test_a_secret_without_a_value_is_refused(jobs: Jobs) -> None:
    with pytest.raises(LaunchRefused, match="no value for the secret TOKEN") as refused:
        jobs.run("true", secrets={"OTHER": "x"}, names=("TOKEN",))

    assert refused.value.code == "C103"


def test_what_is_not_built_yet_is_planned_and_refused_at_launch(jobs: Jobs) -> None:
    job = jobs.plan("true", launcher="torchrun")

    assert any("launcher=none" in warning for warning in job.plan.warnings)
    with pytest.raises(LaunchRefused, match=r"^The launcher torchrun is not built yet"):
        job.launch()


def test_every_job_has_a_master_port_of_its_own_that_its_learners_share(jobs: Jobs) -> None:
    command = "echo $MASTER_ADDR $MASTER_PORT; while :; do sleep 1; done"
    running = [jobs.run(command, learners=2, ends_when="all") for _ in range(4)]

    ports = []
    for job in running:
        shared = {job.until_printed(b"\n", learner) for learner in (1, 2)}
        assert len(shared) == 1
        ports.append(shared.pop().split())

    assert {address for address, _ in ports} == {b"127.0.0.1"}
    assert len({port for _, port in ports}) == 4


def test_an_agent_that_cannot_start_is_reported_with_its_last_words(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runners.shared import agents
    from workbench.errors import RunnerError

    class Broken(agents.PythonAgent):
        def argv(self, folder: object) -> list[str]:
            return ["sh", "-c", "echo the agent is broken >&2; exit 1"]

    monkeypatch.setattr(agents, "PythonAgent", Broken)

    with pytest.raises(RunnerError, match="agent of learner 1 could not be started: the agent is broken"):
        jobs.run("true")


def test_launching_is_narrated(jobs: Jobs) -> None:
    job = jobs.run("true")

    assert [stage for stage, _ in job.progress.lines] == ["preparing", "starting"]


def test_what_a_job_ran_with_is_recorded(jobs: Jobs, home: Home) -> None:
    job = jobs.run("true")

    path = home.job(job.request.attempt.job_id).attempt(1).path / "environment.json"
    assert json.loads(path.read_text())["python"] == sys.executable


def test_the_users_other_processes_are_let_alone(jobs: Jobs) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    job = jobs.run("while :; do sleep 1; done")
    job.until_running()

    job.stop().until_over()
    job.runner.remove(job.request.attempt)

    assert bystander.poll() is None
    bystander.communicate(b"\n")


def test_cpus_are_chosen_that_others_use_least(jobs: Jobs) -> None:
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        pytest.skip("there is only one CPU")
    show = "python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'; while :; do sleep 1; done"

    first, second = jobs.run(show, cpus=1), jobs.run(show, cpus=1)
    own = [job.until_printed(b"\n").split() for job in (first, second)]
    every = jobs.run(show, cpus=float(len(available) + 7))

    assert [len(cpus) for cpus in own] == [1, 1]
    assert own[0] != own[1]
    assert [int(cpu) for cpu in every.until_printed(b"\n").split()] == available


def test_a_job_runs_at_a_host_whose_python_is_38(tmp_path: Path) -> None:
    python = oldest_python() or pytest.skip("there is no Python 3.8 here to run the agent with")
    host = PipeHost([python, "-I", agent(), "host"], root=str(tmp_path / "place"))
    runner = ProcessRunner(host, home_uuid=HOME)
    code = pack(tmp_path, {"train.sh": "echo from $LEARNER_ID\n"})
    job = LaunchedAttempt.planned(
        runner, request_of("sh train.sh", home=HOME, code=code, learners=2, ends_when="all")
    ).launch()

    job.until_over()

    assert [job.output(number) for number in (1, 2)] == [b"from 1\n", b"from 2\n"]
    runner.remove(job.request.attempt)
    left = [path for path in (tmp_path / "place").rglob("*") if "attempt-" in str(path)]
    assert left == []
    runner.close()
    host.close()
