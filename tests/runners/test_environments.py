"""Environments of ``requirements``: built once, shared, never half made, removed only when nobody uses them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from runners.shared.host_facts import read_host_facts
from runners.shared.virtualenvs import in_use, remove_environment
from tests.runners.jobs import HOME, Jobs
from workbench.errors import LaunchRefused
from workbench.paths import Home

SHOW = "python -c 'import sixpence; print(sixpence.VALUE)'; echo $VIRTUAL_ENV"


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A package that is installed without any network; as a requirement."""
    path = tmp_path / "sixpence-1.0-py3-none-any.whl"
    files = {
        "sixpence.py": "VALUE = 6\n",
        "sixpence-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sixpence\nVersion: 1.0\n",
        "sixpence-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "sixpence-1.0.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")
    return f"sixpence @ {path.as_uri()}"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neither pip nor uv ask anybody."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let uv be found, which builds an environment in a tenth of the time; pip does it where there is none."""
    program = shutil.which("uv") or os.environ.get("UV")
    if program:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "uv").symlink_to(program)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


with_uv = pytest.mark.usefixtures("uv")


def built(home: Home) -> list[Path]:
    return [path for path in home.environments.iterdir() if path.is_dir()]


def test_requirements_become_an_environment_that_is_recorded_and_shared(
    jobs: Jobs, home: Home, wheel: str
) -> None:
    first = jobs.run(SHOW, python="requirements", requirements=(wheel,))
    first.until_over()
    (folder,) = built(home)
    made = (folder / ".complete").stat().st_mtime_ns
    second = jobs.run(SHOW, python="requirements", requirements=(wheel, wheel))
    second.until_over()

    assert first.output().decode().splitlines() == ["6", str(folder)]
    assert second.output() == first.output()
    assert built(home) == [folder]
    assert (folder / ".complete").stat().st_mtime_ns == made
    record = home.job(first.request.attempt.job_id).attempt(1).path / "environment.json"
    document = json.loads(record.read_text())
    assert document["key"] == folder.name
    assert any(line.startswith("sixpence") for line in document["packages"])
    env = first.plan.learners[0].native["launch"]["env"]
    assert (env["FABRIC_ENVIRONMENT"], env["PATH"].split(":")[0]) == (folder.name, f"{folder}/bin")
    assert any(
        (stage == "preparing" and "$ " in text) or "pip" in text for stage, text in first.progress.lines
    )


@with_uv
def test_two_jobs_at_once_build_one(jobs: Jobs, home: Home, wheel: str) -> None:
    waiting = [jobs.plan(SHOW, python="requirements", requirements=(wheel,)) for _ in range(3)]
    threads = [threading.Thread(target=job.launch) for job in waiting]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {job.until_over()[1].exit_code for job in waiting} == {0}
    assert len(built(home)) == 1


@with_uv
def test_what_cannot_be_built_is_refused_with_the_last_lines(jobs: Jobs, home: Home) -> None:
    job = jobs.plan("true", python="requirements", requirements=("no-such-package-anywhere==1.0",))

    with pytest.raises(LaunchRefused, match="could not be built") as refused:
        job.launch()

    assert refused.value.code == "C205"
    assert "no-such-package-anywhere" in refused.value.hint
    assert not list(home.environments.glob("*/.complete"))


@with_uv
def test_a_half_made_environment_is_built_anew(jobs: Jobs, home: Home, wheel: str) -> None:
    job = jobs.plan(SHOW, python="requirements", requirements=(wheel,))
    key = job.plan.learners[0].native["launch"]["env"]["FABRIC_ENVIRONMENT"]
    (home.environments / key / "bin").mkdir(parents=True)
    (home.environments / key / "bin" / "python").write_text("half")

    job.launch().until_over()

    assert job.output().splitlines()[0] == b"6"


@with_uv
def test_an_environment_in_use_is_not_removed(jobs: Jobs, home: Home, wheel: str) -> None:
    job = jobs.run("echo up; while :; do sleep 1; done", python="requirements", requirements=(wheel,))
    job.until_printed(b"up")
    (folder,) = built(home)
    facts = read_host_facts(jobs.host, HOME)

    assert in_use(jobs.host) == {folder.name}
    assert not remove_environment(folder.name, facts, jobs.host)
    job.stop().until_over()
    job.runner.remove(job.request.attempt)

    assert remove_environment(folder.name, facts, jobs.host)
    assert not folder.exists()


def test_another_interpreter_makes_another_environment(jobs: Jobs, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho \'["another", "/usr", "x86_64", "Linux"]\'\n: {sys.executable}\n')
    other.chmod(0o755)

    keys = {
        jobs.plan("true", python="requirements", requirements=("a",), recorded={"python": python})
        .plan.learners[0]
        .native["launch"]["env"]["FABRIC_ENVIRONMENT"]
        for python in (sys.executable, str(other))
    }

    assert len(keys) == 2


def test_an_interpreter_that_does_not_work_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho wrong architecture >&2\nexit 1\n")
    broken.chmod(0o755)

    with pytest.raises(LaunchRefused, match="does not work") as refused:
        jobs.plan("true", python="requirements", requirements=("a",), recorded={"python": str(broken)})

    assert (refused.value.code, refused.value.hint) == ("C205", "wrong architecture")
