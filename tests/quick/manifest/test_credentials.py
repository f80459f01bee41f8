from __future__ import annotations

import json

import pytest

from tests.quick.manifest.support import SMALL, faults_of, loaded
from workbench.manifest.keys.credentials import needed_by
from workbench.spec import spec_to_json

TEXT = """\
name: small
framework:
  command: python train.py
  image_location: {registry: r.example.com, access_token: tok3n}
data_stores:
  - id: a
    type: mount_cos
    training_data: {container: x}
    connection:
      auth_url: http://x
      user_name: me
      password: PASSWORD   # of mine
"""


@pytest.mark.parametrize("written", ["hunter2", "'hunter2'", '"hunter2"', "|\n        hunter2\n"])
def test_a_password_is_in_nothing_that_is_kept(written: str) -> None:
    found = loaded(TEXT.replace("PASSWORD", written))

    kept = found.text + str(spec_to_json(found.spec)) + str(found.origins) + repr(found)
    assert "hunter2" not in kept
    assert "tok3n" not in kept
    assert {path: value.strip() for path, value in found.credentials.items()} == {
        "data_stores.0.connection.password": "hunter2",
        "framework.image_location.access_token": "tok3n",
    }
    assert found.spec.data_stores[0].connection["password"] == "${secret:data_stores.0.connection.password}"


@pytest.mark.parametrize("style", ["|", "|-", ">"])
@pytest.mark.parametrize("after", ["", "\n", "\n      # of theirs\n"])
def test_a_password_in_a_block_leaves_a_text_that_reads_as_the_same_job(style: str, after: str) -> None:
    block = f"password: {style}\n        hunter2\n{after}      user_name: me\n"
    text = TEXT.replace("      user_name: me\n", "").replace("password: PASSWORD   # of mine\n", block)
    found = loaded(text)

    assert "hunter2" not in found.text
    assert loaded(found.text).spec == found.spec
    assert found.text.endswith(f'password: "********"\n{after}      user_name: me\n')


@pytest.mark.parametrize("last", ["\u00a0", "\u2003", "\u3000"])
def test_a_password_that_ends_with_a_blank_of_unicode_leaves_none_of_it(last: str) -> None:
    found = loaded(TEXT.replace("PASSWORD", f"hunter2{last}"))

    assert loaded(found.text).spec == found.spec
    assert last not in found.text


@pytest.mark.parametrize("style", ["|", "|-", "|+", ">-", "|2 # mine"])
@pytest.mark.parametrize("after", ["", "\n\n", "    # of theirs\n"])
def test_a_private_key_of_several_lines_leaves_an_experiment(style: str, after: str) -> None:
    block = (
        f"{style}\n      -----BEGIN PRIVATE KEY-----\n      aHVudGVyMg==\n\n      -----END PRIVATE KEY-----\n"
    )
    text = (
        "searcher: {name: single, metric: x}\nentrypoint: a\ndata:\n  secrets:\n"
        f"    pem: {block}{after}    list:\n    - {block}{after}    - {block}    last: {block}  root: /d\n"
    )
    found = loaded(text)

    assert not any(line in found.text for line in ("PRIVATE", "aHVudGVyMg"))
    again = loaded(found.text)
    assert again.spec == found.spec
    assert json.loads(again.credentials["DET_DATA_SECRETS"]) == {
        "pem": "********",
        "list": ["********", "********"],
        "last": "********",
    }


def test_the_kept_text_reads_as_the_same_job() -> None:
    found = loaded(TEXT)

    again = loaded(found.text)

    assert again.spec == found.spec
    assert again.credentials["data_stores.0.connection.password"] == "********"


def test_a_password_set_on_the_command_line_is_kept_out_too() -> None:
    found = loaded(TEXT, sets=["data_stores.0.connection.password=s3cret"])

    assert "s3cret" not in found.text + str(spec_to_json(found.spec))
    assert found.credentials["data_stores.0.connection.password"] == "s3cret"


