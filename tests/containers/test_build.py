"""``build:`` makes the image of the code's own Dockerfile first, once for the same content."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.conformance.harness import LaunchedAttempt
from runners.container import pull
from runners.shared.container_defaults import image_of
from tests.containers.test_images import containers_of
from tests.support.engine import MakeJob
from tests.support.images import DEBIAN
from workbench.data.code.snapshot import take_snapshot
from workbench.errors import LaunchRefused, ManifestError
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.spec import ImageBuild, spec_from_json, spec_to_json

DOCKERFILE = f"""
FROM {DEBIAN} AS base
ARG ANSWER=none
COPY here.txt /here.txt
RUN echo $ANSWER > /answer; ls /context 2>/dev/null; true
FROM base AS second
RUN echo second > /stage
"""

Code = Callable[..., tuple[str, str]]


@pytest.fixture
def make_job(make_job: MakeJob) -> Iterator[MakeJob]:
    """Plan jobs whose images are built; those images go afterwards."""
    images = set[str]()

    def make(command: str, **options: Any) -> LaunchedAttempt:
        job = make_job(command, **options)
        images.add(image_of(job.request))
        return job

    yield make
    if made := images & built():
        subprocess.run(["docker", "rmi", "-f", *made], check=True, capture_output=True)


@pytest.fixture
def code(tmp_path: Path, home: Home) -> Code:
    """Take snapshots of code with a Dockerfile, of which no other test has one: images are named by content."""
    word = secrets.token_hex(4)

    def make(dockerfile: str = DOCKERFILE, *, name: str = "Dockerfile", here: str = "one") -> tuple[str, str]:
        folder = tmp_path / "code"
        folder.mkdir(exist_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(dockerfile)
        (folder / "here.txt").write_text(here)
        (folder / "left-out").write_text("")
        (folder / ".dockerignore").write_text(f"left-out\n{word}\n")
        made = take_snapshot(folder, home)
        return made.code_hash, str(home.snapshot(made.code_hash))

    return make


def built() -> set[str]:
    """Name the images that were built of code."""
    argv = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "fabric-build"]
    return set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())


def test_the_image_is_built_of_the_code_and_once_for_the_same_content(make_job: MakeJob, code: Code) -> None:
    show = "cat /here.txt /answer /stage; test -e left-out && echo code"
    wanted = ImageBuild(args={"ANSWER": "42"})
    first = make_job(show, image="", code=code(), build=wanted).launch()
    first.until_over()
    second = make_job(show, image="", code=code(), build=wanted).launch()
    second.until_over()
    other = make_job(show, image="", code=code(here="two"), build=wanted).launch()
    other.until_over()

    assert first.output() == b"one42\nsecond\ncode\n"
    assert any("builds the image: Step" in text for _, text in first.progress.lines)
    assert not any("builds" in text for _, text in second.progress.lines)
    assert second.output() == first.output()
    assert other.output() == b"two42\nsecond\ncode\n"


def test_another_file_and_a_stage_may_be_named(make_job: MakeJob, code: Code) -> None:
    wanted = ImageBuild(dockerfile="docker/train", target="base")
    job = make_job("cat /answer; ls /stage", image="", code=code(name="docker/train"), build=wanted)

    job.launch().until_over()

    assert job.output().startswith(b"none\n")
    assert b"second" not in job.output()


@pytest.mark.parametrize(
    ("dockerfile", "message", "code_of"),
    [
        (f"FROM {DEBIAN}\nRUN echo because; exit 3\n", "cannot be built by Dockerfile", "C205"),
        pytest.param(
            "NONSENSE\n",
            "cannot be built by Dockerfile",
            "C205",
            marks=pytest.mark.soak("a file that cannot be read; the gate has a step that fails"),
        ),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(
    make_job: MakeJob, code: Code, dockerfile: str, message: str, code_of: str
) -> None:
    job = make_job("true", image="", code=code(dockerfile), build=ImageBuild())

    with pytest.raises(LaunchRefused, match=message) as caught:
        job.launch()

    assert caught.value.code == code_of
    assert "exit 3" not in dockerfile or "because" in caught.value.hint
    assert containers_of(job.ref().job_id) == []


def test_a_command_that_speaks_of_rights_is_no_base_without_one(make_job: MakeJob, code: Code) -> None:
    dockerfile = f"FROM {DEBIAN}\nRUN echo 'unauthorized: no basic auth credentials'; exit 3\n"
    job = make_job("true", image="", code=code(dockerfile), build=ImageBuild())

    with pytest.raises(LaunchRefused, match="cannot be built by Dockerfile") as caught:
        job.launch()

    assert caught.value.code == "C205"


def test_an_image_to_copy_from_that_nobody_has_is_named(
    make_job: MakeJob, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.1)
    dockerfile = f"FROM {DEBIAN}\nCOPY --from=127.0.0.1:1/nobody/has:1 /a /a\n"
    job = make_job("true", image="", code=code(dockerfile), build=ImageBuild())

    with pytest.raises(Exception, match="of Dockerfile cannot be pulled"):
        job.launch()


def test_a_base_that_nobody_has_is_named(
    make_job: MakeJob, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.1)
    job = make_job("true", image="", code=code("FROM 127.0.0.1:1/nobody/has:1\n"), build=ImageBuild())

    with pytest.raises(Exception, match="of Dockerfile cannot be pulled"):
        job.launch()


def test_a_dockerfile_that_is_not_there_is_named(make_job: MakeJob, code: Code) -> None:
    job = make_job("true", image="", code=code(), build=ImageBuild(dockerfile="other"))

    with pytest.raises(LaunchRefused, match="There is no other in the code") as caught:
        job.launch()

    assert caught.value.code == "C101"


def test_a_manifest_says_it_by_name_or_in_full() -> None:
    text = "name: a\nframework: {command: 'true'}\n"

    assert load_text(text + "build: Dockerfile\n", "m.yml").spec.build == ImageBuild()
    full = load_text(text + "build: {dockerfile: d/f, args: {A: 1}, target: t}\n", "m.yml").spec
    assert full.build == ImageBuild("d/f", {"A": "1"}, "t")
    assert full.image == "built by d/f"
    assert spec_from_json(spec_to_json(full)) == full
    with pytest.raises(ManifestError, match="build"):
        load_text(text + "build: ../Dockerfile\n", "m.yml")
