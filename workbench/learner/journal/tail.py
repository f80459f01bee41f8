"""The last bytes of a file in memory: what a file system lost when its mount ended is written again from them.

sshfs and others say of a write that it worked before the server has it, and for a moment may show zeros in its stead:
where another process opens the file meanwhile, the kernel drops its page and reads it from the server again, perhaps
before the write is there. So the last output is read from here, too.

The memory is shared by the guard and its scribes, so that the next scribe has what a killed one knew. Nobody else reads
it: another version never does.
"""

from __future__ import annotations

import mmap
import struct

_HEADER = struct.Struct("<QQQQ")
"""Where in the file the bytes end, how many of them are here, how many more are being written, how sure the end is."""

_EXACT = 1
"""How sure it is: the file was given nothing behind the end but what is pending."""

_AT_LEAST = 2
"""The file was given all up to the end, and perhaps more that nobody noted."""

OUTPUT_BYTES = 9 << 20
"""As much as sshfs (8 MiB) has under way at most, and what a pipe gives it at once."""

RECORD_BYTES = 1 << 20


class FileTail:
    """The last bytes that one file was given. Memory is taken as they come."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._memory = mmap.mmap(-1, _HEADER.size + capacity)

    @property
    def end(self) -> int:
        """How long the file was made, at least: see :attr:`is_exact`."""
        return self._header()[0]

    @property
    def start(self) -> int:
        """From where on its bytes are here."""
        end, count, _, _ = self._header()
        return end - count

    @property
    def is_known(self) -> bool:
        """Whether anything was noted: only then ``end`` says anything."""
        return bool(self._header()[3])

    @property
    def is_exact(self) -> bool:
        """Whether the file was given nothing behind ``end``, but what is pending."""
        return self._header()[3] == _EXACT

    @property
    def pending(self) -> bytes:
        """What was being written when the writer was killed: the file may have it or not."""
        end, _, pending, _ = self._header()
        return self._get(end, pending)

    def note(self, offset: int, data: bytes) -> None:
        """Note bytes that the file was given at its end, which may be another one than was known.

        Who is killed between a write and its note has written more than is known: from here on the end is not exact.
        Who is about to give the file bytes that it does not see notes none first.
        """
        kept = memoryview(data)[-self.capacity :]
        self._begin(offset, len(data), _AT_LEAST)
        self._put(offset + len(data) - len(kept), kept)
        end, count, _, _ = self._header()
        self._set(end + len(data), min(count + len(data), self.capacity), 0, _AT_LEAST)

    def expect(self, offset: int, data: bytes) -> None:
        """Note bytes that the file is about to be given, no more than fit here; :meth:`take` tells how many it was."""
        self._begin(offset, len(data), _EXACT)
        self._put(offset, memoryview(data))
        end, count, _, _ = self._header()
        self._set(end, count, len(data), _EXACT)

    def take(self, taken: int) -> None:
        """Note that the file was given so many of the expected bytes, and that the others are not under way."""
        end, count, _, _ = self._header()
        self._set(end + taken, min(count + taken, self.capacity), 0, _EXACT)

    def since(self, offset: int) -> bytes:
        """Return the bytes from an offset on, which must not lie before :attr:`start`."""
        return self._get(offset, max(0, self.end - offset))

    def holds(self, offset: int) -> bool:
        """Return whether all that the file was given from an offset on is here."""
        return self.is_exact and self.start <= offset <= self.end

    def read(self, offset: int, count: int) -> bytes:
        """Return at most so many bytes from an offset on that it :meth:`holds`."""
        return self._get(offset, max(0, min(count, self.end - offset)))

    def overwrite(self, offset: int, data: bytes) -> None:
        """Note that bytes of the file were replaced; what is not here any more is left out."""
        skipped = max(0, self.start - offset)
        self._put(offset + skipped, memoryview(data)[skipped : max(skipped, self.end - offset)])

    def _begin(self, offset: int, length: int, known: int) -> None:
        # Who is killed in between leaves only what is not overwritten.
        end, count, _, _ = self._header()
        self._set(offset, min(count if offset == end else 0, max(0, self.capacity - length)), 0, known)

    def _header(self) -> tuple[int, int, int, int]:
        end, count, pending, known = _HEADER.unpack_from(self._memory)
        return int(end), int(count), int(pending), int(known)

    def _set(self, end: int, count: int, pending: int, known: int) -> None:
        _HEADER.pack_into(self._memory, 0, end, count, pending, known)

    def _put(self, offset: int, data: memoryview) -> None:
        at = _HEADER.size + offset % self.capacity
        first = data[: _HEADER.size + self.capacity - at]
        self._memory[at : at + len(first)] = bytes(first)
        rest = data[len(first) :]
        self._memory[_HEADER.size : _HEADER.size + len(rest)] = bytes(rest)

    def _get(self, offset: int, count: int) -> bytes:
        at = _HEADER.size + offset % self.capacity
        first = self._memory[at : min(at + count, _HEADER.size + self.capacity)]
        return first + self._memory[_HEADER.size : _HEADER.size + count - len(first)]


class JournalTails:
    """The tails of a learner's output, by journal, and of its records."""

    def __init__(self, names: list[str]) -> None:
        self.outputs = {name: FileTail(OUTPUT_BYTES) for name in names}
        self.records = FileTail(RECORD_BYTES)
