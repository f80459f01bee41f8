"""``--data`` and ``--results``: what they name replaces the data stores of the manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from workbench.errors import InputMissing, UsageError
from workbench.manifest.keys.credentials import put_back
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.config import Config
    from workbench.spec import DataStore

Document = dict[str, Any]
"""A store as a manifest writes it."""

_ID: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})=(.+)", re.DOTALL)
_STORE: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):([^/].*)", re.DOTALL)
_AMAZON: Final = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A container of a store, whether it is read or written."""

    type: str
    connection: Mapping[str, str]
    container: str
    path: str = ""


def stores_with(
    stores: Sequence[DataStore],
    kept: Mapping[str, str],
    data: Sequence[str],
    results: str,
    *,
    config: Config,
    more: Mapping[str, Mapping[str, str]],
) -> list[Document]:
    """Return a job's stores as ``--data`` and ``--results`` change them.

    Args:
        stores: the manifest's.
        kept: the credentials that they refer to.
        data: ``[ID=]PATH|URL``, each replaces the data of the store with that id, or of the first one.
        results: ``PATH|URL``, or nothing.
        config: where stores are named.
        more: further named stores, such as the served one.

    Raises:
        InputMissing: a folder is not there.
        UsageError: an address or an id cannot be used.
        UnknownName: there is no such store.
    """
    documents = [_document(store, kept) for store in stores]
    for number, option in enumerate(data):
        name, text = _split(option, [str(each["id"]) for each in documents])
        where = where_of(text, config=config, more=more)
        documents = _with_data(documents, where, name, first=number == 0)
    if results:
        where = where_of(results, config=config, more=more, to_write=True)
        documents = [_without(each, "training_results") for each in documents]
        documents.append(_of(where, _free("results", documents), "training_results"))
    return [each for each in documents if "training_data" in each or "training_results" in each]


def where_of(
    text: str, *, config: Config, more: Mapping[str, Mapping[str, str]], to_write: bool = False
) -> StoreLocation:
    """Return what a text names: a folder of this machine, ``STORE:CONTAINER``, or an address.

    Raises:
        InputMissing: a folder is not there.
        UsageError: the address cannot be used.
        UnknownName: there is no such store.
    """
    if "://" in text:
        return _of_address(text)
    if (found := _STORE.fullmatch(text)) and not Path(text).exists():
        return in_named_store(found[1], found[2], config=config, more=more)
    folder = Path(text).expanduser()
    if to_write:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--results {text}: this is a file; name a folder")
    elif not folder.exists():
        raise InputMissing(
            f"--data {text}: there is no such folder",
            hint="a folder, STORE:CONTAINER, or an address such as s3://...",
        )
    elif not folder.is_dir():
        raise UsageError(f"--data {text}: this is a file; name the folder that it is in")
    return StoreLocation("host_path", {}, os.path.abspath(folder))  # noqa: PTH100 - links stay as named


def is_folder_here(option: str) -> bool:
    """Say whether a value of ``--data`` or ``--results`` names a folder of this machine."""
    found = _ID.fullmatch(option)
    text = found[2] if found and not Path(option).exists() else option
    if "://" in text:
        return text.startswith("file://")
    return not _STORE.fullmatch(text) or Path(text).exists()


def in_named_store(
    name: str, inside: str, *, config: Config, more: Mapping[str, Mapping[str, str]]
) -> StoreLocation:
    """Return a container, and perhaps a folder in it, of a store that has a name."""
    from workbench.config.stores import named_store

    connection = named_store(name, config, more=more)
    kind = connection.pop("type")
    container, _, path = inside.strip("/").partition("/")
    return StoreLocation(kind, connection, container, path)


def _of_address(text: str) -> StoreLocation:
    try:
        address = urlsplit(text)
        password = address.password
    except ValueError as error:
        raise UsageError("this address cannot be read", hint="such as s3://bucket/folder") from error
    if password:
        raise UsageError(
            "an address on the command line holds a password, which other users of this machine can read",
            hint='name the store in config.toml ([stores.NAME], password = "${SECRET}") and write NAME:CONTAINER',
        )
    container, _, path = address.path.strip("/").partition("/")
    if address.scheme == "file":
        return StoreLocation("host_path", {}, address.path)
    if address.scheme == "s3":
        token = {"token": "${AWS_SESSION_TOKEN}"} if os.environ.get("AWS_SESSION_TOKEN") else {}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        connection = {
            "auth_url": os.environ.get("AWS_ENDPOINT_URL") or _AMAZON,
            "user_name": "${AWS_ACCESS_KEY_ID}",
            "password": "${AWS_SECRET_ACCESS_KEY}",
            **token,
            **({"region": region} if region else {}),
        }
        return StoreLocation("s3_datastore", connection, address.netloc, address.path.strip("/"))
    if address.scheme in ("http", "https"):
        return StoreLocation("http", {"auth_url": f"{address.scheme}://{address.netloc}"}, container, path)
    if address.scheme == "sftp":
        user = {"user_name": address.username} if address.username else {}
        connection = {"auth_url": f"sftp://{address.netloc.rpartition('@')[2]}", **user}
        return StoreLocation("sftp", connection, container, path)
    raise UsageError(
        f"{address.scheme}:// is not an address of a data store here",
        hint="s3://, http://, https://, sftp:// and file:// are; any store can be named in config.toml: NAME:CONTAINER",
    )


def _split(option: str, ids: Sequence[str]) -> tuple[str, str]:
    found = _ID.fullmatch(option)
    if not found or (found[1] not in ids and Path(option).exists()):
        return "", option
    return found[1], found[2]


def _with_data(documents: list[Document], where: StoreLocation, name: str, *, first: bool) -> list[Document]:
    """Replace the data of a store; results still go where they went."""
    index = next((number for number, each in enumerate(documents) if each["id"] == name), None)
    if not name and first and documents:
        index = 0
    if index is None:
        return [*documents, _of(where, name or _free("data", documents), "training_data")]
    old = documents[index]
    others = [each for each in documents if each is not old]
    left = _without(old, "training_data")
    if "training_results" in left:
        left = {**left, "id": _free(f"{old['id']}-results", others)}
        others.append(left)
    return [*others[:index], _of(where, str(old["id"]), "training_data"), *others[index:]]


def _document(store: DataStore, kept: Mapping[str, str]) -> Document:
    return {
        "id": store.id,
        "type": store.type,
        **({"training_data": {"container": store.training_data}} if store.training_data else {}),
        **({"training_results": {"container": store.training_results}} if store.training_results else {}),
        "connection": {key: put_back(text, kept) for key, text in store.connection.items()},
        "read_only": store.read_only,
        **({"path": store.path} if store.path else {}),
        "mount": store.mount,
    }


def _of(where: StoreLocation, name: str, use: str) -> Document:
    inside = where.path
    container = where.container
    if use == "training_results" and inside:
        container, inside = f"{container}/{inside}", ""
    return {
        "id": name,
        "type": where.type,
        use: {"container": container or "/"},
        **({"connection": dict(where.connection)} if where.connection else {}),
        **({"path": inside} if inside else {}),
    }


def _without(document: Document, use: str) -> Document:
    return {key: value for key, value in document.items() if key != use}


def _free(name: str, documents: Sequence[Document]) -> str:
    taken = {each["id"] for each in documents}
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free
