"""Brings data into stores: folders of this machine, and the containers that they go into."""

from __future__ import annotations

import re
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.errors import FabricError, InputMissing, UsageError
from workbench.services.cancel import call, check_cancelled
from workbench.services.transfer.events import CopyProgress, Report, ignore
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.stores.local_server import LocalStore
    from workbench.data.stores.transfer import StoreTransfer

CONTAINERS_NAMED: Final = 20


_TARGET: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A container of a store, and perhaps a folder in it."""

    store: str
    container: str
    path: str
    """Container and folder, as the store has them."""
    transfer: StoreTransfer
    served: LocalStore | None
    """What serves it, where this machine does."""


@dataclass(frozen=True, slots=True)
class UploadedFolder:
    """A folder that a store has now."""

    store: str
    path: str
    """Container and folder, as the store has them."""
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreContainer:
    """A container of a store."""

    store: str
    container: str
    is_new: bool
    """Whether it was created just now."""


def upload_folder(
    source: Path,
    target: str,
    *,
    create: bool = False,
    report: Report = ignore,
    cancel: threading.Event | None = None,
) -> UploadedFolder:
    """Copy a folder into a store; files that are already there and equal are skipped.

    Args:
        source: a folder of this machine.
        target: ``STORE:CONTAINER[/FOLDER]``.
        create: whether the container is created if it is missing.
        report: takes the progress.
        cancel: ends the call once it is set; files that are in the store already stay there.

    Raises:
        InputMissing: there is no such folder, or no such container.
        UsageError: the target names no container.
        UnknownName: there is no such store.
        FabricError: not all files were copied.
        Cancelled: ``cancel`` was set.
    """
    return call(partial(_upload, source, target, create, report, cancel), cancel)


def _upload(
    source: Path, target: str, create: bool, report: Report, cancel: threading.Event | None
) -> UploadedFolder:
    if not source.is_dir():
        raise InputMissing(f"there is no folder {source}")
    to = _find_container(target)
    if not to.transfer.has(to.container):
        if not create:
            raise _no_container(to)
        _create(to)
    what = f"{source.name} to {target}"
    files = to.transfer.put(
        source,
        to.path,
        lambda progress: report(CopyProgress(what, progress)),
        check_stop=partial(check_cancelled, cancel),
    )
    return UploadedFolder(to.store, to.path, len(files), sum(each.size_bytes for each in files))


def create_container(target: str) -> StoreContainer:
    """Create a container where the store does not have it.

    Raises:
        UsageError: the target is a folder in a container.
        UnknownName: there is no such store.
        FabricError: the store refuses.
    """
    to = _find_container(target)
    if to.path != to.container:
        raise UsageError(f"{target} is a folder in a container; folders appear when files are put into them")
    is_new = not to.transfer.has(to.container)
    if is_new:
        _create(to)
    return StoreContainer(to.store, to.container, is_new)


def _find_container(target: str) -> NamedStore:
    """Return the container that ``STORE:CONTAINER[/FOLDER]`` names.

    Raises:
        UsageError: it names no container, or leads out of one.
        UnknownName: there is no such store.
    """
    from workbench.config import load_config
    from workbench.config.secrets import find_secrets
    from workbench.config.stores import named_store
    from workbench.data.stores.local_server import NAME, served_store
    from workbench.data.stores.model import JobDataStore
    from workbench.data.stores.transfer import StoreTransfer
    from workbench.manifest.keys.credentials import connection_without, named_in, resolved
    from workbench.paths import Home, default_home

    found = _TARGET.fullmatch(target)
    parts = [part for part in found[2].split("/") if part] if found else []
    if not found or not parts:
        raise UsageError(
            f"{target!r} names no container",
            hint="STORE:CONTAINER, STORE being one of [stores] in config.toml, or served",
        )
    if ".." in parts or "." in parts:
        raise UsageError(f"{target!r} leads out of the container with '..'")
    served = served_store(Home(default_home()))
    connection = named_store(found[1], load_config(), more={NAME: served.connection} if served else {})
    secrets = [name for text in connection.values() for name in named_in(text)]
    values = find_secrets(secrets) if secrets else {}
    kept: dict[str, str] = {}
    kind = connection.pop("type")
    hidden = connection_without(connection, 0, kept)
    store = JobDataStore(
        id=found[1],
        type=kind,
        connection={key: resolved(text, values.__getitem__) for key, text in hidden.items()},
        container=parts[0],
    )
    credentials = {path: resolved(text, values.__getitem__) for path, text in kept.items()}
    is_served = served is not None and store.connection.get("auth_url") == served.address
    return NamedStore(
        found[1], parts[0], "/".join(parts), StoreTransfer(store, credentials), served if is_served else None
    )


def _create(to: NamedStore) -> None:
    if to.served is None:
        to.transfer.make(to.container)
        return
    from workbench.data.stores.local_server import make_served_containers

    # In the served folder itself, since S3 refuses underscores.
    make_served_containers(to.served, [to.container])


def _no_container(to: NamedStore) -> InputMissing:
    try:
        names = to.transfer.containers()
    except FabricError:
        names = []
    known = f"; it has {', '.join(names[:CONTAINERS_NAMED])}" if names else ""
    return InputMissing(
        f"the store {to.store} has no container {to.container!r}{known}", hint="--create creates it"
    )
