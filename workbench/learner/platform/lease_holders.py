"""Who holds which lease: the person that the kernel vouches for, and what the holder says of itself."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Sequence

from workbench.learner.platform import lease_claims, leases
from workbench.learner.platform.system import read_text, user_name

_TEXT_LIMIT = 4096
_NAME_LIMIT = 64


class Holding(NamedTuple):
    """Who holds a lease, as far as that is known."""

    document: Dict[str, Any]
    """What the holder says of itself; ``owner`` begins with the person that the kernel vouches for, where it does."""
    people: FrozenSet[int]
    """The users that the kernel vouches for. Several where somebody claims what another holds: who, nobody knows."""
    since_us: Optional[int]
    """When it was taken, by the host's clock."""
    is_claimed: bool = False
    """Whether the text is that of one person's claim, which nobody else can have written."""


def holders(folder: str, names: Iterable[str]) -> Dict[str, Dict[str, Any]]:
    """Return those of the names that are held, each with what is known of its holder."""
    return {name: found.document for name, found in holdings(folder, names).items()}


def holdings(folder: str, names: Iterable[str]) -> Dict[str, Holding]:
    """Return those of the names that are held, each with its holder.

    The person is who the kernel vouches for: the owner of a claim that is held, else of the process that took the lock,
    as long as there is one. A text that names another is believed in a claim alone, which only that person can have
    written: it is shown beside the person. Of a file that cannot be a lease, and keeps the name from being leased, the
    holder is who made it.
    """
    files = {name: leases.file_name(name) for name in names}
    listed = leases.listed_locks()
    claims = lease_claims.read(folder, files.values())
    found: Dict[str, Holding] = {}
    for name, file in files.items():
        path = os.path.join(folder, file)
        try:
            if not leases.is_held(path, listed):
                continue
        except OSError:
            document = {"owner": f"{leases.owner_of(path)} ({path} is not a lease file)"}
            found[name] = Holding(document, frozenset(), _written_us(path))
            continue
        found[name] = _claimed(path, claims[file]) if file in claims else _unclaimed(path)
    return found


def _claimed(path: str, claims: Sequence[lease_claims.Claim]) -> Holding:
    people = frozenset(claim.person for claim in claims)
    if len(people) > 1:
        names = sorted(user_name(person) for person in people)
        return Holding({"owner": " or ".join(names)}, people, min(claim.since_us for claim in claims))
    claim = claims[0]
    document = _plain(claim.text)
    owner = _named(path, claim.person, document)
    return Holding({**document, "owner": owner}, people, claim.since_us, is_claimed=True)


def _named(path: str, person: int, document: Mapping[str, Any]) -> str:
    """Name a person, with what the person's own text says where that differs, as where people share an account."""
    name, text = user_name(person), str(document.get("owner") or "")[:_NAME_LIMIT]
    if text:
        return text if _person_of(text) == name else f"{name} ({text})"
    taker = _taker_of(path)
    return name if taker is None or taker.person != person else taker.name


def _unclaimed(path: str) -> Holding:
    """Return who holds a lease without a claim: an older version, or somebody who locked the file by other means."""
    document, taker, since_us = _text_of(path), _taker_of(path), _written_us(path)
    if taker is None:
        return Holding(document, frozenset(), since_us)
    if _person_of(str(document.get("owner") or "")) != user_name(taker.person):
        document = {"owner": taker.name}
    return Holding(document, frozenset((taker.person,)), since_us)


class _Taker(NamedTuple):
    """The process that took a lock, as long as it lives."""

    person: int
    name: str
    """User and process, for people."""


def _taker_of(path: str) -> Optional[_Taker]:
    """Return who locked a file; None when the kernel does not tell."""
    for pid in leases.lockers(path):
        try:
            person = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue  # gone since, or in another PID namespace
        command = read_text(f"/proc/{pid}/comm").strip() or "a process"
        return _Taker(person, f"{user_name(person)} ({command}, pid {pid})")
    return None


def _person_of(owner: str) -> str:
    """Return the user's name in ``me@box``."""
    return owner.partition("@")[0]


def _written_us(path: str) -> Optional[int]:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1000
    except OSError:
        return None


def _text_of(path: str) -> Dict[str, Any]:
    """Read what a lease says. Anybody can write there, so nothing is believed but that it is short text."""
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read(_TEXT_LIMIT).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return _plain(document) if isinstance(document, dict) else {}


def _plain(document: Mapping[str, Any]) -> Dict[str, Any]:
    return {str(key): value for key, value in document.items() if isinstance(value, (str, int, float))}
