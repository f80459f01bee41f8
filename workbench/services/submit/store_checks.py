"""What can be known of a job's data stores before it is given: who answers, and whether the place can reach them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from workbench.errors import BackendUnreachable, InputMissing, UsageError

if TYPE_CHECKING:
    from workbench.data.stores.local_server import LocalStore
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.spec import DataStore, JobSpec
    from workbench.store.db.rows import TargetRef

ANSWER_SECONDS = 2.0
LOCAL = "local"
CLUSTER = "kubernetes"


def ready_stores(loaded: Loaded, home: Home) -> tuple[Loaded, list[str]]:
    """Return a manifest whose stores are reached as the configuration and the served store have it, and say which.

    Raises:
        ConfigError: the configuration maps an address to nothing.
    """
    if not any(store.connection.get("auth_url") for store in loaded.spec.data_stores):
        return loaded, []
    from workbench.config import load_config
    from workbench.data.stores.local_server import served_store
    from workbench.services.submit.store_aliases import with_aliases

    return with_aliases(loaded, load_config(), served_store(home))


def check_stores(spec: JobSpec, place: TargetRef, home: Home, *, launch: bool) -> None:
    """See that a job's stores can be reached from its place, as far as this machine knows.

    With ``launch`` the containers for results are made where this machine serves the store itself.

    Raises:
        UsageError: a store is on this machine alone, and the place is another one.
        BackendUnreachable: nobody answers at an address of this machine.
        InputMissing: this machine serves the store, and there is no such container.
    """
    addressed = [store for store in spec.data_stores if store.connection.get("auth_url")]
    if not addressed:
        return
    from workbench.data.stores.local_server import served_store

    served = served_store(home)
    for store in addressed:
        if launch and place.type != CLUSTER:
            _see_alias(store)
        is_served = served is not None and served.address == store.connection["auth_url"]
        if is_served and place.type != LOCAL:
            raise UsageError(
                f"the store {store.id} is served at {store.connection['auth_url']}, which only this"
                f" machine reaches, and the job runs on {place.backend}",
                hint="a store with an address of its own in the network serves both",
            )
        # The address of another place's loopback is its own business.
        if launch and place.type == LOCAL and _is_loopback(store):
            _see_answer(store)
            if served and is_served:
                _see_containers(store, served)


def check_folders(words: Sequence[str], place: TargetRef) -> None:
    """See that no folder of this machine is named for a place that is another one.

    Raises:
        UsageError: one is.
    """
    from workbench.services.submit.data_options import is_folder_here

    for word in words:
        if place.type != LOCAL and is_folder_here(word):
            raise UsageError(
                f"{word} is a folder of this machine, and the job runs on {place.backend}",
                hint=f"fabric data put {word} STORE:CONTAINER, then name STORE:CONTAINER; or a store of type"
                " host_path in the manifest, for a folder that is there",
            )


def _is_loopback(store: DataStore) -> bool:
    host = urlsplit(store.connection["auth_url"]).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _see_alias(store: DataStore) -> None:
    from workbench.config.stores import same_address
    from workbench.data.stores.local_server import ALIAS

    if same_address(store.connection["auth_url"], ALIAS):
        raise BackendUnreachable(
            f"the store {store.id} is at {ALIAS}, FfDL's built-in store, which does not exist here",
            hint="`fabric store serve` does, with a folder of this machine; or map it in config.toml:"
            f' [store_alias] "{ALIAS}" = "https://..."',
        )


def _see_answer(store: DataStore) -> None:
    address = store.connection["auth_url"]
    try:
        told = urlsplit(address)
        port = told.port or {"https": 443, "sftp": 22}.get(told.scheme, 80)
        socket.create_connection((told.hostname or "", port), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise BackendUnreachable(
            f"nothing answers at {address}, where the store {store.id} should be",
            hint="`fabric store serve` serves a folder of this machine as a store",
        ) from error


def _see_containers(store: DataStore, served: LocalStore) -> None:
    from workbench.data.stores.local_server import NAME, make_served_containers

    folder = Path(served.folder)
    container = store.training_data.strip("/").partition("/")[0]
    if container and not (folder / container).is_dir():
        there = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
        raise InputMissing(
            f"the store {store.id} has no container {container!r}"
            + (f"; it has {', '.join(there[:20])}" if there else ", nor any other"),
            hint=f"fabric data put FOLDER {NAME}:{container} brings data there",
        )
    if results := store.training_results.strip("/").partition("/")[0]:
        make_served_containers(served, [results])
