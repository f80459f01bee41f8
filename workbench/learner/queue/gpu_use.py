"""How long GPUs were held: a file of each person's beside the leases, ``used-<user id>``, with a line for each learner.

A lease says who holds a GPU now. Where the policy limits GPU-hours, what was held before counts, too. Whoever lets go
of GPUs writes the line, so where both agents of a learner are killed there is none. The owner of a file is the person,
and its lines are that person's word, as a priority is.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from workbench.learner.platform import lease_claims, leases, owned_files
from workbench.learner.platform.system import now_us
from workbench.learner.queue.entries import marks_in

PREFIX = "used-"

PERIOD_SECONDS = 86400.0
"""Within so long what was used counts."""

READ_BYTES = 1 << 20
"""More of a file is not read: some five thousand learners."""

PRUNED_BYTES = 1 << 18
"""Whoever adds to a file that is larger removes the lines that count no more."""

_LOCK_TRIES = 50
_RETRY_SECONDS = 0.002


class Use(NamedTuple):
    """So many GPUs that were held for a while. Times are microseconds of the host's clock."""

    person: int
    since_us: int
    until_us: int
    gpus: int
    home: str
    labels: Tuple[str, ...]

    def hours(self, now: int) -> float:
        """Return the GPU-hours of it that count."""
        begin = max(self.since_us, now - int(PERIOD_SECONDS * 1e6))
        return max(0, min(self.until_us, now) - begin) * self.gpus / 3.6e9


def record_use(slots: Iterable[str]) -> None:
    """Write down how long this process has held its learner's GPUs. Where that is not possible nothing happens.

    Args:
        slots: the uuids of the GPUs, whose claims this process has inherited.
    """
    with contextlib.suppress(OSError, ValueError):
        claims = list(_inherited_claims({leases.file_name(name) for name in slots}))
        if not claims:
            return
        document = {
            "until_us": now_us(),
            "gpus": len(claims),
            "since_us": min(since for _, since, _ in claims),
        }
        folder, _, text = claims[0]
        document.update((key, text[key]) for key in ("home", "labels") if isinstance(text.get(key), str))
        _append(os.path.join(folder, f"{PREFIX}{os.geteuid()}"), json.dumps(document) + "\n")


def read_uses(folder: str) -> List[Use]:
    """Return what people have used of late, each by a file of their own; one that others may write says nothing."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith(PREFIX)]
    except OSError:
        return []
    return [use for name in sorted(names) for use in _uses_in(os.path.join(folder, name), name)]


def _inherited_claims(files: Iterable[str]) -> Iterator[Tuple[str, int, Dict[str, Any]]]:
    """Yield the folder, the time and the text of each claim on these leases that this process has open."""
    for number in os.listdir("/proc/self/fd"):
        try:
            folder, name = os.path.split(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # that of the listing itself
        if lease_claims.lease_of(name) in files:
            text = json.loads(owned_files.read_own(int(number)))
            since_us = os.fstat(int(number)).st_mtime_ns // 1000
            yield folder, since_us, text if isinstance(text, dict) else {}


def _append(path: str, line: str) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(descriptor, 0o644)
    except FileExistsError:
        descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_nlink != 1 or not owned_files.is_text_of_owner(found):
            return
        # A reader may keep it locked: then the line is added all the same, and nothing is removed.
        is_locked = any(_try_lock(descriptor) for _ in range(_LOCK_TRIES))
        if is_locked and found.st_size > PRUNED_BYTES:
            _prune(descriptor)
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    if owned_files.lock_own(descriptor):
        return True
    time.sleep(_RETRY_SECONDS)
    return False


def _prune(descriptor: int) -> None:
    """Remove the lines that count no more."""
    now = now_us()
    lines = os.pread(descriptor, READ_BYTES, 0).splitlines(keepends=True)
    kept = b"".join(line for line in lines if (use := _use_of(0, line)) is not None and use.hours(now) > 0)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, kept)


def _uses_in(path: str, name: str) -> List[Use]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        found = os.fstat(descriptor)
        if (
            not owned_files.is_text_of_owner(found)
            or found.st_nlink != 1
            or name != f"{PREFIX}{found.st_uid}"
        ):
            return []
        data = os.pread(descriptor, READ_BYTES, max(0, found.st_size - READ_BYTES))
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return [use for line in data.splitlines() if (use := _use_of(found.st_uid, line)) is not None]


def _use_of(person: int, line: bytes) -> Optional[Use]:
    """Return what a line says; None where it says nothing, as one that is torn."""
    try:
        document = json.loads(line)
        numbers = [document[key] for key in ("since_us", "until_us", "gpus")]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    if not all(isinstance(number, int) and 0 <= number < 1 << 62 for number in numbers):
        return None
    since_us, until_us, gpus = numbers
    return Use(
        person,
        since_us,
        until_us,
        gpus,
        str(document.get("home") or "")[:64],
        marks_in(document.get("labels")),
    )
