"""Checks a host's key against OpenSSH's known_hosts files, and adds one that a person has accepted."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from workbench.errors import CannotWrite
from workbench.values import dataclass

Verdict = Literal["known", "unknown", "changed", "revoked", "authority"]

_REVOKED: Final = "@revoked"
_AUTHORITY: Final = "@cert-authority"


@dataclass(frozen=True, slots=True)
class KnownHostsEntry:
    """One line of a known_hosts file that names a host."""

    marker: str
    kind: str
    """The key's type."""
    key: bytes
    file: Path
    line: int


@dataclass(frozen=True, slots=True)
class HostKeyCheck:
    """What is known of a key that a host has shown."""

    verdict: Verdict
    entry: KnownHostsEntry | None = None
    """The line that says so."""


def entries_of(name: str, files: Sequence[Path]) -> list[KnownHostsEntry]:
    """Return the entries for a host, as known_hosts calls it (``host`` or ``[host]:port``)."""
    return [entry for file in files for entry in _matching(name, file)]


def check(kind: str, key: bytes, entries: Sequence[KnownHostsEntry]) -> HostKeyCheck:
    """Say whether a key is the one that is known for the host that these entries are of."""
    for entry in entries:
        if entry.marker == _REVOKED and entry.key == key:
            return HostKeyCheck("revoked", entry)
    plain = [entry for entry in entries if not entry.marker]
    for entry in plain:
        if entry.key == key:
            return HostKeyCheck("known", entry)
    same_kind = [entry for entry in plain if entry.kind == kind]
    if same_kind:
        return HostKeyCheck("changed", same_kind[0])
    if plain:
        # It has shown another type of key than it was asked for by: the known one is not there any more.
        return HostKeyCheck("changed", plain[0])
    if authorities := [entry for entry in entries if entry.marker == _AUTHORITY]:
        return HostKeyCheck("authority", authorities[0])
    return HostKeyCheck("unknown")


def fingerprint(key: bytes) -> str:
    """Return a key's fingerprint as OpenSSH shows it."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def accept(name: str, kind: str, key: bytes, file: Path) -> None:
    """Add a key to a known_hosts file.

    Raises:
        CannotWrite: the file cannot be written.
    """
    line = f"{name} {kind} {base64.b64encode(key).decode()}\n".encode()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            if size:
                stream.seek(size - 1)
                line = line if stream.read(1) == b"\n" else b"\n" + line
            stream.write(line)
    except OSError as error:
        raise CannotWrite(f"{file} cannot be written: {error.strerror}") from error


def _matching(name: str, file: Path) -> Iterator[KnownHostsEntry]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return  # as ssh does: what cannot be read knows nobody
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3 or not _names(words[0], name):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        yield KnownHostsEntry(marker, words[1], key, file, number)


def _names(patterns: str, name: str) -> bool:
    if patterns.startswith("|1|"):
        return _is_hash_of(patterns, name)
    matched = False
    for pattern in patterns.split(","):
        if pattern.startswith("!"):
            if _fits(pattern[1:], name):
                return False
        elif _fits(pattern, name):
            matched = True
    return matched


def _fits(pattern: str, name: str) -> bool:
    # Brackets stand for themselves here: [host]:port.
    return fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        made = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False
