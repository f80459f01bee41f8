"""Who holds a lease: a file of the holder's own beside it, ``holder-<lease>-<user id>``, held for as long.

A lease's own file does not say it. Its text may be written by anybody, and the process that the kernel names for a
``flock`` is the one that took it: a controller, or a connection's agent. A learner's agents inherit the lease and
outlive that process, whose number may even be another's by then. So whoever takes the lease of a GPU claims it, too: it
locks a file of its own (:mod:`owned_files`), whose descriptor is inherited with the lease. The claim's owner is the
person, and its text is that person's.

A claim counts only where the lease is held. Who claims what somebody else holds is named beside the holder, and the GPU
counts for both. Who takes a lease without a claim (an older version, ``flock``) is not hindered.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from workbench.learner.platform import owned_files

PREFIX = "holder-"

_NAMES = 4
"""A name may be taken by somebody else, or by the last holder for a moment longer than the lease."""


class Claim(NamedTuple):
    """What a person says of a lease."""

    person: int
    """The owner of the file."""
    text: Dict[str, Any]
    since_us: int
    """When the text was written."""


def is_claimable(lease: str) -> bool:
    """Say whether it matters who holds a lease: GPUs and their slices are counted, ports are not."""
    return lease.startswith(("GPU-", "MIG-"))


def make(folder: int, lease: str, text: str) -> Optional[int]:
    """Claim a lease that this process has just taken; return the descriptor, None where that is not possible.

    Args:
        folder: a descriptor of the folder of leases.
        lease: the name of the lease's file.
        text: JSON of who holds it.
    """
    for number in range(_NAMES):
        name = f"{PREFIX}{lease}-{os.geteuid()}" + (f".{number}" if number else "")
        descriptor = owned_files.open_own(name, folder)
        if descriptor is None:
            continue
        try:
            os.fchmod(descriptor, 0o644)
            write(descriptor, lease, text)
            return descriptor
        except OSError:  # a full disk: the lease is held all the same
            os.close(descriptor)
            return None
    return None


def write(descriptor: int, lease: str, text: str) -> None:
    """Replace a claim's text.

    Raises:
        OSError: the disk takes no more.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else {}
    # The lease is in it, so that the file means nothing under another name.
    data = json.dumps({**document, "lease": lease}).encode()
    os.pwrite(descriptor, data, 0)  # in place: the lock is inherited with the file
    os.ftruncate(descriptor, len(data))


def read(folder: str, leases: Iterable[str]) -> Dict[str, List[Claim]]:
    """Return the claims on these leases, one of each person, by the name of the lease's file."""
    wanted = set(leases)
    found: Dict[str, Dict[int, Claim]] = {}
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        for name in sorted(os.listdir(descriptor)):
            lease = lease_of(name)
            claim = _read_one(descriptor, name, lease) if lease in wanted else None
            if claim is not None:
                of_lease = found.setdefault(lease, {})
                if claim.since_us > of_lease.get(claim.person, Claim(0, {}, -1)).since_us:
                    of_lease[claim.person] = claim
    finally:
        os.close(descriptor)
    return {lease: list(of_lease.values()) for lease, of_lease in found.items()}


def lease_of(name: str) -> str:
    """Return the lease's file that a claim's file is about; empty where it is none."""
    return name[len(PREFIX) :].rpartition("-")[0] if name.startswith(PREFIX) else ""


def _read_one(folder: int, name: str, lease: str) -> Optional[Claim]:
    """Return the claim of a file; None where it does not count."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not owned_files.is_text_of_owner(found) or not owned_files.is_held_by_owner(descriptor):
            return None
        # What follows is the end of a longer text that is being replaced.
        document, _ = json.JSONDecoder().raw_decode(owned_files.read_own(descriptor))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    if not isinstance(document, dict) or document.pop("lease", None) != lease:
        return None
    return Claim(found.st_uid, document, found.st_mtime_ns // 1000)
