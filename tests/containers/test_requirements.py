"""``requirements:`` in a container: made once by the image's Python, mounted, and the image stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.container.runner import ContainerRunner
from tests.containers.index import make_certificate, served_index
from tests.containers.test_images import containers_of
from tests.support.engine import MakeJob
from tests.support.images import BUSYBOX, DEBIAN, NOSHELL, OLD, USER
from workbench.errors import LaunchRefused
from workbench.paths import Home

SAYS = "python3 -c 'import fabric_sample, sys; print(fabric_sample.VERSION, sys.prefix)'; echo $VIRTUAL_ENV"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An index on loopback, as a proxy of a company's would be, named by pip's options."""
    certificates = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
    for name in ("PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", *certificates):
        monkeypatch.delenv(name, raising=False)
    with served_index(tmp_path) as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        yield


def image_id(name: str) -> str:
    """Return which image a name stands for now."""
    argv = ["docker", "image", "inspect", "-f", "{{.Id}} {{.Size}}", name]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "image",
    [pytest.param(DEBIAN, marks=pytest.mark.soak("an image that runs as root; the gate has a user's")), USER],
)
def test_requirements_are_there_whoever_the_image_runs_as_and_the_image_stays_as_it_is(
    make_job: MakeJob, home: Home, image: str
) -> None:
    before = image_id(image)
    job = make_job(SAYS, image=image, python="requirements", requirements=("fabric_sample==1.0",)).launch()

    assert job.until_over()[1].exit_code == 0, job.output()
    assert job.output() == b"1.0 /.fabric/env\n/.fabric/env\n"
    assert image_id(image) == before
    environment = json.loads((home.job(job.ref().job_id).attempt(1).path / "environment.json").read_text())
    assert [line.replace("_", "-") for line in environment["packages"]] == ["fabric-sample==1.0"]
    assert environment["key"]


def test_pips_own_configuration_counts_in_there(
    make_job: MakeJob, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = clean_environment / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(f"[global]\nindex-url = {os.environ['PIP_INDEX_URL']}\n")
    monkeypatch.delenv("PIP_INDEX_URL")
    job = make_job(SAYS, python="requirements", requirements=("fabric_sample",)).launch()
    job.until_over()

    assert job.output().startswith(b"1.0")


@pytest.mark.parametrize(
    "named_by",
    [
        "PIP_CERT",
        pytest.param(
            "REQUESTS_CA_BUNDLE",
            marks=pytest.mark.soak("a second variable; the gate has PIP_CERT"),
        ),
        pytest.param("pip.conf", marks=pytest.mark.soak("the gate has PIP_CERT, and a pip.conf above")),
    ],
)
def test_an_index_whose_certificate_only_the_host_knows_is_trusted(
    make_job: MakeJob, clean_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    certificate, key = make_certificate(tmp_path)
    if named_by == "pip.conf":
        folder = clean_environment / ".config" / "pip"
        folder.mkdir(parents=True)
        (folder / "pip.conf").write_text(f"[global]\ncert = {certificate}\n")
    (tmp_path / "tls").mkdir()
    with served_index(tmp_path / "tls", (certificate, key)) as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        environment = {} if named_by == "pip.conf" else {named_by: str(certificate)}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        recorded = {"environment": environment}
        job = make_job(
            SAYS, python="requirements", requirements=(f"fabric_sample  # {named_by}",), recorded=recorded
        ).launch()
        job.until_over()

    assert job.output().startswith(b"1.0")


def test_an_environment_is_made_once_for_a_list_and_an_image(make_job: MakeJob, home: Home) -> None:
    wanted = {"python": "requirements", "requirements": ("fabric_sample",)}
    first = make_job(SAYS, **wanted).launch()
    first.until_over()
    built = [text for _, text in first.progress.lines if "environment" in text]
    second = make_job(SAYS, **wanted).launch()
    second.until_over()
    other = make_job(SAYS, python="requirements", requirements=("fabric_sample==9",))

    with pytest.raises(LaunchRefused, match="could not be built") as caught:
        other.launch()

    assert built
    assert not [text for _, text in second.progress.lines if "environment" in text]
    assert second.output() == first.output()
    assert caught.value.code == "C205"
    (failed,) = home.environments.glob("*/.failed")
    assert list(failed.parent.iterdir()) == [failed]
    assert "fabric_sample" in caught.value.hint
    assert len([path for path in home.environments.iterdir() if (path / ".complete").exists()]) == 1
    assert containers_of(other.ref().job_id) == []


@pytest.mark.parametrize(("image", "has"), [(OLD, "has Python 3.5.2"), (BUSYBOX, "has no Python")])
def test_an_image_whose_python_is_too_old_or_missing_is_refused_before_the_launch(
    make_job: MakeJob, image: str, has: str
) -> None:
    job = make_job(SAYS, image=image, python="requirements", requirements=("fabric_sample",))

    with pytest.raises(LaunchRefused, match=f"{has}, and requirements need Python 3.8 or newer") as caught:
        job.launch()

    assert "setup:" in caught.value.hint
    assert containers_of(job.ref().job_id) == []


def test_an_image_without_a_shell_cannot_have_requirements(make_job: MakeJob) -> None:
    job = make_job(SAYS, image=NOSHELL, python="requirements", requirements=("fabric_sample",))

    with pytest.raises(LaunchRefused, match="has no sh"):
        job.launch()


def test_the_plan_names_the_environment_and_its_place_on_the_path(make_job: MakeJob) -> None:
    plan = make_job("true", python="requirements", requirements=("numpy",)).plan
    container = plan.learners[0].native["container"]

    assert "PATH=/.fabric/env/bin:<chosen at launch>" in container["Env"]
    assert "/.fabric/env" in [mount["Target"] for mount in container["HostConfig"]["Mounts"]]


def test_a_build_that_was_begun_by_a_launch_that_died_is_waited_for(
    make_job: MakeJob, runner: ContainerRunner
) -> None:
    wanted = {"python": "requirements", "requirements": ("fabric_sample",)}
    job = make_job(SAYS, **wanted)
    waiter = Cut()
    with pytest.raises(KeyboardInterrupt):
        job.runner.launch(job.plan, waiter)

    job.launch().until_over()

    assert job.output().startswith(b"1.0")


class Cut:
    """Interrupts a launch as soon as its environment is being built."""

    def __call__(self, text: str, *, stage: str) -> None:
        """Take one line in words."""
        if "environment" in text:
            raise KeyboardInterrupt
