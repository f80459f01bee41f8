"""Stores that have a name beside those of the configuration: the one that is served on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.paths import Home, default_home


def also_named() -> dict[str, Mapping[str, str]]:
    """Return the served store under its name, or nothing when none is served."""
    home = Home(default_home())
    if not home.served_store.exists():
        return {}
    from workbench.data.stores.local_server import NAME, served_store

    served = served_store(home)
    return {NAME: served.connection} if served else {}
