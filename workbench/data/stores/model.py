"""The data stores of a job as values: what is read, where results go, and how rclone reaches each.

A :class:`JobDataStore` may be shown: its credentials are references, ``${secret:NAME}``. An :class:`RcloneRemote` holds
their values and is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final, Literal

from workbench.data.stores.types import FOLDERS, VOLUMES, is_read_only, options_of
from workbench.errors import LaunchRefused
from workbench.spec import DataStore, JobSpec
from workbench.values import dataclass

REFERENCE: Final = re.compile(r"\$\{secret:([^}]+)\}")
"""Stands in a connection for a value that is kept with the job's secrets."""

ADDRESSING: Final = ("auth_url", "region", "domain_name", "project_id", "path", "name")
"""Connection keys that identify the store; the others identify the user."""

CREDENTIALS: Final = ("password", "token")
"""Connection keys whose values are secret."""


@dataclass(frozen=True, slots=True)
class JobDataStore:
    """One data store of a job."""

    id: str
    type: str
    connection: Mapping[str, str] = field(repr=False)
    """As the spec has it; credentials are references to the job's secrets."""
    container: str = ""
    """The bucket or folder with the training data, perhaps with a folder in it; empty for none."""
    sub_path: str = ""
    """A folder in the container that stands for the whole of the data."""
    results_container: str = ""
    """The bucket or folder for results; empty for none."""
    mode: Literal["copy", "mount"] = "copy"
    read_only: bool = False
    """Whether nothing is ever written to it."""

    @property
    def is_folder(self) -> bool:
        """Whether its containers are folders of the machine that learners run on: bound, not copied."""
        return self.type in FOLDERS

    @property
    def is_volume(self) -> bool:
        """Whether only a container engine or a cluster can reach it."""
        return self.type in VOLUMES

    @property
    def is_copied(self) -> bool:
        """Whether what is in it travels through rclone."""
        return not self.is_folder and not self.is_volume

    @property
    def address(self) -> str:
        """The address to show, without credentials."""
        return _without_user(self.connection.get("auth_url", "")) or self.connection.get("path", "")

    @property
    def data_path(self) -> str:
        """What is read, as rclone has it behind the colon."""
        return _joined(self, self.container, self.sub_path)

    def results_path(self, *below: str) -> str:
        """Return a folder below the results container, as rclone has it behind the colon."""
        return _joined(self, self.results_container, *below)

    @property
    def key(self) -> str:
        """A name for the data of this store in a cache: the same for whoever reads the same container."""
        parts = (self.type, *(self.connection.get(name, "") for name in ADDRESSING), self.data_path)
        return sha256("\0".join(parts).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class RcloneRemote:
    """A store as rclone's configuration has it. It holds credentials: it is sent to the backend and never shown."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    """rclone's options, with credentials as they are."""
    path: str = ""
    obscured: tuple[str, ...] = ()
    """Options that the caller must obscure (``rclone obscure``)."""


def stores_of(spec: JobSpec) -> tuple[JobDataStore, ...]:
    """Return the data stores of a job, the first one's data being ``DATA_DIR``."""
    return tuple(store_of(each) for each in spec.data_stores)


def store_of(store: DataStore) -> JobDataStore:
    """Return one data store of a spec."""
    return JobDataStore(
        id=store.id,
        type=store.type,
        connection=dict(store.connection),
        container=store.training_data.strip("/") if store.type not in FOLDERS else store.training_data,
        sub_path=store.path.strip("/"),
        results_container=store.training_results.rstrip("/"),
        mode="mount" if store.mount else "copy",
        read_only=store.read_only or is_read_only(store.type),
    )


def remote_of(store: JobDataStore, credentials: Mapping[str, str], *, path: str = "") -> RcloneRemote:
    """Return the rclone remote of a store, at a path (its data's path if none is given).

    Args:
        store: the store.
        credentials: the job's secrets by name, which references stand for.
        path: a path in the store.

    Raises:
        LaunchRefused: a credential has no value (C103), or rclone does not reach such a store (C101).
    """
    connection = {key: _resolved(store, value, credentials) for key, value in store.connection.items()}
    options = options_of(store.type, connection)
    return RcloneRemote(remote_name(store.id), options.plain, path or store.data_path, options.obscured)


def remote_name(store_id: str) -> str:
    """Return a name for a store that rclone takes in the name of a variable."""
    cleaned = re.sub(r"[^A-Za-z0-9]", "", store_id)[:20]
    return f"S{sha256(store_id.encode()).hexdigest()[:6]}{cleaned}".upper()


def _resolved(store: JobDataStore, value: str, credentials: Mapping[str, str]) -> str:
    for name in REFERENCE.findall(value):
        if name not in credentials:
            raise LaunchRefused(
                f"The data store {store.id} needs the secret {name}, and there is no value for it.",
                hint="`fabric run` with its manifest supplies it again."
                if "." in name
                else f"Give it when the job is given: fabric run -e {name}",
                code="C103",
            )
    return REFERENCE.sub(lambda found: credentials[found[1]], value)


def _joined(store: JobDataStore, container: str, *below: str) -> str:
    """Put a path together; ``..`` never leads out of a container."""
    parts = [part for text in (container, *below) for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise LaunchRefused(
            f"{'/'.join((container, *below))!r} leads out of the data store {store.id} with '..'.",
            hint="Write a folder inside it.",
            code="C101",
        )
    if not store.is_folder:
        return "/".join(parts)
    base = "" if container.startswith("/") else store.connection.get("path", "")
    return str(PurePosixPath(base or "/", *parts))


def _without_user(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    return scheme + separator + rest.rpartition("@")[2] if separator else address
