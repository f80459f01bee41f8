"""Removes code at a host that no job has used for a while, and the folders of code of jobs that ended long ago.

Nothing of a job that runs is taken: a learner's folder goes only when its end is recorded and its agent is gone,
and what is kept by content is only ever copied from. What is needed again is sent again.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import time
from typing import Dict, Iterator, List, Set

from workbench.learner.host.code_store import LISTING, held, read_listing
from workbench.learner.journal import state
from workbench.learner.platform import leases
from workbench.learner.platform.files import remove

SETTLED_SECONDS = 3600.0
"""What is younger may belong to an upload that is under way."""

EVERY_SECONDS = 86400.0
_STAMP = "expired"
_GONE = ".gone-"
"""The beginning of the name of what is being removed."""


def expire_sometimes(store: str, jobs: str, older_than_seconds: float) -> None:
    """Expire at most once a day."""
    stamp = os.path.join(store, _STAMP)
    if _age(stamp) < EVERY_SECONDS:
        return
    with open(stamp, "w", encoding="ascii"):
        os.utime(stamp)
    expire(store, jobs, older_than_seconds)


def expire(store: str, jobs: str, older_than_seconds: float, dry_run: bool = False) -> Dict[str, int]:
    """Remove what has not been used for so long; return how many things that are, and their bytes on the disk.

    Args:
        store: the folder of code.
        jobs: the folder of jobs.
        older_than_seconds: for how long.
        dry_run: whether nothing is removed, and only counted.
    """
    paths = [*_unused(store, older_than_seconds, dry_run), *_of_ended_jobs(jobs, older_than_seconds)]
    size_bytes = sum(map(_disk_bytes, paths))
    if not dry_run:
        for path in paths:
            with contextlib.suppress(OSError):  # it is not ours, or gone
                remove([path])
    return {"count": len(paths), "size_bytes": size_bytes}


def _unused(store: str, older_than_seconds: float, dry_run: bool) -> List[str]:
    """Return what the store may lose; contents go while nobody can begin to use them, and so are removed here."""
    if not os.path.isdir(store):
        return []
    settled_seconds = max(older_than_seconds, SETTLED_SECONDS)
    found = [path for path in _left_behind(store) if _age(path) > settled_seconds]
    try:
        with held(store, fcntl.LOCK_EX | fcntl.LOCK_NB):
            contents = list(_unused_contents(store, older_than_seconds))
            if not dry_run:
                # The names go under the lock; the blocks are given back after it.
                contents = [_set_aside(path) for path in contents]
    except BlockingIOError:
        return found  # a job is being started
    return found + contents


def _left_behind(store: str) -> Iterator[str]:
    """Find archives, and what an upload or a removal that was cut off has left."""
    patterns = ("*.tar.gz", ".*.part", "parts/*.tar.gz", "parts/.*.part", "files/.taking-*")
    for pattern in (*patterns, _GONE + "*", "files/*/" + _GONE + "*"):
        yield from glob.iglob(os.path.join(glob.escape(store), pattern))


def _unused_contents(store: str, older_than_seconds: float) -> Iterator[str]:
    used: Set[str] = set()
    for listing in glob.glob(os.path.join(glob.escape(store), "*" + LISTING)):
        if _age(listing) >= older_than_seconds:
            yield listing
            continue
        code_hash = os.path.basename(listing)[: -len(LISTING)]
        used.update(str(entry[4]) for entry in read_listing(store, code_hash) or ())
    for path in glob.iglob(os.path.join(glob.escape(store), "files", "*", "*")):
        if os.path.basename(path) not in used and _age(path) >= min(older_than_seconds, SETTLED_SECONDS):
            yield path


def _set_aside(path: str) -> str:
    aside = os.path.join(os.path.dirname(path), _GONE + os.path.basename(path))
    os.rename(path, aside)
    return aside


def _of_ended_jobs(jobs: str, older_than_seconds: float) -> List[str]:
    """Return the folders of code of learners that have ended; results and checkpoints stay as long as their job."""
    found = []
    for model in glob.iglob(os.path.join(glob.escape(jobs), "*", "attempt-*", "learner-*", "model-code")):
        folder = os.path.dirname(model)
        if _age(os.path.join(folder, "state.json")) < older_than_seconds:
            continue
        with contextlib.suppress(OSError, ValueError):
            has_ended = state.read(folder).get("phase") == "exited"
            if has_ended and not leases.is_held(os.path.join(folder, "agent.lock")):
                found.append(model)
    return found


def _age(path: str) -> float:
    """Return how long ago a file was changed or used; for ever for one that is not there."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return float("inf")


def _disk_bytes(path: str) -> int:
    total = 0
    with contextlib.suppress(OSError):
        total = os.lstat(path).st_blocks * 512
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
