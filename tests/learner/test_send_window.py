"""The window of bulk data on links of all kinds, simulated: little waits before a call, and the link is full."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import pytest

from tests.support.waiting import patience
from workbench.learner.platform.send_window import (
    ACKNOWLEDGED_BYTES,
    INITIAL_BYTES,
    MAX_BYTES,
    MIN_BYTES,
    SendWindow,
)

FRAME_BYTES = 256 * 1024


@dataclass
class Link:
    """A link with a buffer as large as is asked for, and the other side, which acknowledges."""

    bytes_per_second: float
    path_seconds: float
    """What a round trip takes on the empty link."""
    now: float = 0.0
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When a frame was sent, and how long one that follows it would wait for the link."""
    delivered: list[tuple[float, int]] = field(default_factory=list)
    _free_at: float = 0.0
    _acknowledgements: deque[tuple[float, int]] = field(default_factory=deque)
    _sent: int = 0
    _acknowledged: int = 0

    def __post_init__(self) -> None:
        self.window = SendWindow(lambda: self.now)
        self.window.acknowledge(0)

    def flood(self, seconds: float) -> None:
        """Send as much as the window allows for so long."""
        until = self.now + seconds
        while self.now < until:
            while self.window.try_reserve(size := self.window.frame_bytes(FRAME_BYTES)):
                self._send(size)
            self.receive()

    def send_when_there_is_room(self, size: int) -> None:
        """Send one frame."""
        while not self.window.try_reserve(size):
            self.receive()
        self._send(size)

    def _send(self, size: int) -> None:
        self._sent += size
        self._free_at = max(self.now, self._free_at) + size / self.bytes_per_second
        self.waits.append((self.now, self._free_at - self.now))
        self.delivered.append((self._free_at, size))
        if self._sent - self._acknowledged >= ACKNOWLEDGED_BYTES:
            self._acknowledged = self._sent
            self._acknowledgements.append((self._free_at + self.path_seconds, self._sent))

    def receive(self) -> None:
        """Wait for the next acknowledgement."""
        self.now, received = self._acknowledgements.popleft()
        self.window.acknowledge(received)

    def share(self, begin: float, end: float) -> float:
        """How much of what the link can carry it carried in a time."""
        carried = sum(size for at, size in self.delivered if begin <= at < end)
        return carried / (self.bytes_per_second * (end - begin))

    def longest_wait(self, begin: float, end: float) -> float:
        """How long a call would have waited at most for bulk data before it."""
        return max(seconds for at, seconds in self.waits if begin <= at < end)


@pytest.mark.parametrize("path_seconds", [0.001, 0.05, 0.3])
def test_on_a_slow_link_a_call_waits_for_little_and_the_link_is_full(path_seconds: float) -> None:
    link = Link(250_000, path_seconds)
    link.flood(120)

    assert link.longest_wait(0, 120) < path_seconds + 0.35
    assert link.share(5, 120) > 0.9


@pytest.mark.parametrize(("bytes_per_second", "path_seconds"), [(12.5e6, 0.2), (125e6, 0.02), (5e8, 0.0005)])
def test_a_fast_link_is_filled(bytes_per_second: float, path_seconds: float) -> None:
    link = Link(bytes_per_second, path_seconds)
    link.flood(40)

    assert link.share(3, 40) > 0.85
    assert link.longest_wait(0, 40) < path_seconds + 0.35


def test_a_link_that_became_slow_is_left_alone_within_seconds() -> None:
    link = Link(12.5e6, 0.02)
    link.flood(5)
    link.bytes_per_second = 250_000
    link.flood(60)

    assert link.longest_wait(20, 65) < 0.4


def test_a_path_that_became_longer_is_filled_again() -> None:
    link = Link(12.5e6, 0.02)
    link.flood(5)
    link.path_seconds = 0.4
    link.flood(60)

    assert link.share(40, 65) > 0.7


def test_a_large_frame_goes_into_a_small_window_that_is_empty() -> None:
    link = Link(250_000, 0.05)
    link.send_when_there_is_room(ACKNOWLEDGED_BYTES - 1)  # which nobody acknowledges yet
    link.send_when_there_is_room(MAX_BYTES)

    assert link.window.limit_bytes == INITIAL_BYTES


def test_the_window_is_wide_open_to_a_side_that_acknowledges_nothing() -> None:
    window = SendWindow()

    assert all(window.try_reserve(MAX_BYTES) for _ in range(100))
    assert window.frame_bytes(FRAME_BYTES) == FRAME_BYTES


def test_who_waits_goes_on_when_there_is_room_and_when_the_connection_ends() -> None:
    window = SendWindow()
    window.acknowledge(0)
    sent = 0
    while window.try_reserve(MIN_BYTES):
        sent += MIN_BYTES
    came: list[str] = []

    def wait() -> None:
        try:
            window.reserve(MIN_BYTES)
            came.append("room")
        except BrokenPipeError:
            came.append("closed")

    waiting = threading.Thread(target=wait)
    waiting.start()
    window.acknowledge(sent)
    waiting.join(patience())
    assert came == ["room"]

    while window.try_reserve(MIN_BYTES):
        pass
    others = [threading.Thread(target=wait) for _ in range(3)]
    for other in others:
        other.start()
    window.close()
    for other in others:
        other.join(patience())
    assert came == ["room", "closed", "closed", "closed"]
