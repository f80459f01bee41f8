"""Fingerprints of a job's data, one a store, read from the records of its first learner."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from workbench.paths import JobFolder
from workbench.values import dataclass

READ_BYTES: Final = 1 << 20
"""How much of a learner's records is read: the fingerprints of its data are among the first."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One store's data at one moment."""

    store: str
    address: str
    path: str
    fingerprint: str
    """A hash of names, sizes and etags."""
    files: int
    size_bytes: int


def fingerprints(job: JobFolder, attempt: int) -> Sequence[Fingerprint]:
    """Return what an attempt's data was; nothing where it had none, or it was never brought in."""
    try:
        with job.attempt(attempt).learner(1).records.open("rb") as file:
            lines = file.read(READ_BYTES).splitlines()
    except OSError:
        return ()
    found: dict[str, Fingerprint] = {}
    for line in lines:
        if b'"kind":"data"' in line:
            document = _read(line)
            if document is not None:
                found[document.store] = document
    return tuple(found.values())


def recorded_data(job: JobFolder, attempt: int) -> Mapping[str, str]:
    """Return the fingerprints by store, as a job that is run again keeps them to be compared."""
    return {each.store: each.fingerprint for each in fingerprints(job, attempt)}


def _read(line: bytes) -> Fingerprint | None:
    try:
        document: dict[str, Any] = json.loads(line)
        return Fingerprint(
            store=str(document["store"]),
            address=str(document["address"]),
            path=str(document["path"]),
            fingerprint=str(document["fingerprint"]),
            files=int(document["files"]),
            size_bytes=int(document["bytes"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
