"""``--data`` and ``--results`` name folders, stores and addresses, which take the place of the manifest's stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from workbench.config import Config
from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.services.submit.data_options import is_folder_here, stores_with
from workbench.spec import DataStore

CONFIG = Config(
    stores={
        "lab": {
            "type": "s3_datastore",
            "auth_url": "https://s3.lab",
            "user_name": "${LAB_USER}",
            "password": "${LAB_KEY}",
        }
    }
)
FFDL = DataStore(
    id="sl-internal-os",
    type="mount_cos",
    training_data="tf_training_data",
    training_results="tf_trained_model",
    connection={"auth_url": "http://s3", "user_name": "test", "password": "${secret:a.password}"},
)


def stores_of(
    *data: str,
    results: str = "",
    stores: Sequence[DataStore] = (FFDL,),
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> list[dict[str, Any]]:
    return stores_with(stores, {"a.password": "hush"}, data, results, config=CONFIG, more=more or {})


def test_a_folder_is_the_data_and_the_results_stay_where_they_were(tmp_path: Path) -> None:
    data, results = stores_of(str(tmp_path))

    assert data == {
        "id": "sl-internal-os",
        "type": "host_path",
        "training_data": {"container": str(tmp_path)},
    }
    assert results["id"] == "sl-internal-os-results"
    assert results["training_results"] == {"container": "tf_trained_model"}
    assert results["connection"]["password"] == "hush"
    assert "training_data" not in results


def test_results_alone_leave_the_data_where_it_was(tmp_path: Path) -> None:
    data, results = stores_of(results=str(tmp_path / "new"))

    assert data["training_data"] == {"container": "tf_training_data"}
    assert "training_results" not in data
    assert results == {
        "id": "results",
        "type": "host_path",
        "training_results": {"container": str(tmp_path / "new")},
    }


def test_a_store_of_the_configuration_is_named_with_its_container() -> None:
    (store,) = stores_of("lab:mnist/2024/train", stores=())

    assert store == {
        "id": "data",
        "type": "s3_datastore",
        "training_data": {"container": "mnist"},
        "path": "2024/train",
        "connection": {"auth_url": "https://s3.lab", "user_name": "${LAB_USER}", "password": "${LAB_KEY}"},
    }


def test_an_id_says_which_store_it_takes_the_place_of(tmp_path: Path) -> None:
    second = DataStore(id="other", type="host_path", training_data="/x")

    stores = stores_of(f"other={tmp_path}", stores=(FFDL, second))

    assert [store["id"] for store in stores] == ["sl-internal-os", "other"]
    assert stores[1]["training_data"] == {"container": str(tmp_path)}


def test_an_id_that_is_new_and_a_second_word_are_further_stores(tmp_path: Path) -> None:
    stores = stores_of(str(tmp_path), f"extra={tmp_path}", str(tmp_path), stores=())

    assert [store["id"] for store in stores] == ["data", "extra", "data-2"]


def test_the_permission_to_write_to_data_stays_with_a_store_that_is_kept(tmp_path: Path) -> None:
    store = DataStore(id="x", type="host_path", training_data="/x", read_only=False)

    assert stores_of(results=str(tmp_path), stores=(store,))[0]["read_only"] is False


def test_addresses_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.lab:9000")
    (amazon,) = stores_of("s3://bucket/a/b", stores=())
    (web,) = stores_of("https://example.org/sets/mnist", stores=())
    (ssh,) = stores_of("sftp://me@box:2222/data/mnist", stores=())

    assert (amazon["type"], amazon["training_data"], amazon["path"]) == (
        "s3_datastore",
        {"container": "bucket"},
        "a/b",
    )
    assert amazon["connection"] == {
        "auth_url": "https://minio.lab:9000",
        "user_name": "${AWS_ACCESS_KEY_ID}",
        "password": "${AWS_SECRET_ACCESS_KEY}",
    }
    assert (web["type"], web["connection"]) == ("http", {"auth_url": "https://example.org"})
    assert ssh["connection"] == {"auth_url": "sftp://box:2222", "user_name": "me"}


def test_what_is_not_there_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputMissing, match="there is no such folder"):
        stores_of("/no/such")
    with pytest.raises(UsageError, match="this is a file"):
        stores_of(str(file))
    with pytest.raises(UsageError, match="this is a file"):
        stores_of(results=str(file))
    with pytest.raises(UnknownName, match="no store 'lap'") as caught:
        stores_of("lap:mnist")
    assert "did you mean lab?" in caught.value.hint
    with pytest.raises(UsageError, match="ftp://"):
        stores_of("ftp://x/y")


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="holds a password") as caught:
        stores_of("sftp://me:hunter2@box/data")
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("word", "is_here"),
    [("/tmp", True), ("id=/tmp", True), ("lab:x", False), ("s3://x", False), ("file:///tmp", True)],
)
def test_folders_of_this_machine_are_distinguished_from_all_else(word: str, is_here: bool) -> None:
    assert is_folder_here(word) is is_here
