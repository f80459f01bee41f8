"""The last bytes of a file in memory: what a file system lost when its mount ended is written again from them.

sshfs and others say of a write that it worked before the server has it. The memory is shared by the guard and its
scribes, so that the next scribe has what a killed one knew.
"""

from __future__ import annotations

import mmap
import struct

_HEADER = struct.Struct("<QQ")
"""Where in the file the bytes end, and how many of them are here."""

OUTPUT_BYTES = 9 << 20
"""As much as sshfs (8 MiB) has under way at most, and what a pipe gives it at once."""

RECORD_BYTES = 1 << 20


class FileTail:
    """The last bytes that one file was given. Memory is taken as they come."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._memory = mmap.mmap(-1, _HEADER.size + capacity)

    @property
    def end(self) -> int:
        """How long the file was made."""
        return int(_HEADER.unpack_from(self._memory)[0])

    @property
    def start(self) -> int:
        """From where on its bytes are here."""
        end, count = _HEADER.unpack_from(self._memory)
        return int(end - count)

    def note(self, offset: int, data: bytes) -> None:
        """Note bytes that the file was given at its end, which may be another one than was known."""
        end, count = _HEADER.unpack_from(self._memory)
        before = count if offset == end else 0
        end = offset + len(data)
        kept = memoryview(data)[-self._capacity :]
        at = (end - len(kept)) % self._capacity
        first = kept[: self._capacity - at]
        # Who is killed in between leaves only what is not overwritten.
        _HEADER.pack_into(self._memory, 0, offset, min(before, self._capacity - len(kept)))
        self._put(at, first)
        self._put(0, kept[len(first) :])
        _HEADER.pack_into(self._memory, 0, end, min(before + len(data), self._capacity))

    def since(self, offset: int) -> bytes:
        """Return the bytes from an offset on, which must not lie before :attr:`start`."""
        count = self.end - offset
        if count <= 0:
            return b""
        at = offset % self._capacity
        first = self._get(at, min(count, self._capacity - at))
        return first + self._get(0, count - len(first))

    def _put(self, at: int, data: memoryview) -> None:
        self._memory[_HEADER.size + at : _HEADER.size + at + len(data)] = bytes(data)

    def _get(self, at: int, count: int) -> bytes:
        return self._memory[_HEADER.size + at : _HEADER.size + at + count]


class JournalTails:
    """The tails of a learner's output, by journal, and of its records."""

    def __init__(self, names: list[str]) -> None:
        self.outputs = {name: FileTail(OUTPUT_BYTES) for name in names}
        self.records = FileTail(RECORD_BYTES)
