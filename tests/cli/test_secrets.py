"""Secrets at the command line: found by name, reported when they are nowhere, kept for what comes later."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.support.command import Fabric, Serve
from workbench.data.stores.local_server import TRIAL_KEY
from workbench.paths import Home
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import prepare

MANIFEST = """\
name: hidden
framework:
  command: cat $DATA_DIR/images
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {{container: pictures}}
    training_results: {{container: saved}}
    connection: {{auth_url: "{address}", user_name: "${{LAB_USER}}", password: "${{LAB_KEY}}"}}
"""


@pytest.fixture
def manifest(fabric: Fabric, serve: Serve) -> Path:
    store = serve(str(fabric.folder / "store"))
    (fabric.folder / "images").mkdir()
    (fabric.folder / "images" / "images").write_text("seven\n")
    fabric("data", "put", "images", "served:pictures", "--create")
    path = fabric.folder / "manifest.yml"
    path.write_text(MANIFEST.format(address=store["address"]))
    return path


def test_a_stores_credentials_are_taken_from_environment_and_file_and_kept_for_a_rerun(
    fabric: Fabric, home: Home, clean_environment: Path, manifest: Path
) -> None:
    file = clean_environment / "secrets.toml"
    file.write_text(f'LAB_KEY = "{TRIAL_KEY}"\n')
    file.chmod(0o600)

    ran = fabric("run", "manifest.yml", "--runner", "process", LAB_USER=TRIAL_KEY)

    assert ran.stdout == "seven\n"
    assert "written out" not in ran.stderr
    shown = fabric.json("show", "@last", "--json")
    assert shown["spec"]["data_stores"][0]["connection"] == {
        "auth_url": shown["spec"]["data_stores"][0]["connection"]["auth_url"],
        "user_name": "${secret:data_stores.0.connection.user_name}",
        "password": "${secret:data_stores.0.connection.password}",
    }
    assert 'password: "${LAB_KEY}"' in shown["manifest"]
    assert shown["results_stored"].endswith(f"saved/{shown['id']}")
    file.unlink()
    assert fabric("rerun", "@last").stdout == "seven\n"

    shutil.rmtree(home.secrets)
    refused = fabric("rerun", "@last", expect=66)
    assert "of the store lab is not kept any more" in refused.stderr


def test_secrets_that_are_nowhere_are_named_before_anything_starts(
    fabric: Fabric, clean_environment: Path, manifest: Path
) -> None:
    assert "secrets LAB_USER, LAB_KEY are not set" in fabric("run", "manifest.yml", expect=64).stderr
    assert "secret NOPE is not set" in fabric("run", "-e", "NOPE", "--", "true", expect=64).stderr
    (clean_environment / "secrets.toml").write_text('NOPE = "x"\n')
    (clean_environment / "secrets.toml").chmod(0o644)
    assert "may be read by others" in fabric("run", "-e", "NOPE", "--", "true", expect=77).stderr
    assert fabric.json("list", "--json") == []


def test_a_store_of_the_configuration_is_named_on_the_command_line(
    fabric: Fabric, clean_environment: Path, manifest: Path, serve: Serve
) -> None:
    address = manifest.read_text().partition('auth_url: "')[2].partition('"')[0]
    (clean_environment / "config.toml").write_text(
        f'[stores.lab]\ntype = "s3_datastore"\nauth_url = "{address}"\n'
        'user_name = "test"\npassword = "${LAB_KEY}"\n[store_alias]\n"http://old.example.com" = "lab"\n'
    )
    args = ["run", "--data", "lab:pictures", "--results", "served:saved", "--", "cat $DATA_DIR/images"]

    ran = fabric(*args, LAB_KEY=TRIAL_KEY)

    assert ran.stdout == "seven\n"
    assert "written out" not in ran.stderr
    assert f"results: {address} saved/" in ran.stderr
    manifest.write_text(manifest.read_text().replace(address, "http://old.example.com"))
    aliased = fabric(
        "run", "manifest.yml", "--runner", "process", "--data", "images",
        LAB_KEY=TRIAL_KEY, LAB_USER=TRIAL_KEY,
    )  # fmt: skip
    assert aliased.stdout == "seven\n"
    assert f"at http://old.example.com is reached as {address} (store_alias)" in aliased.stderr
    listed = fabric("config", "list").stdout
    assert "stores.lab.password" in listed
    assert "${LAB_KEY}" in listed


def test_a_template_with_a_password_is_no_part_of_the_code(
    fabric: Fabric, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fabric.folder / "store.yml").write_text(
        "data_stores: [{type: s3_datastore, training_data: {container: x}, connection:"
        " {auth_url: 'http://127.0.0.1:1', user_name: u, password: hidden-in-a-template}}]\n"
    )
    (fabric.folder / "manifest.yml").write_text("name: a\nframework: {command: 'true'}\n")
    (fabric.folder / "train.py").write_text("")

    ran = fabric("plan", "--json", "manifest.yml", "--template", "store.yml")
    monkeypatch.chdir(fabric.folder)
    prepare(RunOptions(manifest="manifest.yml", templates=("store.yml",)), home)

    assert "hidden-in-a-template" not in ran.stdout + ran.stderr
    (snapshot,) = home.code.glob("*.tar.gz")
    with tarfile.open(snapshot) as tar:
        assert "train.py" in tar.getnames()
        assert "store.yml" not in tar.getnames()
