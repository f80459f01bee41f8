"""Detects dead connections: a link can break without an error, and machines that slept wake up to broken ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from backends.rpc.client import FrameClient
from workbench.errors import FabricError

EVERY_SECONDS: Final = 5.0
SILENT_SECONDS: Final = 20.0
"""The connection is closed when not one byte has come for so long after a ping."""

AGENT_FACTOR: Final = 6
"""How much longer the agent waits for a ping before it ends: this machine may be busy, or this process stopped."""

AWOKEN_SECONDS: Final = 3.0
"""The same after this machine has slept: the other end may have closed the connection meanwhile."""

SLEPT_SECONDS: Final = 5.0


class Heartbeat:
    """Pings the agent at intervals, and calls ``give_up`` when no reply comes.

    The agent is promised these pings, so that it ends, too, when none comes any more.

    Args:
        client: the connection.
        give_up: closes it; every call on it then fails.
        every_seconds: the interval between pings.
        silent_seconds: how long it waits for a reply.
    """

    def __init__(
        self,
        client: FrameClient,
        give_up: Callable[[], None],
        *,
        every_seconds: float = EVERY_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._client = client
        self._give_up = give_up
        self._every_seconds = every_seconds
        self._silent_seconds = silent_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="heartbeat")
        self._thread.start()

    def end(self) -> None:
        """Stop pinging."""
        self._ended.set()

    def _work(self) -> None:
        asked_at: float | None = None
        threading.Thread(target=self._promise, daemon=True, name="promise").start()
        slept = _slept_seconds()
        patience = self._silent_seconds
        while not self._ended.wait(min(self._every_seconds, patience)) and not self._client.lost:
            if asked_at is not None and self._client.heard_at < asked_at:
                if time.monotonic() > asked_at + patience:
                    self._give_up()
                    return
            else:
                asked_at, patience = None, self._silent_seconds
            if _slept_seconds() > slept + SLEPT_SECONDS:
                slept = _slept_seconds()
                patience = min(AWOKEN_SECONDS, self._silent_seconds)
                asked_at = None
            if asked_at is None:
                asked_at = time.monotonic()
                # In a thread of its own: on a link that takes nothing any more, sending waits for ever.
                threading.Thread(target=self._ask, daemon=True, name="ping").start()

    def _promise(self) -> None:
        self._notify("expect_pings", {"silent_seconds": AGENT_FACTOR * self._silent_seconds})

    def _ask(self) -> None:
        self._notify("existing", {"paths": []})

    def _notify(self, operation: str, arguments: Mapping[str, Any]) -> None:
        try:
            self._client.notify(operation, arguments)
        except FabricError:
            return  # the connection is lost, and each pending call fails


def _slept_seconds() -> float:
    """Return how long this machine has slept since it was started, as far as it can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return 0.0 if clock is None else time.clock_gettime(clock) - time.monotonic()
