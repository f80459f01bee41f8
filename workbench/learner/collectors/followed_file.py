"""A file that grows under one name, and may be truncated, replaced or removed."""

from __future__ import annotations

import os
import stat
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from workbench.learner.platform import beneath, system
from workbench.learner.texts import short_hash

HEAD_BYTES = 1024
TAIL_BYTES = 64
"""Bytes at the beginning of a file, and before what is read next, by which a file is recognised."""

_REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "afs", "gpfs", "glusterfs", "beegfs")
"""Beginnings of the names of file systems on which an open file may hinder who removes its folder."""


class Replaced(Exception):
    """The name stands for another file, or for other content, than what was read so far."""


class Part(NamedTuple):
    """Bytes of a file that follow those that were read before."""

    data: bytes
    modified_us: int


class FollowedFile:
    """One file by its name, read as it grows.

    A held file stays open: what was written just before it was removed or replaced is read all the same.
    """

    def __init__(self, path: str, writable: Tuple[str, ...], *, held: bool = False) -> None:
        self.path = path
        self._writable = writable
        self._held = held
        self._descriptor: Optional[int] = None
        self._head = b""
        self._tail = b""
        self._tail_end = 0
        self._expected = ""
        self._seen: Tuple[int, ...] = ()
        self._exhausted: Tuple[int, ...] = ()
        """What the file looked like when nothing was left to read."""
        self.is_complete = False
        """Whether nothing more will be written: who made it shorter will not write it again."""

    def resume(self, mark: Any) -> None:
        """Expect the content that was read before a restart, of which this is the mark."""
        self._expected = [*str(mark).split("."), ""][1]

    def mark(self, offset: int) -> Any:
        """Return an offset for a cursor, with what recognises the content before it."""
        digest = _digest(self._head[:offset]) if self._head else self._expected
        return "%d.%s" % (offset, digest) if offset and digest else offset

    @property
    def is_open(self) -> bool:
        """Whether it is held open now."""
        return self._descriptor is not None

    def identity(self) -> Optional[Tuple[int, int]]:
        """Return device and inode of the file, of one whose name is gone as long as it is held; else None."""
        status = _status(self.path)
        if status is None and self._descriptor is not None:
            status = os.fstat(self._descriptor)
        return None if status is None else (status.st_dev, status.st_ino)

    def hold(self) -> None:
        """Open the file now, where an open file hinders nobody."""
        if self._held and self._descriptor is None:
            descriptor = beneath.open_plainly(self.path, self._writable)
            if _is_remote(os.fstat(descriptor).st_dev):
                os.close(descriptor)
                self._held = False
            else:
                self._descriptor = descriptor

    def read(self, offset: int, count_of: Callable[[int], int]) -> Optional[Part]:
        """Read on at an offset: as many bytes as ``count_of`` says of those that are there; None if there are none.

        Raises:
            Replaced: what lies before the offset is not what was read; read from 0 on, after :meth:`forget`. What is
                shorter, and begins as before, is waited for until :attr:`is_complete`.
            OSError: it cannot be read.
        """
        status = _status(self.path)
        if self._descriptor is not None:
            own = os.fstat(self._descriptor)
            if status is None or not os.path.samestat(own, status):
                if own.st_size > offset:
                    return self._read(self._descriptor, own, offset, count_of)
                if status is not None or not own.st_nlink:
                    self.close()
        if status is None or _signature(status) == self._exhausted:
            return None
        return self._look(offset, count_of)

    def forget(self) -> None:
        """Forget the content: the next bytes are read from the beginning."""
        self._head = self._tail = b""
        self._tail_end = 0
        self._expected = ""
        self._exhausted = ()

    def await_change(self) -> None:
        """Read nothing more until the file changes."""
        self._exhausted = self._seen

    def close(self) -> None:
        """Close the file, if it is held; the next read opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        # A collector that is dropped with many files must not keep them open.
        self.close()

    def _look(self, offset: int, count_of: Callable[[int], int]) -> Optional[Part]:
        self.hold()
        if self._descriptor is not None:
            return self._read(self._descriptor, os.fstat(self._descriptor), offset, count_of)
        descriptor = beneath.open_plainly(self.path, self._writable)
        try:
            return self._read(descriptor, os.fstat(descriptor), offset, count_of)
        finally:
            os.close(descriptor)

    def _read(
        self, descriptor: int, status: os.stat_result, offset: int, count_of: Callable[[int], int]
    ) -> Optional[Part]:
        if status.st_size < offset:
            if self._may_be_half_written(descriptor, status.st_size, offset):
                return None
            raise Replaced("became shorter")
        self._verify(descriptor, offset)
        count = count_of(status.st_size - offset)
        data = os.pread(descriptor, count, offset) if count > 0 else b""
        self._seen = _signature(status)
        if not data or offset + len(data) == status.st_size:
            self._exhausted = self._seen
        if not data:
            return None
        if offset == len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - offset]
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._tail_end = offset + len(data)
        return Part(data, status.st_mtime_ns // 1000)

    def _may_be_half_written(self, descriptor: int, size: int, offset: int) -> bool:
        """Say whether a file that became shorter begins as before: then it is being written again, with more in it.

        One that stays as short counts as replaced in the end, unless all of it is known to have been read.
        """
        head = os.pread(descriptor, min(HEAD_BYTES, offset), 0)
        if self._head:
            known = self._head[: len(head)]
            return head[: len(known)] == known and (size <= len(known) or not self.is_complete)
        if self._expected and len(head) == min(HEAD_BYTES, offset) and _digest(head) != self._expected:
            return False
        return not size or not self.is_complete

    def _verify(self, descriptor: int, offset: int) -> None:
        """Compare the content with what was read; the inode says nothing, since numbers are used again."""
        if offset < self._tail_end:  # what was read behind it may still change
            self._head = self._head[:offset]
            self._tail = self._tail[: max(0, len(self._tail) - self._tail_end + offset)]
            self._tail_end = offset
        if not self._head and offset:
            head = os.pread(descriptor, min(HEAD_BYTES, offset), 0)
            if self._expected and _digest(head) != self._expected:
                raise Replaced("was replaced")
            self._head = head
        elif os.pread(descriptor, len(self._head), 0) != self._head:
            raise Replaced("was replaced")
        tail = self._tail
        if tail and os.pread(descriptor, len(tail), offset - len(tail)) != tail:
            raise Replaced("was replaced")


def offset_of(mark: Any) -> int:
    """Return the offset in a cursor's mark; older agents wrote the number alone."""
    return int(str(mark).partition(".")[0])


def _digest(head: bytes) -> str:
    return short_hash(head, 4)


def _status(path: str) -> Optional[os.stat_result]:
    try:
        return os.stat(path)  # only a hint: the way there may be another one by the time it is opened
    except OSError:
        return None


def _signature(status: os.stat_result) -> Tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def is_linked(path: str) -> bool:
    """Whether a file has other names too, or is a link: what is written under those is not reported by its folder."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_nlink > 1 or stat.S_ISLNK(status.st_mode)


def is_remote_path(path: str) -> bool:
    """Whether a path lies on a network file system, of which other machines' changes are not reported."""
    status = _status(path)
    return status is not None and _is_remote(status.st_dev)


_remote_devices: Dict[int, bool] = {}


def _is_remote(device: int) -> bool:
    found = _remote_devices.get(device)
    if found is None:
        number = "%d:%d" % (os.major(device), os.minor(device))
        found = _remote_devices[device] = any(
            fields[2] == number and fields[fields.index("-") + 1].startswith(_REMOTE)
            for fields in (line.split() for line in system.read_text("/proc/self/mountinfo").splitlines())
            if "-" in fields
        )
    return found
