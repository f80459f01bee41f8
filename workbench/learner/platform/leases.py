"""Leases: lock files in a folder that all people share, held with ``flock`` for as long as a GPU is used.

A lease is held by whoever has its descriptor open, so it passes to a started process without a gap and is
free the moment the last holder dies. The text in the file says who that is; the text of a file that
nobody holds means nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from workbench.learner.platform.errors import Failure

MUTEX = "allocation"
"""The lock under which leases are taken, so that nobody sees half an allocation."""

MUTEX_SECONDS = 10.0
_RETRY_SECONDS = 0.002
_TEXT_LIMIT = 4096


class Lease:
    """Lock files that are held. Parts of it can be handed to several processes."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)

    @property
    def names(self) -> Sequence[str]:
        """What is held."""
        return tuple(self._descriptors)

    def descriptors(self) -> List[int]:
        """Return what a process must inherit to hold it too."""
        return list(self._descriptors.values())

    def part(self, names: Iterable[str]) -> Lease:
        """Return a lease on some of these names, which are then no longer this one's to release."""
        return Lease({name: self._descriptors.pop(name) for name in names})

    def write(self, text: str) -> None:
        """Replace the text that says who holds it."""
        for descriptor in self._descriptors.values():
            _write(descriptor, text)

    def release(self) -> None:
        """Let go: what a started process inherited stays held by it. Releasing again does nothing."""
        while self._descriptors:
            # Closed, not unlocked: unlocking would take it from the processes that inherited it.
            os.close(self._descriptors.popitem()[1])


def take(names: Sequence[str], folder: str, text: str) -> Optional[Lease]:
    """Hold all of these lock files, with ``text`` in them, or none of them (then None).

    Raises:
        Failure: the folder cannot be used, or somebody has been choosing for longer than ten seconds.
    """
    make_folder(folder)
    mutex = _mutex(folder)
    held = Lease({})
    try:
        for name in sorted(set(names)):
            descriptor = _open(os.path.join(folder, file_name(name)))
            held._descriptors[name] = descriptor
            if not _try_lock(descriptor):
                held.release()
                return None
        held.write(text)
        return held
    except BaseException:
        held.release()
        raise
    finally:
        os.close(mutex)


def close_inherited(names: Iterable[str]) -> None:
    """Close the descriptors of these names' leases that this process inherited: another job may take them.

    They are recognized by their files. Other processes that inherited them keep holding them.
    """
    files = {file_name(name) for name in names}
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return  # they go with the process
    for descriptor in descriptors:
        try:
            if descriptor > 2 and os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) in files:
                os.close(descriptor)
        except OSError:
            continue  # that of the listing itself


def holders(folder: str, names: Iterable[str]) -> Dict[str, Dict[str, Any]]:
    """Return those of the names that are held, each with what its holder says of itself (maybe nothing)."""
    found = {}
    for name in names:
        path = os.path.join(folder, file_name(name))
        if is_held(path):
            found[name] = _holder_of(path)
    return found


def is_held(path: str, listed: Optional[Set[str]] = None) -> bool:
    """Say whether anybody holds a lock file; ``listed`` is what :func:`listed_locks` said a moment ago.

    Looking may disturb one attempt to lock it, so those who lock try again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    try:
        # The kernel's list is asked first since it disturbs nobody. It does not name every lock (not one
        # that was inherited from a process that is gone, seen from a container), so what it leaves out is
        # tried.
        if _inode(os.fstat(descriptor)) in (listed_locks() if listed is None else listed):
            return True
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def inode_of(path: str) -> str:
    """Return a file as :func:`listed_locks` names it; empty when it is not there."""
    try:
        return _inode(os.stat(path))
    except OSError:
        return ""


def file_name(name: str) -> str:
    """Return the file that stands for a name; a slice's old name has slashes in it."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def make_folder(folder: str) -> None:
    """Make the shared folder if it is not there; anybody may make files in it, nobody may remove another's.

    Raises:
        Failure: it is no folder, or not everybody may write to it.
    """
    try:
        os.mkdir(folder)
        os.chmod(folder, 0o1777)  # mkdir's mode is cut by the umask
    except FileExistsError:
        pass
    except OSError as error:
        raise Failure(
            "cannot_write", f"The folder of leases {folder} cannot be made: {error.strerror}."
        ) from error
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise Failure("not_allowed", f"{folder} is no folder, so GPUs cannot be leased.", "Remove it.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Failure(
            "not_allowed",
            f"The folder of leases {folder} belongs to somebody else and cannot be written to.",
            f"Ask its owner, or root, to run: chmod 1777 {folder}",
        )


def _mutex(folder: str) -> int:
    descriptor = _open(os.path.join(folder, MUTEX))
    until = time.monotonic() + MUTEX_SECONDS
    while not _try_lock(descriptor, tries=1):
        if time.monotonic() > until:
            os.close(descriptor)
            raise Failure(
                "try_again", f"Somebody has been allocating GPUs in {folder} for {MUTEX_SECONDS:g} seconds."
            )
        time.sleep(_RETRY_SECONDS)
    return descriptor


def _open(path: str) -> int:
    """Open a lock file that anybody may have made.

    In a sticky folder the kernel refuses O_CREAT on another person's file (fs.protected_regular), so a
    file is either made or opened, never both in one call.
    """
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(descriptor, 0o666)  # the umask must not keep others from leasing it
        return descriptor
    except FileExistsError:
        pass
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise Failure(
            "not_allowed", f"The lease {path} cannot be opened: {error.strerror}.", "Remove that file."
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Failure("not_allowed", f"The lease {path} is no ordinary file.", "Remove it.")
    return descriptor


def _try_lock(descriptor: int, tries: int = 5) -> bool:
    """Lock without waiting, but try again for a moment: somebody may only be looking."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            tries -= 1
            if not tries:
                return False
            time.sleep(_RETRY_SECONDS)


def listed_locks() -> Set[str]:
    """Return the inodes that the kernel lists as locked with ``flock``, as ``major:minor:inode``."""
    try:
        with open("/proc/locks", encoding="ascii") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return set()
    return {line[5] for line in lines if len(line) > 5 and line[1] == "FLOCK" and line[3] == "WRITE"}


def _inode(found: os.stat_result) -> str:
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _holder_of(path: str) -> Dict[str, Any]:
    """Read who holds a lease. Anybody can write there, so nothing is believed but that it is short text."""
    try:
        with open(path, "rb") as stream:
            document = json.loads(stream.read(_TEXT_LIMIT).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {str(key): value for key, value in document.items() if isinstance(value, (str, int, float))}
