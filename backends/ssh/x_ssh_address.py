"""Reads the address of an SSH host, ``ssh://[user@]host[:port]``; the host may be a name of ``~/.ssh/config``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from workbench.errors import ConfigError

_ADDRESS: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@/\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:/\s\[\]]+)(?::(?P<port>\d+))?/?"
)
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where an address leads; what it does not say is for ``~/.ssh/config`` to say."""

    host: str
    user: str = ""
    port: int = 0


def parse_address(text: str) -> Address:
    """Read an address, with or without ``ssh://``.

    Raises:
        ConfigError: it is none.
    """
    found = _ADDRESS.fullmatch(text.strip())
    port = int(found["port"] or 0) if found else 0
    # A host that begins with a dash would be an option of ssh's.
    if found is None or port > _PORT_MAX or found["host"].startswith("-"):
        raise ConfigError(
            f"{text!r} is no address of an SSH host",
            hint="write ssh://host, ssh://me@host or ssh://me@host:2222",
        )
    return Address(found["host"].strip("[]"), found["user"] or "", port)
