"""Reads when a certificate ends: of X.509 only as much as that takes, since Python's own library reads it of none."""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_ASK_SECONDS: Final = 5.0


def server_certificate_end(server: str) -> datetime | None:
    """Return when the certificate of a server ends; None if it cannot be read."""
    url = urlsplit(server)
    with contextlib.suppress(OSError, ValueError):
        address = (url.hostname or "", url.port or 443)
        return certificate_end(ssl.get_server_certificate(address, timeout=_ASK_SECONDS).encode())
    return None


def file_end(path: str) -> datetime | None:
    """Return when the first certificate of a file ends; None if it cannot be read."""
    with contextlib.suppress(OSError, TypeError):
        return certificate_end(Path(path).read_bytes())
    return None


def certificate_end(pem: bytes) -> datetime | None:
    """Return when the first certificate of a PEM text ends; None if it is none."""
    if (found := _PEM.search(pem)) is None:
        return None
    try:
        certificate = _Der(base64.b64decode(found[1])).enter().enter()
        if certificate.tag == _VERSION:
            certificate = certificate.after()
        for _ in ("serial number", "algorithm", "issuer"):
            certificate = certificate.after()
        end = certificate.enter().after()
        form = "%y%m%d%H%M%SZ" if end.tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return datetime.strptime(end.content.decode(), form).replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None


def day_of(end: datetime) -> str:
    """Return a time as messages have it."""
    return f"{end:%Y-%m-%d %H:%M} UTC"


class _Der:
    """One element of DER, and what follows it."""

    def __init__(self, data: bytes) -> None:
        self.tag = data[0]
        length, start = data[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[2:start], "big")
        self.content = data[start : start + length]
        self._rest = data[start + length :]

    def enter(self) -> _Der:
        """Return the first element within."""
        return _Der(self.content)

    def after(self) -> _Der:
        """Return the next element."""
        return _Der(self._rest)
