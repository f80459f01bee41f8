"""News of journals as frames bring them: a log's bytes are passed on as they come, the rest when all of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from backends.contract.host import Chunk, EarlyBytes
from backends.rpc.client import PendingCall
from workbench.errors import BackendError
from workbench.learner.host.journals import EARLY
from workbench.learner.platform import frames


def read_journal_feed(call: PendingCall, early: EarlyBytes | None) -> Mapping[str, Mapping[str, Chunk]]:
    """Take the answer to a ``follow``: first how much of what comes, then its bytes.

    Args:
        call: the call.
        early: takes what logs have as it comes; None keeps it for the answer.

    Raises:
        PlaceUnreachable: it did not come in time; what ``early`` was given stays good.
    """
    sizes, coming = call.hello(), _CallBytes(call)
    news: dict[str, dict[str, Chunk]] = {}
    for folder, parts in sizes.items():
        for name, (length, offset, end) in parts.items():
            kept: list[memoryview] = []
            reached = offset
            for piece in coming.take(length):
                if early is None or name not in EARLY:
                    kept.append(piece)
                    continue
                early(folder, name, piece, reached)
                reached += len(piece)
            news.setdefault(folder, {})[name] = Chunk(b"".join(kept), reached, end)
    if call.next().kind != frames.RESULT:
        raise BackendError("The place answered follow with something else.")
    return news


class _CallBytes:
    """The bytes of a call, as they come: what ``carrying.Incoming`` gives, without its copies and its credits."""

    def __init__(self, call: PendingCall) -> None:
        self._call = call
        self._left = memoryview(b"")

    def take(self, count: int) -> Iterator[memoryview]:
        """Give so many bytes in pieces."""
        while count:
            if not self._left:
                frame = self._call.next()
                if frame.kind != frames.DATA:
                    raise BackendError("The place answered follow with too little.")
                self._left = memoryview(frame.payload)
            piece, self._left = self._left[:count], self._left[count:]
            count -= len(piece)
            yield piece
