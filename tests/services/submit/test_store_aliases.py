"""Addresses of a manifest's stores that are reached elsewhere: by an alias, or at the store that is served here."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.config import load_config
from workbench.data.stores.local_server import ALIAS, LocalStore, serving
from workbench.errors import ConfigError
from workbench.manifest import Loaded, load_text
from workbench.paths import Home
from workbench.services.submit.store_aliases import served_connections, with_aliases

SERVED = LocalStore("http://127.0.0.1:9023", "/srv/store")
KEY = "data_stores.0.connection.password"
LAB = """\
[stores.lab]
type = "s3_datastore"
auth_url = "http://lab.example.com:9000"
user_name = "${LAB_USER}"
password = "${LAB_KEY}"
"""


def manifest(address: str) -> Loaded:
    text = f"""\
name: digits
framework: {{command: "true"}}
data_stores:
  - id: data
    type: s3_datastore
    training_data: {{container: pictures}}
    connection: {{auth_url: "{address}", user_name: me, password: written-out}}
  - {{id: local, type: host_path, training_data: {{container: x}}, connection: {{path: /data}}}}
"""
    return load_text(text, "manifest.yml", environ={}, defaults={})


def configure(folder: Path, text: str) -> None:
    (folder / "config.toml").write_text(text)


def test_without_aliases_and_a_served_store_nothing_is_replaced() -> None:
    loaded = manifest(ALIAS)

    assert with_aliases(loaded, load_config(), None) == (loaded, [])


def test_an_address_is_reached_as_another_with_the_credentials_that_the_manifest_has(
    clean_environment: Path,
) -> None:
    configure(clean_environment, '[store_alias]\n"http://old.example.com" = "http://new.example.com/x"\n')

    found, notes = with_aliases(manifest("HTTP://old.example.com/"), load_config(), None)

    assert [store.connection.get("auth_url") for store in found.spec.data_stores] == [
        "http://new.example.com/x", None,
    ]  # fmt: skip
    assert found.spec.data_stores[0].connection["user_name"] == "me"
    assert found.credentials == {KEY: "written-out"}
    assert notes == [
        "the store data at HTTP://old.example.com/ is reached as http://new.example.com/x (store_alias)"
    ]


def test_an_alias_that_is_a_store_of_the_configuration_brings_its_own_credentials(
    clean_environment: Path,
) -> None:
    configure(clean_environment, f'{LAB}[store_alias]\n"http://old.example.com" = "lab"\n')
    loaded = manifest("http://old.example.com")

    found, notes = with_aliases(loaded, load_config(), None)

    user = "data_stores.0.connection.user_name"
    assert found.spec.data_stores[0].connection == {
        "auth_url": "http://lab.example.com:9000",
        "user_name": f"${{secret:{user}}}",
        "password": f"${{secret:{KEY}}}",
    }
    assert found.credentials == {user: "${LAB_USER}", KEY: "${LAB_KEY}"}
    assert loaded.credentials == {KEY: "written-out"}
    assert len(notes) == 1


def test_an_alias_to_nothing_is_refused(clean_environment: Path) -> None:
    configure(clean_environment, f'{LAB}[store_alias]\n"http://old.example.com" = "lba"\n')

    with pytest.raises(ConfigError, match=r"maps http://old\.example\.com to 'lba', which is neither"):
        with_aliases(manifest("http://old.example.com"), load_config(), None)


def test_ffdls_own_address_is_that_of_the_store_which_is_served_here() -> None:
    found, notes = with_aliases(manifest(ALIAS), load_config(), SERVED)

    assert found.spec.data_stores[0].connection["auth_url"] == SERVED.address
    assert notes == [f"the store data at {ALIAS} is reached as {SERVED.address} (fabric store serve)"]
    assert with_aliases(manifest("http://elsewhere"), load_config(), SERVED)[1] == []


def test_an_alias_goes_before_the_served_store(clean_environment: Path) -> None:
    configure(clean_environment, f'[store_alias]\n"{ALIAS}" = "http://new.example.com"\n')

    found, _ = with_aliases(manifest(ALIAS), load_config(), SERVED)

    assert found.spec.data_stores[0].connection["auth_url"] == "http://new.example.com"


def test_the_served_store_has_a_name_as_long_as_somebody_serves_it(home: Home) -> None:
    assert served_connections() == {}
    with serving(home) as registration:
        assert served_connections() == {}  # it does not listen yet
        registration.write(SERVED)
        assert served_connections() == {"served": SERVED.connection}
    assert served_connections() == {}
