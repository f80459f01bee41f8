"""Which registry an image comes from, and which one an address names."""

from __future__ import annotations

import base64

import pytest

from workbench.errors import ManifestError
from workbench.manifest import load_text
from workbench.manifest.keys.registries import decoded_auth, host_of, registry_of


@pytest.mark.parametrize(
    ("reference", "registry"),
    [
        ("busybox", "docker.io"),
        ("pytorch/pytorch:latest", "docker.io"),
        ("docker.io/me/private:1", "docker.io"),
        ("index.docker.io/me/private:1", "docker.io"),
        ("ghcr.io/team/image@sha256:00", "ghcr.io"),
        ("Registry.Example.com/team/image", "registry.example.com"),
        ("registry:5000/image:1", "registry:5000"),
        ("127.0.0.1:5000/team/image:1", "127.0.0.1:5000"),
        ("localhost/image", "localhost"),
        ("name:5000", "docker.io"),
    ],
)
def test_an_image_comes_from_the_registry_that_its_name_begins_with(reference: str, registry: str) -> None:
    assert registry_of(reference) == registry


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://index.docker.io/v1/", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("https://r.example.com:5000/v2/", "r.example.com:5000"),
        ("r.example.com:5000", "r.example.com:5000"),
        ("http://127.0.0.1:5000", "127.0.0.1:5000"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_a_registry_is_named_by_its_host_or_by_its_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_what_docker_calls_auth_is_a_user_and_a_password() -> None:
    assert decoded_auth(base64.b64encode(b"me:pass:word").decode()) == ("me", "pass:word")


@pytest.mark.parametrize("text", ["", "********", "bWU6", "bm90aGluZw==", "me:password", "/w=="])
def test_what_is_no_auth_is_none(text: str) -> None:
    assert decoded_auth(text) is None


WITH_LOGIN = """\
name: a
framework:
  name: custom
  version: r.example.com/team/x:1
  command: "true"
  image_location: {username: me, password: "${PASSWORD}"}
"""


@pytest.mark.parametrize(
    ("sets", "image"),
    [
        (["framework.version=other.example.com/x:1"], ""),
        (["framework.version=pytorch/pytorch"], ""),
        ([], "other.example.com/x:1"),
    ],
)
def test_a_login_is_not_sent_to_the_registry_of_an_image_that_was_named_in_the_stead_of_the_files(
    sets: list[str], image: str
) -> None:
    with pytest.raises(ManifestError) as refused:
        load_text(WITH_LOGIN, "file", overrides=sets, flags={"image": image or None})

    (fault,) = refused.value.faults
    assert fault.problem.endswith("and the login of framework.image_location is for r.example.com")
    assert "--set framework.image_location=null" in fault.hint


@pytest.mark.parametrize(
    ("sets", "image", "keys"),
    [
        ([], "r.example.com/other:2", {"username", "password"}),
        (["framework.image_location=null"], "other.example.com/x:1", set()),
        (
            ["framework.image_location.registry=other.example.com"],
            "other.example.com/x:1",
            {"username", "password", "registry"},
        ),
    ],
)
def test_a_login_goes_where_the_file_or_the_command_line_says(
    sets: list[str], image: str, keys: set[str]
) -> None:
    loaded = load_text(WITH_LOGIN, "file", overrides=sets, flags={"image": image})

    assert loaded.spec.framework.image == image
    assert dict(loaded.spec.framework.image_location).keys() == keys
