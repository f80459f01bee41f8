"""The plan of a process job is exactly what is sent, and says aloud what will not be as the manifest means it."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from tests.runners.jobs import HOME, Jobs
from workbench.errors import LaunchRefused
from workbench.paths import Home
from workbench.spec import EvaluationMetrics, Framework


def environment(jobs: Jobs, **options: Any) -> dict[str, str]:
    env: dict[str, str] = jobs.plan("true", **options).plan.learners[-1].native["launch"]["env"]
    return env


def test_what_is_launched_is_what_was_planned_with_the_open_ends_filled(jobs: Jobs) -> None:
    job = jobs.run("true", params={"lr": 0.1})
    planned = job.plan.learners[0].native["launch"]
    sent = json.loads((Path(job.plan.learners[0].native["folder"]) / "launch.json").read_text())

    for key in set(planned) - {"env"}:
        assert sent[key] == planned[key], key
    changed = {name for name in planned["env"] if sent["env"][name] != planned["env"][name]}
    assert changed == {"MASTER_PORT", "PYTHONPATH"}
    json.dumps([learner.native for learner in job.plan.learners])


def test_every_variable_of_the_contract_is_there(jobs: Jobs, home: Home) -> None:
    job = jobs.plan("python train.py", learners=2, gpus=0)
    env = job.plan.learners[1].native["launch"]["env"]
    folder = home.job(job.request.attempt.job_id)
    nine = job.request.attempt.job_id.removeprefix("training-")

    expected = {
        "MODEL_DIR": str(folder.path / "attempt-1" / "learner-2" / "model-code"),
        "DATA_DIR": str(folder.path / "data"),
        "RESULT_DIR": str(folder.path / "results"),
        "RESULT_BUCKET_DIR": str(folder.path / "results"),
        "CHECKPOINT_DIR": str(folder.path / "checkpoints"),
        "JOB_STATE_DIR": str(folder.path / "attempt-1" / "job"),
        "LOG_DIR": str(folder.path / "attempt-1" / "job" / "logs"),
        "TRAINING_ID": job.request.attempt.job_id,
        "TRAINING_JOB": job.request.attempt.job_id,
        "TRAINING_COMMAND": "python train.py",
        "LEARNER_ID": "2",
        "NUM_LEARNERS": "2",
        "GPU_COUNT": "0.000000",
        "LEARNER_NAME_PREFIX": f"learner-{nine}-a1",
        "MASTER_ADDR": "127.0.0.1",
        "NODE_RANK": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "PYTHONUNBUFFERED": "1",
        "FABRIC_LEARNER": f"{HOME}/{job.request.attempt.job_id}/1/2",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert env["PYTHONPATH"].startswith(expected["MODEL_DIR"] + ":")
    assert job.plan.learners[1].name == f"learner-{nine}-a1-1"


def test_parameters_and_seed_are_variables(jobs: Jobs) -> None:
    env = environment(jobs, params={"lr": 0.1, "use-aug": True}, seed=2**32 + 7)

    assert (env["FABRIC_PARAM_LR"], env["FABRIC_PARAM_USE_AUG"]) == ("0.1", "true")
    assert json.loads(env["FABRIC_PARAMS"]) == {"lr": 0.1, "use-aug": True}
    assert (env["FABRIC_SEED"], env["PYTHONHASHSEED"]) == (str(2**32 + 7), "7")


def test_the_manifests_environment_counts_but_cannot_break_a_promise(jobs: Jobs) -> None:
    variables = {"MINE": "1", "PYTHONUNBUFFERED": "0", "LEARNER_ID": "9", "PYTHONPATH": "/own"}
    job = jobs.plan("true", env=variables)
    env = job.plan.learners[0].native["launch"]["env"]

    assert (env["MINE"], env["PYTHONUNBUFFERED"], env["LEARNER_ID"]) == ("1", "0", "1")
    assert env["PYTHONPATH"].split(":")[1] == "/own"
    assert any("LEARNER_ID" in warning for warning in job.plan.warnings)


def test_nothing_of_the_users_environment_leaks_but_what_was_let_through(jobs: Jobs) -> None:
    variables = {
        "PATH": "/usr/bin",
        "LC_TIME": "C",
        "https_proxy": "http://p:3",
        "AWS_SECRET_ACCESS_KEY": "no",
        "EDITOR": "vi",
    }
    env = environment(jobs, recorded={"environment": variables})

    assert (env["LC_TIME"], env["https_proxy"]) == ("C", "http://p:3")
    assert "AWS_SECRET_ACCESS_KEY" not in env


def test_memory_that_the_machine_does_not_have_is_refused_at_once(jobs: Jobs) -> None:
    with pytest.raises(
        LaunchRefused, match=r"asks for 1\.0 TiB of memory \(2 learners with 512\.0 GiB each\)"
    ) as it:
        jobs.plan("true", memory_bytes=512 << 30, learners=2)

    assert it.value.code == "C104"
    assert "memory" in it.value.hint


def test_more_cpus_than_there_are_gets_those_and_says_so(jobs: Jobs) -> None:
    plan = jobs.plan("true", cpus=5000.0).plan

    assert plan.cpus_per_learner < 5000
    assert plan.learners[0].native["launch"]["cpus"] is None
    assert any("5000 CPUs are asked for" in note for note in plan.notes)


def test_an_image_that_is_not_used_is_a_warning(jobs: Jobs) -> None:
    job = jobs.plan("true")
    spec = replace(job.request.spec, framework=Framework("pytorch", "1.0", "true"))

    plan = job.runner.plan(replace(job.request, spec=spec))

    assert any("the image pytorch/pytorch:1.0 is not used" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("agent", "is_here", "waits_for_this_machine"),
    [("sh", False, True), ("python", False, False), ("sh", True, False)],
    ids=["a host without Python", "a host", "this machine"],
)
def test_the_plan_says_where_a_job_starts_only_while_this_machine_is_on(
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    is_here: bool,
    waits_for_this_machine: bool,
) -> None:
    monkeypatch.setenv("FABRIC_AGENT", agent)
    monkeypatch.setattr(LocalHost, "here", is_here)

    notes = jobs.plan("true").plan.notes

    assert any("it starts only while this machine is on" in note for note in notes) is waits_for_this_machine


@pytest.mark.parametrize(
    ("command", "warns"),
    [
        ("python train.py --data /job/data", True),
        ("ls '/job'", True),
        ("FILE=/job/x sh run.sh", True),
        ("python /home/me/job/train.py", False),
        ("python jobs/train.py /jobs", False),
    ],
)
def test_the_folder_job_is_warned_of(jobs: Jobs, command: str, warns: bool) -> None:
    plan = jobs.plan(command).plan

    assert any("/job" in warning for warning in plan.warnings) is warns


def test_names_of_peers_are_warned_of_in_the_code_of_several_learners(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['LEARNER_NAME_PREFIX'] + '-0')\n")
    archive = tmp_path / "code.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "train.py", "train.py")
    code = ("abc", str(archive))

    several, single = jobs.plan("true", code=code, learners=2).plan, jobs.plan("true", code=code).plan

    assert any("train.py reaches other learners by name" in warning for warning in several.warnings)
    assert single.warnings == ()


def test_an_unknown_collector_is_refused_with_those_that_there_are(jobs: Jobs) -> None:
    with pytest.raises(LaunchRefused, match="no collector 'astrology'") as refused:
        jobs.plan("true", evaluation_metrics=EvaluationMetrics(type="astrology"))

    assert "regex_extractor" in refused.value.hint


def test_a_foreign_collector_is_named_with_where_it_is(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "stars-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[fabric.collectors]\nstars = stars.reading:Stars\n")
    (tmp_path / "stars").mkdir()
    (tmp_path / "stars" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    plan = jobs.plan("true", evaluation_metrics=EvaluationMetrics(type="stars")).plan

    assert plan.learners[0].native["launch"]["metrics"]["collector"] == {
        "module": "stars.reading",
        "class": "Stars",
        "path": [str(tmp_path)],
    }
