"""Leases: lock files in a folder that all people share, held with ``flock`` for as long as a GPU is used.

A lease is held by whoever has its descriptor open, so it passes to a started process without a gap and is
free the moment the last holder dies. The text in the file says who that is, and anybody may have written it; who
takes the lease of a GPU therefore claims it, too (:mod:`lease_claims`). The text of a file that nobody holds means
nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set

from workbench.learner.platform import lease_claims
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.system import user_name

MUTEX = "allocation"
"""The lock under which leases are taken, so that nobody sees half an allocation.

It is a courtesy, no condition: the leases' own locks are what counts, and names are locked in one order, so of
several who choose at once at least one succeeds. Whoever keeps this lock for good therefore stops nobody.
"""

MUTEX_SECONDS = 2.0
"""How long an allocation waits for its turn before it goes ahead without."""

_ROUNDS_WITHOUT_TURN = 5
_RETRY_SECONDS = 0.002
_FOLDER_MODE = 0o1777


class Lease:
    """Lock files that are held, with the claims on them. Parts of it can be handed to several processes."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self._descriptors = dict(descriptors)
        self._claims: Dict[str, int] = {}

    @property
    def names(self) -> Sequence[str]:
        """What is held."""
        return tuple(self._descriptors)

    def descriptors(self) -> List[int]:
        """Return what a process must inherit to hold it too."""
        return [*self._descriptors.values(), *self._claims.values()]

    def part(self, names: Iterable[str]) -> Lease:
        """Return a lease on some of these names, which are then no longer this one's to release."""
        part = Lease({name: self._descriptors.pop(name) for name in names})
        part._claims = {name: self._claims.pop(name) for name in part.names if name in self._claims}
        return part

    def write(self, text: str) -> None:
        """Replace the text that says who holds it."""
        for name, descriptor in self._descriptors.items():
            _write(descriptor, text)
            if name in self._claims:
                lease_claims.write(self._claims[name], file_name(name), text)

    def release(self) -> None:
        """Let go: what a started process inherited stays held by it. Releasing again does nothing."""
        while self._claims:
            os.close(self._claims.popitem()[1])  # first: who takes the lease next claims it
        while self._descriptors:
            # Closed, not unlocked: unlocking would take it from the processes that inherited it.
            os.close(self._descriptors.popitem()[1])


def take(names: Sequence[str], folder: str, text: str) -> Optional[Lease]:
    """Hold all of these lock files, with ``text`` in them, or none of them (then None).

    Raises:
        Failure: the folder or one of its files cannot be used, or is not safe to use.
    """
    make_folder(folder)
    opened = _open_folder(folder)
    mutex = None
    try:
        mutex = _wait_for_turn(opened)
        for _ in range(_ROUNDS_WITHOUT_TURN if mutex is None else 1):
            lease = _lock_all(opened, sorted(set(names)), text)
            if lease is not None or mutex is not None:
                return lease
            time.sleep(_RETRY_SECONDS * (1 + 9 * os.urandom(1)[0] / 255))  # it parts two who collide
        return None
    finally:
        os.close(opened.descriptor)
        if mutex is not None:
            os.close(mutex)


def _lock_all(folder: _Folder, names: Sequence[str], text: str) -> Optional[Lease]:
    held = Lease({})
    try:
        for name in names:
            descriptor = _open(folder, file_name(name))
            held._descriptors[name] = descriptor
            if not _try_lock(descriptor) or os.fstat(descriptor).st_nlink == 0:  # removed while it was opened
                held.release()
                return None
            if lease_claims.is_claimable(name):
                claim = lease_claims.make(folder.descriptor, file_name(name), text)
                if claim is not None:
                    held._claims[name] = claim
        held.write(text)
        return held
    except BaseException:
        held.release()
        raise


def close_inherited(names: Iterable[str]) -> None:
    """Close the descriptors of these names' leases that this process inherited: another job may take them.

    They are recognized by their files. Other processes that inherited them keep holding them.
    """
    files = {file_name(name) for name in names}
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return  # they go with the process
    own: List[int] = []
    for descriptor in descriptors:
        try:
            name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue  # that of the listing itself
        if descriptor > 2 and name in files:
            own.append(descriptor)
        elif descriptor > 2 and lease_claims.lease_of(name) in files:
            os.close(descriptor)  # before the lease: who takes it next claims it
    for descriptor in own:
        os.close(descriptor)


def is_held(path: str, listed: Optional[Set[str]] = None) -> bool:
    """Say whether anybody holds a lock file; ``listed`` is a recent result of :func:`listed_locks`.

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
        Failure: it is not a folder, not everybody may write to it, or anybody may remove the files of others.
    """
    try:
        os.mkdir(folder)
        os.chmod(folder, _FOLDER_MODE)  # mkdir's mode is cut by the umask
    except FileExistsError:
        pass
    except OSError as error:
        raise Failure(
            "cannot_write", f"The folder of leases {folder} cannot be made: {error.strerror}."
        ) from error
    os.close(_open_folder(folder).descriptor)


