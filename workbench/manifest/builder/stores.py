"""Builds the data stores of a manifest, and checks what each type needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from workbench.manifest.keys.store_keys import (
    BOUND_STORES,
    CONNECTION_TYPES,
    FOLDER_STORES,
    JOB_STORE,
    OBJECT_STORES,
    OTHER_STORES,
)
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, SourceLocation, location_of, node_at
from workbench.spec import DataStore

_ADDRESSED: Final = ("sftp", "webdav", "http")
_CREDENTIALS: Final = ("auth_url", "user_name", "password")
_PASSWORD_IN_ADDRESS: Final = re.compile(r"://[^/@]*:[^/@]*@")
_ADDRESS_PLACEHOLDERS: Final = frozenset({"test", "url", "todo", "tbd", "changeme", "xxx"})


def stores_of(
    stores: Sequence[Mapping[str, Any]], root: MapNode, findings: Findings
) -> tuple[DataStore, ...]:
    """Return the data stores, and note what is missing or doubtful in them."""
    built = [
        _store(number, values, _StoreFindings(root, f"data_stores.{number}", findings))
        for number, values in enumerate(stores)
    ]
    _check_ids(built, root, findings)
    return tuple(built)


class _StoreFindings:
    """Faults and warnings of one store; keys are relative to it."""

    def __init__(self, root: MapNode, path: str, findings: Findings) -> None:
        self._root, self._path, self._findings = root, path, findings

    def fault(self, key: str, problem: str, hint: str = "") -> None:
        self._findings.fault(self._location(key), self._key(key), problem, hint)

    def warn(self, key: str, problem: str, hint: str = "") -> None:
        self._findings.warn(self._location(key), self._key(key), problem, hint)

    def is_there(self, key: str) -> bool:
        return node_at(self._root, self._key(key)) is not None

    def _key(self, key: str) -> str:
        return f"{self._path}.{key}" if key else self._path

    def _location(self, key: str) -> SourceLocation:
        return location_of(self._root, self._key(key))


def _store(number: int, values: Mapping[str, Any], findings: _StoreFindings) -> DataStore:
    connection = dict(values.get("connection") or {})
    kind = values.get("type") or CONNECTION_TYPES.get(connection.get("type", ""), "")
    training_data = _container(values.get("training_data"))
    store = DataStore(
        id=values.get("id") or f"store-{number + 1}",
        type=kind,
        training_data=training_data,
        training_results=_container(values.get("training_results")),
        connection=connection,
        read_only=values.get("read_only", bool(training_data) and kind in BOUND_STORES),
        path=values.get("path", ""),
        mount=values.get("mount", kind in FOLDER_STORES),
    )
    _check(store, findings)
    return store


def _container(values: Mapping[str, Any] | None) -> str:
    name: str = (values or {}).get("container", "")
    return "" if name == "none" else name


def _check(store: DataStore, findings: _StoreFindings) -> None:
    if not store.type and not findings.is_there("type"):
        findings.fault(
            "type", f"is missing; write one of {', '.join((*OBJECT_STORES, *OTHER_STORES, *FOLDER_STORES))}"
        )
    if store.type in OBJECT_STORES:
        _check_credentials(store, findings)
    elif store.type == "gcs" and not store.connection.get("password"):
        findings.fault(
            "connection.password", "is missing; write password: ${NAME}, NAME being a service account's JSON"
        )
    elif store.type == "azure" and not (store.connection.get("user_name") or store.connection.get("token")):
        findings.fault(
            "connection", "lacks user_name and password, or token, which a store of type azure needs"
        )
    elif store.type in _ADDRESSED and not store.connection.get("auth_url"):
        findings.fault("connection.auth_url", f"is missing; a store of type {store.type} has an address")
    elif store.type == "http" and store.training_results:
        findings.fault("training_results", "cannot be in a store of type http, which is only read")
    elif store.type in ("mount_volume", "host_path"):
        _check_folder(store, findings)
    elif store.type == JOB_STORE and not store.training_data:
        findings.fault("training_data", "is missing; write container: with the job whose results are read")
    elif store.type == JOB_STORE and store.training_results:
        findings.fault("training_results", "cannot be in another job; its results are only read")
    elif store.type == "volume" and not store.connection.get("name"):
        findings.fault("connection.name", "is missing; write the volume's name")
    if not store.training_data and not store.training_results:
        findings.warn(
            "", "names neither training_data.container nor training_results.container, so it does nothing"
        )
    repeated = store.connection.get("type", "")
    if repeated and CONNECTION_TYPES.get(repeated) != store.type:
        findings.warn(
            "connection.type",
            f"{repeated!r} is not the store's type {store.type!r}, which is the one that counts",
        )
    if _PASSWORD_IN_ADDRESS.search(store.connection.get("auth_url", "")):
        # The address is not repeated, since faults are shown and kept.
        findings.fault("connection.auth_url", "holds a password; write it as password: below connection:")
    if store.type not in FOLDER_STORES:
        _check_containers(store, findings)
    if ".." in store.path.split("/"):
        findings.fault("path", "leads out of the container with '..'; write a folder inside it")


def _check_credentials(store: DataStore, findings: _StoreFindings) -> None:
    missing = [key for key in _CREDENTIALS if not store.connection.get(key)]
    if missing:
        findings.fault("connection", f"lacks {', '.join(missing)}, which a store of type {store.type} needs")
    address = store.connection.get("auth_url", "")
    if "${" in address or _PASSWORD_IN_ADDRESS.search(address):
        return
    if address.lower() in _ADDRESS_PLACEHOLDERS:
        findings.warn(
            "connection.auth_url", f"{address!r} is a placeholder; replace it by the store's address"
        )
    elif address and "://" not in address and not address.startswith("<"):
        findings.warn(
            "connection.auth_url", f"{address!r} is not an address; it starts with http:// or https://"
        )


def _check_containers(store: DataStore, findings: _StoreFindings) -> None:
    for key, container in (
        ("training_data", store.training_data),
        ("training_results", store.training_results),
    ):
        if ".." in container.split("/"):
            findings.fault(f"{key}.container", "leads out of its store with '..'")


def _check_folder(store: DataStore, findings: _StoreFindings) -> None:
    base = store.connection.get("path", "")
    for key, container in (
        ("training_data", store.training_data),
        ("training_results", store.training_results),
    ):
        if container and not container.startswith("/") and not base:
            findings.fault(
                "connection.path", f"is missing; write the folder of the host that holds {container!r}"
            )
            return
        if ".." in container.split("/"):
            findings.fault(f"{key}.container", "leads out of its folder with '..'")
        elif base and container.startswith("/") and not _is_inside(container, base):
            findings.fault(
                f"{key}.container",
                f"{container!r} is not inside connection.path {base!r}",
                "write it relative to connection.path, or leave connection.path out",
            )
    if base and not base.startswith(("/", "~", "$", "<")):
        findings.fault("connection.path", f"{base!r} is not an absolute path")


def _is_inside(container: str, base: str) -> bool:
    """Say whether an absolute path is a folder or in it; slashes do not count, links are not looked at."""
    inside, folder = (PurePosixPath("/", *path.strip("/").split("/")) for path in (container, base))
    return base.startswith("/") and inside.is_relative_to(folder)


def _check_ids(stores: Sequence[DataStore], root: MapNode, findings: Findings) -> None:
    known: set[str] = set()
    for number, store in enumerate(stores):
        if store.id in known:
            key = f"data_stores.{number}.id"
            findings.fault(
                location_of(root, key),
                key,
                f"{store.id!r} is the id of another store as well; choose one of its own",
            )
        known.add(store.id)
