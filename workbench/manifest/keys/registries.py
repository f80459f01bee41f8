"""The login to the registry of a job's image: the keys that it has in a manifest, and whose login it is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

DOCKER_HUB: Final = "docker.io"
"""The registry of images whose name begins with none."""

_OF_DOCKER_HUB: Final = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})

PASSWORDS: Final = ("password", "access_token")
"""Keys that go with a user name."""

TOKENS: Final = ("auth", "identity_token", "registry_token")
"""Keys that are a login by themselves."""

LOGIN_CREDENTIALS: Final = (*PASSWORDS, *TOKENS)


def login_keys(location: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of a manifest's keys for a login an image's location has."""
    return tuple(key for key in LOGIN_CREDENTIALS if location.get(key))


def registry_of(reference: str) -> str:
    """Return the host of the registry that an image comes from."""
    first, slash, _ = reference.partition("/")
    has_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return host_of(first) if has_host else DOCKER_HUB


def host_of(address: str) -> str:
    """Return the host of a registry by its address, which may be one of the web; those of Docker Hub are one.

    Of what is no address at all it is the text itself.
    """
    with_scheme = address if "://" in address else f"//{address}"
    try:
        host = urlsplit(with_scheme).netloc.rpartition("@")[2].lower()
    except ValueError:  # such as a bracket that is not closed
        return address
    return DOCKER_HUB if host in _OF_DOCKER_HUB else host


def decoded_auth(text: str) -> tuple[str, str] | None:
    """Return the user name and the password that Docker's ``auth`` holds; None where it holds none."""
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon and user and password else None
