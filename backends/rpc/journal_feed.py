"""Reads the reply to ``follow``: bytes of logs are passed on at once, all else when it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from backends.contract.host import Chunk, EarlyBytes
from backends.rpc.client import PendingCall
from workbench.errors import BackendError
from workbench.learner.host.journals import EARLY
from workbench.learner.platform import frames


def read_journal_feed(call: PendingCall, early: EarlyBytes | None) -> Mapping[str, Mapping[str, Chunk]]:
    """Read the reply to ``follow``: the sizes first, then the bytes.

    Args:
        call: the call.
        early: called with each piece of a log as it arrives; None keeps all for the result.

    Raises:
        BackendUnreachable: the reply did not come in time; what ``early`` was given remains valid.
    """
    sizes, incoming = call.hello(), _CallBytes(call)
    news: dict[str, dict[str, Chunk]] = {}
    for folder, parts in sizes.items():
        for name, (length, offset, end) in parts.items():
            kept: list[memoryview] = []
            reached = offset
            for piece in incoming.take(length):
                if early is None or name not in EARLY:
                    kept.append(piece)
                    continue
                early(folder, name, piece, reached)
                reached += len(piece)
            news.setdefault(folder, {})[name] = Chunk(b"".join(kept), reached, end)
    if call.next().kind != frames.RESULT:
        raise BackendError("The backend sent an invalid answer to follow.")
    return news


class _CallBytes:
    """The bytes of a call as they arrive; like ``streams.Incoming``, without copies and flow control."""

    def __init__(self, call: PendingCall) -> None:
        self._call = call
        self._left = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        """Yield ``count`` bytes in pieces."""
        while count:
            if not self._left:
                frame = self._call.next()
                if frame.kind != frames.DATA:
                    raise BackendError("The backend sent an incomplete answer to follow.")
                self._left = memoryview(frame.payload)
            piece, self._left = self._left[:count], self._left[count:]
            count -= len(piece)
            yield piece
