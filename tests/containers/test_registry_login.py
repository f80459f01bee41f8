"""A job brings a login to the registry of its image along: the engine gets it, and nobody else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.shared.registry_login import LOGIN_HINT
from tests.containers.test_build import Code
from tests.containers.test_build import code as code
from tests.containers.test_build import make_job as make_job
from tests.containers.test_handed_over import await_phase, give
from tests.containers.test_handed_over import busy as busy
from tests.containers.test_handed_over import ground as ground
from tests.support.controllers import answers, kill
from tests.support.engine import MakeJob
from tests.support.images import BUSYBOX
from tests.support.real_jobs import Ground
from tests.support.registry import (
    IDENTITY_TOKEN,
    PASSWORD,
    REGISTRY_TOKEN,
    USER,
    Registry,
    auth_of,
    docker_config,
    registry_of,
)
from workbench.controller.client.connect import ensure_controller, status
from workbench.errors import LaunchRefused
from workbench.job import State
from workbench.learner.platform import leases
from workbench.paths import Home
from workbench.spec import ImageBuild

LOGIN = {"username": USER, "password": PASSWORD}
WRONG = {"username": USER, "password": "another password"}


@pytest.fixture
def registry(engine: None) -> Iterator[Registry]:
    """A registry with an image that the engine does not have yet."""
    with registry_of(BUSYBOX) as served:
        yield served


@pytest.mark.parametrize(
    "login",
    [LOGIN, {"username": USER, "access_token": PASSWORD}, {"auth": auth_of(USER, PASSWORD)}],
    ids=["password", "token", "auth"],
)
def test_an_image_is_pulled_with_the_login_of_the_job(
    make_job: MakeJob, registry: Registry, home: Home, clean_environment: Path, login: dict[str, str]
) -> None:
    job = make_job("echo ran; env", image=registry.image, location=login)

    job.launch().until_over()

    assert job.output().startswith(b"ran\n")
    assert any("/manifests/" in one for one in registry.asked)
    for file in (
        one for folder in (home.path, clean_environment) for one in folder.rglob("*") if one.is_file()
    ):
        assert PASSWORD.encode() not in file.read_bytes(), file
    assert not (clean_environment / ".docker" / "config.json").exists()


@pytest.mark.parametrize(
    "login",
    [{"identity_token": IDENTITY_TOKEN}, {"registry_token": REGISTRY_TOKEN}],
    ids=["identity", "registry"],
)
def test_an_image_is_pulled_with_a_token_of_the_registrys_own_server(
    make_job: MakeJob, engine: None, login: dict[str, str]
) -> None:
    with registry_of(BUSYBOX, grants_tokens=True) as registry:
        job = make_job("echo ran", image=registry.image, location=login)

        job.launch().until_over()

        assert job.output() == b"ran\n"


def test_a_wrong_password_is_refused_though_docker_knows_the_right_one(
    make_job: MakeJob, registry: Registry, clean_environment: Path
) -> None:
    (clean_environment / ".docker").mkdir(exist_ok=True)
    (clean_environment / ".docker" / "config.json").write_text(docker_config(registry))
    job = make_job("true", image=registry.image, location=WRONG)

    with pytest.raises(LaunchRefused, match="you have no right to it") as refused:
        job.launch()

    assert (refused.value.code, refused.value.hint) == ("S103", LOGIN_HINT)
    assert registry.asked == []


def test_a_credential_that_is_not_here_is_named(make_job: MakeJob, registry: Registry) -> None:
    lost = {"username": USER, "password": "${secret:framework.image_location.password}"}
    job = make_job("true", image=registry.image, location=lost)

    with pytest.raises(LaunchRefused, match=r"no value for framework\.image_location\.password") as refused:
        job.launch()

    assert refused.value.code == "C103"


@pytest.mark.parametrize(("login", "is_right"), [(LOGIN, True), (WRONG, False)], ids=["right", "wrong"])
def test_a_base_image_is_pulled_with_the_login_to_the_registry_that_the_job_names(
    make_job: MakeJob, registry: Registry, code: Code, login: dict[str, str], is_right: bool
) -> None:
    more: dict[str, Any] = {"code": code(f"FROM {registry.image}\nRUN echo built > /made\n")}
    location = {"registry": registry.address, **login}
    job = make_job("cat /made", image="", build=ImageBuild(), location=location, **more)

    if is_right:
        job.launch().until_over()
        assert job.output() == b"built\n"
        return
    with pytest.raises(LaunchRefused, match="you have no right to it") as refused:
        job.launch()
    assert (refused.value.code, refused.value.hint) == ("S103", LOGIN_HINT)


def test_the_login_of_a_job_comes_before_a_credential_helper_in_a_build(
    make_job: MakeJob,
    registry: Registry,
    code: Code,
    tmp_path: Path,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = tmp_path / "bin" / "docker-credential-known"
    helper.parent.mkdir()
    known = json.dumps({"ServerURL": registry.address, "Username": USER, "Secret": "of the helper"})
    helper.write_text(f"#!/bin/sh\necho '{known}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(helper.parent), prepend=os.pathsep)
    (clean_environment / ".docker").mkdir(exist_ok=True)
    config = {"credHelpers": {registry.address: "known"}}
    (clean_environment / ".docker" / "config.json").write_text(json.dumps(config))
    location = {"registry": registry.address, **LOGIN}
    image: dict[str, Any] = {"code": code(f"FROM {registry.image}\n"), "build": ImageBuild()}
    job = make_job("echo ran", image="", location=location, **image)

    job.launch().until_over()

    assert job.output() == b"ran\n"


def test_a_job_that_waits_at_its_host_has_its_image_and_needs_no_login_there(
    ground: Ground, busy: leases.Lease, registry: Registry
) -> None:
    once = "test -e $RESULT_DIR/once || { touch $RESULT_DIR/once; exit 3; }"
    job_id = give(ground, once, image=registry.image, location=LOGIN, max_restarts=1)
    asked = len(registry.asked)
    assert asked
    for folder in (ground.home.job(job_id).path, ground.home.path / "waiting"):
        for file in (one for one in folder.rglob("*") if one.is_file()):
            assert PASSWORD.encode() not in file.read_bytes(), file

    kill(answers(ground.home).pid)
    busy.release()
    await_phase(ground, job_id, "exited")
    assert status(ground.home) is None
    ensure_controller(ground.home)

    assert ground.ends(job_id, 2).state is State.COMPLETED
    assert len(registry.asked) == asked
