"""Files that are rewritten each time, read as if they only grew: what they hold becomes lines, one a row."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from workbench.learner.collectors.followed_file import HEAD_BYTES, FollowedFile, Part, Replaced
from workbench.learner.platform import beneath
from workbench.learner.texts import short_hash

FILE_BYTES = 32 << 20
"""A longer file is not read."""

_COST_SHARE = 50
"""Reading a file again takes at most one part in this many of the time."""

Lines = Callable[[bytes], bytes]


class TooLong(OSError):
    """The file is longer than what is read."""


class RewrittenFile(FollowedFile):
    """A file of which each version holds the rows of the one before, and more."""

    def __init__(self, path: str, writable: Tuple[str, ...], lines: Lines) -> None:
        super().__init__(path, writable)
        self._lines_of = lines
        self._lines = b""
        self._loaded: Tuple[Any, ...] = ()
        self._modified_us = 0
        self._begins_as = ""
        self._load_again_at = 0.0
        self.is_late = False
        """Whether there is a newer version that was not read yet, since reading it again and again costs too much."""
        self.is_ending = False
        """Whether it is read at once, whatever it costs."""

    def resume(self, mark: Any) -> None:
        """Expect the rows that were read before a restart."""
        self._begins_as = [*str(mark).split("."), ""][1]

    def mark(self, offset: int) -> Any:
        """Return an offset among the lines for a cursor."""
        digest = _digest(self._lines[:offset]) if self._lines else self._begins_as
        return "%d.%s" % (offset, digest) if offset and digest else offset

    def hold(self) -> None:
        """Keep nothing open: another version is another file."""

    def read(self, offset: int, count_of: Callable[[int], int]) -> Optional[Part]:
        """Return lines that follow an offset."""
        self._load(offset)
        if self._begins_as and offset:
            if self._loaded and _digest(self._lines[:offset]) != self._begins_as:
                raise Replaced("was replaced")
            if self._loaded:
                self._begins_as = ""
        count = count_of(len(self._lines) - offset)
        if count <= 0:
            return None
        return Part(self._lines[offset : offset + count], self._modified_us)

    def forget(self) -> None:
        """Forget what was read: the rows are read from the first."""
        self._begins_as = ""

    def await_change(self) -> None:
        """Do nothing: without a newer version there are no more lines."""

    def newest(self) -> Tuple[str, Tuple[Any, ...], int]:
        """Return path, what tells the version from others, and when it was written; an empty path for none."""
        found = _version(self.path)
        return (self.path, found[0], found[1]) if found else ("", (), 0)

    def _load(self, offset: int) -> None:
        path, version, modified_us = self.newest()
        self.is_late = False
        if not path or version == self._loaded:
            return
        begun = time.monotonic()
        if begun < self._load_again_at and not self.is_ending:
            self.is_late = True
            return
        lines = self.lines_of(path)
        self._load_again_at = time.monotonic() + (time.monotonic() - begun) * _COST_SHARE
        if lines is None:
            return
        if self._loaded and lines[:offset] != self._lines[:offset]:
            self._lines, self._loaded, self._modified_us = lines, version, modified_us
            raise Replaced("was rewritten")
        self._lines, self._loaded, self._modified_us = lines, version, modified_us

    def lines_of(self, path: str) -> Optional[bytes]:
        """Return the lines of a version; None while it is only half written."""
        descriptor = beneath.open_plainly(path, self._writable)
        with open(descriptor, "rb") as file:
            data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise TooLong(0, "it is longer than %d MiB" % (FILE_BYTES >> 20))
        try:
            return self._lines_of(data)
        except ValueError:
            return None


class Versions(RewrittenFile):
    """What is written as a new file each time, in folders beside each other; those that are older are the beginning.

    Hugging Face's Trainer writes the history of its training into each checkpoint. One that is resumed writes the
    history of the checkpoint that it began with again: what older files hold is left out.
    """

    def __init__(self, path: str, writable: Tuple[str, ...], lines: Lines, since_us: int) -> None:
        super().__init__(path, writable, lines)
        self.paths: List[str] = []
        self._since_us = since_us
        self._begun: Optional[List[bytes]] = None

    def newest(self) -> Tuple[str, Tuple[Any, ...], int]:
        """Return the version that was written last, since the learner began."""
        found = [(about, path) for path in self.paths for about in [_version(path)] if about]
        new = [(about, path) for about, path in found if about[1] >= self._since_us]
        if self._begun is None:
            old = [path for about, path in found if about[1] < self._since_us]
            self._begun = sorted(self._earlier(old), key=len, reverse=True)
        if not new:
            return "", (), 0
        about, path = max(new, key=lambda one: (one[0][1], one[1]))
        return path, (path, *about[0]), about[1]

    def lines_of(self, path: str) -> Optional[bytes]:
        """Return the lines of a version but for those that files had before."""
        lines = super().lines_of(path)
        if lines is None:
            return None
        for begun in self._begun or ():
            if lines.startswith(begun):
                return lines[len(begun) :]
        return lines

    def _earlier(self, paths: Sequence[str]) -> List[bytes]:
        found = []
        for path in paths:
            try:
                found.append(super().lines_of(path) or b"")
            except OSError:
                continue
        return found


def _version(path: str) -> Optional[Tuple[Tuple[int, ...], int]]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), status.st_mtime_ns // 1000


def _digest(lines: bytes) -> str:
    return short_hash(lines[:HEAD_BYTES], 4)