class _Folder(NamedTuple):
    """The folder of leases: its path, for messages, and a descriptor, so that nobody can swap it on the way."""

    path: str
    descriptor: int


def _open_folder(path: str) -> _Folder:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Failure(
                "not_allowed", f"{path} is not a folder, so GPUs cannot be leased.", "Remove it."
            ) from error
        raise Failure(
            "not_allowed", f"The folder of leases {path} cannot be opened: {error.strerror}.", _repair(path)
        ) from error
    try:
        _check_folder(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return _Folder(path, descriptor)


def _check_folder(path: str, descriptor: int) -> None:
    """Accept a folder whose files only their owners, its owner and root can remove.

    Our own is made sticky where it is not. It is opened no further: locks of our own lie in closed folders.
    """
    found = os.fstat(descriptor)
    owner = user_name(found.st_uid)
    is_unsafe = found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX
    if is_unsafe and found.st_uid == os.geteuid():
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | stat.S_ISVTX)
        return
    if not os.access(path, os.W_OK | os.X_OK):
        raise Failure(
            "not_allowed",
            f"The folder of leases {path} belongs to {owner} and cannot be written to.",
            _repair(path),
        )
    if is_unsafe:
        raise Failure(
            "not_allowed",
            f"The folder of leases {path} belongs to {owner} and is not sticky: others may remove your leases.",
            _repair(path),
        )


def _repair(path: str) -> str:
    return f"Ask its owner, or root, to run: chmod 1777 {path}"


def _wait_for_turn(folder: _Folder) -> Optional[int]:
    """Lock the mutex and return its descriptor; None when somebody keeps it, or keeps it from being opened."""
    try:
        descriptor = _open(folder, MUTEX)
    except Failure:
        return None
    until = time.monotonic() + MUTEX_SECONDS
    while not _try_lock(descriptor, tries=1):
        if time.monotonic() > until:
            os.close(descriptor)
            return None
        time.sleep(_RETRY_SECONDS)
    return descriptor


def _open(folder: _Folder, name: str) -> int:
    """Open a lock file that anybody may have made.

    In a sticky folder the kernel refuses O_CREAT on another person's file (fs.protected_regular), so a
    file is either made or opened, never both in one call.
    """
    path = os.path.join(folder.path, name)
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder.descriptor)
        os.fchmod(descriptor, 0o666)  # the umask must not keep others from leasing it
        return descriptor
    except FileExistsError:
        pass
    except OSError as error:
        raise Failure("cannot_write", f"The lease {path} cannot be made: {error.strerror}.") from error
    try:
        descriptor = os.open(name, flags, dir_fd=folder.descriptor)
    except OSError as error:
        raise _refusal(folder, name, f"cannot be opened: {error.strerror}") from error
    found = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(found.st_mode):
        problem = "is not an ordinary file"
    elif found.st_nlink > 1:  # a lease's text would be written over a file that lies elsewhere too
        problem = f"has {found.st_nlink} hard links, so it may be a file from elsewhere"
    if problem:
        os.close(descriptor)
        raise _refusal(folder, name, problem)
    return descriptor


def _refusal(folder: _Folder, name: str, problem: str) -> Failure:
    """Return the failure for a file that cannot be a lease, with its owner: only he and root can remove it."""
    owner = owner_of(name, folder.descriptor)
    path = os.path.join(folder.path, name)
    return Failure(
        "not_allowed",
        f"The lease {path}, made by {owner}, {problem}.",
        f"{owner}, or root, can remove it: rm {path}",
    )


def owner_of(path: str, folder: Optional[int] = None) -> str:
    """Name the user who made a file, for people."""
    try:
        return user_name(os.stat(path, dir_fd=folder, follow_symlinks=False).st_uid)
    except OSError:
        return "somebody"


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
    return {line[5] for line in _locks() if line[1] == "FLOCK" and line[3] == "WRITE"}


def lockers(path: str) -> List[int]:
    """Return the processes that took a ``flock`` on a file, as the kernel lists them: they may be gone since."""
    inode = inode_of(path)
    return [int(line[4]) for line in _locks() if line[1] == "FLOCK" and line[5] == inode]


def _locks() -> List[List[str]]:
    """Return the fields of each line of ``/proc/locks`` (proc(5)): 1 kind, 3 mode, 4 process, 5 inode."""
    try:
        with open("/proc/locks", encoding="ascii") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return []
    return [line for line in lines if len(line) > 5]


def _inode(found: os.stat_result) -> str:
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
