"""What the screens ask to be done (halt a job, remember the view), in a thread of its own.

The thread that draws hands an errand over and goes on; how it went comes back as a message. Errands are done
one after the other, in the order they were given.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from textual.message import Message

from screens.workers.reader import Receiver, post
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.database import Store

CLOSE_SECONDS: Final = 2.0
"""How long the end of the app waits for errands that are still to be done."""


class Done(Message, bubble=False):
    """An errand is over; ``error`` says why it failed, None that it did not."""

    def __init__(self, label: str, said: str, error: FabricError | None) -> None:
        super().__init__()
        self.label = label
        self.said = said
        self.error = error


Work = Callable[[Store], str]
"""Does an errand and says in a sentence what was done (or nothing)."""


class Errands:
    """A queue of errands and the thread that does them."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._queue: queue.SimpleQueue[tuple[Receiver, str, Work] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="errands", daemon=True)

    def start(self) -> None:
        """Begin to do errands."""
        self._thread.start()

    def give(self, receiver: Receiver, label: str, work: Work) -> None:
        """Hand an errand over; ``receiver`` is told by a :class:`Done` how it went."""
        self._queue.put((receiver, label, work))

    def close(self) -> None:
        """Finish what was given, but do not wait for long."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        store: Store | None = None
        while (errand := self._queue.get()) is not None:
            receiver, label, work = errand
            try:
                if store is None:
                    store = Store.open(self.home)
                post(receiver, Done(label, work(store), None))
            except FabricError as error:
                post(receiver, Done(label, "", error))
            except Exception as error:  # a bug of ours must not silence all later errands
                post(
                    receiver, Done(label, "", FabricError(f"{label} failed: {type(error).__name__}: {error}"))
                )
        if store is not None:
            store.close()
