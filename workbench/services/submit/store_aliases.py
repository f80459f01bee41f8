"""Replaces addresses of a manifest's stores, by the configuration's aliases and the store that is served here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.manifest.keys.credentials import connection_without
from workbench.paths import Home, default_home

if TYPE_CHECKING:
    from workbench.config import Config
    from workbench.data.stores.local_server import LocalStore
    from workbench.manifest import Loaded
    from workbench.spec import DataStore


def with_aliases(loaded: Loaded, config: Config, served: LocalStore | None) -> tuple[Loaded, list[str]]:
    """Return a manifest with the addresses of its stores replaced, and a note for each that was.

    Raises:
        ConfigError: the configuration maps an address to nothing.
    """
    kept = dict(loaded.credentials)
    notes = []
    stores = []
    for number, store in enumerate(loaded.spec.data_stores):
        replacement, source = _replacement(store, config, served)
        if not replacement:
            stores.append(store)
            continue
        was = store.connection.get("auth_url", "")
        connection = {**store.connection, **{key: text for key, text in replacement.items() if key != "type"}}
        connection = connection_without(connection, number, kept)
        stores.append(replace(store, type=replacement.get("type", store.type), connection=connection))
        notes.append(
            f"the store {store.id} at {was} is reached as {connection.get('auth_url', '')} ({source})"
        )
    if not notes:
        return loaded, []
    spec = replace(loaded.spec, data_stores=tuple(stores))
    return replace(loaded, spec=spec, credentials=kept), notes


def _replacement(store: DataStore, config: Config, served: LocalStore | None) -> tuple[dict[str, str], str]:
    address = store.connection.get("auth_url", "")
    if not address or not (config.store_alias or served):
        return {}, ""
    from workbench.config.stores import aliased, same_address

    connection = aliased(address, config)
    if connection is not None:
        return connection, "store_alias"
    if served is not None:
        from workbench.data.stores.local_server import ALIAS

        if same_address(address, ALIAS):
            return {"auth_url": served.address}, "fabric store serve"
    return {}, ""


def served_connections() -> dict[str, Mapping[str, str]]:
    """Return the served store under its name, or nothing when none is served."""
    home = Home(default_home())
    if not home.served_store.exists():
        return {}
    from workbench.data.stores.local_server import NAME, served_store

    served = served_store(home)
    return {NAME: served.connection} if served else {}
