"""Copies published output to a descriptor, by the kernel alone where it can."""

from __future__ import annotations

import errno
import os
import select
import sys
from typing import Final

from workbench.logs.journal import JournalReader

_CHUNK: Final = 1 << 20
"""What one call moves at most, so that signals are not kept waiting by a slow reader."""

_UNABLE: Final = frozenset(
    {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTSOCK, errno.EBADF}
)
"""The kernel does not do it for this kind of descriptor (one opened for appending, a terminal, macOS)."""


def copy_published(reader: JournalReader, descriptor: int, offset: int = 0, *, end: int | None = None) -> int:
    """Write the published bytes from an offset on to a descriptor; return the offset behind them.

    Returns when the published end, or ``end``, is reached. A descriptor that does not block is waited for.

    Raises:
        OSError: as the descriptor gives it; BrokenPipeError when its reader is gone.
    """
    published = reader.published()
    stop = published if end is None else min(end, published)
    source = reader.output_file()
    if source < 0:
        return offset
    send = _by_kernel if sys.platform == "linux" else _by_hand
    while offset < stop:
        size = min(_CHUNK, stop - offset)
        try:
            moved = send(descriptor, source, offset, size)
        except BlockingIOError:
            select.select([], [descriptor], [])
            continue
        except OSError as error:
            if send is _by_hand or error.errno not in _UNABLE:
                raise
            send = _by_hand
            continue
        if moved == 0:
            break  # the file is shorter than its index says: a disk that lost its end
        offset += moved
    return offset


def _by_kernel(descriptor: int, source: int, offset: int, size: int) -> int:
    return os.sendfile(descriptor, source, offset, size)


def _by_hand(descriptor: int, source: int, offset: int, size: int) -> int:
    data = os.pread(source, size, offset)
    return os.write(descriptor, data) if data else 0
