"""What the screens write to the store (a request to halt, a tag, what the screens remember), in a worker of its own.

The thread that draws hands a write over; how it went comes back as a message. Writes are done one after the other, in
the order in which they were given: a job that is tagged twice has the later tags.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from textual.message import Message

from screens.workers.background import Receiver, post
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store

CLOSE_SECONDS: Final = 2.0
"""How long the end of the app waits for writes that are still to be done."""


class WriteDone(Message, bubble=False):
    """A write has ended; ``error`` says why it failed."""

    def __init__(self, label: str, text: str, error: FabricError | None) -> None:
        super().__init__()
        self.label = label
        self.text = text
        """What was done, in a sentence; empty when nothing is to be shown."""
        self.error = error


Write = Callable[[Store], str]
"""Writes to the store, and says in a sentence what was done (or nothing)."""


class StoreWriter:
    """A queue of writes, and the loop that does them."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._queue: queue.SimpleQueue[tuple[Receiver, str, Write] | None] = queue.SimpleQueue()
        self._running = threading.Event()
        self._ended = threading.Event()

    def give(self, receiver: Receiver, label: str, write: Write) -> None:
        """Hand a write over; ``receiver`` is sent a :class:`WriteDone`."""
        self._queue.put((receiver, label, write))

    def close(self) -> None:
        """Finish what was given, but do not wait for long."""
        self._queue.put(None)
        if self._running.is_set():
            self._ended.wait(CLOSE_SECONDS)

    def run(self) -> None:
        """Write until it is closed: the loop of a worker."""
        self._running.set()
        store: Store | None = None
        while (given := self._queue.get()) is not None:
            receiver, label, write = given
            try:
                if store is None:
                    store = Store.open(self.home)
                done = WriteDone(label, write(store), None)
            except FabricError as error:
                done = WriteDone(label, "", error)
            except Exception as error:  # a bug of ours must not stop all later writes
                done = WriteDone(label, "", FabricError(f"{label} failed: {type(error).__name__}: {error}"))
            post(receiver, done)
        if store is not None:
            store.close()
        self._ended.set()
