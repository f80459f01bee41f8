"""A process that chooses what a search tries, as the controller sees it: nothing here waits for it.

The user's code runs there, so that one that raises, blocks, prints or dies does the controller no harm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from workbench.clock import elapsed_seconds

SCRIPT: Final = Path(__file__).with_name("searcher_child.py")
LINE_BYTES_MAX: Final = 1 << 20


class SearcherProcess:
    """One process. It is given messages, and answers some of them in their order."""

    def __init__(
        self, python: str, log: Path, messages: Sequence[Mapping[str, Any]], wake: Callable[[], None]
    ) -> None:
        """Start it.

        Args:
            python: the interpreter.
            log: what it prints is written there, instead of what was there.
            messages: all that it has to know, in order.
            wake: called by another thread when there is an answer, and when it has ended.

        Raises:
            OSError: it cannot be started.
        """
        self._wake = wake
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._messages: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self.asked_at = elapsed_seconds()
        """When it was last given something to do, in seconds of :func:`elapsed_seconds`."""
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [python, str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        for message in messages:
            self.send(message)
        for target in (self._write, self._read):
            threading.Thread(target=target, name="searcher", daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Give it a message; that waits for nothing."""
        self.asked_at = elapsed_seconds()
        self._messages.put(message)

    def answers(self) -> list[dict[str, Any]]:
        """Return its answers since the last call; the last one has ``exit`` where it has ended."""
        found = []
        try:
            while True:
                found.append(self._answers.get_nowait())
        except Empty:
            return found

    def end(self) -> None:
        """End it at once."""
        self._messages.put(None)
        self._process.kill()

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            while (message := self._messages.get()) is not None:
                stream.write(json.dumps(message).encode() + b"\n")
                stream.flush()
            stream.close()
        except OSError:
            return  # it has ended, which the other thread sees

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            while line := stream.readline(LINE_BYTES_MAX):
                try:
                    self._answers.put(json.loads(line))
                except ValueError:
                    self._process.kill()  # it has written to a descriptor that is not its own
                    break
                self._wake()
        self._messages.put(None)
        self._answers.put({"exit": self._process.wait()})
        self._wake()


def interpreter(recorded: str, *, is_own: bool) -> str:
    """Return the Python of a searcher: for code of the user's own that of the job, where this machine has it."""
    return recorded if is_own and recorded and os.access(recorded, os.X_OK) else sys.executable
