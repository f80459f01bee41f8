from __future__ import annotations

import pytest

from tests.quick.manifest.support import SMALL, faults_of, loaded

CONNECTION = "{auth_url: 'http://x', user_name: u, password: p}"
COS = f"type: mount_cos, training_data: {{container: a}}, connection: {CONNECTION}"


def stores(*items: str) -> str:
    return SMALL + "data_stores:\n" + "".join(f"  - {{{item}}}\n" for item in items)


def test_several_stores_are_read_and_named() -> None:
    found = loaded(
        stores(COS, "type: volume, training_data: {container: b}, connection: {name: v}, read_only: true")
    )

    first, second = found.spec.data_stores
    assert (first.id, first.mount, first.read_only) == ("store-1", False, False)
    assert (second.id, second.mount, second.read_only, second.path) == ("store-2", True, True, "")


def test_a_store_of_a_folder_may_name_it_absolutely_or_below_a_path() -> None:
    found = loaded(
        stores(
            "type: host_path, training_data: {container: /data/mnist}, path: train",
            "type: mount_volume, training_data: {container: mnist}, connection: {path: /data}",
        )
    )

    assert found.warnings == ()
    assert found.spec.data_stores[0].path == "train"


def test_data_in_a_folder_of_the_host_is_read_only_unless_the_manifest_says_otherwise() -> None:
    data, path = "training_data: {container: a}", "connection: {path: /d}"
    found = loaded(
        stores(
            f"type: host_path, {data}, {path}",
            f"type: mount_volume, {data}, {path}",
            f"type: host_path, {data}, {path}, read_only: false",
            "type: host_path, training_results: {container: /d/r}",
            COS,
        )
    )

    assert [store.read_only for store in found.spec.data_stores] == [True, True, False, False, False]


def test_an_absolute_container_may_be_inside_the_folder_of_its_store() -> None:
    item = "type: host_path, training_data: {container: /d//e/f}, connection: {path: /d/e/}"

    assert loaded(stores(item)).spec.data_stores[0].training_data == "/d//e/f"


def test_a_store_takes_its_type_from_its_connection() -> None:
    text = "training_data: {container: a}, connection: {type: host_mount, path: /data}"

    assert loaded(stores(text)).spec.data_stores[0].type == "mount_volume"


def test_no_bucket_is_no_data() -> None:
    found = loaded(stores(COS.replace("container: a", "container: none")))

    assert found.spec.data_stores[0].training_data == ""
    assert "does nothing" in found.warnings[0].problem


@pytest.mark.parametrize(
    ("item", "key", "message"),
    [
        ("training_data: {container: a}", "data_stores.0.type", "is missing"),
        ("type: s4, training_data: {container: a}", "data_stores.0.type", "mount_cos"),
        (COS.replace(", password: p", ""), "data_stores.0.connection", "lacks password"),
        (
            "type: s3_datastore, training_data: {container: a}",
            "data_stores.0.connection",
            "auth_url, user_name, password",
        ),
        ("type: host_path, training_data: {container: a}", "data_stores.0.connection.path", "is missing"),
        ("type: host_path, training_data: {container: /a}, path: ../b", "data_stores.0.path", "leads out"),
        (
            "type: host_path, training_data: {container: ../b}, connection: {path: /a}",
            "data_stores.0.training_data.container",
            "leads out",
        ),
        (
            "type: host_path, training_data: {container: /etc}, connection: {path: /d}",
            "data_stores.0.training_data.container",
            "'/etc' is not inside",
        ),
        (
            "type: host_path, training_results: {container: /data2/x}, connection: {path: /data}",
            "data_stores.0.training_results.container",
            "'/data2/x' is not inside",
        ),
        (
            "type: host_path, training_data: {container: a}, connection: {path: b}",
            "data_stores.0.connection.path",
            "absolute",
        ),
        ("type: volume, training_data: {container: a}", "data_stores.0.connection.name", "is missing"),
        ("type: sftp, training_data: {container: a}", "data_stores.0.connection.auth_url", "is missing"),
        ("type: gcs, training_data: {container: a}", "data_stores.0.connection.password", "is missing"),
        (
            "type: http, training_results: {container: a}, connection: {auth_url: 'http://x'}",
            "data_stores.0.training_results",
            "only read",
        ),
        (COS.replace("container: a", "container: a/../b"), "data_stores.0.training_data.container", "'..'"),
        (
            COS.replace("http://x", "http://u:hunter2@x"),
            "data_stores.0.connection.auth_url",
            "holds a password",
        ),
        (
            "type: s3_datastor, training_data: {container: a}",
            "data_stores.0.type",
            "did you mean s3_datastore?",
        ),
        (f"{COS}, read_only: yes", "data_stores.0.read_only", "YAML 1.2"),
        (COS.replace("{container: a}", "a"), "data_stores.0.training_data", "container: NAME"),
    ],
)
def test_what_a_store_lacks_is_named(item: str, key: str, message: str) -> None:
    faults = faults_of(stores(item))

    assert [fault.key for fault in faults if message in f"{fault.problem} {fault.hint}"] == [key]


def test_two_stores_of_one_id_are_refused() -> None:
    (fault,) = faults_of(stores(f"id: x, {COS}", f"id: x, {COS}"))

    assert (fault.key, fault.line) == ("data_stores.1.id", 6)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (COS.replace("'http://x'", "test"), "placeholder"),
        (COS.replace("'http://x'", "s3.example.com"), "not an address"),
        (COS.replace("p}", "<your password>}"), "placeholder"),
        (COS.replace("{auth_url", "{type: s3_datastore, auth_url"), "is the one that counts"),
        (f"bucket: b, {COS}", "under training_data"),
    ],
)
def test_what_is_doubtful_in_a_store_is_a_warning(item: str, message: str) -> None:
    (warning,) = loaded(stores(item)).warnings

    assert message in f"{warning.problem} {warning.hint}"


def test_a_password_in_an_address_is_not_repeated() -> None:
    faults = faults_of(stores(COS.replace("http://x", "http://u:hunter2@x")))

    assert faults
    assert "hunter2" not in "".join(map(str, faults))
