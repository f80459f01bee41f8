"""Moves the bytes of one pipe into one file, so that whoever is killed in it takes none along."""

from __future__ import annotations

import errno
import os

from workbench.learner.platform import system

_BYTES = 1 << 20
_CANNOT_SPLICE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Pump:
    """A pipe's read end, not blocking, and the output file that its bytes are appended to.

    Where there is no splice (macOS, some network file systems) bytes pass through memory for a moment.
    """

    def __init__(self, pipe: int, output_path: str, published_end: int) -> None:
        self.pipe = pipe
        self.ended = False
        """Whether no process holds the other end any more."""
        self.capacity = system.pipe_capacity(pipe)
        self._output = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Not opened for appending, which splice refuses. A file cut short keeps its offsets.
        os.lseek(self._output, max(os.fstat(self._output).st_size, published_end), os.SEEK_SET)
        self._splices = True
        self._in_hand = b""

    def move(self) -> int:
        """Move what waits, up to a size; return how many bytes that was, 0 when nothing waits.

        Raises:
            OSError: the disk takes no more; the bytes wait in the pipe.
        """
        if self.ended:
            return 0
        try:
            moved = self._move()
        except BlockingIOError:
            return 0
        if not moved:
            self.ended = True
        return moved

    def empty(self) -> None:
        """Move all that waits; what a process prints meanwhile that could not be ended is not waited for.

        Raises:
            OSError: the disk takes no more; the rest waits in the pipe.
        """
        moved = self.move()
        total = moved
        while moved and total <= self.capacity:
            moved = self.move()
            total += moved

    def waiting_bytes(self) -> int:
        """Return how many bytes have been printed and are not in the file."""
        return len(self._in_hand) + (0 if self.ended else system.unread_bytes(self.pipe))

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._output)
        os.close(self.pipe)

    def _move(self) -> int:
        if self._splices:
            try:
                return system.splice(self.pipe, self._output, _BYTES)
            except OSError as error:
                if error.errno not in _CANNOT_SPLICE:
                    raise
                self._splices = False
        return self._copy()

    def _copy(self) -> int:
        if not self._in_hand:
            self._in_hand = os.read(self.pipe, 1 << 16)
        count = len(self._in_hand)
        while self._in_hand:
            self._in_hand = self._in_hand[os.write(self._output, self._in_hand) :]
        return count
