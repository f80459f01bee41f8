"""Secrets of a job that are found again, and those that are lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.disks import fill, small_disk
from tests.support.stored_jobs import make_detail
from workbench.controller.runtime.secrets import read_secrets, secrets_file, write_secrets
from workbench.errors import CannotWrite, InputMissing, NotAllowed
from workbench.job import JobId
from workbench.manifest import load_text
from workbench.paths import Home
from workbench.services.submit.secrets_refresh import find_again, renew_credentials
from workbench.spec import JobSpec
from workbench.store.db.rows import JobDetail

JOB = JobId("training-bcdfghjkm")
USER, KEY = "data_stores.0.connection.user_name", "data_stores.0.connection.password"
MANIFEST = """\
name: digits
framework: {command: "true"}
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {container: pictures}
    connection: {auth_url: "http://127.0.0.1:9", user_name: "${LAB_USER}", password: "${LAB_KEY}"}
"""


@pytest.fixture(autouse=True)
def made(home: Home) -> Home:
    home.path.mkdir()
    return home


def wants(*names: str) -> JobSpec:
    return JobSpec(name="digits", secrets=names)


def secrets_toml(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "secrets.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def job_of(text: str, *overrides: str) -> JobDetail:
    detail = make_detail()
    loaded = load_text(text, "manifest", overrides=overrides, environ={}, defaults={})
    row = replace(detail.row, id=JOB)
    return replace(detail, row=row, spec=loaded.spec, manifest_text=loaded.text, origins=loaded.origins)


# Secrets of an experiment's data


def test_the_secrets_of_an_experiments_data_stay_those_of_the_first_job(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "of later")
    text = "entrypoint: a\nsearcher: {name: single, metric: x}\ndata: {secrets: {a: written, b: '${MINE}'}}\n"
    first = {"DET_DATA_SECRETS": '{"a": "written", "b": "first"}'}
    write_secrets(home, JOB, first)

    renew_credentials(home, job_of(text))

    assert read_secrets(home, JOB) == first
    assert find_again(home, JOB, job_of(text).spec) == []


# Secrets that this home lacks


def test_a_job_that_has_all_its_secrets_lacks_none_and_its_file_is_left_alone(home: Home) -> None:
    write_secrets(home, JOB, {"TOKEN": "first"})
    before = secrets_file(home, JOB).stat()

    assert find_again(home, JOB, wants("TOKEN")) == []
    assert find_again(home, "training-without", wants()) == []
    assert secrets_file(home, JOB).stat() == before
    assert not secrets_file(home, "training-without").exists()


def test_missing_secrets_come_from_the_environment_and_the_file_and_the_others_are_named(
    home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets_toml(clean_environment, 'OF_FILE = "geheim \U0001f511"\n')
    monkeypatch.setenv("AROUND", "a\tb")

    assert find_again(home, JOB, wants("NOWHERE", "OF_FILE", "AROUND", "NOR_HERE")) == ["NOWHERE", "NOR_HERE"]
    assert read_secrets(home, JOB) == {"OF_FILE": "geheim \U0001f511", "AROUND": "a\tb"}
    assert secrets_file(home, JOB).stat().st_mode & 0o777 == 0o600


def test_a_secret_that_is_kept_goes_before_what_the_environment_has_by_now(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_secrets(home, JOB, {"TOKEN": "first"})
    monkeypatch.setenv("TOKEN", "second")
    monkeypatch.setenv("MORE", "")

    assert find_again(home, JOB, wants("TOKEN", "MORE")) == []
    assert read_secrets(home, JOB) == {"TOKEN": "first", "MORE": ""}


def test_a_credential_that_stood_in_the_manifest_has_no_name_to_find_it_by(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "by its path")
    monkeypatch.setenv("LAB_KEY", "by its name")

    assert find_again(home, JOB, job_of(MANIFEST).spec) == [USER, KEY]
    assert read_secrets(home, JOB) == {}


def test_a_file_of_secrets_that_others_may_read_is_refused(home: Home, clean_environment: Path) -> None:
    file = secrets_toml(clean_environment, 'TOKEN = "x"\n', 0o640)

    with pytest.raises(NotAllowed, match=r"may be read by others \(mode 0640\)") as refused:
        find_again(home, JOB, wants("TOKEN"))

    assert refused.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("text", ["", "{", "[]", '"a text"', "3"])
def test_kept_secrets_that_cannot_be_read_are_reported_and_not_written_over(home: Home, text: str) -> None:
    write_secrets(home, JOB, {"TOKEN": "first"})
    secrets_file(home, JOB).write_text(text)

    with pytest.raises(InputMissing, match="no longer holds the job's secrets"):
        find_again(home, JOB, wants("TOKEN"))

    assert secrets_file(home, JOB).read_text() == text


def test_a_full_disk_costs_none_of_the_secrets_that_were_kept(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MORE", "m" * 20_000)
    with small_disk(clean_environment / "disk") as disk:
        home = Home(disk / "fabric")
        home.path.mkdir()
        write_secrets(home, JOB, {"TOKEN": "first"})
        fill(disk)

        with pytest.raises(CannotWrite):
            find_again(home, JOB, wants("TOKEN", "MORE"))

        assert read_secrets(home, JOB) == {"TOKEN": "first"}
        assert [file.name for file in home.secrets.iterdir()] == [secrets_file(home, JOB).name]


# Credentials of stores, which may be others by now


def test_what_a_name_stands_for_now_is_kept_for_the_job(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secrets(home, JOB, {USER: "me", KEY: "old", "TOKEN": "kept"})
    monkeypatch.setenv("LAB_USER", "me")
    monkeypatch.setenv("LAB_KEY", "new")

    renew_credentials(home, job_of(MANIFEST))

    assert read_secrets(home, JOB) == {USER: "me", KEY: "new", "TOKEN": "kept"}


LOGIN = "framework.image_location.password"
CUSTOM = """\
name: digits
framework: {name: custom, version: "r.io/i:1", command: x, image_location: {username: me, password: "${LAB_KEY}"}}
"""
EXPERIMENT = """\
name: digits
entrypoint: "true"
searcher: {name: single, metric: loss}
environment: {image: "r.io/i:1", registry_auth: {username: me, password: "${LAB_KEY}"}}
checkpoint_storage: {type: s3, bucket: b, access_key: "${LAB_USER}", secret_key: "${LAB_KEY}"}
resources: {slots_per_trial: 0}
"""


@pytest.mark.parametrize(
    ("text", "override", "path"),
    [
        (MANIFEST, f"{KEY}=${{OTHER}}", KEY),
        (CUSTOM, f"{LOGIN}=${{OTHER}}", LOGIN),
        (EXPERIMENT, "environment.registry_auth.password=${OTHER}", LOGIN),
        (EXPERIMENT, "environment.registry_auth={username: me, password: '${OTHER}'}", LOGIN),
        (EXPERIMENT, "checkpoint_storage.secret_key=${OTHER}", KEY),
    ],
    ids=["store", "login", "login of an experiment", "whole login", "store of an experiment"],
)
def test_what_the_command_line_gave_is_not_taken_from_the_manifest(
    home: Home, monkeypatch: pytest.MonkeyPatch, text: str, override: str, path: str
) -> None:
    write_secrets(home, JOB, {path: "given"})
    monkeypatch.setenv("LAB_KEY", "of the manifest")
    monkeypatch.setenv("LAB_USER", "me")

    renew_credentials(home, job_of(text, override))
    assert read_secrets(home, JOB) == {path: "given"}

    renew_credentials(home, job_of(text))
    assert read_secrets(home, JOB) == {path: "of the manifest"}


def test_a_store_of_the_command_line_is_looked_up_by_its_text(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_secrets(home, JOB, {KEY: "old"})
    monkeypatch.setenv("LAB_KEY", "new")

    renew_credentials(home, replace(job_of(MANIFEST), origins={KEY: "flag --data"}))

    assert read_secrets(home, JOB) == {KEY: "new"}


@pytest.mark.parametrize(
    "text",
    [
        MANIFEST,  # where nothing is found
        MANIFEST.replace("id: lab", "id: other"),
        MANIFEST.replace("name: digits\n", ""),
        "",
        "name: [",
    ],
    ids=["not found", "--data replaced it", "incomplete", "empty", "no YAML"],
)
def test_what_cannot_be_looked_up_stays_as_it_is(home: Home, text: str) -> None:
    write_secrets(home, JOB, {USER: "me", KEY: "old"})

    renew_credentials(home, replace(job_of(MANIFEST), manifest_text=text))

    assert read_secrets(home, JOB) == {USER: "me", KEY: "old"}


def test_a_credential_that_the_job_never_had_is_not_added(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_USER", "me")
    monkeypatch.setenv("LAB_KEY", "new")

    renew_credentials(home, job_of(MANIFEST))

    assert read_secrets(home, JOB) == {}
    assert not home.secrets.exists()


OF_ENVIRONMENT = MANIFEST.replace("LAB_USER", "AWS_ACCESS_KEY_ID").replace("LAB_KEY", "AWS_SECRET_ACCESS_KEY")
TOKEN = "data_stores.0.connection.token"


@pytest.mark.parametrize("token", ["new", ""], ids=["temporary ones again", "ones that last"])
def test_new_keys_of_the_environment_come_with_their_own_token(
    home: Home, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    write_secrets(home, JOB, {USER: "old", KEY: "old", TOKEN: "old"})
    for name, value in (("ACCESS_KEY_ID", "new"), ("SECRET_ACCESS_KEY", "new"), ("SESSION_TOKEN", token)):
        monkeypatch.setenv(f"AWS_{name}", value)

    renew_credentials(home, job_of(OF_ENVIRONMENT))

    assert read_secrets(home, JOB) == {USER: "new", KEY: "new", TOKEN: token}


def test_a_token_is_kept_where_the_environment_has_no_keys(home: Home, clean_environment: Path) -> None:
    old = {USER: "old", KEY: "old", TOKEN: "old"}
    write_secrets(home, JOB, old)

    renew_credentials(home, job_of(OF_ENVIRONMENT))

    assert read_secrets(home, JOB) == old
