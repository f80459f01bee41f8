"""Asks a place turn after turn for what is new in journals; what came is written down while more is on its way."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from backends.interface import Chunk
from runners.interface import LearnerRef, Runner
from workbench.errors import InputMissing
from workbench.learner.host_journals import FILES

if TYPE_CHECKING:
    from workbench.controller.mirroring import Mirrors

MUCH_BYTES: Final = 256 * 1024
"""From so much on, it is written in a thread of its own; for less, starting one takes longer than writing."""

News = Mapping[LearnerRef, Mapping[str, Chunk]]


class Turns:
    """One asker of a place. Not for several threads."""

    def __init__(self, mirrors: Mirrors, runner: Runner) -> None:
        self._mirrors = mirrors
        self._runner = runner
        self._ahead: dict[LearnerRef, dict[str, int]] = {}
        """How far journals will have come once all is written."""
        self._writing: threading.Thread | None = None
        self._failure: BaseException | None = None

    def turn(self, refs: Iterable[LearnerRef], timeout_seconds: float) -> bool:
        """Ask once for what is new and keep it; return whether there was anything.

        Raises:
            CannotWrite: the disk takes no more, now or since the last turn; what came is asked for again.
            PlaceUnreachable: the place is lost.
        """
        known = {ref: self._ahead.get(ref) or self._mirrors.of(ref).known() for ref in refs}
        news = self._runner.follow(known, timeout_seconds=timeout_seconds)
        self.finish()
        if _size(news) < MUCH_BYTES:
            self._keep(news)
        else:
            self._ahead = {ref: _reached(known[ref], parts) for ref, parts in news.items() if ref in known}
            self._writing = threading.Thread(target=self._write, args=(news,), daemon=True, name="write")
            self._writing.start()
        return bool(news)

    def finish(self) -> None:
        """Wait until all is written that has come.

        Raises:
            CannotWrite: it was not.
        """
        if self._writing is not None:
            self._writing.join()
        self._writing = None
        self._ahead = {}
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _keep(self, news: News) -> None:
        for ref, parts in news.items():
            with contextlib.suppress(InputMissing):  # the job was deleted meanwhile
                self._mirrors.of(ref).take(parts)

    def _write(self, news: News) -> None:
        try:
            self._keep(news)
        except BaseException as error:
            self._failure = error
            with contextlib.suppress(
                Exception
            ):  # the next turn may be waiting for news: it is to try again now
                self._runner.interrupt_follow()


def _size(news: News) -> int:
    return sum(len(part.data) for parts in news.values() for part in parts.values())


def _reached(known: Mapping[str, int], parts: Mapping[str, Chunk]) -> dict[str, int]:
    """Return what will be known once these parts are written."""
    reached = dict(known)
    for name, part in parts.items():
        if name == "state":
            reached[name] = zlib.crc32(part.data)
        elif name in FILES and part.offset <= reached.get(name, 0):
            reached[name] = max(reached.get(name, 0), part.offset + len(part.data))
    return reached
