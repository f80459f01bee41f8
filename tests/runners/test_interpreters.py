"""Which Python a job's command finds: the recorded one, that of PATH, a path, a conda environment."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from tests.runners.jobs import Jobs
from workbench.errors import LaunchRefused

SHOW = "python -c 'import sys; print(sys.prefix)'; echo ${VIRTUAL_ENV-none} ${CONDA_DEFAULT_ENV-none}"
SYSTEM = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment without pip, which takes no time to make."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    return folder


def test_the_interpreter_that_was_active_is_found_first(jobs: Jobs, environment: Path) -> None:
    recorded = {"python": str(environment / "bin" / "python"), "environment": {"PATH": SYSTEM}}
    job = jobs.run(SHOW, recorded=recorded)
    job.until_over()

    assert job.output().decode().splitlines()[0] == str(environment)


def test_a_path_that_finds_it_already_is_left_as_it_is(jobs: Jobs, environment: Path) -> None:
    path = f"/first:{environment}/bin:{SYSTEM}"
    recorded = {"python": str(environment / "bin" / "python"), "environment": {"PATH": path}}
    plan = jobs.plan("true", recorded=recorded).plan

    assert plan.learners[0].native["launch"]["env"]["PATH"] == path


def test_an_interpreter_that_is_gone_is_refused(jobs: Jobs) -> None:
    with pytest.raises(
        LaunchRefused, match="/gone/bin/python, which was active when the job was submitted, no longer exists"
    ) as it:
        jobs.plan("true", recorded={"python": "/gone/bin/python"})

    assert it.value.code == "C205"


def test_a_path_may_name_an_interpreter_or_its_environment(jobs: Jobs, environment: Path) -> None:
    for path in (environment, environment / "bin" / "python"):
        job = jobs.run(SHOW, python=str(path))
        job.until_over()

        assert job.output().decode().splitlines() == [str(environment), f"{environment} none"]


def test_a_path_that_leads_nowhere_is_refused(jobs: Jobs) -> None:
    with pytest.raises(LaunchRefused, match="no interpreter /nowhere on this machine"):
        jobs.plan("true", python="/nowhere")


def test_the_word_path_takes_what_path_finds_without_the_active_environment(
    jobs: Jobs, environment: Path
) -> None:
    recorded = {"PATH": f"{environment}/bin:{SYSTEM}", "VIRTUAL_ENV": str(environment), "CONDA_PREFIX": "/c"}
    env = (
        jobs.plan("true", python="PATH", recorded={"environment": recorded})
        .plan.learners[0]
        .native["launch"]["env"]
    )

    assert env["PATH"] == SYSTEM
    assert "VIRTUAL_ENV" not in env
    assert "CONDA_PREFIX" not in env


def test_a_conda_environment_is_found_by_name(jobs: Jobs, clean_environment: Path) -> None:
    folder = clean_environment / "miniconda3" / "envs" / "torch"
    folder.mkdir(parents=True)
    venv.create(folder, with_pip=False)
    job = jobs.run(SHOW, python="conda:torch")
    job.until_over()

    assert job.output().decode().splitlines() == [str(folder), "none torch"]


def test_a_conda_environment_is_found_where_conda_says_that_it_is(
    jobs: Jobs, clean_environment: Path
) -> None:
    folder = clean_environment / "elsewhere" / "jax"
    folder.mkdir(parents=True)
    venv.create(folder, with_pip=False)
    (clean_environment / ".conda").mkdir()
    (clean_environment / ".conda" / "environments.txt").write_text(f"/other/one\n{folder}\n")

    env = jobs.plan("true", python="conda:jax").plan.learners[0].native["launch"]["env"]

    assert env["PATH"].split(":")[0] == f"{folder}/bin"
    assert env["CONDA_PREFIX"] == str(folder)


def test_an_unknown_conda_environment_is_refused(jobs: Jobs) -> None:
    with pytest.raises(LaunchRefused, match="no conda environment 'nobody' on this machine") as refused:
        jobs.plan("true", python="conda:nobody")

    assert refused.value.code == "C205"


def test_without_a_recorded_interpreter_path_decides(jobs: Jobs) -> None:
    path = f"{Path(sys.executable).parent}:{SYSTEM}"
    plan = jobs.plan("true", recorded={"python": "", "environment": {"PATH": path}}).plan

    assert plan.learners[0].native["launch"]["env"]["PATH"] == path
