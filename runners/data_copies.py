"""The copies of stores' data that jobs of a place share: what they are, and their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.interface import Host
from workbench.paths import Home


def copies_at(host: Host, home: Home) -> Sequence[Mapping[str, Any]]:
    """List the copies at a host, the longest unused first: ``folder``, ``container``, ``bytes``, ``in_use``, ...

    Args:
        host: the place.
        home: our home's folder there.
    """
    if not host.call("children", folder=str(home.data)):
        return []  # so a place with nothing but a shell, which has no data of stores, need not know more
    found: list[dict[str, Any]] = host.call("data_copies", cache=str(home.data))
    return found


def drop_copies(host: Host, home: Home, keep_bytes: int) -> Sequence[str]:
    """Remove copies that no learner uses, the longest unused first, until so much is left; return their folders."""
    dropped: list[str] = host.call("drop_data_copies", cache=str(home.data), keep_bytes=keep_bytes)
    return dropped
