"""The copies of stores' data that jobs of a place share: what they are, and their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.contract.host import Host


def copies_at(host: Host, cache: str) -> Sequence[Mapping[str, Any]]:
    """List the copies at a host, the longest unused first: ``folder``, ``container``, ``bytes``, ``in_use``, ...

    Args:
        host: the place.
        cache: the folder there that has them.
    """
    if not host.call("children", folder=cache):
        return []  # so a place with nothing but a shell, which has no data of stores, need not know more
    found: list[dict[str, Any]] = host.call("data_copies", cache=cache)
    return found


def drop_copies(host: Host, cache: str, keep_bytes: int) -> Sequence[str]:
    """Remove copies that no learner uses, the longest unused first, until so much is left; return their folders."""
    dropped: list[str] = host.call("drop_data_copies", cache=cache, keep_bytes=keep_bytes)
    return dropped
