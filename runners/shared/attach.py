"""Connects an interactive command on a host to this process's terminal: input, output and window size."""

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
    """A command that has been started, to be connected to this process's standard streams."""

    def __init__(self, stream: HostStream, *, terminal: bool) -> None:
        self._stream = stream
        self._terminal = terminal
        self._error: FabricError | None = None

    def wait(self) -> int:
        """Pass input and output on until the command has ended; return its exit code.

        Raises:
            BackendUnreachable: the connection was lost.
        """
        events, notify = os.pipe()
        reader = threading.Thread(target=self._show, args=(notify,), name="output", daemon=True)
        try:
            with raw_terminal(self._terminal), self._resized(notify):
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
                with contextlib.suppress(FabricError):  # the reading thread reports a lost connection
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
            self._stream.close()  # our standard output was closed
        finally:
            os.write(notify, _ENDED)

    @contextlib.contextmanager
    def _resized(self, notify: int) -> Iterator[None]:
        """Send the size of the terminal now and after each change; the signal handler only notifies the loop."""
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
def raw_terminal(terminal: bool) -> Iterator[None]:
    """Put the terminal into raw mode, if there is one."""
    if not (terminal and sys.stdin.isatty()):
        yield
        return
    before = termios.tcgetattr(0)
    # TCSADRAIN keeps what was typed while the connection was opened.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
