"""The login of a job to the registry of its image, as engines and clusters take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runners.conformance.harness import request_of
from runners.interface import LaunchRequest
from runners.pod.options import options_for
from runners.pod.plan import refusals
from runners.pod.runner import PodRunner
from runners.pod.stores import secret_names, secret_values
from runners.shared.registry_login import learner_secrets, login_of
from workbench.errors import LaunchRefused
from workbench.spec import ImageBuild

HUB = "https://index.docker.io/v1/"
IMAGE = "reg.example.com:5000/team/image:1"


def asked(image: str = IMAGE, **location: str) -> LaunchRequest:
    return request_of("true", home="h", image=image, location=location)


def to_engine(request: LaunchRequest) -> dict[str, str]:
    login = login_of(request)
    assert login is not None
    return login.to_engine()


def test_a_job_without_a_login_leaves_it_to_the_users_own() -> None:
    assert login_of(asked()) is None
    assert login_of(asked(registry="reg.example.com", email="me@example.com")) is None


@pytest.mark.parametrize(
    ("location", "login"),
    [
        ({"username": "me", "password": "p"}, {"username": "me", "password": "p"}),
        ({"access_token": "t"}, {"username": "token", "password": "t"}),
        ({"username": "me", "access_token": "t"}, {"username": "me", "password": "t"}),
        ({"auth": "bWU6cDpx"}, {"username": "me", "password": "p:q"}),
        ({"username": "me", "identity_token": "i"}, {"username": "me", "identitytoken": "i"}),
        ({"registry_token": "r"}, {"registrytoken": "r"}),
        ({"access_token": "t", "email": "a@b"}, {"username": "token", "password": "t", "email": "a@b"}),
    ],
)
def test_an_engine_gets_what_the_manifest_says(location: dict[str, str], login: dict[str, str]) -> None:
    assert to_engine(asked(**location)) == {**login, "serveraddress": "reg.example.com:5000"}


@pytest.mark.parametrize(
    ("image", "location", "address"),
    [
        ("me/private:1", {}, HUB),
        ("docker.io/me/private:1", {}, HUB),
        ("image:1", {"registry": "ghcr.io", "namespace": "team"}, "ghcr.io"),
        ("ghcr.io/team/image:1", {"registry": "ghcr.io"}, "ghcr.io"),
    ],
)
def test_a_login_is_to_the_registry_of_the_image(image: str, location: dict[str, str], address: str) -> None:
    assert to_engine(asked(image, **location, access_token="t"))["serveraddress"] == address


@pytest.mark.parametrize(("registry", "address"), [("ghcr.io", "ghcr.io"), ("", HUB)])
def test_a_login_for_a_build_is_to_the_registry_that_the_job_names(registry: str, address: str) -> None:
    request = asked("", registry=registry, access_token="t")

    built = replace(request, spec=replace(request.spec, build=ImageBuild()))

    assert to_engine(built)["serveraddress"] == address


@pytest.mark.parametrize("auth", ["bm90aGluZw==", "me:p"])
def test_an_auth_that_holds_no_login_is_refused(auth: str) -> None:
    with pytest.raises(LaunchRefused, match="auth is not the base64 of USER:PASSWORD"):
        login_of(asked(auth=auth))


def test_a_credential_that_was_not_kept_is_refused() -> None:
    request = replace(asked(username="me", password="p"), secrets={})

    with pytest.raises(LaunchRefused, match=r"no value for framework\.image_location\.password"):
        login_of(request)


def test_a_learner_gets_no_login() -> None:
    request = request_of(
        "true", home="h", image=IMAGE, secrets={"TOKEN": "mine"}, location={"access_token": "t"}
    )

    assert learner_secrets(request) == secret_values(request) == {"TOKEN": "mine"}
    assert secret_names(request) == ["TOKEN"]
    assert secret_names(asked(access_token="t")) == []


def planned(
    request: LaunchRequest, **settings: Any
) -> tuple[dict[str, dict[str, Any]], list[dict[str, str]]]:
    """Return the Secrets of a job in pods by their names, and which of them its pod pulls with."""
    plan = PodRunner.plan_unconnected(request, settings)
    assert refusals(request, options_for(settings, request.spec)) == []
    secrets = {one["metadata"]["name"]: dict(one) for one in plan.objects if one["kind"] == "Secret"}
    (job,) = (one for one in plan.objects if one["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    return secrets, list(pod.get("imagePullSecrets", ()))


def test_a_pod_pulls_with_a_secret_of_the_jobs_own_beside_those_of_its_backend() -> None:
    request = asked(username="me", password="hush")

    secrets, used = planned(request, image_pull_secrets=["registry"])

    own, others = used
    assert others == {"name": "registry"}
    secret = secrets[own["name"]]
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert secret["stringData"] == {".dockerconfigjson": "<the login to reg.example.com:5000>"}
    (given,) = (one for name, one in secrets.items() if name.endswith("-given"))
    assert secret["metadata"]["labels"] == given["metadata"]["labels"]
    assert "hush" not in str(secrets)


def test_a_pod_of_a_job_without_a_login_has_none() -> None:
    secrets, used = planned(asked())

    assert used == []
    assert [name.rpartition("-")[2] for name in secrets] == ["given"]


@pytest.mark.parametrize("key", ["identity_token", "registry_token"])
def test_a_token_that_nodes_do_not_take_is_refused_in_a_cluster(key: str) -> None:
    request = asked(**{key: "hush"})

    (reason,) = refusals(request, options_for({}, request.spec))

    assert f"framework.image_location.{key} cannot be used in a cluster" in reason
    assert "hush" not in reason


def test_nodes_get_a_configuration_of_docker_with_one_login() -> None:
    login = login_of(asked("me/private", username="me", password="p", email="a@b"))

    assert login is not None
    assert login.to_docker_config() == {"auths": {HUB: {"username": "me", "password": "p", "email": "a@b"}}}
