from __future__ import annotations

import pytest

from tests.quick.manifest.support import SMALL, loaded
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
