"""Linux's inotify through ctypes: the standard library has no door to it."""

from __future__ import annotations

import os
import struct
import sys
from typing import Any, Iterator, List, Optional, Tuple

IN_MODIFY = 0x2
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ISDIR = 0x40000000
IN_ONLYDIR = 0x1000000
IN_MASK_ADD = 0x20000000
"""What is watched at a path already goes on being reported."""

ON_FILE = IN_MODIFY | IN_DELETE_SELF
ON_FOLDER = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF
WATCH_ENDED = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED
"""Says that what is watched is no longer where it was."""

LEFT_TO_OTHERS = 32
"""Instances of the user's (128 by default) that we never take: a kubelet, an editor or a desktop cannot start without
some, and root of a container counts as root of the machine. Who gets none polls."""

RETRY_SECONDS = 30.0
"""After how long who got no instance asks again."""

_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0o2000000)
_EVENT = struct.Struct("iIII")


class Inotify:
    """One inotify descriptor, not blocking, closed on exec."""

    def __init__(self, library: Any) -> None:  # a ctypes library has no narrower type
        self._library = library
        self.fd = -1
        self.fd = _checked(library.inotify_init1(_NONBLOCK_CLOEXEC), "inotify")

    def add(self, path: str, mask: int) -> int:
        """Watch a path and return the watch's number, the same for a path that is watched already.

        Raises:
            OSError: there is no such path, or the user's limit is reached (ENOSPC).
        """
        return _checked(self._library.inotify_add_watch(self.fd, os.fsencode(path), mask), path)

    def remove(self, watch: int) -> None:
        """Watch no more; a watch that ended by itself is not an error."""
        self._library.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[Tuple[int, int, str]]:
        """Give what happened so far: the watch's number, what, and the entry's name in a watched folder."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size + length
                yield watch, mask, os.fsdecode(data[offset - length : offset].rstrip(b"\0"))

    def close(self) -> None:
        """Give the descriptor back."""
        descriptor, self.fd = self.fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # A user has few instances (128 by default): one that was dropped must not keep its own.
        self.close()


def open_inotify() -> Optional[Inotify]:
    """Open inotify; None where there is none, or where that would leave other programs fewer than LEFT_TO_OTHERS."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        opened = Inotify(library)
        # No file says how many of a user's instances are in use, and a container does not see who has them. The kernel
        # knows: those that others shall have are taken for a moment (0.2 ms) and given back.
        others: List[Inotify] = []
        try:
            others.extend(Inotify(library) for _ in range(LEFT_TO_OTHERS))
        except OSError:
            opened.close()
            return None
        finally:
            for other in others:
                other.close()
        return opened
    except (ImportError, OSError, AttributeError):
        return None


def _checked(result: int, path: str) -> int:
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
