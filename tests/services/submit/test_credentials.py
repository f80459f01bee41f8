"""Credentials of a manifest: what ``${NAME}`` stands for, what is written out, and what no record shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import NotAllowed, UsageError
from workbench.manifest import Loaded, load_text
from workbench.services.submit.credentials import inline_secrets, masked, with_values, without_credentials

USER, KEY = "data_stores.0.connection.user_name", "data_stores.0.connection.password"


def manifest(connection: str) -> Loaded:
    text = f"""\
name: digits
framework: {{command: "true"}}
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {{container: pictures}}
    connection: {{{connection}}}
"""
    return load_text(text, "manifest.yml", environ={}, defaults={})


def test_a_manifest_without_credentials_needs_nothing() -> None:
    loaded = load_text("name: a\nframework: {command: 'true'}\n", "m.yml", environ={}, defaults={})

    assert with_values(loaded) == (loaded, [])


def test_a_reference_becomes_a_value_that_only_the_job_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_USER", "me")
    monkeypatch.setenv("LAB_KEY", "${LAB_USER} \U0001f511")
    loaded = manifest('auth_url: "http://a", user_name: "${LAB_USER}", password: "${LAB_KEY}"')

    found, warnings = with_values(loaded)

    # A value is not looked at again: what looks like a reference in it is none.
    assert found.credentials == {USER: "me", KEY: "${LAB_USER} \U0001f511"}
    assert found.spec == loaded.spec
    assert warnings == []


def test_a_reference_in_an_address_is_replaced_in_the_records_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB", "lab.example.com:9000")
    loaded = manifest('auth_url: "http://${LAB}/x", user_name: me, password: "${LAB}"')

    found, _ = with_values(loaded)

    (store,) = found.spec.data_stores
    assert store.connection["auth_url"] == "http://lab.example.com:9000/x"
    assert store.connection["password"] == f"${{secret:{KEY}}}"
    assert loaded.spec.data_stores[0].connection["auth_url"] == "http://${LAB}/x"


def test_what_is_written_out_works_and_is_warned_of_by_its_key() -> None:
    loaded = manifest('auth_url: "http://a", user_name: me, password: hunter2hunter2')

    found, warnings = with_values(loaded)

    assert found.credentials == {KEY: "hunter2hunter2"}
    assert warnings == [
        f"manifest.yml: {KEY} is written out for all to read; write ${{NAME}} and give NAME by your environment,"
        " secrets.toml or keyring"
    ]
    assert inline_secrets(loaded) == ["hunter2hunter2"]
    assert inline_secrets(manifest('auth_url: "http://a", user_name: me, password: "${KEY}"')) == []


def test_of_several_that_are_written_out_one_is_named_and_the_others_counted() -> None:
    text = manifest('auth_url: "http://a", user_name: me, password: hunter2hunter2').text
    loaded = load_text(
        "name: digits\nframework: {command: 'true'}\ndata_stores:\n"
        + "".join(
            f"- {{id: s{number}, type: s3_datastore, training_data: {{container: c}}, connection: {{auth_url:"
            f" 'http://a', user_name: me, password: hunter{number}hunter}}}}\n"
            for number in range(3)
        ),
        "manifest.yml",
        environ={},
        defaults={},
    )

    (warning,) = with_values(loaded)[1]

    assert f"{KEY} (and 2 more) is written out" in warning
    assert "hunter" not in warning + text


def test_secrets_that_are_not_set_are_all_named(clean_environment: Path) -> None:
    loaded = manifest('auth_url: "http://${LAB}", user_name: "${LAB_USER}", password: "${LAB_KEY}"')

    with pytest.raises(UsageError, match="secrets LAB_USER, LAB_KEY, LAB are not set") as refused:
        with_values(loaded)

    assert f'export LAB_USER=... before the command, or write LAB_USER = "..." into {clean_environment}' in (
        refused.value.hint
    )


def test_a_file_of_secrets_that_others_may_read_is_refused(clean_environment: Path) -> None:
    (clean_environment / "secrets.toml").write_text('LAB_KEY = "x"\n')
    (clean_environment / "secrets.toml").chmod(0o644)

    with pytest.raises(NotAllowed, match="may be read by others"):
        with_values(manifest('auth_url: "http://a", user_name: me, password: "${LAB_KEY}"'))


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--name", "--name"),
        ("", ""),
        ("password=short", "password=********"),
        ("data_stores.0.connection.password=p w\nd", "data_stores.0.connection.password=********"),
        ("framework.image_location.access_token=abc", "framework.image_location.access_token=********"),
        ("--set=data_stores.0.connection.token=abc", "--set=data_stores.0.connection.token=********"),
        ("echo longsecret longsecret", "echo ********** **********"),
        ("tiny", "tiny"),
        ("params.mypassword=abc", "params.mypassword=abc"),
        ("params.password_length=8", "params.password_length=8"),
    ],
)
def test_a_command_line_is_recorded_without_secrets(argument: str, shown: str) -> None:
    assert masked([argument], ["longsecret", "tiny", ""]) == [shown]


def test_a_secret_that_begins_as_another_does_leaves_no_rest() -> None:
    assert masked(["x=secret-and-more"], ["secret-a", "secret-and-more"]) == ["x=***************"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("+  password: pw\n", "+  password: ********\n"),
        ("-  token: 'pw'\n", "-  token: '********'\n"),
        ('"password": "pw", "pwd": "pw"', '"password": "********", "pwd": "pw"'),
        ("pw", "pw"),
        ("+ a.*long(value and a.*long(value", "+ ******** and ********"),
    ],
)
def test_a_diff_is_kept_without_the_credentials_of_the_manifest(text: str, shown: str) -> None:
    assert without_credentials(text, ["pw", "a.*long(value"]) == shown
