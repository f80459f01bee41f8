"""A store that a word names, ``STORE:CONTAINER[/FOLDER]``, ready to be used from this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.data.stores.local_server import LocalStore
    from workbench.data.stores.transfer import StoreTransfer

_WORD = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A container of a store, and perhaps a folder in it."""

    store: str
    container: str
    path: str
    """Container and folder, as the store has them."""
    moving: StoreTransfer
    served: LocalStore | None
    """What serves it, where this machine does."""


def named(word: str) -> NamedStore:
    """Return what a word names.

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

    found = _WORD.fullmatch(word)
    parts = [part for part in found[2].split("/") if part] if found else []
    if not found or not parts:
        raise UsageError(
            f"{word!r} names no container",
            hint="STORE:CONTAINER, STORE being one of [stores] in config.toml, or served",
        )
    if ".." in parts or "." in parts:
        raise UsageError(f"{word!r} leads out of the container with '..'")
    served = served_store(Home(default_home()))
    connection = named_store(found[1], load_config(), more={NAME: served.connection} if served else {})
    wanted = [name for text in connection.values() for name in named_in(text)]
    values = find_secrets(wanted) if wanted else {}
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
