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
import random
import re
import stat
import time
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set

from workbench.learner.platform.errors import Failure
from workbench.learner.platform.system import read_text, user_name

MUTEX = "allocation"
"""The lock under which leases are taken, so that nobody sees half an allocation.

It is a courtesy, no condition: the leases' own locks are what counts, and names are locked in one order, so of
several who choose at once at least one succeeds. Whoever keeps this lock for good therefore stops nobody.
"""

MUTEX_SECONDS = 2.0
"""How long an allocation waits for its turn before it goes ahead without."""

_ROUNDS_WITHOUT_TURN = 5
_RETRY_SECONDS = 0.002
_TEXT_LIMIT = 4096
_FOLDER_MODE = 0o1777


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
            time.sleep(
                random.uniform(_RETRY_SECONDS, 10 * _RETRY_SECONDS)
            )  # no secret: it parts two who collide
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
    for descriptor in descriptors:
        try:
            if descriptor > 2 and os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")) in files:
                os.close(descriptor)
        except OSError:
            continue  # that of the listing itself


def holders(folder: str, names: Iterable[str]) -> Dict[str, Dict[str, Any]]:
    """Return those of the names that are held, each with what its holder says of itself.

    Of a holder that says nothing ``owner`` is the user and the process that the kernel names, where it does. Of
    a file that cannot be a lease, and keeps the name from being leased, it is who made it.
    """
    found: Dict[str, Dict[str, Any]] = {}
    for name in names:
        path = os.path.join(folder, file_name(name))
        try:
            held = is_held(path)
        except OSError:
            found[name] = {"owner": f"{_owner_of(path)} ({path} is not a lease file)"}
            continue
        if held:
            holder = _holder_of(path)
            process = "" if holder else locking_process(path)
            found[name] = {"owner": process} if process else holder
    return found


def held_since_us(folder: str, name: str) -> Optional[int]:
    """Return when a lease that is held was taken, by the host's clock: its text was written then."""
    try:
        return os.stat(os.path.join(folder, file_name(name)), follow_symlinks=False).st_mtime_ns // 1000
    except OSError:
        return None


def locking_process(path: str) -> str:
    """Name the user and the process that locked a file, for people; empty when the kernel does not tell."""
    inode = inode_of(path)
    for line in _locks():
        if line[1] == "FLOCK" and line[5] == inode:
            try:
                user = user_name(os.stat(f"/proc/{int(line[4])}").st_uid)
            except (OSError, ValueError):
                continue  # gone since, or in another PID namespace
            command = read_text(f"/proc/{int(line[4])}/comm").strip() or "a process"
            return f"{user} ({command}, pid {line[4]})"
    return ""


def locking_user(path: str) -> Optional[int]:
    """Return the user whose process locked a file; None when the kernel does not tell."""
    inode = inode_of(path)
    for line in _locks():
        if line[1] == "FLOCK" and line[5] == inode:
            try:
                return os.stat(f"/proc/{int(line[4])}").st_uid
            except (OSError, ValueError):
                continue  # gone since, or in another PID namespace
    return None


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
    owner = _owner_of(name, folder.descriptor)
    path = os.path.join(folder.path, name)
    return Failure(
        "not_allowed",
        f"The lease {path}, made by {owner}, {problem}.",
        f"{owner}, or root, can remove it: rm {path}",
    )


def _owner_of(path: str, folder: Optional[int] = None) -> str:
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
