"""Checks a job's data stores before it is submitted: that they answer, and that its target can reach them."""

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
    """Apply the configuration's store aliases to a manifest, and the served store's; return it with a note for each.

    Raises:
        ConfigError: the configuration maps an address to nothing.
    """
    if not any(store.connection.get("auth_url") for store in loaded.spec.data_stores):
        return loaded, []
    from workbench.config import load_config
    from workbench.data.stores.local_server import served_store
    from workbench.services.submit.store_aliases import with_aliases

    return with_aliases(loaded, load_config(), served_store(home))


def check_stores(spec: JobSpec, target: TargetRef, home: Home, *, launch: bool) -> None:
    """Check that a job's target can reach its stores, as far as this machine can tell.

    With ``launch`` also that stores at addresses of this machine answer, and have what the job reads.

    Raises:
        UsageError: only this machine reaches a store, and the job runs elsewhere.
        BackendUnreachable: nothing answers at an address of this machine.
        InputMissing: this machine serves the store, and there is no such container.
    """
    addressed = [store for store in spec.data_stores if store.connection.get("auth_url")]
    if not addressed:
        return
    from workbench.data.stores.local_server import served_store

    served = served_store(home)
    for store in addressed:
        if launch and target.type != CLUSTER:
            _check_alias(store)
        is_served = served is not None and served.address == store.connection["auth_url"]
        if is_served and target.type != LOCAL:
            raise UsageError(
                f"the store {store.id} is served at {store.connection['auth_url']}, which only this"
                f" machine reaches, and the job runs on {target.backend}",
                hint="a store with an address of its own in the network serves both",
            )
        # A loopback address means another machine there.
        if launch and target.type == LOCAL and _is_loopback(store):
            _check_answer(store)
            if served and is_served:
                _check_containers(store, served)


def make_result_containers(spec: JobSpec, target: TargetRef, home: Home) -> None:
    """Make the containers for results that are missing in a store that this machine serves itself."""
    asked = [
        store
        for store in spec.data_stores
        if store.connection.get("auth_url") and store.training_results.strip("/") and _is_loopback(store)
    ]
    if target.type != LOCAL or not asked:
        return
    from workbench.data.stores.local_server import make_served_containers, served_store

    if (served := served_store(home)) is None:
        return
    names = [
        store.training_results.strip("/").partition("/")[0]
        for store in asked
        if store.connection["auth_url"] == served.address
    ]
    if names:
        make_served_containers(served, names)


def check_folders(folders: Sequence[str], target: TargetRef) -> None:
    """Check that no folder of this machine is named for a job that runs elsewhere.

    Raises:
        UsageError: one is.
    """
    from workbench.services.submit.data_options import is_folder_here

    for folder in folders:
        if target.type != LOCAL and is_folder_here(folder):
            raise UsageError(
                f"{folder} is a folder of this machine, and the job runs on {target.backend}",
                hint=f"fabric data put {folder} STORE:CONTAINER, then name STORE:CONTAINER; or a store of type"
                " host_path in the manifest, for a folder of that machine",
            )


def _is_loopback(store: DataStore) -> bool:
    host = urlsplit(store.connection["auth_url"]).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _check_alias(store: DataStore) -> None:
    from workbench.config.stores import same_address
    from workbench.data.stores.local_server import ALIAS

    if same_address(store.connection["auth_url"], ALIAS):
        raise BackendUnreachable(
            f"the store {store.id} is at {ALIAS}, FfDL's built-in store, which does not exist here",
            hint="--data FOLDER and --results FOLDER take folders of this machine instead; `fabric store serve` serves"
            f' one as that store; or map it in config.toml: [store_alias] "{ALIAS}" = "https://..."',
        )


def _check_answer(store: DataStore) -> None:
    address = store.connection["auth_url"]
    try:
        parts = urlsplit(address)
        port = parts.port or {"https": 443, "sftp": 22}.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise BackendUnreachable(
            f"the store {store.id} does not answer at {address}",
            hint="`fabric store serve` serves a folder of this machine as a store",
        ) from error


def _check_containers(store: DataStore, served: LocalStore) -> None:
    from workbench.data.stores.local_server import NAME

    folder = Path(served.folder)
    container = store.training_data.strip("/").partition("/")[0]
    if container and not (folder / container).is_dir():
        names = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
        raise InputMissing(
            f"the store {store.id} has no container {container!r}"
            + (f"; it has {', '.join(names[:20])}" if names else "; it has none"),
            hint=f"fabric data put FOLDER {NAME}:{container} --create creates and fills it",
        )
