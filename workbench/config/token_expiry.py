"""Tells when temporary credentials expire: session tokens of S3, and addresses of Azure with a signature.

That is not in a session token. Who made it has written it down: in a variable beside it, in its profile, or in the
cache of AWS's own command. Nothing is run to find it out.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from workbench.values import dataclass

TOKEN_NAMES: Final = ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
_EXPIRY_VARIABLES: Final = ("AWS_CREDENTIAL_EXPIRATION", "AWS_SESSION_EXPIRATION")
_TOKEN_KEYS: Final = ("aws_session_token", "aws_security_token")
_EXPIRY_KEYS: Final = (
    "aws_expiration",
    "x_security_token_expires",
    "expiration",
    "aws_credential_expiration",
    "aws_session_expiration",
)
"""What the tools that write profiles call it."""
_YEARS: Final = range(2000, 2200)
"""A time out of these stands for none: the end of time is what people write for never."""


@dataclass(frozen=True, slots=True)
class TokenExpiry:
    """When credentials expire, and where that was found."""

    time_us: int | None = None
    """None where it was not found."""
    source: str = ""


def signature_expiry(address: str) -> TokenExpiry | None:
    """Return until when a signature of Azure holds; None where its address does not say."""
    query = address.partition("?")[2] or address
    time_us = _time_us(parse_qs(query).get("se", [""])[0])
    return None if time_us is None else TokenExpiry(time_us, "its address")


def session_expiry(token: str) -> TokenExpiry:
    """Return when a session token expires, by whoever wrote it down beside this very token."""
    if token in (os.environ.get(name) for name in TOKEN_NAMES):
        for name in _EXPIRY_VARIABLES:
            if (time_us := _time_us(os.environ.get(name, ""))) is not None:
                return TokenExpiry(time_us, name)
    for found in (_of_profiles(token), _of_cache(token)):
        if found.time_us is not None:
            return found
    return TokenExpiry()


def _of_profiles(token: str) -> TokenExpiry:
    # Loaded only where a job has a session token.
    from configparser import Error, RawConfigParser

    folder = Path("~/.aws").expanduser()
    for variable, name in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        file = Path(os.environ.get(variable) or folder / name).expanduser()
        parser = RawConfigParser(strict=False)
        try:
            parser.read_string(file.read_text())
        except (OSError, ValueError, Error):
            continue  # not there, or nothing that AWS's own tools would read
        for section in parser.values():
            if token not in (section.get(key) for key in _TOKEN_KEYS):
                continue
            for key in _EXPIRY_KEYS:
                if (time_us := _time_us(section.get(key, ""))) is not None:
                    return TokenExpiry(time_us, f"{key} in {file}")
    return TokenExpiry()


def _of_cache(token: str) -> TokenExpiry:
    """Return what the cache of AWS's command says, which keeps what roles and programs have given it."""
    for file in Path("~/.aws/cli/cache").expanduser().glob("*.json"):
        try:
            document: Any = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        found = document.get("Credentials") if isinstance(document, dict) else None
        if isinstance(found, dict) and found.get("SessionToken") == token:
            return TokenExpiry(_time_us(str(found.get("Expiration", ""))), str(file))
    return TokenExpiry()


def _time_us(text: str) -> int | None:
    """Return a time as these tools write it, in UTC where it has no zone; None where it is none."""
    text = text.strip()
    try:
        moment = datetime.fromisoformat(f"{text[:-3]}+00:00" if text.endswith("UTC") else text)
        if moment.year not in _YEARS:
            return None
        with_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(with_zone.timestamp() * 1e6)
    except (ValueError, OverflowError):
        return None