def test_a_password_under_a_wrong_key_is_overwritten_too() -> None:
    text = TEXT.replace("password: PASSWORD", "secret_access_key: hunter2\n      password: p")

    assert "hunter2" not in loaded(text).text


def test_a_manifest_without_credentials_is_kept_as_it_is() -> None:
    assert loaded().text == SMALL


def test_the_name_of_a_secret_stays_in_the_text_and_its_place_in_the_spec() -> None:
    found = loaded(TEXT.replace("PASSWORD", "${S3_KEY}").replace("user_name: me", "user_name: '${S3_USER}'"))

    assert "password: ${S3_KEY}" in found.text
    assert found.credentials["data_stores.0.connection.password"] == "${S3_KEY}"
    assert found.credentials["data_stores.0.connection.user_name"] == "${S3_USER}"
    assert found.spec.data_stores[0].connection["user_name"] == "${secret:data_stores.0.connection.user_name}"


LOGIN = """\
name: small
framework:
  name: custom
  version: r.example.com/team/image:1
  command: python train.py
  image_location: {LOGIN}
"""


@pytest.mark.parametrize(
    ("login", "key"),
    [
        ("{username: me, password: hunter2}", "password"),
        ("{username: me, access_token: hunter2}", "access_token"),
        ("{auth: hunter2}", "auth"),
        ("{username: me, identity_token: hunter2}", "identity_token"),
        ("{identitytoken: hunter2}", "identity_token"),
        ("{registry_token: hunter2}", "registry_token"),
        ("{registrytoken: hunter2}", "registry_token"),
    ],
)
@pytest.mark.parametrize("name", ["image_location", "imagelocation"])
def test_a_login_to_the_images_registry_is_in_nothing_that_is_kept(login: str, key: str, name: str) -> None:
    text = LOGIN.replace("image_location", name).replace("{LOGIN}", login)

    found = loaded(text)

    assert "hunter2" not in found.text + str(spec_to_json(found.spec)) + str(found.origins) + repr(found)
    path = f"framework.image_location.{key}"
    assert found.credentials == {path: "hunter2"}
    assert found.spec.framework.image_location[key] == f"${{secret:{path}}}"
    assert needed_by(found.spec) == [path]
    assert loaded(found.text).spec == found.spec


def test_a_user_of_a_registry_may_be_a_secret_as_that_of_a_store_may() -> None:
    found = loaded(
        LOGIN.replace("{LOGIN}", "{username: '${REGISTRY_USER}', password: '${REGISTRY_PASSWORD}'}")
    )

    assert "${REGISTRY_USER}" in found.text
    assert found.credentials == {
        "framework.image_location.username": "${REGISTRY_USER}",
        "framework.image_location.password": "${REGISTRY_PASSWORD}",
    }
    assert "REGISTRY" not in str(found.spec.framework.image_location)


@pytest.mark.parametrize(
    ("login", "problem"),
    [
        ("{username: me}", "framework.image_location.username: has no password"),
        ("{password: hunter2}", "framework.image_location.password: has no user"),
        ("{username: me, password: a, access_token: b}", "access_token: stands beside password"),
        ("{username: me, password: a, auth: b}", "auth: stands beside password"),
        ("{auth: a, registry_token: b}", "registry_token: stands beside auth"),
    ],
)
def test_half_a_login_and_two_logins_are_refused(login: str, problem: str) -> None:
    (fault,) = faults_of(LOGIN.replace("{LOGIN}", login))

    assert problem in str(fault)


def test_a_login_for_a_build_names_its_registry() -> None:
    text = (
        LOGIN.replace("  name: custom\n  version: r.example.com/team/image:1\n", "") + "build: Dockerfile\n"
    )
    without, named = "{access_token: t}", "{registry: r.example.com, access_token: t}"

    (fault,) = faults_of(text.replace("{LOGIN}", without))
    assert "is a login without the registry" in str(fault)
    assert loaded(text.replace("{LOGIN}", named)).warnings == ()
