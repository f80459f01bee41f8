"""Publishes a learner's output: overwrites secrets, counts lines, says in the index how far it may be read.

It works from the files: whoever wrote the bytes, and whoever published before and was killed, it goes on where the
index ends. With a tail the last bytes come from there, as the file may show zeros.
"""

from __future__ import annotations

import os
import time

from workbench.learner.journal.output import ENTRY_BYTES, Index, IndexEntry
from workbench.learner.platform import system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.journal.tail import FileTail
    from workbench.learner.scribe.masking import Mask

PUBLISH_SECONDS = 0.010
"""At most one index entry in this time, unless there is much output."""

_CHUNK_BYTES = 1 << 18
_PAGE_BYTES = 4096
"""A write of a killed process ends between pages, if not with its last byte."""

_NEVER = -1e9


class Publisher:
    """One output file with its index, and its tail where its file system may lose writes."""

    def __init__(self, output_path: str, index_path: str, mask: Mask, tail: FileTail | None = None) -> None:
        self._descriptor = os.open(output_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mask = mask
        self._tail = tail
        size = os.fstat(self._descriptor).st_size
        try:
            self.index = Index(index_path, start_us=system.now_us(), output_bytes=size)
        except OSError:
            os.close(self._descriptor)
            raise
        self._scanned = self.index.last.end
        self._newlines = self.index.last.newlines
        self._unchecked = size if mask else 0
        """Up to where a publisher before may have overwritten a part of a secret."""
        self._pending: list[IndexEntry] = []
        self._published_at = _NEVER

    @property
    def end(self) -> int:
        """How far the output is published."""
        return self.index.last.end

    def publish(self, *, final: bool = False) -> bool:
        """Look at what has been printed and publish it, unless that was done just now; return whether it did.

        ``final`` publishes all that is there, a tail that could have become a secret too.

        Raises:
            OSError: the disk takes no more; the same can be tried again.
        """
        while self._scan(final):
            pass
        if not self._pending:
            return False
        now = time.monotonic()
        gathered = self._scanned - self.end
        if not final and gathered < ENTRY_BYTES and now - self._published_at < PUBLISH_SECONDS:
            return False
        self.index.append(self._pending)
        self._pending = []
        self._published_at = now
        return True

    def due_seconds(self) -> float | None:
        """Return after how many seconds there is something to publish; None when nothing waits."""
        if not self._pending:
            return None
        return max(0.0, self._published_at + PUBLISH_SECONDS - time.monotonic())

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes of the output."""
        if self._tail is not None and self._tail.holds(offset):
            return self._tail.read(offset, count)
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        """Give the descriptors back."""
        self.index.close()
        os.close(self._descriptor)

    def _scan(self, final: bool) -> bool:
        """Mask and count the next bytes; return whether there may be more of them."""
        if self._unchecked:
            self._mask_rests()
        size = _CHUNK_BYTES
        while True:
            data = self.read(self._scanned, size)
            settled = self._masked(data, final and len(data) < size) if self._mask else len(data)
            if settled or len(data) < size:
                break
            size *= 2  # a secret longer than a chunk has begun in it
        now_us = system.now_us()
        for start in range(0, settled, ENTRY_BYTES):
            stop = min(start + ENTRY_BYTES, settled)
            self._newlines += data.count(b"\n", start, stop)
            self._note(IndexEntry(self._scanned + stop, now_us, self._newlines))
        self._scanned += settled
        return settled > 0 and len(data) == size

    def _masked(self, data: bytes, final: bool) -> int:
        """Overwrite the secrets in the file; return how many bytes are settled."""
        spans = self._mask.spans(data)
        settled = len(data) if final else self._mask.settled(data, spans)
        for start, end in spans:
            if end <= settled:
                self._overwrite(self._scanned + start, self._scanned + end)
        return settled

    def _overwrite(self, start: int, end: int) -> None:
        # One call a secret: a killed writer leaves it whole or overwritten, but for one that lies on several pages.
        at = start
        while at < end:
            at += os.pwrite(self._descriptor, b"*" * (end - at), at)
        if self._tail is not None:  # last: who is killed before finds the secret there again
            self._tail.overwrite(start, b"*" * (end - start))

    def _mask_rests(self) -> None:
        """Overwrite what is left of secrets that a killed writer has overwritten up to the end of a page."""
        length = self._mask.longest
        for page in range((self._scanned // _PAGE_BYTES + 1) * _PAGE_BYTES, self._unchecked, _PAGE_BYTES):
            if os.pread(self._descriptor, 1, page - 1) == b"*":
                begin = max(self._scanned, page - length)
                rest = self._mask.rest(os.pread(self._descriptor, 3 * length, begin), page - begin)
                if rest is not None:
                    self._overwrite(begin + rest[0], begin + rest[1])
        self._unchecked = 0

    def _note(self, entry: IndexEntry) -> None:
        before = self._pending[-2].end if len(self._pending) > 1 else self.end
        if self._pending and entry.end - before <= ENTRY_BYTES:
            self._pending[-1] = entry
        else:
            self._pending.append(entry)
