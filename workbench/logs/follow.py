"""The output of a job: of one learner byte for byte, of several by whole lines in the order of their times.

Promised: every published byte comes once; lines of one learner keep their order; a line of one learner never
stands in the middle of another's. Not promised: the order of lines of different learners within 10 ms.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from workbench.logs.x_streams import Dress, Lines, Raw, Source

__all__ = ["Dress", "Source", "Wait", "follow", "labels"]

Wait = Callable[[Sequence[str]], object]
"""Blocks until one of these files changes, or for a moment: ``Watcher(paths).wait``."""


def labels(learners: Sequence[int]) -> list[str]:
    """Return what stands before the lines of each learner: nothing when there is but one."""
    if len(learners) < 2:
        return [""] * len(learners)
    width = max(len(str(learner)) for learner in learners)
    return [f"[{learner}]{' ' * (width - len(str(learner)))} " for learner in learners]


def follow(
    sources: Sequence[Source],
    *,
    dress: Dress | None = None,
    wait: Wait | None = None,
) -> Iterator[bytes]:
    """Yield the output of the learners of one attempt, as it is to be written.

    Args:
        sources: The learners. One alone, undressed, is passed through byte for byte.
        dress: Timestamps and filter.
        wait: Called when nothing is new and somebody has not ended; without it what is there is the end.
    """
    dress = dress or Dress()
    plain = len(sources) == 1 and not sources[0].label and not dress.timestamps and dress.pattern is None
    streams: list[Raw] | list[Lines]
    # Times are read one by one only where they are shown, or decide the order.
    timed = len(sources) > 1 or dress.timestamps
    streams = [Raw(sources[0])] if plain else [Lines(source, dress, timed=timed) for source in sources]
    paths = [str(source.reader.folder.index) for source in sources]
    paths += [str(source.reader.folder.state) for source in sources]
    while True:
        # Asked before reading: what is published before the end is seen is read, too.
        over = wait is None or all(source.over() for source in sources)
        news = False
        for data in _in_order(streams):
            news = True
            yield data
        if over and not news:
            break
        if not news and wait is not None:
            wait(paths)
    for stream in streams:
        if rest := stream.finish():
            yield rest


def _in_order(streams: Sequence[Raw] | Sequence[Lines]) -> Iterator[bytes]:
    if len(streams) == 1:
        return (data for _, data in streams[0].pieces())
    merged = heapq.merge(*(stream.pieces() for stream in streams), key=lambda piece: piece[0])
    return (data for _, data in merged)
