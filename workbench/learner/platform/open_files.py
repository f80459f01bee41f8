"""What is done in open folders: files written whole or not at all, copied, and given modes; no link is followed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Callable

AT_ONCE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""How everything is opened that may be a pipe by now."""

_COPY_BYTES = 1 << 20
_IS_LINK = (errno.ELOOP, errno.EMLINK)
"""What opening a link without following it fails with, by system."""


class NewFile:
    """A file that is written under another name in an open folder, and renamed to its own when it is complete."""

    def __init__(self, folder: int, name: str, mode: int = 0o600) -> None:
        self._folder = folder
        self._name = name
        self._temporary = temporary_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | AT_ONCE
        self.descriptor = os.open(self._temporary, flags, 0o600, dir_fd=folder)
        os.fchmod(self.descriptor, mode)
        self._whole = False

    def write(self, data: bytes) -> None:
        """Append bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def finish(self, *, durable: bool = True) -> None:
        """Rename it to its own name; ``durable`` waits until it would survive a power cut."""
        if durable:
            os.fsync(self.descriptor)
        os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._whole = True

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        if not self._whole:
            quietly(os.unlink, self._temporary, dir_fd=self._folder)


def temporary_name(name: str) -> str:
    """Return an unpredictable name for a file that is renamed later."""
    return ".%s.%s.part" % (name[:100], os.urandom(8).hex())


def add_mode(folder: int, name: str, bits: int) -> None:
    """Add bits to the mode of something in an open folder; who may execute it may be anybody then.

    Links stay as they are, and nothing there is not an error.

    Raises:
        PermissionError: it is somebody else's.
    """

    def added(mode: int) -> int:
        return mode | bits | (0o111 if mode & 0o111 else 0)

    with contextlib.suppress(FileNotFoundError):
        _change_mode(folder, name, added)


def give_back(folder: int, name: str) -> None:
    """Give ourselves all rights in a folder of ours that a job has locked away; a link is left as it is."""
    _change_mode(folder, name, lambda mode: mode | 0o700)


def _change_mode(folder: int, name: str, change: Callable[[int], int]) -> None:
    if not hasattr(os, "O_PATH"):
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISLNK(mode) and change(mode) != mode:
            os.chmod(name, stat.S_IMODE(change(mode)), dir_fd=folder, follow_symlinks=False)
        return
    # A descriptor that needs no right to read, of the link itself where it is one.
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISLNK(mode) and change(mode) != mode:
            os.chmod("/proc/self/fd/%d" % descriptor, stat.S_IMODE(change(mode)))
    finally:
        os.close(descriptor)


def copy_file(folder: int, name: str, target: int, to: str) -> None:
    """Copy a file or link from one open folder into another; anything else is left out."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | AT_ONCE, dir_fd=folder)
    except OSError as error:
        if error.errno in _IS_LINK:
            _copy_link(folder, name, target, to)
        elif error.errno not in (errno.ENXIO, errno.ENOENT):
            raise
        return
    try:
        if stat.S_ISREG(os.fstat(source).st_mode):
            copy_open(source, target, to)
    finally:
        os.close(source)


def copy_open(source: int, target: int, to: str) -> None:
    """Copy an open file into an open folder, with its mode and times."""
    about = os.fstat(source)
    with NewFile(target, to, about.st_mode & 0o777 | 0o600) as copy:
        for data in iter(lambda: os.read(source, _COPY_BYTES), b""):
            copy.write(data)
        os.utime(copy.descriptor, ns=(about.st_atime_ns, about.st_mtime_ns))
        copy.finish(durable=False)


def _copy_link(folder: int, name: str, target: int, to: str) -> None:
    says = os.readlink(name, dir_fd=folder)
    quietly(os.unlink, to, dir_fd=target)
    os.symlink(says, to, dir_fd=target)


def quietly(change: Callable[..., None], name: str, *, dir_fd: int) -> None:
    """Do something to a name in an open folder, if it can be done."""
    try:
        change(name, dir_fd=dir_fd)
    except OSError:
        return  # it is gone, or somebody else's
