"""Joins a command at a place to our own standard streams: every key goes there, sizes of the terminal too."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Final

from backends.contract.host import HostStream
from workbench.errors import FabricError

_CHUNK_BYTES: Final = 65536
_RESIZED: Final = b"r"
_ENDED: Final = b"e"


class JoinedExec:
    """One command; it has begun when this is made."""

    def __init__(self, stream: HostStream, *, terminal: bool) -> None:
        self._stream = stream
        self._terminal = terminal
        self._error: FabricError | None = None

    def wait(self) -> int:
        """Carry input and output until the command has ended; return its exit code.

        Raises:
            BackendUnreachable: the place was lost meanwhile.
        """
        events, notify = os.pipe()
        reader = threading.Thread(target=self._show, args=(notify,), name="output", daemon=True)
        try:
            with _raw(self._terminal), self._resized(notify):
                reader.start()
                self._carry(events)
            reader.join()
        finally:
            self._stream.close()
            os.close(events)
            os.close(notify)
        if self._error is not None:
            raise self._error
        return self._stream.wait()

    def _carry(self, events: int) -> None:
        """Pass input on until the command has ended."""
        sources = [events, 0]
        while True:
            ready, _, _ = select.select(sources, (), ())
            if events in ready:
                event = os.read(events, _CHUNK_BYTES)
                if _ENDED in event:
                    return
                self._tell_size()
            if 0 in ready:
                data = os.read(0, _CHUNK_BYTES)
                with contextlib.suppress(FabricError):  # the reader tells what became of the place
                    if data:
                        self._stream.write(data)
                    else:
                        self._stream.close_input()
                if not data:
                    sources.remove(0)

    def _show(self, notify: int) -> None:
        try:
            while (part := self._stream.read()) is not None:
                number, data = part
                while data:
                    data = data[os.write(number, data) :]
        except FabricError as error:
            self._error = error
        except OSError:
            self._stream.close()  # nobody reads our output any more
        finally:
            os.write(notify, _ENDED)

    @contextlib.contextmanager
    def _resized(self, notify: int) -> Iterator[None]:
        """Say how large the terminal is, now and whenever that changes: not in the signal's handler itself."""
        if not self._terminal:
            yield
            return
        before = signal.signal(signal.SIGWINCH, lambda *_: os.write(notify, _RESIZED) and None)
        os.write(notify, _RESIZED)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)

    def _tell_size(self) -> None:
        columns, rows = shutil.get_terminal_size()
        with contextlib.suppress(FabricError):  # as above
            self._stream.resize(rows, columns)


@contextlib.contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    """Pass every key on, where we have a terminal."""
    if not (terminal and sys.stdin.isatty()):
        yield
        return
    before = termios.tcgetattr(0)
    # What was typed while we connected is not thrown away.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
