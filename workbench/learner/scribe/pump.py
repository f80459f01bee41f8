"""Moves the bytes of one pipe into one file, so that whoever is killed in it takes none along."""

from __future__ import annotations

import errno
import os

from workbench.learner.platform import system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.journal.tail import FileTail

_BYTES = 1 << 20
_CANNOT_SPLICE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Pump:
    """A pipe's read end, not blocking, and the output file that its bytes are appended to.

    Where there is no splice (macOS, some network file systems) bytes pass through memory for a moment.

    With a ``tail`` what the file has lost since is written again first, and what is moved is noted there.

    Raises:
        OSError: the disk takes no more, or the file's mount has ended; the bytes wait in the pipe.
    """

    def __init__(self, pipe: int, output_path: str, published_end: int, tail: FileTail | None = None) -> None:
        self.pipe = pipe
        self.ended = False
        """Whether no process holds the other end any more."""
        self.capacity = system.pipe_capacity(pipe)
        self._output = os.open(output_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Not opened for appending, which splice refuses. A file cut short keeps its offsets.
        self._offset = max(os.fstat(self._output).st_size, published_end)
        self._splices = self._tees = True
        self._in_hand = b""
        self._tail = tail
        self._copies: tuple[int, int] | None = None
        self.lost_bytes = 0
        """How much the file had lost that could not be written again: zeros stand there."""
        try:
            if tail is not None and tail.is_known:
                self._restore(tail, published_end)
            os.lseek(self._output, self._offset, os.SEEK_SET)
        except OSError:
            os.close(self._output)
            raise

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
        for end in self._copies or ():
            os.close(end)

    def _restore(self, tail: FileTail, published_end: int) -> None:
        """Write again what the file was given and may not have; it keeps its offsets.

        That is all that is not published, whatever its size says: the server may have got the rest a moment ago, and
        the kernel still know zeros there. What the file has behind that still waits in the pipe: the server got it from
        a write that failed here, as its mount had ended.
        """
        if tail.pending:
            tail.take(self._taken_from_pipe(tail.pending))
        start = max(published_end, tail.start)
        if tail.end > published_end:
            self.lost_bytes = max(0, start - self._offset)
        data, at = memoryview(tail.since(start)), start
        while data:
            written = os.pwrite(self._output, data, at)
            data, at = data[written:], at + written
        if not tail.is_exact:
            self._offset = max(at, self._offset)  # what the file has behind was given to it unseen
            return
        self._offset = max(tail.end, published_end)
        if os.fstat(self._output).st_size != self._offset:
            os.ftruncate(self._output, self._offset)

    def _taken_from_pipe(self, pending: bytes) -> int:
        """Return how many of these bytes the pipe has no more, which began with them when they were to be moved.

        Who is killed while they are moved leaves no other trace.
        """
        try:
            waiting = memoryview(self._copy_of_what_waits())
        except BlockingIOError:
            return len(pending)
        data, count = memoryview(pending), len(pending)
        for taken in range(max(0, count - system.unread_bytes(self.pipe)), count):
            length = min(count - taken, len(waiting))
            if data[taken : taken + length] == waiting[:length]:
                return taken
        return count

    def _move(self) -> int:
        if self._tail is not None and self._tees:
            # A copy first: what is moved is not seen, and the file system may lose it.
            data = self._copy_of_what_waits()
            if self._tees:
                return self._move_seen(data) if data else 0
        self._note(b"")  # before: whoever is killed in what follows has moved more than was noted
        if self._splices:
            try:
                moved = system.splice(self.pipe, self._output, _BYTES)
            except OSError as error:
                if error.errno not in _CANNOT_SPLICE:
                    raise
                self._splices = False
            else:
                self._offset += moved
                self._note(b"")
                return moved
        return self._copy()

    def _move_seen(self, data: bytes) -> int:
        """Move what waits and is known; whoever is killed in it takes none along here either."""
        assert self._tail is not None
        self._tail.expect(self._offset, data)
        moved = 0
        if self._splices:
            try:
                moved = system.splice(self.pipe, self._output, len(data))
            except OSError as error:
                if error.errno not in _CANNOT_SPLICE:
                    raise
                self._splices = False
        if not self._splices:
            moved = os.write(self._output, data)
            os.read(self.pipe, moved)
        self._tail.take(moved)
        self._offset += moved
        return moved

    def _copy_of_what_waits(self) -> bytes:
        """Return what waits in the pipe, from which it is not taken; nothing at its end.

        Raises:
            BlockingIOError: nothing waits.
        """
        most = _BYTES if self._tail is None else min(_BYTES, self._tail.capacity)
        if self._copies is None:
            self._copies = os.pipe()
            system.enlarged(self._copies[1], self.capacity)
        try:
            count = system.tee(self.pipe, self._copies[1], most)
        except BlockingIOError:
            raise
        except OSError:
            self._tees = False
            return b""
        parts = []
        while count:
            parts.append(os.read(self._copies[0], count))
            count -= len(parts[-1])
        return b"".join(parts)

    def _note(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.note(self._offset, data)
        self._offset += len(data)

    def _copy(self) -> int:
        if not self._in_hand:
            self._in_hand = os.read(self.pipe, 1 << 16)
        count = len(self._in_hand)
        while self._in_hand:
            written = os.write(self._output, self._in_hand)
            self._note(self._in_hand[:written])
            self._in_hand = self._in_hand[written:]
        return count
