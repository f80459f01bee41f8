"""Data stores as values, and rclone's options for each type."""

from __future__ import annotations

import pytest

from workbench.data.stores.model import JobDataStore, remote_name, remote_of, store_of
from workbench.data.stores.rclone import find_rclone, parse_version
from workbench.data.stores.types import TYPES
from workbench.errors import InputMissing, LaunchRefused
from workbench.spec import DataStore

CONNECTION = {
    "auth_url": "http://s3.example.com:9000",
    "user_name": "me",
    "password": "${secret:store.password}",
    "region": "us-standard",
}
CREDENTIALS = {"store.password": "hush-hush"}


def a_store(kind: str = "mount_cos", **fields: object) -> JobDataStore:
    values = {"training_data": "tf_training_data", "connection": CONNECTION, **fields}
    return store_of(DataStore(id="sl-internal-os", type=kind, **values))  # type: ignore[arg-type]


def test_a_stores_credential_is_a_reference_until_rclone_needs_it() -> None:
    store = a_store()

    assert store.connection["password"] == CONNECTION["password"]
    assert "hush" not in repr(store)
    assert remote_of(store, CREDENTIALS).config["secret_access_key"] == "hush-hush"
    assert "hush" not in repr(remote_of(store, CREDENTIALS))


def test_a_credential_without_a_value_is_refused_as_what_it_is() -> None:
    with pytest.raises(LaunchRefused, match=r"needs the secret store\.password") as refused:
        remote_of(a_store(), {})

    assert refused.value.code == "C103"


def test_a_name_with_an_underscore_is_never_created_and_ffdls_region_is_no_region() -> None:
    config = remote_of(a_store(), CREDENTIALS).config

    assert config["no_check_bucket"] == "true"
    assert "region" not in config


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_becomes_a_remote_of_rclones(kind: str) -> None:
    remote = remote_of(a_store(kind), CREDENTIALS)

    assert remote.config["type"]
    assert all(remote.config.values())
    assert set(remote.obscured) <= set(remote.config)


@pytest.mark.parametrize("kind", ["sftp", "webdav"])
def test_passwords_that_rclone_wants_obscured_are_named(kind: str) -> None:
    assert remote_of(a_store(kind), CREDENTIALS).obscured == ("pass",)


def test_an_sftp_address_is_taken_apart_and_its_host_key_is_checked() -> None:
    store = a_store("sftp", connection={"auth_url": "sftp://me@box.example.com:2222"})
    config = remote_of(store, {}).config

    assert (config["host"], config["port"], config["user"]) == ("box.example.com", "2222", "me")
    assert config["known_hosts_file"] == "~/.ssh/known_hosts"


def test_what_is_read_is_a_container_with_its_sub_path() -> None:
    store = a_store(path="2024/train", training_results="out/of/it")

    assert store.data_path == "tf_training_data/2024/train"
    assert store.results_path("training-abc", "learner-1") == "out/of/it/training-abc/learner-1"


def test_folders_are_paths_of_their_machine() -> None:
    store = a_store("mount_volume", training_results="/results", connection={"path": "/cosdata"})

    assert store.is_folder
    assert store.data_path == "/cosdata/tf_training_data"
    assert store.results_path("training-abc") == "/results/training-abc"


@pytest.mark.parametrize("container", ["..", "a/../..", "../a"])
def test_no_path_leads_out_of_a_store(container: str) -> None:
    with pytest.raises(LaunchRefused, match="leads out of the data store"):
        _ = a_store(training_data=container).data_path


def test_the_same_data_has_the_same_key_whoever_asks() -> None:
    other = {**CONNECTION, "user_name": "you", "password": "else"}

    assert a_store().key == a_store(connection=other).key
    assert a_store().key != a_store(path="sub").key
    assert a_store().key != a_store(connection={**CONNECTION, "auth_url": "http://elsewhere"}).key


def test_a_remotes_name_can_stand_in_the_name_of_a_variable() -> None:
    assert remote_name("søren's store").isascii()
    assert remote_name("a-b") != remote_name("ab")


def test_an_address_is_shown_without_its_user() -> None:
    assert a_store(connection={"auth_url": "http://me:pw@box/x"}).address == "http://box/x"


def test_rclone_is_found_and_its_version_read() -> None:
    found = find_rclone()

    assert parse_version(f"rclone v{found.version}") >= (1, 65)


def test_an_rclone_that_is_too_old_is_named_with_what_to_do(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    old = Path(str(tmp_path)) / "rclone"
    old.write_text("#!/bin/sh\necho rclone v1.50.2\n")
    old.chmod(0o755)
    monkeypatch.setenv("FABRIC_RCLONE", str(old))

    with pytest.raises(InputMissing, match=r"1\.65 or newer, and .* is version 1\.50\.2") as missing:
        find_rclone()
    assert "fabric-workbench[data]" in missing.value.hint
