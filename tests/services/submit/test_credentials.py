"""Credentials of a job: what ``${NAME}`` stands for, what is written out or expires, and what no record shows."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.services.stored import submitted
from workbench.errors import NotAllowed, UsageError
from workbench.manifest import Loaded, load_text
from workbench.paths import Home
from workbench.services.submit.credentials import (
    expiry_notes,
    inline_secrets,
    masked,
    with_values,
    without_credentials,
)
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import JobSubmission, prepare
from workbench.services.submit.rerun import prepare_rerun
from workbench.spec import DataStore, Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail

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


def experiment(secrets: str) -> Loaded:
    text = f"entrypoint: a\nsearcher: {{name: single, metric: x}}\ndata: {{secrets: {secrets}}}\n"
    return load_text(text, "e.yaml", environ={}, defaults={})


def test_a_reference_among_the_secrets_of_an_experiments_data_becomes_a_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MINE", 'a "quoted" \\ ${value}')
    loaded = experiment('{key: "${MINE}", pin: 7, deep: [hunter2]}')

    found, warnings = with_values(loaded)

    values = {"key": 'a "quoted" \\ ${value}', "pin": 7, "deep": ["hunter2"]}
    assert json.loads(found.credentials["DET_DATA_SECRETS"]) == values
    assert ["data.secrets.pin (and 1 more) is written out" in text for text in warnings] == [True]
    assert inline_secrets(loaded) == ["7", "hunter2"]
    assert with_values(experiment('{key: "${MINE}"}'))[1] == []


def test_secrets_of_an_experiments_data_that_come_by_a_variable_are_kept_out_one_by_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_DATA_SECRETS", '{"key": "hunter2hunter2"}')
    options = RunOptions(
        command=("true",), runner="process", environment=("DET_DATA_SECRETS",), argv=("x", "hunter2hunter2")
    )

    made = prepare(options, home)

    assert made.secrets["DET_DATA_SECRETS"] == '{"key": "hunter2hunter2"}'
    assert "hunter2" not in str(made.recorded)


def test_secrets_of_an_experiments_data_are_masked_however_they_are_set(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("entrypoint: a\nsearcher: {name: single, metric: x}\nresources: {slots_per_trial: 0}\n")
    overrides = ('data={secrets: {a: "hunter2\\nhunter2", b: pw}}', " data.secrets.c=pwd")
    argv = [word for text in overrides for word in ("--set", text)]

    made = prepare(RunOptions(manifest=str(file), overrides=overrides, argv=("fabric", *argv)), home)

    values = {"a": "hunter2\nhunter2", "b": "pw", "c": "pwd"}
    assert json.loads(made.secrets["DET_DATA_SECRETS"]) == values
    assert not any(value in str(made.recorded["argv"]) for value in ("hunter2", "pw"))


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
        ("framework.image_location.auth=abc", "framework.image_location.auth=********"),
        ("framework.image_location.identity_token=abc", "framework.image_location.identity_token=********"),
        ("environment.registry_auth.registrytoken=abc", "environment.registry_auth.registrytoken=********"),
        ("environment.registry_auth.auth=abc", "environment.registry_auth.auth=********"),
        ("data.secrets.key=abc", "data.secrets.key=********"),
        ("--set=data.secrets={key: a=b}", "--set=data.secrets=********"),
        ("mydata.secrets.key=abc", "mydata.secrets.key=abc"),
        (" data.secrets.key=abc", " data.secrets.key=********"),
        ("--set= data.secrets.key =abc", "--set= data.secrets.key =********"),
        ("data={secrets: {key: abc}}", "data=********"),
        ("data = {root: /d, 'secrets': abc}", "data =********"),
        ('data={"secr\\x65ts": {key: abc}}', "data=********"),
        ("data=\n  root: /d\n  secrets: [abc]\n", "data=********"),
        ("data={root: /secrets}", "data={root: /secrets}"),
        ("data_stores=[{connection: {password: abc}}]", "data_stores=********"),
        ("data_stores.0.connection.password =abc", "data_stores.0.connection.password =********"),
        ("framework.image_location={auth: abc}", "framework.image_location=********"),
        ("checkpoint_storage={type: s3, secret_key: abc}", "checkpoint_storage=********"),
        ("checkpoint_storage.secret_key=abc", "checkpoint_storage.secret_key=********"),
        ("--config=data={secrets: {a: abc}}", "--config=data=********"),
        ("--conf=checkpoint_storage.secret_key=abc", "--conf=checkpoint_storage.secret_key=********"),
        (" data.secrets.a b=abc", " data.secrets.a b=********"),
        ("--set=data.secrets.ключ/1=abc", "--set=data.secrets.ключ/1=********"),
        ("--config={a: b}", "--config={a: b}"),
        ("params.x={a: 1", "params.x={a: 1"),
        ("name=\udcff: x", "name=\udcff: x"),
        ("text=\0: x", "text=\0: x"),
        ("params.auth=abc", "params.auth=abc"),
        ("echo longsecret longsecret", "echo ********** **********"),
        ("tiny", "tiny"),
        ("params.mypassword=abc", "params.mypassword=abc"),
        ("params.password_length=8", "params.password_length=8"),
    ],
)
def test_a_command_line_is_recorded_without_secrets(argument: str, shown: str) -> None:
    assert masked([argument], ["longsecret", "tiny", ""]) == [shown]


def login(keys: str) -> Loaded:
    text = f"name: a\nframework: {{name: custom, version: i, command: 'true', image_location: {{{keys}}}}}\n"
    return load_text(text, "m.yml", environ={}, defaults={})


def test_a_login_to_a_registry_is_found_by_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", "me")
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush")

    found, warnings = with_values(login("username: '${REGISTRY_USER}', password: '${REGISTRY_PASSWORD}'"))

    location = "framework.image_location."
    assert found.credentials == {f"{location}username": "me", f"{location}password": "hush"}
    assert "hush" not in str(found.spec)
    assert warnings == []


def test_an_auth_that_holds_no_user_and_password_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError, match="auth is not the base64 of USER:PASSWORD") as refused:
        with_values(login("auth: hunter2"))

    assert "hunter2" not in f"{refused.value} {refused.value.hint}"


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


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_manifest_with_credentials_is_not_in_the_recorded_diff(home: Home, tmp_path: Path) -> None:
    file, template, script = (tmp_path / name for name in ("e.yaml", "template.yaml", "train.py"))
    text = "entrypoint: a\nsearcher: {name: single, metric: x}\nresources: {slots_per_trial: 0}\n"
    for each in (file, template, script):
        each.write_text("")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    file.write_text(
        f'{text}data:\n  secrets:\n    pin: "x7z"\n    pem: |\n      first line\n      last line\n'
    )
    template.write_text("data: {secrets: {other: y7z}}\n")
    script.write_text("print()\n")

    made = prepare(RunOptions(manifest=str(file), templates=(str(template),)), home)

    assert json.loads(made.secrets["DET_DATA_SECRETS"])["pem"] == "first line\nlast line\n"
    assert "+print()" in made.diff
    assert not any(value in made.diff for value in ("x7z", "y7z", "line"))
    assert made.recorded["git"]["diff_without"] == ["e.yaml", "template.yaml"]


SOON, BEFORE = datetime.now(UTC) + timedelta(hours=2), datetime.now(UTC) - timedelta(hours=2)
TOKEN = "data_stores.0.connection.token"


@pytest.fixture
def expires(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Set when the session token of the environment expires; it has one."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, f"canary-of-{name}")
    return lambda moment: monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", moment.isoformat())


def prepared(home: Home, *, launch: bool) -> JobSubmission:
    return prepare(
        RunOptions(command=("true",), runner="process", data=("s3://pictures/2024",)), home, launch=launch
    )


def notes_of_credentials(made: JobSubmission) -> list[str]:
    assert "canary" not in "".join((*made.notes, *made.warnings))
    return [note for note in made.notes if "credentials" in note]


def shown(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S" if moment.second else "%H:%M")


def job_with(*stores: DataStore, secrets: tuple[str, ...] = ()) -> JobSpec:
    return JobSpec(name="a", framework=Framework(command="true"), data_stores=stores, secrets=secrets)


def store_with_token(kind: str = "s3_datastore", container: str = "pictures") -> DataStore:
    connection = {"token": f"${{secret:{TOKEN}}}"}
    return DataStore(id="lab", type=kind, training_data=container, connection=connection)


@pytest.mark.parametrize("launch", [False, True], ids=["plan", "submit"])
def test_a_note_says_when_temporary_credentials_expire(
    home: Home, expires: Callable[[datetime], None], launch: bool
) -> None:
    expires(SOON)

    assert notes_of_credentials(prepared(home, launch=launch)) == [
        f"its credentials of s3://pictures expire at {shown(SOON)}: a job that waits longer cannot reach the store"
    ]


def test_credentials_that_have_expired_are_planned_and_not_submitted(
    home: Home, expires: Callable[[datetime], None]
) -> None:
    expires(BEFORE)

    (note,) = notes_of_credentials(prepared(home, launch=False))
    with pytest.raises(NotAllowed, match="its credentials of s3://pictures expired at ") as refused:
        prepared(home, launch=True)

    assert note.endswith("as AWS_CREDENTIAL_EXPIRATION says: `fabric run` refuses the job")
    assert refused.value.exit_code == 77
    assert "aws sso login" in refused.value.hint
    assert "canary" not in refused.value.message + refused.value.hint


@pytest.mark.usefixtures("expires")
def test_credentials_whose_end_nobody_knows_are_called_temporary() -> None:
    (note,) = expiry_notes(job_with(store_with_token()), {TOKEN: "x"}, launch=True)

    assert note == (
        "its credentials of s3://pictures are temporary, and it is not known when they expire: a job that waits"
        " longer than that cannot reach the store"
    )


def test_stores_with_the_same_credentials_have_one_note(expires: Callable[[datetime], None]) -> None:
    expires(SOON)
    spec = job_with(store_with_token(), store_with_token(container="results"))

    (note,) = expiry_notes(spec, {TOKEN: "canary-of-AWS_SESSION_TOKEN"}, launch=True)

    assert note.startswith("its credentials of s3://pictures and s3://results expire at ")


def test_a_session_token_among_the_secrets_of_a_job_is_named(expires: Callable[[datetime], None]) -> None:
    expires(SOON)
    values = {"AWS_SESSION_TOKEN": "canary-of-AWS_SESSION_TOKEN", "OTHER": "x"}

    assert expiry_notes(job_with(secrets=tuple(values)), values, launch=True) == (
        f"its credentials of AWS_SESSION_TOKEN expire at {shown(SOON)}: a job that waits longer cannot use them",
    )


@pytest.mark.parametrize(
    ("kind", "value", "is_temporary"),
    [
        ("s3_datastore", "", False),
        ("webdav", "bearer", False),
        ("azure", "https://a/pictures?sv=2024&si=policy", False),
        ("azure", "https://a/pictures?sv=2024&se=2090-01-01T00%3A00%3A00Z", True),
        ("azure", "https://a/pictures?sv=2024&se=9999-12-31T23%3A59%3A59Z", False),
    ],
)
@pytest.mark.usefixtures("expires")
def test_credentials_that_last_have_no_note(kind: str, value: str, is_temporary: bool) -> None:
    notes = expiry_notes(job_with(store_with_token(kind)), {TOKEN: value}, launch=True)

    assert bool(notes) is is_temporary


ENVIRONMENT_KEYS = (
    'auth_url: "http://a", user_name: "${AWS_ACCESS_KEY_ID}", password: "${AWS_SECRET_ACCESS_KEY}"'
)


@pytest.mark.parametrize(
    ("connection", "has_token"),
    [
        (ENVIRONMENT_KEYS, True),
        ('auth_url: "http://a", user_name: me, password: "${AWS_SECRET_ACCESS_KEY}"', False),
        (ENVIRONMENT_KEYS.replace("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), False),
    ],
    ids=["both of the environment", "another user's", "another key"],
)
@pytest.mark.usefixtures("expires")
def test_temporary_keys_of_the_environment_come_with_their_token(connection: str, has_token: bool) -> None:
    found, _ = with_values(manifest(connection))

    (store,) = found.spec.data_stores
    assert store.connection.get("token") == (f"${{secret:{TOKEN}}}" if has_token else None)
    assert found.credentials.get(TOKEN) == ("canary-of-AWS_SESSION_TOKEN" if has_token else None)


@pytest.mark.usefixtures("expires")
def test_keys_that_last_and_a_token_of_the_own_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TOKEN", "own")
    own, _ = with_values(manifest(f'{ENVIRONMENT_KEYS}, token: "${{LAB_TOKEN}}"'))
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    lasting, _ = with_values(manifest(ENVIRONMENT_KEYS))

    assert own.credentials[TOKEN] == "own"
    assert TOKEN not in lasting.credentials


def test_a_job_that_runs_again_has_the_credentials_of_the_first_one(
    home: Home, expires: Callable[[datetime], None]
) -> None:
    text = "name: a\nframework: {command: 'true'}\nsecrets: [AWS_SESSION_TOKEN]\n"
    expires(SOON)
    with Store.open(home) as store:
        kept = detail(store, submitted(store, text, secrets={"AWS_SESSION_TOKEN": "x"}).id)

        assert notes_of_credentials(prepare_rerun(store, kept, name="", argv=()))
        expires(BEFORE)
        with pytest.raises(NotAllowed):
            prepare_rerun(store, kept, name="", argv=())
