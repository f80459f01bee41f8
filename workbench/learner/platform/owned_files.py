"""Files in a folder that all people share, each written and locked by its owner alone: what the kernel vouches for.

Anybody can make files in such a folder, and open those of others for reading. The person is a file's owner, and a file
counts only while its owner's lock is held. That is a write lock of the open file (``F_OFD_SETLK``, fcntl(2)): only who
may write to a file can take one. With ``flock`` any reader could hold the file of somebody who is long gone. The lock
passes to processes that inherit the descriptor, and ends with the last of them. Any reader can ask whether it is held,
also from another PID namespace, and where other people's processes are hidden.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from typing import Optional

TEXT_LIMIT = 4096
"""How much of a file is read: texts are shorter."""

_OFD_GETLK, _OFD_SETLK = 36, 37  # the module fcntl names them from Python 3.9 on
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, process


def open_own(path: str, folder: Optional[int] = None) -> Optional[int]:
    """Open a file for its owner, locked, and make it where it is not there; None where it cannot be had.

    It cannot where another process of this user holds it, somebody else has made it, or the file system knows no such
    locks. One that is made is closed to others until whoever opens it says more.

    Args:
        path: the file's.
        folder: a descriptor of the folder that the path is relative to.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(3):
        try:
            # Closed to others until it is locked: who reads it could lock it first, for reading.
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        except FileExistsError:
            if _is_held_by_us(path, folder):
                return None
        except OSError:
            return None
        else:
            if lock_own(descriptor):
                return descriptor
            os.close(descriptor)
            return None  # the file system knows no such locks
        try:
            descriptor = os.open(path, flags, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            os.close(descriptor)
            return None
        if lock_own(descriptor):
            return descriptor
        is_ours = is_held_by_owner(descriptor)
        text = read_own(descriptor)
        os.close(descriptor)
        if is_ours:
            return None  # by another process
        # Somebody reads it with a lock: a new file takes its place, with its text.
        replaced = replace_own(path, text, folder)
        if replaced is not None:
            return replaced
    return None


def _is_held_by_us(path: str, folder: Optional[int]) -> bool:
    """Say whether a process of this user holds a file, which is only read: one who watches its folder sees nothing.

    That matters for who waits: opened for writing, and closed, it would be news to all who wait there, whose own looks
    would then be news to us.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
        return is_ours and is_held_by_owner(descriptor)
    finally:
        os.close(descriptor)


def replace_own(path: str, text: str, folder: Optional[int] = None) -> Optional[int]:
    """Put another file with a text in the place of one, locked and readable to all; None where that is not possible."""
    beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
    with contextlib.suppress(OSError):
        os.unlink(beside, dir_fd=folder)  # what a process of the same number left
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError:
        return None
    try:
        if lock_own(descriptor):
            os.pwrite(descriptor, text.encode(), 0)
            os.fchmod(descriptor, 0o644)
            os.rename(beside, path, src_dir_fd=folder, dst_dir_fd=folder)
            return descriptor
    except OSError:
        pass
    with contextlib.suppress(OSError):
        os.unlink(beside, dir_fd=folder)
    os.close(descriptor)
    return None


def lock_own(descriptor: int) -> bool:
    """Lock a file for writing, without waiting; return whether that worked."""
    try:
        fcntl.fcntl(descriptor, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINVAL, errno.ENOLCK):
            raise
        return False
    return True


def is_held_by_owner(descriptor: int) -> bool:
    """Say whether somebody has a write lock on a file; those who only read it hold none that counts."""
    try:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, _OFD_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] == fcntl.F_WRLCK)


def is_text_of_owner(found: os.stat_result) -> bool:
    """Say whether nobody but its owner can have written to a file."""
    return stat.S_ISREG(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def read_own(descriptor: int) -> str:
    """Return a file's text."""
    return os.pread(descriptor, TEXT_LIMIT, 0).decode("utf-8", "replace")
