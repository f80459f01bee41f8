"""Bounds the bulk bytes that are on their way, so that a frame which follows them waits for little.

What lies in buffers between two programs (pipes, SSH channels, sockets, routers) is served first come, first served: a
frame waits for every byte before it. So the window holds what the link carries in a round trip on an empty path, and in
a tenth of a second more; both are measured from acknowledgements (as TCP's BBR does). A link of 2 Mbit/s is left with
some 40 KB, a fast one with megabytes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Callable, Deque, Tuple

ACKNOWLEDGED_BYTES = 8 * 1024
"""The other side acknowledges bulk bytes as soon as so many are not acknowledged."""

INITIAL_BYTES = 32 * 1024
MIN_BYTES = 16 * 1024
MAX_BYTES = 8 << 20

QUEUED_SECONDS = 0.1
"""How long what is sent may wait for what was sent before, beyond the time that the path takes."""

PATH_SECONDS = 10.0
"""How long a shortest round trip is believed; then the window is closed for one, to measure the path again."""

INITIAL_RATE = 256 * 1024
_INSTANT_SECONDS = 1e-6
_FRAMES = 8
"""A window holds so many frames, lest each round trip waits for one frame."""


class SendWindow:
    """The window of one direction of a connection. It is wide open until the other side acknowledges."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._turns: Deque[object] = deque()
        self._marks: Deque[Tuple[int, float, int]] = deque()
        """Of frames on their way: where they ended, when they were sent, and what was acknowledged then."""
        self._sent = self._acknowledged = 0
        self._is_paced = self._is_closed = False
        self._limit = INITIAL_BYTES
        self._is_full = False
        """Whether a frame had to wait since the round trip began: only then it tells what the link carries."""
        self._round_ends = 0
        self._round_rate = self._round_seconds = 0.0
        self._path: float = float("inf")
        self._path_at = 0.0
        self._is_measuring = False
        self._rate: float = INITIAL_RATE

    @property
    def is_paced(self) -> bool:
        """Whether the other side acknowledges what it receives."""
        return self._is_paced

    @property
    def limit_bytes(self) -> int:
        """How many bytes may be on their way."""
        return MIN_BYTES if self._is_measuring else self._limit

    @property
    def bytes_per_second(self) -> int:
        """What the link carried when it was last busy."""
        return int(self._rate)

    def frame_bytes(self, most: int) -> int:
        """Return how large the next frame should be, at most so large."""
        return min(most, self.limit_bytes // _FRAMES) if self._is_paced else most

    def pace(self) -> None:
        """Begin to bound what is on its way."""
        self._is_paced = True

    def reserve(self, count: int) -> None:
        """Wait until so many bytes may be sent. Who asks first is served first.

        Raises:
            BrokenPipeError: the connection ended.
        """
        turn = object()
        with self._changed:
            self._turns.append(turn)
            while not self._is_closed and not (self._turns[0] is turn and self._take(count)):
                self._changed.wait()
            self._turns.remove(turn)
            self._changed.notify_all()
            if self._is_closed:
                raise BrokenPipeError("the connection has ended")

    def try_reserve(self, count: int) -> bool:
        """Whether so many bytes may be sent at once; they count as sent then."""
        with self._changed:
            return not self._turns and self._take(count)

    def acknowledge(self, received: int) -> None:
        """Take the other side's count of bulk bytes that it has received."""
        with self._changed:
            self.pace()
            self._acknowledged = received
            mark = None
            while self._marks and self._marks[0][0] <= received:
                mark = self._marks.popleft()
            if mark is not None:
                _, sent_at, acknowledged = mark
                self._measure(self._clock(), sent_at, received - acknowledged)
            self._changed.notify_all()

    def close(self) -> None:
        """End every wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _take(self, count: int) -> bool:
        on_their_way = self._sent - self._acknowledged
        has_room = on_their_way < ACKNOWLEDGED_BYTES or on_their_way + count <= self.limit_bytes
        if self._is_paced and not has_room:
            self._is_full = True
            return False
        self._sent += count
        if self._is_paced:
            self._marks.append((self._sent, self._clock(), self._acknowledged))
        return True

    def _measure(self, now: float, sent_at: float, delivered: int) -> None:
        """Take the round trip of the frame that was acknowledged last, and what arrived in that time."""
        seconds = max(now - sent_at, _INSTANT_SECONDS)
        if self._is_measuring:
            if self._acknowledged > self._round_ends:  # it was sent into the least window
                self._is_measuring, self._path, self._path_at = False, seconds, now
                self._begin_round()
                self._round_ends += self._limit  # what the least window carried says nothing of the link
            return
        if seconds <= self._path:
            self._path, self._path_at = seconds, now
        self._round_rate = max(self._round_rate, delivered / seconds)
        self._round_seconds = max(self._round_seconds, seconds)
        is_old = now > self._path_at + PATH_SECONDS
        if is_old or self._acknowledged >= self._round_ends:
            if self._is_full:
                self._resize()
            self._is_measuring = is_old
            self._begin_round()

    def _resize(self) -> None:
        self._rate = self._round_rate
        target_bytes = self._rate * (self._path + QUEUED_SECONDS)
        if self._round_seconds < self._path + QUEUED_SECONDS / 2:
            target_bytes = 2 * self._limit  # nothing waits for the link: it may carry more
        self._limit = int(min(MAX_BYTES, 2 * self._limit, max(MIN_BYTES, target_bytes)))

    def _begin_round(self) -> None:
        self._round_ends, self._is_full = self._sent, False
        self._round_rate = self._round_seconds = 0.0
